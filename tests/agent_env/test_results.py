from datetime import UTC, datetime, timedelta

import pytest

from agent_env.errors import InvalidScoreError
from agent_env.results import EpisodeResult, GroupResult, StepReport, verdicts_of
from agent_env.scores import group_figures
from agent_env.status import RunStatus, StepStatus

BEGUN = datetime(2026, 1, 31, 9, 30, 5, tzinfo=UTC)


def result(**fields: object) -> EpisodeResult:
    return EpisodeResult.model_validate(
        {"run_id": "r", "task_id": "t", "status": RunStatus.COMPLETED, **fields}
    )


@pytest.mark.parametrize(
    ("begun", "ended", "seconds"),
    [
        (BEGUN, BEGUN + timedelta(seconds=1.5), 1.5),
        (BEGUN, BEGUN - timedelta(minutes=10), 0.0),
        (None, BEGUN, None),
        (BEGUN, None, None),
    ],
)
def test_a_duration_is_never_negative_and_none_before_the_end(
    begun: datetime | None, ended: datetime | None, seconds: float | None
) -> None:
    assert result(started_at=begun, finished_at=ended).duration_s == seconds


def test_a_group_has_its_figures_and_an_advantage_a_member() -> None:
    members = tuple(result(reward=reward) for reward in (1.0, None, 0.0))

    group = GroupResult(
        run_group_id="g",
        task_id="t",
        members=members,
        figures=group_figures((member.status, member.reward) for member in members),
    )

    assert group.mean == 0.5
    assert group.advantages == group.figures.advantages([1.0, None, 0.0])
    assert group.advantages[1] is None
    assert GroupResult.model_validate_json(group.model_dump_json()) == group


def report(step_id: str, **fields: object) -> StepReport:
    return StepReport.model_validate(
        {"step_id": step_id, "type": "x", "epoch": 1, "status": StepStatus.COMPLETED, **fields}
    )


def rows(*scores: float, **fields: object) -> dict[str, object]:
    """The output of a verifier that judged some criteria."""
    return {"results": [{"criterion": "c", "score": score} for score in scores], **fields}


def test_a_verifier_is_known_by_its_name_else_by_its_steps() -> None:
    reports = [
        report("named", output=rows(1.0, verifier_id="v")),
        report("v", output=rows(0.0, verifier_id="other")),
        report("plain", output=rows(0.25, 0.5)),
    ]

    assert [row.score for row in verdicts_of("v", reports)] == [1.0]
    assert [row.score for row in verdicts_of("plain", reports)] == [0.25, 0.5]
    assert verdicts_of("named", reports) == []


def test_a_verifier_without_rows_is_a_row_of_its_score() -> None:
    assert [row.score for row in verdicts_of("v", [report("v", score=0.5)])] == [0.5]
    assert verdicts_of("v", [report("v")]) == []


def test_skipped_rows_and_attempts_that_do_not_count_give_nothing() -> None:
    skipped = {"results": [{"criterion": "c", "score": 1.0, "skipped": True}]}
    reports = [
        report("v", output=skipped),
        report("v", output=rows(1.0), retried=True),
        report("v", output=rows(1.0), status=StepStatus.FAILED),
    ]

    assert verdicts_of("v", reports) == []


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"criterion": "c"}, "'v' recorded a row that can't be read: score"),
        ({"criterion": "c", "score": "high"}, "can't be read: score"),
        ({"criterion": "c", "score": 1, "weight": None}, "can't be read: weight"),
        ("text", "can't be read: it"),
    ],
)
def test_a_row_that_is_no_verdict_is_no_score(row: object, says: str) -> None:
    with pytest.raises(InvalidScoreError, match=says):
        verdicts_of("v", [report("v", output={"results": [row]})])
