"""With the run index in PostgreSQL every command works, and none shows its password."""

import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from agent_env.cli import main
from agent_env.runs._database import Database
from agent_env.runs.schema import HEAD, migrate_to
from tests.agent_env.cli.stage import BOX, PASSES, Cli, Said, task_file
from tests.postgres import PASSWORD, PostgresServer


@pytest.fixture
def url(postgres: PostgresServer) -> Generator[str]:
    with postgres.database() as url:
        yield url


@pytest.fixture
def say(
    cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> "Say":
    """Run a command in this process, on a database."""
    return Say(cli.state_dir, url, monkeypatch, capsys)


class Say:
    def __init__(
        self,
        state_dir: Path,
        url: str,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        self._capsys = capsys
        monkeypatch.setenv("EPISODES_STATE_DIR", str(state_dir))
        monkeypatch.setenv("EPISODES_DATABASE", url)

    def __call__(self, *args: str) -> Said:
        code = main(args)
        out, err = self._capsys.readouterr()
        said = Said(code, out, err)
        tells_no_secret(said)
        return said


def tells_no_secret(said: Said) -> None:
    for secret in (PASSWORD, "hunter"):
        assert secret not in said.out + said.err


def test_up_sets_it_up_plays_and_shows_no_password(cli: Cli, url: str, tmp_path: Path) -> None:
    far = Cli(cli.state_dir, {"EPISODES_DATABASE": url})

    with far.start("up", ready="serving") as up:
        played = far.run("run", task_file(tmp_path, "good", BOX, PASSES), "-n", "2", "--json")
        listed = far.run("list", "--json")
        up.interrupt(signal.SIGTERM)
        upped = up.ended()

    for said in (played, listed, upped):
        assert said.code == 0, said.err
        tells_no_secret(said)
    assert [run["status"] for run in listed.json["items"]] == ["COMPLETED"] * 2
    assert not (cli.state_dir / "episodes.sqlite").exists()


def test_a_worker_shows_no_password_while_its_database_is_away(
    server: Cli, cli: Cli, postgres: PostgresServer, url: str
) -> None:
    address = server.run("doctor", "--json").json["items"][2]["detail"].removesuffix(" answers")
    far = Cli(cli.state_dir, {"TEMPORAL_ADDRESS": address, "EPISODES_DATABASE": url})

    with far.start("worker", ready="serving on host") as worker:
        postgres.kill()
        # The janitor or the reconciler is the first to miss it.
        asked = far.run("list")
        postgres.start()
        worker.interrupt(signal.SIGTERM)
        said = worker.ended()

    assert (asked.code, said.code) == (5, 0)
    assert "episodes:***@127.0.0.1" in asked.err
    tells_no_secret(asked)
    tells_no_secret(said)


@pytest.mark.parametrize("options", [(), ("--json",), ("--debug",)])
@pytest.mark.parametrize(
    "command", [("config",), ("doctor",), ("db", "upgrade"), ("list",), ("groups",), ("reconcile",)]
)
def test_no_command_shows_the_password(
    say: Say, command: tuple[str, ...], options: tuple[str, ...]
) -> None:
    say(*command, *options)


@pytest.mark.parametrize("options", [(), ("--json",), ("--debug",)])
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((PASSWORD, "hunter3"), 5),
        ((f":{PASSWORD}@", ":hunter@2@"), 2),
        (("@127.0.0.1:", ":hunter@127.0.0.1:hunter"), 2),
        (("postgresql+psycopg", "postgresql+nobody"), 2),
    ],
)
def test_no_refusal_shows_the_password(
    say: Say,
    url: str,
    change: tuple[str, str],
    code: int,
    options: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EPISODES_DATABASE", url.replace(*change))

    for command in (["list"], ["db", "upgrade"], ["up"]):
        assert say(*command, *options).code == code


def test_the_settings_and_the_doctor_say_which_database_it_is(say: Say) -> None:
    settings, looked = say("config", "--json"), say("doctor", "--json")

    shown = next(item for item in settings.json["items"] if item["name"] == "database")
    index = next(item for item in looked.json["items"] if item["name"] == "run index")
    assert shown["value"].startswith("postgresql+psycopg://episodes:***@127.0.0.1:")
    assert (index["verdict"], index["detail"]) == (
        "ok",
        f"{shown['value']}, empty, made at first use",
    )


def test_an_older_schema_is_told_and_upgraded_once(say: Say, url: str) -> None:
    database = Database(url)
    database.write(migrate_to, "0001")
    database.close()

    refused = [say("list", "--json"), say("up", "--json"), say("doctor", "--json")]
    first, again = say("db", "upgrade", "--json"), say("db", "upgrade", "--json")

    assert [said.code for said in refused] == [2, 2, 1]
    for said in refused:
        assert f"has schema 0001, and this code needs {HEAD}; run `episodes db upgrade`" in said.out
    assert (first.json["changed"], first.json["detail"]) == (True, f"from 0001 to {HEAD}")
    assert (again.json["changed"], again.json["detail"]) == (False, f"is at {HEAD}")
    assert say("list").code == 0


def test_a_newer_schema_is_told_by_every_command(say: Say, url: str) -> None:
    say("db", "upgrade")
    database = Database(url)
    database.write(lambda c: c.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'"))
    database.close()

    for command in (["list"], ["up"], ["db", "upgrade"]):
        said = say(*command)
        assert said.code == 2
        assert f"has schema 9999, newer than the {HEAD} of this code; upgrade" in said.err
