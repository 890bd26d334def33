"""The command line, in this process against an index and in processes of its own."""

import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from agent_env.cli import main
from agent_env.runs import RunIndex
from tests.agent_env.cli.stage import Cli, Said


@pytest.fixture(autouse=True)
def bare_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No setting of the machine that the tests run on counts."""
    for name in list(os.environ):
        if name.startswith(("EPISODES_", "TEMPORAL_", "NO_COLOR", "FORCE_COLOR", "TTY_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "state")


@pytest.fixture
def say(cli: Cli, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process."""

    def said(*args: str) -> Said:
        code = main(["--state-dir", str(cli.state_dir), *args])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return said


@pytest.fixture
def index(cli: Cli) -> Generator[RunIndex]:
    """The index that the commands read."""
    cli.state_dir.mkdir(exist_ok=True)
    index = RunIndex.open(cli.database_url)
    yield index
    index.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Cli]:
    """A state folder that ``episodes up`` serves, in a process of its own."""
    cli = Cli(tmp_path_factory.mktemp("served"))
    with cli.start("up", ready="serving") as up:
        yield cli
        up.interrupt(signal.SIGTERM)
        assert up.ended().code == 0
