"""agent_env/cli/doctor.py and _checks.py."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent_env.cli import _checks
from agent_env.cli._checks import Check, Verdict
from agent_env.config import Settings
from tests.agent_env.cli.stage import Cli, Said


def test_a_bare_machine_is_ready_and_stays_bare(cli: Cli, say: Callable[..., Said]) -> None:
    said = say("doctor", "--json")

    found = {item["name"]: item for item in said.json["items"]}
    assert said.code == 0
    assert set(found) == {
        "versions",
        "server program",
        "Temporal",
        "state folder",
        "run index",
        "isolation",
        "package names",
        "extras",
        "explorer",
    }
    assert all(item["verdict"] in ("ok", "warn") for item in found.values())
    assert "none runs" in found["Temporal"]["detail"]
    assert "made at first use" in found["run index"]["detail"]
    assert "local: installed" in found["extras"]["detail"]
    assert not cli.state_dir.exists()


def test_a_machine_that_serves_answers(server: Cli) -> None:
    said = server.run("doctor", "--json")

    found = {item["name"]: item for item in said.json["items"]}
    assert said.code == 0
    assert found["Temporal"]["detail"].endswith(" answers")
    assert found["run index"]["detail"].startswith("sqlite:///")


def test_a_temporal_server_that_is_away_is_a_failure_with_a_cure(
    say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")

    said = say("doctor")

    assert said.code == 1
    assert "✕ fail  Temporal" in said.out
    assert "  cure: start it, or set TEMPORAL_ADDRESS" in said.out


def test_a_database_that_is_none_is_a_failure(cli: Cli, say: Callable[..., Said]) -> None:
    cli.state_dir.mkdir()
    (cli.state_dir / "episodes.sqlite").write_text("this is no database " * 100)

    said = say("doctor", "--json")

    (item,) = [item for item in said.json["items"] if item["name"] == "run index"]
    assert (said.code, item["verdict"]) == (1, "fail")


def test_a_schema_of_another_version_is_a_failure(cli: Cli, say: Callable[..., Said]) -> None:
    say("db", "upgrade")
    with sqlite3.connect(cli.state_dir / "episodes.sqlite") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'newer'")
    connection.close()

    said = say("doctor", "--json")

    (item,) = [item for item in said.json["items"] if item["name"] == "run index"]
    assert (said.code, item["verdict"]) == (1, "fail")
    assert "newer" in item["detail"]


def test_a_state_folder_that_can_not_be_written_is_a_failure() -> None:
    (check,) = _checks.state_folder(Settings(state_dir=Path("/proc/none")))

    assert check.verdict is Verdict.FAIL
    assert check.cure == "name another one with EPISODES_STATE_DIR"


def test_little_room_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_checks, "_LITTLE_DISK_BYTES", 2**80)

    (check,) = _checks.state_folder(Settings(state_dir=tmp_path / "not" / "yet"))

    assert check.verdict is Verdict.WARN
    assert check.cure


def test_a_check_that_breaks_has_failed_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(settings: Settings) -> Iterator[Check]:
        raise ZeroDivisionError("oh")
        yield

    monkeypatch.setattr(_checks, "isolation", broken)

    found = {check.name: check for check in _checks.all_checks(Settings(state_dir=tmp_path))}

    assert found["broken"].verdict is Verdict.FAIL
    assert found["broken"].detail == "ZeroDivisionError: oh"
    assert "extras" in found
