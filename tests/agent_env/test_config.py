import ast
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from agent_env import config
from agent_env.config import Settings, host_id, load_settings
from agent_env.errors import ConfigError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without settings."""
    for name in [name for name in os.environ if name.startswith("EPISODES_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home/config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home/state"))
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """An empty working directory."""
    path = tmp_path / "project"
    path.mkdir()
    return path


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refused(project: Path, environ: dict[str, str] | None = None, **overrides: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load_settings(overrides, environ=environ or {}, cwd=project)
    return str(caught.value)


def test_every_setting_has_a_default(home: Path, project: Path) -> None:
    settings, sources = load_settings(environ={}, cwd=project)

    assert settings.state_dir == home / "state/durable-episodes"
    assert settings.database_url == f"sqlite:///{settings.state_dir}/episodes.sqlite"
    assert settings.max_episodes == max(8, 4 * (os.cpu_count() or 1))
    assert settings.host is None
    assert (settings.host_lost_after_s, settings.cancel_grace_s) == (60, 30)
    assert settings.graceful_shutdown_s == 10
    assert sources == dict.fromkeys(Settings.model_fields, "default")


def test_each_layer_comes_before_the_one_below_it(home: Path, project: Path) -> None:
    values = [f"{name}_s = {{}}" for name in ("host_lost_after", "cancel_grace")]
    user = put(
        home / "config/durable-episodes/episodes.toml",
        "\n".join([*(line.format(1) for line in values), "graceful_shutdown_s = 1", 'host = "u"']),
    )
    ours = put(project / "episodes.toml", "\n".join(line.format(2) for line in values))
    environ = {"EPISODES_CANCEL_GRACE_S": "3", "EPISODES_HOST_LOST_AFTER_S": "3"}

    settings, sources = load_settings(
        {"host_lost_after_s": 4, "host": None}, environ=environ, cwd=project
    )

    assert (settings.host_lost_after_s, settings.cancel_grace_s) == (4, 3)
    assert (settings.graceful_shutdown_s, settings.host) == (1, "u")
    assert sources == {
        **dict.fromkeys(Settings.model_fields, "default"),
        "host_lost_after_s": "option",
        "cancel_grace_s": "EPISODES_CANCEL_GRACE_S",
        "graceful_shutdown_s": str(user),
        "host": str(user),
    }
    assert load_settings(environ={}, cwd=project).sources["cancel_grace_s"] == str(ours)


def test_the_projects_file_is_found_from_below(project: Path) -> None:
    put(project / "episodes.toml", "max_episodes = 3")
    (project / "deep/er").mkdir(parents=True)

    assert load_settings(environ={}, cwd=project / "deep/er").settings.max_episodes == 3


def test_the_environment_and_folder_of_the_process_are_used(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(project / "episodes.toml", "max_episodes = 3")
    monkeypatch.chdir(project)
    monkeypatch.setenv("EPISODES_HOST", "here")

    settings = load_settings().settings

    assert (settings.max_episodes, settings.host) == (3, "here")


def test_folders_start_where_they_are_named_or_at_home(home: Path, project: Path) -> None:
    put(project / "episodes.toml", 'state_dir = "state"\ndatabase = "file:url"')
    put(project / "url", "postgresql://u:p@h/d\n")
    below = project / "below"
    below.mkdir()

    from_file = load_settings(environ={}, cwd=below).settings
    from_option = load_settings({"state_dir": "mine"}, environ={}, cwd=below).settings

    assert from_file.state_dir == project / "state"
    assert from_file.database_url == "postgresql://u:p@h/d"
    assert from_option.state_dir == below / "mine"
    assert Settings(state_dir=Path("~/mine")).state_dir == home / "mine"


def test_an_empty_variable_counts_as_not_set(project: Path) -> None:
    settings, sources = load_settings(environ={"EPISODES_HOST": ""}, cwd=project)

    assert settings.host is None
    assert sources["host"] == "default"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("MAX_EPISODES", "0", "max_episodes (from EPISODES_MAX_EPISODES): input should be greater"),
        ("MAX_EPISODES", "x", "max_episodes (from EPISODES_MAX_EPISODES): input should be a valid"),
        ("CANCEL_GRACE_S", "nan", "(from EPISODES_CANCEL_GRACE_S): input should be a finite"),
        ("HOST", "a\nb", "host (from EPISODES_HOST): an id must not contain control characters"),
        ("STATEDIR", "x", "'EPISODES_STATEDIR': did you mean 'EPISODES_STATE_DIR'? Known: EPIS"),
    ],
)
def test_a_variable_that_can_not_be_used_is_named(
    project: Path, name: str, value: str, says: str
) -> None:
    assert says in refused(project, {f"EPISODES_{name}": value})


def test_variables_of_others_are_left_alone(project: Path) -> None:
    environ = {"EPISODES_TEST_POSTGRES": "x", "TEMPORAL_ADDRESS": "x", "episodes_x": "x"}

    assert (
        load_settings(environ=environ, cwd=project).settings
        == load_settings(environ={}, cwd=project).settings
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("max_episode = 3", "unknown setting 'max_episode': did you mean 'max_episodes'?"),
        ("max_episodes = ", "is not TOML"),
        ("cancel_grace_s = nan", "cancel_grace_s: a number must be finite"),
        ('database = "postgresql://u:secret@h/d"', "database: holds a password; put the URL into"),
        ('database = "postgresql://h/d?password=secret"', "database: holds a password"),
    ],
)
def test_a_file_that_can_not_be_used_is_named(project: Path, text: str, says: str) -> None:
    path = put(project / "episodes.toml", text)

    said = refused(project)

    assert said.startswith(f"{path}: ")
    assert says in said
    assert "secret" not in said


def test_a_value_that_can_not_be_used_is_named_with_where_it_came_from(project: Path) -> None:
    path = put(project / "episodes.toml", "max_episodes = []\ndatabase = 3\nhost_lost_after_s = 0")

    assert "unknown setting 'hosts': did you mean 'host'?" in refused(project, hosts="x")
    assert [line.partition("):")[0] for line in refused(project).splitlines()] == [
        f"database (from {path}",
        f"max_episodes (from {path}",
        f"host_lost_after_s (from {path}",
    ]


@pytest.mark.parametrize(
    "text", ['database = "postgresql://h/d"', 'database = "env:URL"', 'database = "not a url"']
)
def test_a_database_without_a_password_may_stand_in_a_file(project: Path, text: str) -> None:
    path = put(project / "episodes.toml", text)

    assert load_settings(environ={}, cwd=project).sources["database"] == str(path)


def test_a_database_is_found_through_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(database="env:DATABASE_FOR_TEST")

    with pytest.raises(ConfigError, match="the variable DATABASE_FOR_TEST is not set"):
        _ = settings.database_url
    monkeypatch.setenv("DATABASE_FOR_TEST", "postgresql://u:p@h/d")

    assert settings.database_url == "postgresql://u:p@h/d"


def test_a_database_in_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"database: .*/gone can't be read"):
        _ = Settings(database=f"file:{tmp_path}/gone").database_url


def test_what_is_no_url_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match=r"^(?!.*secret).*is not an SQLAlchemy URL"):
        _ = Settings(database="u:secret@h").database_url


@pytest.mark.parametrize(
    ("database", "shown"),
    [
        ("postgresql://u:secret@h/d", "postgresql://u:***@h/d"),
        (
            "postgresql://u@h/d?sslPassword=secret&a=b",
            "postgresql://u@h/d?a=b&sslPassword=%2A%2A%2A",
        ),
        ("env:URL", "env:URL"),
        ("file:/run/secrets/url", "file:/run/secrets/url"),
        (None, "sqlite:////s/episodes.sqlite"),
    ],
)
def test_secrets_are_masked(database: str | None, shown: str) -> None:
    settings = Settings(state_dir=Path("/s"), database=database)

    assert settings.masked()["database"] == shown
    assert settings.masked()["state_dir"] == "/s"
    assert "secret@" not in repr(settings)
    assert set(settings.masked()) == set(Settings.model_fields)


def test_a_host_keeps_its_name(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "new/state")

    name = host_id(settings)

    assert host_id(settings) == name
    assert (tmp_path / "new/state/host").read_text(encoding="utf-8") == name
    assert host_id(Settings(state_dir=tmp_path / "other")) != name
    assert [path.name for path in (tmp_path / "new/state").iterdir()] == ["host"]


def test_a_host_that_is_named_has_that_name_and_keeps_none(tmp_path: Path) -> None:
    assert host_id(Settings(state_dir=tmp_path / "s", host="mine")) == "mine"
    assert not (tmp_path / "s").exists()


def test_processes_that_ask_at_once_get_the_same_name(tmp_path: Path) -> None:
    code = (  # waits at the start for the others
        "import sys; from pathlib import Path; from agent_env.config import Settings, host_id\n"
        "sys.stdout.write('ready\\n'); sys.stdout.flush(); sys.stdin.readline()\n"
        f"sys.stdout.write(host_id(Settings(state_dir=Path({str(tmp_path / 's')!r}))))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    pipes = [(p.stdin, p.stdout) for p in processes if p.stdin is not None and p.stdout is not None]
    assert [out.readline() for _, out in pipes] == ["ready\n"] * len(processes)

    for go, _ in pipes:
        go.write("go\n")
        go.flush()
    names = {process.communicate(timeout=30)[0] for process in processes}

    assert names == {host_id(Settings(state_dir=tmp_path / "s"))}


@pytest.mark.parametrize("content", ["", "a\nb", "x" * 500])
def test_a_damaged_name_is_said_and_not_used(tmp_path: Path, content: str) -> None:
    put(tmp_path / "host", content)

    with pytest.raises(ConfigError, match=r"holds no host name: .*; remove the file"):
        host_id(Settings(state_dir=tmp_path))


def test_a_state_folder_that_can_not_be_written_is_named(tmp_path: Path) -> None:
    put(tmp_path / "file", "in the way")

    with pytest.raises(ConfigError, match="name another folder with EPISODES_STATE_DIR"):
        host_id(Settings(state_dir=tmp_path / "file"))


def test_every_setting_says_what_it_is() -> None:
    tree = ast.parse(Path(config.__file__).read_text(encoding="utf-8"))
    (body,) = (n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Settings")

    explained = {
        node.target.id
        for node, text in pairwise(body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and isinstance(text, ast.Expr)
    }
    assert explained == set(Settings.model_fields)


def test_a_token_does_not_stand_in_a_file(project: Path) -> None:
    put(project / "episodes.toml", 'explorer_token = "a-long-random-word"')

    said = refused(project)

    assert "explorer_token: is a secret; put it into a variable" in said
    assert "a-long-random-word" not in said


def test_a_token_is_followed_and_masked(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(project / "token", "a-long-random-word\n")
    put(project / "episodes.toml", 'explorer_token = "file:token"')

    by_file, _ = load_settings(environ={}, cwd=project)
    by_variable, _ = load_settings(environ={"EPISODES_EXPLORER_TOKEN": "another-word"}, cwd=project)

    assert by_file.token == "a-long-random-word"
    assert by_file.masked()["explorer_token"] == f"file:{project}/token"
    assert by_variable.token == "another-word"
    assert by_variable.masked()["explorer_token"] == "***"
    assert "another-word" not in repr(by_variable)
    assert Settings().token is None
    monkeypatch.delenv("NO_SUCH_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="explorer_token: the variable NO_SUCH_TOKEN is not set"):
        _ = Settings(explorer_token="env:NO_SUCH_TOKEN").token


def test_the_address_of_temporals_ui_is_a_web_address(project: Path) -> None:
    for address in ("javascript:alert(1)", "localhost:8233", "https://a b"):
        assert "temporal_ui" in refused(project, {"EPISODES_TEMPORAL_UI": address})
