"""activities/_successes.py: what may end with its last segment, and what is left to `finish`."""

import asyncio
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from activities._successes import Successes
from agent_env.artifacts import ArtifactStore
from agent_env.errors import IndexUnavailableError
from agent_env.plan import PlannedStep, Segment
from agent_env.results import SandboxRef, StepReport
from agent_env.runs import NewRun, RunIndex
from agent_env.runs._database import Database
from agent_env.runs.schema import prepare
from agent_env.sandboxes import Providers, SandboxSpec
from agent_env.specs import Ending, RunSteps, StepsDone
from agent_env.status import RunStatus, StepStatus
from agent_env.steps import StepContext, StepResult, Steps
from agent_env.steps.runner import SegmentRunner
from agent_env.task import StepSpec
from agent_env.testing.fakes import FakeSandboxProvider
from agent_env.testing.steps import step_of

NOW = datetime(2026, 1, 31, tzinfo=UTC)
ENDING = Ending(workflow_run_id="w", steps=("first", "last"), reward="last")
FIRST = StepReport(
    step_id="first",
    type="x",
    epoch=1,
    status=StepStatus.COMPLETED,
    started_at=NOW - timedelta(seconds=1),
)
ORDER = RunSteps(
    run_id="run",
    task_id="task",
    artifacts={},
    seed={},
    epoch=1,
    segment=Segment(steps=(PlannedStep(spec=StepSpec(id="last", type="x")),)),
    reports=(FIRST,),
    steps_total=2,
    ending=ENDING,
)


class Stage:
    """One host with a run that has a sandbox, and has played its last segment.

    Attributes:
        done: How the segment ended.
        ran: How often its step ran.
    """

    done: StepsDone

    def __init__(self, folder: Path, database: Database) -> None:
        self.index = RunIndex(database)
        self.provider = FakeSandboxProvider()
        self.providers = Providers(folder, {"fake": self.provider})
        self.ran = 0
        self.runner = SegmentRunner(
            steps=Steps({"x": step_of(self._act)}),
            providers=self.providers,
            store=ArtifactStore(folder / "artifacts"),
            work_root=folder / "work",
            cancel_grace=timedelta(seconds=1),
            now=lambda: NOW,
        )
        self.left = folder / "work"
        self.is_workflow_open = True

    async def begin(self) -> None:
        run = NewRun(
            run_id="run",
            task_id="task",
            task_version="1",
            steps_total=2,
            created_at=NOW,
            namespace="default",
            workflow_run_id="w",
        )
        self.index.open_run(run, host="here", room=1, at=NOW)
        await self.provider.create(SandboxSpec(name="box", type="fake"), owner="run", key="k")
        self.done = await self.play()

    async def _act(self, _: StepContext) -> StepResult:
        self.ran += 1
        return StepResult(score=0.5)

    @property
    def successes(self) -> Successes:
        return Successes(
            self.index,
            self.providers,
            self.runner,
            is_open=self.is_open,
            host="here",
            now=lambda: NOW,
        )

    async def ended_before(self, **changes: Any) -> StepsDone | None:
        return await self.successes.ended_before(ORDER, ENDING.model_copy(update=changes))

    async def ended(self, done: StepsDone | None = None, **changes: Any) -> StepsDone:
        order = ORDER.model_copy(update=changes)
        return await self.successes.ended(order, ENDING, done or self.done, execution="w")

    async def play(self) -> StepsDone:
        """The last segment, as a worker does that has just started."""
        return await self.runner.run(
            ORDER,
            execution="w",
            earlier=None,
            on_change=lambda _: None,
            interrupt=asyncio.Event(),
        )

    async def is_open(self) -> bool:
        return self.is_workflow_open

    @property
    def status(self) -> RunStatus:
        return self.index.get("run").status


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    database = Database(f"sqlite:///{tmp_path}/index.sqlite")
    prepare(database, migrate=True)
    stage = Stage(tmp_path, database)
    await stage.begin()
    return stage


@pytest.fixture(autouse=True)
def closed(stage: Stage) -> Generator[None]:
    yield
    stage.index.close()


async def test_a_success_is_torn_down_and_written_with_its_score(stage: Stage) -> None:
    done = await stage.ended()

    assert done.outcome is not None
    assert done.ended == stage.index.get("run").result()
    assert (stage.status, done.ended and done.ended.reward) == (RunStatus.COMPLETED, 0.5)
    assert [step.step_id for step in stage.index.steps("run")] == ["first", "last"]
    assert stage.provider.live == []
    assert [*stage.left.iterdir()] == []


@pytest.mark.parametrize("status", [StepStatus.FAILED, StepStatus.CANCELED, StepStatus.SKIPPED])
async def test_anything_else_is_for_the_workflow_to_decide(
    stage: Stage, status: StepStatus
) -> None:
    (last,) = stage.done.reports
    not_done = StepsDone(reports=(last.model_copy(update={"status": status}),))

    assert await stage.ended(not_done) == not_done
    assert stage.status is RunStatus.RUNNING
    assert len(stage.provider.live) == 1


async def test_what_is_still_up_leaves_the_end_to_finish_and_the_outcome_stands(
    stage: Stage,
) -> None:
    stage.provider.fail_destroy_times = 100

    done = await stage.ended()

    assert done.outcome is not None
    assert done.outcome.status is RunStatus.COMPLETED
    assert (done.ended, stage.status) == (None, RunStatus.RUNNING)


async def test_so_does_teardown_that_takes_long(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(stage.provider, "destroy", never)

    async with asyncio.timeout(30):
        done = await stage.ended()

    assert done.outcome is not None
    assert (done.ended, stage.status) == (None, RunStatus.RUNNING)


async def test_so_does_a_workflow_that_was_terminated_while_teardown_took_a_moment(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    destroy = stage.provider.destroy

    async def slow(ref: SandboxRef) -> None:
        await asyncio.sleep(0.2)
        await destroy(ref)

    monkeypatch.setattr(stage.provider, "destroy", slow)
    stage.is_workflow_open = False

    done = await stage.ended()

    assert stage.provider.live == []
    assert (done.ended, stage.status) == (None, RunStatus.RUNNING)


async def test_so_does_an_index_that_is_down(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object, **__: object) -> None:
        raise IndexUnavailableError("it is down")

    with monkeypatch.context() as patched:
        patched.setattr(stage.index, "succeed_run", down)
        done = await stage.ended()

    assert done.outcome is not None
    assert (done.ended, stage.status) == (None, RunStatus.RUNNING)


async def test_a_host_that_was_lost_can_not_end_what_has_begun_elsewhere(stage: Stage) -> None:
    stage.index.requeue_run("run", epoch=2)
    stage.index.begin_run("run", host="there", room=1, epoch=2, at=NOW)

    done = await stage.ended()

    assert (done.ended, stage.status) == (None, RunStatus.RUNNING)
    assert stage.index.get("run").host == "there"


async def test_who_comes_after_a_death_in_teardown_finds_how_the_steps_ended(
    stage: Stage,
) -> None:
    await stage.providers.destroy_owned("run")

    again = await stage.play()

    assert again == stage.done
    assert stage.ran == 1
    assert (await stage.ended(again)).ended is not None
    assert stage.runner.kept("run", execution="w", epoch=1) == ()


async def test_nothing_is_torn_down_while_a_death_would_have_the_steps_run_again(
    stage: Stage,
) -> None:
    for kept in stage.left.rglob("*.kept"):
        kept.unlink()

    done = await stage.ended()

    assert done.outcome is not None
    assert (done.ended, stage.status) == (None, RunStatus.RUNNING)
    assert len(stage.provider.live) == 1


async def test_who_comes_after_a_death_behind_the_row_answers_with_it_and_runs_nothing(
    stage: Stage,
) -> None:
    assert await stage.ended_before() is None
    first = await stage.ended()

    assert await stage.ended_before() == first
    assert await stage.ended_before(workflow_run_id="another") is None


async def test_while_the_index_is_down_nobody_knows_of_an_end_before(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.ended()

    def down(_: str) -> None:
        raise IndexUnavailableError("it is down")

    with monkeypatch.context() as patched:
        patched.setattr(stage.index, "get", down)
        assert await stage.ended_before() is None


async def test_ending_it_again_answers_with_the_end_that_was_written(stage: Stage) -> None:
    first = await stage.ended()

    assert (await stage.ended(await stage.play())).ended == first.ended
