"""A run index in a database of its own, and short ways to say what goes into it."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from agent_env.outcome import Outcome
from agent_env.results import StepReport
from agent_env.runs import Finished, GroupRecord, NewRun, RunIndex, RunRecord
from agent_env.runs._database import Database
from agent_env.runs.schema import upgrade
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus, StepStatus
from tests.postgres import PostgresServer

T0 = datetime(2026, 1, 31, 9, 30, 5, 123456, tzinfo=UTC)


def seconds(count: float) -> timedelta:
    return timedelta(seconds=count)


def new_run(run_id: str = "run-1", **changes: Any) -> NewRun:
    """A run of workflow ``w-<run_id>``."""
    values: dict[str, Any] = {
        "run_id": run_id,
        "task_id": "task",
        "task_version": "1",
        "steps_total": 2,
        "created_at": T0,
        "namespace": "default",
        "workflow_run_id": f"w-{run_id}",
    }
    return NewRun(**{**values, **changes})


def opened(index: RunIndex, run_id: str = "run-1", *, room: int = 100) -> RunRecord:
    return index.open_run(new_run(run_id), host="here", room=room, at=T0)


def report(step_id: str = "a", **changes: Any) -> StepReport:
    """A step that passed."""
    values: dict[str, Any] = {
        "step_id": step_id,
        "type": "run_code",
        "epoch": 1,
        "status": StepStatus.COMPLETED,
        "started_at": T0,
        "finished_at": T0 + seconds(1),
    }
    return StepReport(**{**values, **changes})


def finished(
    run: NewRun | None = None,
    status: RunStatus = RunStatus.COMPLETED,
    *,
    epoch: int = 1,
    reports: tuple[StepReport, ...] = (),
    **outcome: Any,
) -> Finished:
    return Finished(
        run=run or new_run(),
        epoch=epoch,
        outcome=Outcome(status=status, **outcome),
        reports=reports,
    )


def new_group(run_group_id: str = "grp", size: int = 3, **changes: Any) -> GroupRecord:
    values: dict[str, Any] = {
        "run_group_id": run_group_id,
        "task_id": "task",
        "created_at": T0,
        "size": size,
        "figures": GroupFigures(n=size, queued=size),
    }
    return GroupRecord(**{**values, **changes})


def new_members(run_group_id: str = "grp", size: int = 3, **changes: Any) -> list[NewRun]:
    """Members as a group lists them: no workflow yet."""
    return [
        new_run(
            f"{run_group_id}-{index:04d}",
            **{"workflow_run_id": None, "run_group_id": run_group_id, "member_index": index}
            | changes,
        )
        for index in range(size)
    ]


@pytest.fixture(params=["sqlite", "postgresql"])
def kind(request: pytest.FixtureRequest) -> str:
    """Each database that an index can be kept in."""
    return request.param


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """Of a database where nobody has opened an index yet."""
    if kind == "sqlite":
        yield f"sqlite:///{tmp_path}/index.sqlite"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        with postgres.database() as url:
            yield url


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty index to be copied: that is faster than to migrate."""
    path = tmp_path_factory.mktemp("migrated") / "index.sqlite"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_template(postgres_of_the_session: PostgresServer) -> Generator[str]:
    """The name of an empty index to be copied."""
    with postgres_of_the_session.database() as url:
        upgrade(url)
        yield str(make_url(url).database)


@pytest.fixture
def migrated_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """Of an index that holds nothing."""
    if kind == "sqlite":
        path = tmp_path / "migrated.sqlite"
        path.write_bytes(request.getfixturevalue("migrated_file").read_bytes())
        yield f"sqlite:///{path}"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        template: str = request.getfixturevalue("migrated_template")
        with postgres.database(template=template) as url:
            yield url


@pytest.fixture
def database(migrated_url: str) -> Generator[Database]:
    """With empty tables. Every connection must have come back at the end."""
    found = Database(migrated_url)
    yield found
    assert found.checked_out == 0
    found.close()


@pytest.fixture
def index(database: Database) -> RunIndex:
    return RunIndex(database)
