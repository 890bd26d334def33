import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent_env.errors import SandboxUnavailableError
from agent_env.results import SandboxRef
from agent_env.status import StepStatus
from agent_env.steps import StepContext, StepResult
from agent_env.testing.steps import (
    Act,
    blocks,
    deploys,
    fails,
    hangs,
    step_of,
    succeeds,
    swallows,
    waits,
)
from tests.agent_env.steps.stage import PATIENCE_S, Stage, statuses

COMPLETED, FAILED = StepStatus.COMPLETED, StepStatus.FAILED
CANCELED, SKIPPED = StepStatus.CANCELED, StepStatus.SKIPPED


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
async def release() -> AsyncGenerator[threading.Event]:
    """Lets go of what blocks, at the latest when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def counting(ran: list[str]) -> Act:
    async def act(ctx: StepContext) -> StepResult:
        ran.append(ctx.step_id)
        return StepResult()

    return act


# -- an interrupt


async def test_an_interrupt_stops_what_runs_and_starts_nothing_more(stage: Stage) -> None:
    task = stage.task({"done": succeeds(1), "box": deploys("box", then=hangs()), "later": hangs()})

    reports = await stage.interrupted(task, "box")

    assert {name: report.status for name, report in reports.items()} == {
        "done": COMPLETED,
        "box": CANCELED,
        "later": SKIPPED,
    }
    assert list(reports["box"].sandboxes) == stage.provider.live
    assert reports["box"].error is None
    assert stage.work_left() == []


async def test_a_step_that_swallows_its_cancel_is_canceled_and_its_value_ignored(
    stage: Stage,
) -> None:
    reports = await stage.interrupted(stage.task({"deaf": swallows("a value")}), "deaf")

    report = reports["deaf"]
    assert (report.status, report.output, report.score) == (CANCELED, None, None)


async def test_a_step_that_fails_because_it_is_canceled_is_canceled(stage: Stage) -> None:
    async def trips(ctx: StepContext) -> StepResult:
        try:
            return await hangs()(ctx)
        finally:
            raise SystemExit("tripped over its own cleanup")

    reports = await stage.interrupted(stage.task({"trips": trips}), "trips")

    assert (reports["trips"].status, reports["trips"].error) == (CANCELED, None)


async def test_a_step_that_does_not_end_in_its_grace_is_left_behind(
    stage: Stage, release: threading.Event
) -> None:
    stage.grace = timedelta(seconds=0.05)
    over = asyncio.Event()
    at_work: list[weakref.ref[object]] = []
    unheard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: unheard.append(found))

    async def blocks_then_fails(ctx: StepContext) -> StepResult:
        at_work.append(weakref.ref(asyncio.current_task()))
        await blocks(release)(ctx)
        ctx.progress("late")
        over.set()
        raise KeyboardInterrupt("much too late")

    reports = await stage.interrupted(stage.task({"stuck": blocks_then_fails}), "stuck")

    assert (reports["stuck"].status, over.is_set()) == (CANCELED, False)
    heard = len(stage.words)
    release.set()
    async with asyncio.timeout(PATIENCE_S):
        await over.wait()
        while at_work[0]() is not None:
            await asyncio.sleep(0)
            gc.collect()
    assert len(stage.words) == heard
    assert unheard == []


async def test_an_interrupt_before_the_start_starts_nothing(stage: Stage) -> None:
    ran: list[str] = []
    task = stage.task({"a": counting(ran), "b": counting(ran)}, b={"depends_on": []})
    stage.interrupt.set()

    done = await stage.run(task)

    assert (statuses(done), ran) == ({"a": SKIPPED, "b": SKIPPED}, [])


async def test_a_step_that_ended_before_it_heard_of_the_interrupt_stands(stage: Stage) -> None:
    async def ends_at_once(_: StepContext) -> StepResult:
        stage.interrupt.set()
        return StepResult("made it")

    (report,) = (await stage.run(stage.task({"quick": ends_at_once}))).reports

    assert (report.status, report.output) == (COMPLETED, "made it")


async def test_a_step_that_is_stopped_twice_is_canceled_once(stage: Stage) -> None:
    cancels: list[str] = []
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def cleans_up(ctx: StepContext) -> StepResult:
        try:
            return await hangs()(ctx)
        except asyncio.CancelledError:
            cancels.append("first")
            cleaning.set()
        try:
            await cleaned.wait()
        except asyncio.CancelledError:
            cancels.append("second")
        raise asyncio.CancelledError

    async def breaks(_: StepContext) -> StepResult:
        await stage.until_at_work("cleans")
        raise ValueError("broken")

    task = stage.task({"cleans": cleans_up, "breaks": breaks}, breaks={"depends_on": []})
    running = asyncio.create_task(stage.run(task))
    async with asyncio.timeout(PATIENCE_S):
        await cleaning.wait()

    stage.interrupt.set()
    await stage.until(lambda word: [report.step_id for report in word.reports] == ["breaks"])
    cleaned.set()

    assert statuses(await running) == {"breaks": FAILED, "cleans": CANCELED}
    assert cancels == ["first"]


# -- sandboxes of a span that is retried


def a_ref(type: str = "fake") -> SandboxRef:
    return SandboxRef(type=type, id="fake-9", name="box", created_at=datetime.now(UTC))


async def test_sandboxes_of_a_retried_span_are_gone_before_the_first_step(stage: Stage) -> None:
    seen: list[int] = []

    async def counts(_: StepContext) -> StepResult:
        seen.append(len(stage.provider.live))
        return StepResult()

    boxes = await stage.run(stage.task({"l": deploys("left"), "r": deploys("right")}))
    refs = tuple(ref for report in boxes.reports for ref in report.sandboxes)
    assert len(stage.provider.live) == 2

    await stage.run(stage.order(stage.task({"counts": counts}), epoch=2, destroy=refs))

    assert seen == [0]


async def test_a_sandbox_that_stays_up_keeps_the_steps_from_starting(stage: Stage) -> None:
    ran: list[str] = []
    stage.provider.fail_destroy_times = 1
    order = stage.order(stage.task({"a": counting(ran)}), destroy=(a_ref(),))

    with pytest.raises(SandboxUnavailableError):
        await stage.run(order)
    assert ran == []

    await stage.run(order)
    assert ran == ["a"]


@pytest.mark.parametrize("error", [SystemExit(1), asyncio.CancelledError(), ValueError("odd")])
async def test_a_provider_that_fails_in_its_own_way_is_asked_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    async def breaks(_: SandboxRef) -> None:
        raise error

    monkeypatch.setattr(stage.provider, "destroy", breaks)

    with pytest.raises(SandboxUnavailableError):
        await stage.run(stage.order(stage.task({"a": succeeds()}), destroy=(a_ref(),)))


async def test_an_interrupt_does_not_wait_for_a_sandbox_to_go(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    async def hangs_up(_: SandboxRef) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(stage.provider, "destroy", hangs_up)
    order = stage.order(stage.task({"a": succeeds()}), destroy=(a_ref(),))
    running = asyncio.create_task(stage.run(order))
    async with asyncio.timeout(PATIENCE_S):
        await asked.wait()

    stage.interrupt.set()

    async with asyncio.timeout(PATIENCE_S):
        assert statuses(await running) == {"a": SKIPPED}


async def test_two_segments_at_once_do_not_disturb_each_other(stage: Stage) -> None:
    let_go = asyncio.Event()
    held = stage.task({"held": waits(let_go), "bad": fails(ValueError("no"))})
    quick = stage.task({"quick": step_of(succeeds("quick"))})
    running = asyncio.create_task(stage.run(stage.order(held)))
    await stage.until_at_work("held")

    other = await stage.run(stage.order(quick, run_id="run/2"))
    let_go.set()

    assert statuses(other) == {"quick": COMPLETED}
    assert statuses(await running) == {"held": COMPLETED, "bad": FAILED}
