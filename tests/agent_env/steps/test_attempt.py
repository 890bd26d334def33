import asyncio
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_env.errors import StepFailedError
from agent_env.results import StepReport
from agent_env.status import StepStatus
from agent_env.steps import StepContext, StepResult
from agent_env.task import Task
from agent_env.testing.steps import (
    deploys,
    fails,
    hangs,
    scores,
    step_of,
    succeeds,
    swallows,
)
from tests.agent_env.steps.stage import Stage

COMPLETED, FAILED = StepStatus.COMPLETED, StepStatus.FAILED


@pytest.fixture
async def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


async def test_a_step_that_takes_too_long_times_out_by_its_own_or_its_types_limit(
    stage: Stage,
) -> None:
    quick = step_of(hangs(), timeout=timedelta(seconds=0.02))
    task = stage.task(
        {"own": hangs(), "type": quick},
        own={"timeout_seconds": 0.01, "fail_task_on_error": False},
    )

    done = await stage.run(task)

    assert [(r.status, r.error_type) for r in done.reports] == [(FAILED, "StepTimedOut")] * 2
    assert [r.error for r in done.reports] == [
        "took longer than 0.01 s; allow more with timeout_seconds",
        "took longer than 0.02 s; allow more with timeout_seconds",
    ]


async def test_a_step_that_swallows_its_timeout_has_still_timed_out(stage: Stage) -> None:
    task = stage.task({"deaf": swallows()}, deaf={"timeout_seconds": 0.01})

    (report,) = (await stage.run(task)).reports

    assert (report.status, report.error_type) == (FAILED, "StepTimedOut")
    assert (report.output, report.score) == (None, None)


class Unpicklable(Exception):
    def __init__(self) -> None:
        super().__init__("holds a lock")
        self.lock = threading.Lock()


class Speechless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not telling")


class Alien(BaseException):
    """Neither an Exception nor one of Python's own."""


@pytest.mark.parametrize(
    ("error", "error_type", "text"),
    [
        (ValueError("plain"), "ValueError", "plain"),
        (TimeoutError(), "TimeoutError", ""),
        (StepFailedError("ours"), "StepFailed", "ours"),
        (Unpicklable(), "Unpicklable", "holds a lock"),
        (Speechless(), "Speechless", "(its message could not be read: RuntimeError)"),
        (KeyboardInterrupt("stop"), "KeyboardInterrupt", "stop"),
        (SystemExit(0), "SystemExit", "0"),
        (GeneratorExit("odd"), "GeneratorExit", "odd"),
        (StopIteration("odd"), "RuntimeError", "coroutine raised StopIteration"),
        (Alien("hello"), "Alien", "hello"),
        (
            ExceptionGroup("two", [ExceptionGroup("in", [KeyError("root")]), OSError("other")]),
            "KeyError",
            "'root' (and 1 more in the same group)",
        ),
        (BaseExceptionGroup("one", [SystemExit(3)]), "SystemExit", "3"),
        (ValueError("nul \0 and half \ud83d"), "ValueError", "nul \0 and half \\ud83d"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
async def test_whatever_a_step_raises_is_a_failure_with_type_and_root_message(
    stage: Stage, error: BaseException, error_type: str, text: str
) -> None:
    task = stage.task(
        {"bad": fails(error), "good": succeeds("goes on")}, bad={"fail_task_on_error": False}
    )

    bad, good = (await stage.run(task)).reports

    assert (bad.status, bad.error_type, bad.error) == (FAILED, error_type, text)
    assert (good.status, good.output) == (COMPLETED, "goes on")
    assert StepReport.model_validate_json(bad.model_dump_json()) == bad


async def test_an_error_of_megabytes_is_bounded_with_a_mark(stage: Stage) -> None:
    (report,) = (await stage.run(stage.task({"bad": fails(ValueError("x" * 5_000_000))}))).reports

    assert report.error is not None
    assert len(report.error) <= 8_000
    assert "characters cut" in report.error


async def test_a_step_that_cancels_itself_has_failed(stage: Stage) -> None:
    async def gives_up(_: StepContext) -> StepResult:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()
        raise AssertionError

    task = stage.task(
        {"raises": fails(asyncio.CancelledError()), "cancels": gives_up},
        raises={"fail_task_on_error": False},
    )

    done = await stage.run(task)

    assert [(r.status, r.error_type) for r in done.reports] == [(FAILED, "StepFailed")] * 2
    assert done.reports[0].error == "it raised CancelledError, but nobody canceled it"


async def test_a_type_that_this_worker_does_not_have_fails_its_step(stage: Stage) -> None:
    task = Task.of({"id": "t", "steps": [{"id": "a", "type": "no-such-type"}]})

    (report,) = (await stage.run(task)).reports

    assert (report.status, report.error_type) == (FAILED, "UnknownType")


async def test_parameters_that_the_type_refuses_fail_its_step(stage: Stage) -> None:
    task = stage.task({"good": succeeds()}, good={"surplus": 1})

    (report,) = (await stage.run(task)).reports

    assert (report.status, report.error_type) == (FAILED, "InvalidSpec")
    assert str(report.error).startswith("surplus: unknown key 'surplus'")


async def test_a_type_whose_timeout_cannot_be_told_fails_its_step(stage: Stage) -> None:
    class Odd(step_of(succeeds())):
        def timeout(self, params: Any) -> timedelta | None:
            raise SystemExit("odd")

    (report,) = (await stage.run(stage.task({"odd": Odd}))).reports

    assert (report.status, report.error_type, report.error) == (FAILED, "SystemExit", "odd")


@pytest.mark.parametrize("returned", [None, "done", ("done", 1.0), {"output": 1}])
async def test_what_is_no_result_fails_its_step(stage: Stage, returned: Any) -> None:
    async def act(_: StepContext) -> StepResult:
        return returned

    (report,) = (await stage.run(stage.task({"odd": act}))).reports

    assert (report.status, report.error_type) == (FAILED, "StepFailed")
    assert str(report.error).endswith(f"returned {type(returned).__name__}, not a StepResult")


@pytest.mark.parametrize(
    ("score", "kept"), [(True, 1.0), (False, 0.0), (-0.5, -0.5), (3, 3.0), (None, None)]
)
async def test_a_score_is_kept_as_a_float(stage: Stage, score: object, kept: float | None) -> None:
    (report,) = (await stage.run(stage.task({"verify": scores(score)}))).reports

    assert (report.status, report.error) == (COMPLETED, None)
    assert (report.score, type(report.score)) == (kept, type(kept))


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "0.5", 1e309, 10**400, [1.0]])
async def test_a_score_that_is_no_finite_number_fails_its_step(stage: Stage, score: object) -> None:
    (report,) = (await stage.run(stage.task({"verify": scores(score)}))).reports

    assert (report.status, report.error_type, report.score) == (FAILED, "InvalidScore", None)


async def test_an_output_of_megabytes_is_refused_with_the_limit_and_the_cure(
    stage: Stage,
) -> None:
    (report,) = (await stage.run(stage.task({"big": succeeds("x" * 5_000_000)}))).reports

    assert (report.status, report.error_type, report.output) == (FAILED, "OutputTooLarge", None)
    assert report.error == (
        "its output is 5,000,002 bytes as JSON, over the limit of 65,536; put it into the "
        "artifact store or a sandbox's file, and return where it is"
    )


async def test_outputs_of_one_episode_have_a_limit_together(stage: Stage) -> None:
    large = "x" * 60_000
    acts = {f"s{number}": succeeds(large) for number in range(3)}
    task = stage.task({"first": succeeds(), **acts}, s1={"fail_task_on_error": False})
    before = tuple(
        StepReport(step_id="first", type="first", epoch=1, status=COMPLETED, output=part)
        for part in [large] * 16
    )

    done = await stage.run(stage.order(task, reports=before))

    assert [(r.step_id, r.status, r.error_type) for r in done.reports] == [
        ("s0", COMPLETED, None),
        ("s1", FAILED, "OutputTooLarge"),
        ("s2", FAILED, "OutputTooLarge"),
    ]
    assert "over the limit of 1,048,576 bytes as JSON" in str(done.reports[1].error)
    assert sum(len(json.dumps(r.output)) for r in (*before, *done.reports)) <= 1_048_576


@pytest.mark.parametrize("act", [succeeds(), fails(ValueError("no"))], ids=["passes", "fails"])
async def test_what_an_attempt_deployed_is_in_its_report_however_it_ends(
    stage: Stage, act: Any
) -> None:
    (report,) = (await stage.run(stage.task({"box": deploys("box", then=act)}))).reports

    assert [ref.name for ref in report.sandboxes] == ["box"]
    assert list(report.sandboxes) == stage.provider.live


async def test_an_attempt_has_an_empty_folder_that_is_gone_when_it_ends(stage: Stage) -> None:
    seen: list[tuple[bool, list[Path]]] = []

    async def litters(ctx: StepContext) -> StepResult:
        seen.append((ctx.work_dir.is_dir(), list(ctx.work_dir.iterdir())))
        (ctx.work_dir / "deep/er").mkdir(parents=True)
        (ctx.work_dir / "deep/er/file").write_text("litter")
        raise ValueError("in a mess")

    await stage.run(stage.task({"litters": litters}))

    assert seen == [(True, [])]
    assert stage.work_left() == []
