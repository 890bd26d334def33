"""A segment whose worker stopped or died, and the attempt that comes after it."""

import asyncio
from pathlib import Path

import pytest

from agent_env.outcome import outcome
from agent_env.results import StepReport
from agent_env.specs import StepProgress
from agent_env.status import RunStatus, StepStatus
from agent_env.steps import StepContext, StepResult
from agent_env.testing.steps import (
    Act,
    deploys,
    hangs,
    succeeds,
    waits,
)
from tests.agent_env.steps.stage import Stage, by_id, statuses

COMPLETED, FAILED = StepStatus.COMPLETED, StepStatus.FAILED
CANCELED, SKIPPED = StepStatus.CANCELED, StepStatus.SKIPPED


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def counting(ran: list[str]) -> Act:
    async def act(ctx: StepContext) -> StepResult:
        ran.append(ctx.step_id)
        return StepResult()

    return act


# -- the worker stops


async def test_canceling_the_call_stops_the_steps_and_reports_none_of_them(stage: Stage) -> None:
    ended: list[str] = []

    async def notes(ctx: StepContext) -> StepResult:
        try:
            return await hangs()(ctx)
        finally:
            ended.append(ctx.step_id)

    task = stage.task({"done": succeeds(), "a": notes, "b": notes}, b={"depends_on": ["done"]})
    running = asyncio.create_task(stage.run(task))
    await stage.until_at_work("a", "b")

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert sorted(ended) == ["a", "b"]
    assert [report.step_id for report in stage.words[-1].reports] == ["done"]
    assert set(stage.words[-1].running) == {"a", "b"}
    assert stage.work_left() == []


async def test_a_later_attempt_finishes_what_a_stopped_worker_left(stage: Stage) -> None:
    ran: list[str] = []
    let_go = asyncio.Event()
    task = stage.task({"first": counting(ran), "held": waits(let_go), "last": counting(ran)})
    running = asyncio.create_task(stage.run(task))
    await stage.until_at_work("held")
    running.cancel()
    await asyncio.wait([running])
    let_go.set()
    stage.runner = stage.new_runner()

    done = await stage.run(task, earlier=stage.words[-1])

    assert set(statuses(done).values()) == {COMPLETED}
    assert ran == ["first", "last"]


# -- an earlier attempt was cut off


async def test_reports_of_an_earlier_attempt_stand_and_are_said_again_at_once(
    stage: Stage,
) -> None:
    ran: list[str] = []
    task = stage.task({"a": counting(ran), "b": counting(ran), "c": counting(ran)})
    first = StepReport(
        step_id="a", type="a", epoch=1, status=COMPLETED, output="first time", score=0.5
    )
    earlier = StepProgress(reports=(first,), running=("b",))

    done = await stage.run(task, earlier=earlier)

    assert ran == ["b", "c"]
    assert by_id(done)["a"] == first
    assert (stage.words[0].reports, stage.words[0].running) == ((first,), ("b",))


async def test_a_failure_of_an_earlier_attempt_still_stops_what_it_stops(stage: Stage) -> None:
    ran: list[str] = []
    task = stage.task(
        {"bad": counting(ran), "beside": counting(ran), "never": counting(ran)},
        beside={"depends_on": []},
    )
    failed = StepReport(step_id="bad", type="bad", epoch=1, status=FAILED, error_type="ValueError")
    earlier = StepProgress(reports=(failed,), running=("beside",))

    done = await stage.run(task, earlier=earlier)

    assert statuses(done) == {"bad": FAILED, "beside": CANCELED, "never": SKIPPED}
    assert ran == []


async def test_a_report_of_an_older_epoch_is_ignored(stage: Stage) -> None:
    ran: list[str] = []
    task = stage.task({"a": counting(ran)})
    old = StepReport(step_id="a", type="a", epoch=1, status=FAILED, error_type="ValueError")

    done = await stage.run(stage.order(task, epoch=2), earlier=StepProgress(reports=(old,)))

    assert [(report.epoch, report.status) for report in done.reports] == [(2, COMPLETED)]
    assert ran == ["a"]


async def test_a_step_that_must_not_run_again_fails_when_it_was_cut_off(stage: Stage) -> None:
    ran: list[str] = []
    task = stage.task({"once": counting(ran), "later": counting(ran)}, once={"rerun": False})

    done = await stage.run(task, earlier=StepProgress(running=("once",)))

    assert statuses(done) == {"once": FAILED, "later": SKIPPED}
    assert by_id(done)["once"].error_type == "StepInterrupted"
    assert ran == []


async def test_a_step_that_is_stopped_before_it_did_anything_does_nothing(stage: Stage) -> None:
    ran: list[str] = []
    task = stage.task(
        {"quick": counting(ran), "once": counting(ran)},
        once={"rerun": False, "depends_on": []},
    )

    done = await stage.run(task, earlier=StepProgress(running=("once",)))

    assert statuses(done) == {"once": FAILED, "quick": CANCELED}
    assert ran == []


async def test_a_step_that_must_not_run_again_is_known_even_if_no_heartbeat_told(
    stage: Stage,
) -> None:
    ran: list[str] = []
    task = stage.task(
        {"once": deploys("box", then=hangs()), "after": counting(ran)},
        once={"rerun": False, "fail_task_on_error": False},
    )
    running = asyncio.create_task(stage.run(task))
    await stage.until_at_work("once")
    running.cancel()
    await asyncio.wait([running])
    stage.runner = stage.new_runner()

    done = await stage.run(task, earlier=None)

    assert by_id(done)["once"].error_type == "StepInterrupted"
    assert by_id(done)["after"].status is COMPLETED
    assert outcome(task, done.reports).status is RunStatus.FAILED
    assert stage.provider.made == 1


async def test_a_step_that_must_not_run_again_runs_once_in_each_epoch(stage: Stage) -> None:
    ran: list[str] = []
    task = stage.task({"once": counting(ran)}, once={"rerun": False})

    first = await stage.run(stage.order(task, epoch=1))
    second = await stage.run(stage.order(task, epoch=2))

    assert [first.reports[0].status, second.reports[0].status] == [COMPLETED] * 2
    assert ran == ["once", "once"]


async def test_cleaning_removes_what_is_left_of_a_run(stage: Stage) -> None:
    await stage.run(stage.task({"once": succeeds()}, once={"rerun": False}))
    work = stage.folder / "work"
    assert {path.suffix for path in work.glob("*/*")} == {".started", ".kept"}

    await stage.runner.clean("run/1")

    assert [*work.iterdir()] == []


# -- an attempt was killed before a heartbeat told how its steps had ended


async def test_what_had_ended_stands_though_no_heartbeat_told(stage: Stage) -> None:
    ran: list[str] = []

    async def fails(ctx: StepContext) -> StepResult:
        ran.append(ctx.step_id)
        raise ValueError("as it must")

    task = stage.task(
        {"good": succeeds(0.5), "bad": fails, "held": hangs(), "last": counting(ran)},
        bad={"fail_task_on_error": False},
    )
    first = asyncio.create_task(stage.run(task))
    await stage.until_at_work("held")
    first.cancel()
    await asyncio.wait([first])
    told = stage.words[-1].reports
    stage.types["held"] = stage.types["last"]
    stage.runner = stage.new_runner()

    done = await stage.run(task, earlier=None)

    assert [report.step_id for report in done.reports] == ["good", "bad", "held", "last"]
    assert done.reports[:2] == told
    assert [report.status for report in told] == [COMPLETED, FAILED]
    assert ran == ["bad", "held", "last"]


async def test_what_another_execution_has_left_under_the_same_id_is_not_this_ones(
    stage: Stage,
) -> None:
    ran: list[str] = []
    task = stage.task({"a": counting(ran)})
    await stage.run(task)

    await stage.run(task, execution="another")
    await stage.run(stage.order(task, epoch=2))
    await stage.run(task)

    assert ran == ["a", "a", "a"]


async def test_of_what_was_cut_off_while_it_was_kept_nothing_stands_but_all_else(
    stage: Stage,
) -> None:
    ran: list[str] = []
    task = stage.task({"a": counting(ran), "b": counting(ran)})
    await stage.run(task)
    (kept,) = stage.folder.rglob("*.kept")
    kept.write_bytes(kept.read_bytes()[:-9])

    await stage.run(task)
    await stage.run(task)

    assert ran == ["a", "b", "b"]


async def test_a_disk_that_takes_nothing_keeps_no_step_from_ending(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    task = stage.task({"a": succeeds()})
    (stage.folder / "work").write_text("no folder", encoding="utf-8")

    done = await stage.run(task)

    assert statuses(done) == {"a": COMPLETED}
    assert "step 'a' of run/1 is not kept" in caplog.text
    assert stage.runner.kept("run/1", execution="execution", epoch=1) == ()
