"""A run index whose file is moved is unavailable, and is the same one when it is back."""

import sqlite3
from pathlib import Path

import pytest

from agent_env.errors import IndexUnavailableError
from agent_env.runs import RunIndex
from tests.agent_env.runs.conftest import opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a folder? with 100% of #signs" / "index.sqlite"


@pytest.fixture
def url(path: Path) -> str:
    path.parent.mkdir()
    return f"sqlite:///{str(path).replace('%', '%25').replace('?', '%3F')}"


@pytest.fixture
def away(tmp_path: Path) -> Path:
    return tmp_path / "away.sqlite"


def test_while_it_is_away_nothing_is_written_and_no_file_is_made(
    path: Path, url: str, away: Path
) -> None:
    index = RunIndex.open(url)
    opened(index, "before")

    path.rename(away)
    for _ in range(3):
        with pytest.raises(IndexUnavailableError, match="the file was not moved"):
            opened(index, "while away")
    made = path.exists()
    away.rename(path)
    opened(index, "after")

    assert not made
    assert index.get("before").run_id == "before"
    assert index.get("after").run_id == "after"
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT count(*) FROM runs").fetchone() == (2,)
        assert other.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    other.close()
    index.close()


def test_another_process_makes_no_new_one_beside_the_journal_of_one_that_is_away(
    path: Path, url: str, away: Path
) -> None:
    index = RunIndex.open(url)
    opened(index, "before")
    path.rename(away)

    with pytest.raises(IndexUnavailableError, match="the file was not moved"):
        RunIndex.open(url)

    assert not path.exists()
    away.rename(path)
    assert index.get("before").run_id == "before"
    index.close()


def test_one_that_takes_its_place_is_used_from_then_on(
    path: Path, url: str, tmp_path: Path
) -> None:
    restored = tmp_path / "restored.sqlite"
    other = RunIndex.open(f"sqlite:///{restored}")
    opened(other, "restored")
    other.close()
    index = RunIndex.open(url)
    opened(index, "lost")
    index.close()

    index = RunIndex.open(url)
    restored.replace(path)

    assert index.get("restored").run_id == "restored"
    index.close()
