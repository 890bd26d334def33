from datetime import timedelta

import pytest

from agent_env.specs import EpisodeStart, StepProgress
from agent_env.task import Task


@pytest.mark.parametrize(
    ("of_the_task", "of_its_own", "seconds"),
    [(None, None, None), (5.0, None, 5.0), (None, 2.5, 2.5), (5.0, 2.5, 2.5), (5.0, 0.0, 0.0)],
)
def test_an_episodes_own_deadline_comes_before_its_tasks(
    of_the_task: float | None, of_its_own: float | None, seconds: float | None
) -> None:
    task = Task.of([{"id": "a", "type": "x"}], where="t")
    start = EpisodeStart(
        run_id="r",
        task=task.model_copy(update={"deadline_seconds": of_the_task}),
        deadline=None if of_its_own is None else timedelta(seconds=of_its_own),
    )

    assert start.deadline_s == seconds
    assert EpisodeStart.model_validate_json(start.model_dump_json()) == start


def test_a_field_of_a_newer_peer_is_ignored() -> None:
    assert StepProgress.model_validate({"newer": 1}) == StepProgress()
