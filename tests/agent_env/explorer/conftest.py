"""An explorer over a small index, asked as a browser asks; no Temporal server answers."""

from collections.abc import AsyncGenerator, Callable, Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import create_engine, insert

from agent_env.artifacts import ArtifactStore
from agent_env.errors import UnavailableError
from agent_env.explorer.app import ExplorerServices, create_app
from agent_env.explorer.security import Access
from agent_env.outcome import Outcome
from agent_env.results import StepReport
from agent_env.runs import Finished, GroupRecord, NewRun, RunIndex
from agent_env.runs.tables import messages
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus, StepStatus

T0 = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
ADDRESS = "http://127.0.0.1:8321"
CHANGE = {"x-episodes": "explorer"}


def new_run(run_id: str, **changes: Any) -> NewRun:
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


def report(step_id: str = "play", **changes: Any) -> StepReport:
    values: dict[str, Any] = {
        "step_id": step_id,
        "type": "run_code",
        "epoch": 1,
        "status": StepStatus.COMPLETED,
        "started_at": T0,
        "finished_at": T0 + timedelta(seconds=1),
    }
    return StepReport(**{**values, **changes})


def running(index: RunIndex, run_id: str, **changes: Any) -> None:
    index.open_run(new_run(run_id, **changes), host="here", room=1000, at=T0)


def ended(
    index: RunIndex,
    run_id: str,
    status: RunStatus = RunStatus.COMPLETED,
    *,
    reports: tuple[StepReport, ...] = (),
    run: NewRun | None = None,
    **outcome: Any,
) -> None:
    found = Finished(
        run=run or new_run(run_id),
        epoch=1,
        outcome=Outcome(status=status, **outcome),
        reports=reports,
    )
    index.finish_run(found, at=T0 + timedelta(seconds=5))


def say(index: RunIndex, run_id: str, *texts: str, first: int = 0) -> None:
    """Record what an agent said in its only step, from this place on."""
    rows = [
        {
            "run_id": run_id, "epoch": 1, "step_id": "solver", "seq": seq,
            "message": {"role": "assistant", "content": text},
        }
        for seq, text in enumerate(texts, first)
    ]  # fmt: skip
    engine = create_engine(f"sqlite:///{index.reads.database}")
    with engine.begin() as connection:
        connection.execute(insert(messages), rows)
    engine.dispose()


def group(index: RunIndex, run_group_id: str, size: int, **changes: Any) -> None:
    record = GroupRecord(
        run_group_id=run_group_id,
        task_id="task",
        created_at=T0,
        size=size,
        figures=GroupFigures(n=size, queued=size),
    )
    members = [
        new_run(
            f"{run_group_id}-{number:04d}",
            workflow_run_id=None,
            run_group_id=run_group_id,
            member_index=number,
            **changes,
        )
        for number in range(size)
    ]
    index.open_group(record, members)


@pytest.fixture
def index(tmp_path: Path) -> Generator[RunIndex]:
    found = RunIndex.open(f"sqlite:///{tmp_path}/index.sqlite")
    yield found
    found.close()


async def nowhere() -> NoReturn:
    raise UnavailableError("no Temporal server runs here")


MakeApp = Callable[..., FastAPI]


@pytest.fixture
def make_app(index: RunIndex, tmp_path: Path) -> MakeApp:
    def made(access: Access | None = None, **changes: Any) -> FastAPI:
        values: dict[str, Any] = {
            "index": index,
            "connect": nowhere,
            "store": ArtifactStore(tmp_path / "artifacts"),
            "access": access or Access(token=None),
            "user": "ana",
        }
        return create_app(ExplorerServices(**{**values, **changes}))

    return made


def browser_of(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url=ADDRESS)


@pytest.fixture
async def browser(make_app: MakeApp) -> AsyncGenerator[httpx.AsyncClient]:
    async with browser_of(make_app()) as found:
        yield found
