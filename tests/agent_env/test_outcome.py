from typing import Any

import pytest

from agent_env.errors import MAX_ERROR_CHARS
from agent_env.outcome import CANCELED_IN_TEMPORAL, Fault, Outcome, outcome, reward_of, success
from agent_env.results import StepReport
from agent_env.status import RunStatus, StepStatus
from agent_env.task import Task

TASK = Task.of([{"id": "a", "type": "x"}, {"id": "b", "type": "x"}], where="t")
LATE = Fault(type="DeadlineExceeded", message="took over 5 s")


def report(step_id: str, status: StepStatus = StepStatus.COMPLETED, **fields: Any) -> StepReport:
    return StepReport(step_id=step_id, type="x", epoch=1, status=status, **fields)


def failed(step_id: str, **fields: Any) -> StepReport:
    return report(step_id, StepStatus.FAILED, error_type="StepFailed", error="exit 1", **fields)


def ended(*reports: StepReport, **how: Any) -> tuple[RunStatus, str | None, str | None]:
    found = outcome(TASK, reports, **how)
    return found.status, found.error_type, found.error


def test_an_episode_whose_steps_all_succeeded_is_completed() -> None:
    assert ended(report("a"), report("b")) == (RunStatus.COMPLETED, None, None)


def test_a_failure_that_was_retried_with_success_is_forgiven() -> None:
    reports = failed("a", retried=True), report("a"), report("b")

    assert ended(*reports) == (RunStatus.COMPLETED, None, None)


def test_a_failed_step_fails_the_episode_also_when_the_rest_went_on() -> None:
    assert ended(failed("a"), report("b")) == (
        RunStatus.FAILED,
        "StepFailed",
        "step 'a': exit 1",
    )


def test_the_first_failure_is_shown_and_all_are_listed() -> None:
    first = report("a", StepStatus.FAILED, error_type="TimeoutError", error="")

    assert ended(first, failed("b")) == (
        RunStatus.FAILED,
        "TimeoutError",
        "step 'a': TimeoutError\nalso failed: 'b' (StepFailed)",
    )


@pytest.mark.parametrize(
    "reports",
    [
        [],
        [report("a")],
        [report("a"), report("b", StepStatus.CANCELED)],
        [report("a"), report("b", StepStatus.SKIPPED)],
        [report("a"), report("b", retried=True)],
    ],
    ids=["nothing ran", "one is missing", "one was stopped", "one was skipped", "one was dropped"],
)
def test_an_episode_with_a_step_that_never_ended_is_not_completed(
    reports: list[StepReport],
) -> None:
    status, error_type, error = ended(*reports)

    assert (status, error_type) == (RunStatus.FAILED, "StepInterrupted")
    assert error is not None
    assert "'b'" in error


@pytest.mark.parametrize("reports", [(), (failed("a"),), (report("a"), report("b"))])
def test_a_cancel_before_the_outcome_comes_before_everything(
    reports: tuple[StepReport, ...],
) -> None:
    assert ended(*reports, fault=LATE, cancellation=" too slow ") == (
        RunStatus.CANCELED,
        "Canceled",
        "too slow",
    )


@pytest.mark.parametrize("reason", ["", "  "])
def test_a_cancel_without_a_reason_says_where_it_came_from(reason: str) -> None:
    assert ended(cancellation=reason) == (RunStatus.CANCELED, "Canceled", CANCELED_IN_TEMPORAL)


@pytest.mark.parametrize("reports", [(), (failed("a"),), (report("a"), report("b"))])
def test_a_fault_comes_before_the_steps(reports: tuple[StepReport, ...]) -> None:
    assert ended(*reports, fault=LATE) == (RunStatus.FAILED, "DeadlineExceeded", "took over 5 s")


@pytest.mark.parametrize("how", [{"fault": LATE}, {"cancellation": "enough"}, {}])
def test_scores_recorded_before_the_end_are_kept(how: dict[str, Any]) -> None:
    found = outcome(TASK, [report("a", score=0.5), failed("b")], **how)

    assert found.scores == {"a": 0.5}
    assert found.reward == 0.5
    assert found.status is not RunStatus.COMPLETED


def test_scores_of_failed_and_dropped_attempts_count_for_nothing() -> None:
    reports = [report("a", score=0.1, retried=True), report("a", score=0.9), failed("b", score=1.0)]

    assert outcome(TASK, reports).scores == {"a": 0.9}


def test_the_named_step_is_listed_even_when_it_did_not_score() -> None:
    task = TASK.model_copy(update={"reward": "b"})

    found = outcome(task, [report("a", score=0.5), report("b")])

    assert found.scores == {"a": 0.5, "b": None}
    assert found.reward is None


@pytest.mark.parametrize(
    ("named", "scores", "expected"),
    [
        (None, {}, None),
        (None, {"a": None}, None),
        (None, {"a": 0.0}, 0.0),
        (None, {"a": None, "b": 0.5}, 0.5),
        (None, {"a": 1.0, "b": 0.5}, None),
        ("b", {"a": 1.0, "b": 0.5}, 0.5),
        ("b", {"a": 1.0}, None),
        ("b", {"a": 1.0, "b": None}, None),
    ],
)
def test_the_reward_is_the_named_score_or_the_only_one(
    named: str | None, scores: dict[str, float | None], expected: float | None
) -> None:
    assert reward_of(named, scores) == expected


@pytest.mark.parametrize("how", [{}, {"fault": Fault(type="X", message="y" * 100_000)}])
def test_an_error_of_any_size_is_bounded_and_names_the_other_steps(how: dict[str, Any]) -> None:
    big = report("a", StepStatus.FAILED, error_type="X", error="x" * 100_000)

    _, _, error = ended(big, failed("b"), **how)

    assert error is not None
    assert len(error) <= MAX_ERROR_CHARS
    assert how or error.endswith("also failed: 'b' (StepFailed)")


def test_an_outcome_survives_the_wire() -> None:
    found = outcome(TASK, [report("a", score=1.0), failed("b")])

    assert Outcome.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize(
    "reports",
    [
        [report("a", score=1.0), report("b")],
        [failed("a", retried=True), report("a"), report("b", score=-2.0)],
        [report("a"), failed("b")],
        [report("a")],
        [report("a"), report("b", StepStatus.CANCELED)],
        [report("a"), report("b", StepStatus.SKIPPED)],
        [],
    ],
)
@pytest.mark.parametrize("named", [None, "a", "b"])
def test_a_success_is_decided_alike_with_and_without_the_task(
    reports: list[StepReport], named: str | None
) -> None:
    whole = outcome(TASK.model_copy(update={"reward": named}), reports)

    found = success(["a", "b"], reports, reward=named)

    assert found == (whole if whole.status is RunStatus.COMPLETED else None)
