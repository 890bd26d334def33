"""The page on clusters is true: the files it shows are read as it says, its commands exist."""

import re
import subprocess
from pathlib import Path

import pytest
from temporalio.envconfig import ClientConfigProfile

from agent_env.config import load_settings
from tests.pages import HOW_TO, ROOT, blocks, text_of

PAGE = HOW_TO / "cluster.md"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder where all has been typed that the page says to type."""
    script = "".join(block.text for block in blocks(PAGE) if block.language == "sh")
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=tmp_path, check=True)
    return tmp_path


def environ(folder: Path) -> dict[str, str]:
    lines = (folder / "episodes.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_every_variable_of_the_environment_file_is_a_setting(made: Path) -> None:
    settings = load_settings(environ=environ(made), cwd=made).settings

    assert str(settings.state_dir) == "/var/lib/episodes"
    assert settings.database == "file:/etc/episodes/database-url"
    assert (settings.max_episodes, settings.host_lost_after_s) == (16, 60)


def test_temporals_own_reader_takes_both_profiles(made: Path) -> None:
    found = {
        name: ClientConfigProfile.load(
            profile=name, config_source=made / "temporal.toml", override_env_vars={}
        )
        for name in ("cluster", "cloud")
    }

    assert environ(made)["TEMPORAL_PROFILE"] in found
    assert found["cluster"].namespace == "training"
    assert found["cluster"].tls is not None
    assert str(found["cluster"].tls.client_cert).endswith("client.pem")
    assert found["cloud"].api_key is not None
    assert (made / "temporal.toml").stat().st_mode & 0o077 == 0


def test_make_does_what_the_page_says_it_does() -> None:
    page, makefile = text_of(PAGE), (ROOT / "Makefile").read_text(encoding="utf-8")

    for target, says in re.findall(r"^make (\w+) +# (.*)$", page, re.MULTILINE):
        _, found, recipe = makefile.partition(f"\n{target}: ")
        assert found
        if says.startswith("docker"):
            assert f"\n\t{says}\n" in recipe
    for port in re.findall(r"http://127\.0\.0\.1:(\d+)", page):
        assert f'"127.0.0.1:{port}:8080"' in (ROOT / "docker-compose.yml").read_text()
