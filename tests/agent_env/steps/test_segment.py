import asyncio
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent_env.outcome import outcome
from agent_env.plan import drop, next_retry
from agent_env.results import StepReport
from agent_env.status import RunStatus, StepStatus
from agent_env.steps import Params, Step, StepContext, StepResult
from agent_env.testing.steps import Act, deploys, fails, hangs, succeeds, waits
from tests.agent_env.steps.stage import PATIENCE_S, Stage, statuses

COMPLETED, FAILED = StepStatus.COMPLETED, StepStatus.FAILED
CANCELED, SKIPPED = StepStatus.CANCELED, StepStatus.SKIPPED


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_steps_without_an_edge_between_them_really_overlap(stage: Stage) -> None:
    meeting = asyncio.Barrier(2)

    async def meets(_: StepContext) -> StepResult:
        async with asyncio.timeout(PATIENCE_S):
            return StepResult(await meeting.wait() >= 0)

    order: list[str] = []

    def notes(name: str) -> Act:
        async def act(_: StepContext) -> StepResult:
            order.append(name)
            return StepResult()

        return act

    task = stage.task(
        {"top": notes("top"), "left": meets, "right": meets, "end": notes("end")},
        left={"depends_on": ["top"]},
        right={"depends_on": ["top"]},
        end={"depends_on": ["left", "right"]},
    )

    done = await stage.run(task)

    assert set(statuses(done).values()) == {COMPLETED}
    assert order == ["top", "end"]
    assert ("left", "right") in [word.running for word in stage.words]


async def test_a_step_sees_the_reports_of_those_it_waits_for_and_no_others(stage: Stage) -> None:
    seen: list[str] = []

    async def looks(ctx: StepContext) -> StepResult:
        seen.extend(report.step_id for report in ctx.reports)
        return StepResult()

    task = stage.task(
        {"first": succeeds(), "a": succeeds(), "b": succeeds(), "c": succeeds(), "looks": looks},
        a={"depends_on": ["first"]},
        b={"depends_on": []},
        c={"depends_on": ["a"]},
        looks={"depends_on": ["c"]},
    )
    first = StepReport(step_id="first", type="first", epoch=1, status=COMPLETED)

    await stage.run(stage.order(task, reports=(first,)))

    assert seen == ["first", "a", "c"]


async def test_a_step_gets_the_seed_in_its_parameters_and_its_context(stage: Stage) -> None:
    class Words(Params):
        text: str

    class Says(Step[Words]):
        """Returns its text."""

        type = "says"

        async def run(self, params: Words, ctx: StepContext) -> StepResult:
            return StepResult([params.text, dict(ctx.seed)])

    task = stage.task({"says": Says}, says={"text": "<key> and <other>"})

    done = await stage.run(stage.order(task, seed={"key": "<other>"}))

    assert done.reports[0].output == ["<other> and <other>", {"key": "<other>"}]


async def test_reports_carry_times_and_what_the_step_returned(stage: Stage) -> None:
    before = datetime.now(UTC)

    done = await stage.run(stage.task({"good": succeeds({"answer": [1, None, "x"]})}))

    (report,) = done.reports
    assert (report.step_id, report.type, report.epoch) == ("good", "good", 1)
    assert (report.status, report.output) == (COMPLETED, {"answer": [1, None, "x"]})
    assert report.started_at is not None
    assert report.finished_at is not None
    assert before <= report.started_at <= report.finished_at <= datetime.now(UTC)


async def test_a_step_is_said_to_run_before_it_does_anything(stage: Stage) -> None:
    heard: list[tuple[str, ...]] = []

    async def looks(_: StepContext) -> StepResult:
        heard.append(stage.words[-1].running)
        return StepResult()

    await stage.run(stage.task({"looks": looks}))

    assert heard == [("looks",)]


async def test_progress_carries_the_last_word_of_each_step(stage: Stage) -> None:
    let_go = asyncio.Event()
    task = stage.task({"a": waits(let_go), "b": waits(let_go)}, b={"depends_on": []})
    running = asyncio.create_task(stage.run(task))

    await stage.until_at_work("a", "b")

    assert stage.words[-1].detail == {"a": "waiting", "b": "waiting"}
    let_go.set()
    await running
    assert (stage.words[-1].detail, stage.words[-1].running) == (None, ())
    assert [report.step_id for report in stage.words[-1].reports] == ["a", "b"]


async def test_progress_from_a_thread_is_heard_at_once(stage: Stage) -> None:
    heard = threading.Event()
    asyncio.get_running_loop().set_debug(True)  # refuses what is not safe from a thread

    def talks(ctx: StepContext) -> bool:
        ctx.progress("from afar")
        return heard.wait(PATIENCE_S)

    async def act(ctx: StepContext) -> StepResult:
        return StepResult(await asyncio.to_thread(talks, ctx))

    running = asyncio.create_task(stage.run(stage.task({"talks": act})))
    await stage.until_at_work("talks")
    heard.set()

    assert (await running).reports[0].output is True


async def test_progress_that_json_cannot_hold_becomes_a_short_text(stage: Stage) -> None:
    foreign: Any = ["x" * 5_000_000, object()]

    async def talks(ctx: StepContext) -> StepResult:
        ctx.progress(foreign)
        return await hangs()(ctx)

    await stage.interrupted(stage.task({"talks": talks}), "talks")

    details = [word.detail["talks"] for word in stage.words if isinstance(word.detail, dict)]
    assert len(str(details[0])) <= 200


async def test_a_tolerated_failure_lets_the_rest_run_and_fails_the_episode(stage: Stage) -> None:
    task = stage.task(
        {"bad": fails(ValueError("no luck")), "good": succeeds()},
        bad={"fail_task_on_error": False},
    )

    done = await stage.run(task)

    assert statuses(done) == {"bad": FAILED, "good": COMPLETED}
    ended = outcome(task, done.reports)
    assert (ended.status, ended.error_type) == (RunStatus.FAILED, "ValueError")
    assert ended.error == "step 'bad': no luck"


async def test_a_failure_stops_what_runs_and_what_has_not_started(stage: Stage) -> None:
    let_go = asyncio.Event()

    async def breaks(_: StepContext) -> StepResult:
        await let_go.wait()
        raise ValueError("broken")

    task = stage.task(
        {"hangs": hangs(), "breaks": breaks, "later": succeeds()},
        breaks={"depends_on": []},
    )
    running = asyncio.create_task(stage.run(task))
    await stage.until_at_work("hangs")

    let_go.set()
    done = await running

    assert statuses(done) == {"breaks": FAILED, "hangs": CANCELED, "later": SKIPPED}
    assert [report.step_id for report in done.reports] == ["breaks", "hangs", "later"]
    assert done.reports[2].started_at is None


async def test_a_failure_that_is_retried_stops_only_its_span(stage: Stage) -> None:
    together = asyncio.Event()

    async def breaks(_: StepContext) -> StepResult:
        together.set()
        raise ValueError("broken")

    task = stage.task(
        {"other": waits(together), "breaks": breaks, "below": succeeds(), "beside": succeeds()},
        breaks={"depends_on": [], "retry_config": {"max_retries": 1}},
        below={"depends_on": ["breaks"]},
        beside={"depends_on": ["other"]},
    )

    done = await stage.run(task)

    assert statuses(done) == {
        "breaks": FAILED,
        "other": COMPLETED,
        "beside": COMPLETED,
        "below": SKIPPED,
    }


async def test_a_retry_that_passes_completes_the_task_and_keeps_the_failure(stage: Stage) -> None:
    failures = [ValueError("first try")]

    async def flaky(_: StepContext) -> StepResult:
        if failures:
            raise failures.pop()
        return StepResult("second try")

    task = stage.task(
        {"flaky": deploys("box", then=flaky)}, flaky={"retry_config": {"max_retries": 1}}
    )
    first = await stage.run(task)
    retry = next_retry(task, first.reports)
    assert retry is not None
    dropped, sandboxes = drop(first.reports, retry.span)

    order = stage.order(task, reports=dropped, epoch=2, destroy=sandboxes)
    second = await stage.run(order)

    reports = (*dropped, *second.reports)
    assert [(r.epoch, r.status, r.retried) for r in reports] == [
        (1, FAILED, True),
        (2, COMPLETED, False),
    ]
    assert outcome(task, reports).status is RunStatus.COMPLETED
    assert [ref.id for ref in stage.provider.live] == [r.id for r in second.reports[0].sandboxes]
    assert stage.provider.made == 2
