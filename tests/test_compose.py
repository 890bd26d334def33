"""docker-compose.yml, Dockerfile and .env.example say what the code says: nothing is stale."""

import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
from temporalio.envconfig import ClientConfigProfile

from agent_env.cli._root import root
from agent_env.config import ENV_PREFIX, Settings, load_settings
from agent_env.worker import Services
from tests.compose import FILE, ROOT, SECRETS, ours, services, variables
from tests.postgres import VERSION

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
STATE_DIR = "/var/lib/episodes"


@pytest.fixture(params=sorted(ours()))
def service(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each service that runs our image."""
    return ours()[request.param]


def config(folder: Path, environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """What Debian's docker-compose makes of the file."""
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("needs-docker-compose")
    shutil.copy(FILE, folder)
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}
    return subprocess.run(
        [program, "config"],
        cwd=folder,
        env={**kept, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def test_docker_compose_takes_the_file(tmp_path: Path) -> None:
    done = config(tmp_path, SECRETS)

    assert (done.returncode, done.stderr) == (0, "")
    for name in services():
        assert f"  {name}:\n" in done.stdout


@pytest.mark.parametrize("missing", sorted(SECRETS))
def test_without_a_secret_it_says_what_to_do(missing: str, tmp_path: Path) -> None:
    done = config(tmp_path, {**SECRETS, missing: ""})

    assert done.returncode != 0
    assert "copy .env.example to .env and fill it in" in done.stderr


def test_the_example_has_every_variable_and_no_value() -> None:
    text = (ROOT / ".env.example").read_text(encoding="utf-8")

    assert dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE)) == dict.fromkeys(variables(), "")
    assert variables() == set(SECRETS)
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert ".env" in ignored


def test_no_secret_is_in_the_file() -> None:
    text = FILE.read_text(encoding="utf-8")

    for name, value in re.findall(r"^\s+(\w*(?:PASSWORD|PWD|TOKEN|SECRET)\w*): (.*)$", text, re.M):
        assert value.startswith("${"), name
    assert not re.search(r"://[^/\s]*:[^/\s]*@", text)


def test_a_command_of_the_file_is_one_that_there_is(service: dict[str, Any]) -> None:
    command: click.Command = root
    words = list(service["command"])
    context = click.Context(root)
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, words
        command, words = found, words[1:]

    command.make_context("episodes", words)


def test_every_variable_of_the_file_is_one_that_is_read(service: dict[str, Any]) -> None:
    environ: dict[str, str] = service["environment"]
    ours_alone = {name: value for name, value in environ.items() if name.startswith(ENV_PREFIX)}
    profile = ClientConfigProfile.load(override_env_vars=environ)

    settings = load_settings(environ=environ, cwd=Path("/")).settings

    assert {name.removeprefix(ENV_PREFIX).lower() for name in ours_alone} <= set(
        Settings.model_fields
    )
    assert (profile.address, profile.namespace) == ("temporal:7233", "default")
    assert settings.database_url == "postgresql+psycopg://episodes@postgres:5432/episodes"
    assert environ["PGPASSWORD"] == SECRETS["POSTGRES_PASSWORD"]
    others = {"PGPASSWORD", "TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE"}
    assert set(environ) - set(ours_alone) == others


def test_what_is_kept_lies_on_a_volume(service: dict[str, Any]) -> None:
    environ: dict[str, str] = service["environment"]

    assert environ["EPISODES_STATE_DIR"] == STATE_DIR
    if service["command"] != ["db", "upgrade"]:
        assert STATE_DIR in service["volumes"]


def test_workers_share_what_is_published_and_nothing_else() -> None:
    folder = Settings(state_dir=Path(STATE_DIR)).state_dir / "artifacts"

    named = [volume for volume in ours()["worker"]["volumes"] if ":" in volume]

    assert named == [f"artifacts:{folder}"]
    assert "store" in Services.__dataclass_fields__


def test_an_address_of_another_service_is_one_that_it_listens_on() -> None:
    found = services()
    text = FILE.read_text(encoding="utf-8")

    published = {
        name: [port.split(":") for port in each.get("ports", [])] for name, each in found.items()
    }
    for name, ports in published.items():
        for address, _, inside in ports:
            assert address == "127.0.0.1", name
            assert inside.isdecimal()
    for host, port in re.findall(r"(?:@|ADDRESS: )(postgres|temporal):(\d+)", text):
        assert port in [inside for _, _, inside in published[host]]
    words = found["explorer"]["command"]
    assert words[words.index("--port") + 1] == published["explorer"][0][2]
    assert words[words.index("--host") + 1] == "0.0.0.0"


def test_who_waits_for_whom_can_be_waited_for() -> None:
    found = services()

    for name, each in found.items():
        for other, how in each.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in found[other], f"{name} waits for {other}"
            else:
                assert how["condition"] == "service_completed_successfully"
                assert found[other].get("restart", "no") == "no", f"{name} waits for {other}"
    for name in ("worker", "explorer"):
        assert {"migrate", "temporal-namespace"} <= set(found[name]["depends_on"])


def test_services_have_no_more_rights_than_they_need() -> None:
    for name, each in services().items():
        assert each["cap_drop"] == ["ALL"], name
        # These two write their own configuration as they start.
        assert each.get("read_only") is True or name in {"temporal", "temporal-ui"}, name
        assert each.get("privileged") is None, name
    assert [name for name, each in services().items() if "security_opt" in each] == ["worker"]


def test_images_are_pinned_and_the_database_is_the_one_of_the_tests() -> None:
    images = [each["image"] for each in services().values() if each["image"] != "durable-episodes"]
    images += re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)

    for image in images:
        assert re.search(r":\d+\.\d+", image), image
    assert services()["postgres"]["image"].startswith(f"postgres:{VERSION}.")


def test_the_image_is_built_from_what_there_is() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    locked = (ROOT / "requirements/run.txt").read_text(encoding="utf-8")

    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in shlex.split(line)[:-1]
    ]
    for source in copied:
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, source
    assert {"agent_env", "workflows", "activities"} <= set(copied)
    for needed in ("psycopg-binary==", "fastapi==", "temporalio=="):
        assert f"\n{needed}" in locked
    assert 'ENTRYPOINT ["episodes"]' in DOCKERFILE
    assert "episodes" in project["scripts"]
    assert f"EPISODES_STATE_DIR={STATE_DIR}" in DOCKERFILE
    assert re.search(r"^USER (?!root)", DOCKERFILE, re.MULTILINE)


def test_a_worker_may_drain_before_it_is_killed() -> None:
    given = int(ours()["worker"]["stop_grace_period"].removesuffix("s"))

    assert given >= Settings().graceful_shutdown_s + 15
