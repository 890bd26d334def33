"""Steps on a time axis."""

from datetime import timedelta

import pytest

from agent_env.explorer import timeline
from agent_env.explorer.reader import Views
from agent_env.explorer.run_views import RunView
from agent_env.runs import RunIndex
from agent_env.status import StepStatus
from tests.agent_env.explorer.conftest import T0, MakeApp, ended, report, running


@pytest.fixture
def views(make_app: MakeApp) -> Views:
    found: Views = make_app().state.views
    return found


async def test_attempts_of_a_step_are_one_line_and_what_was_not_started_is_skipped(
    views: Views, index: RunIndex
) -> None:
    tried = [
        report("play", epoch=epoch, retried=epoch < 2, started_at=T0 + timedelta(seconds=epoch),
               finished_at=T0 + timedelta(seconds=epoch + 1))
        for epoch in (1, 2)
    ]  # fmt: skip
    skipped = report("score", status=StepStatus.SKIPPED, started_at=None, finished_at=None)
    running(index, "run")
    ended(index, "run", reports=(*tried, skipped))
    view: RunView = await views.run("run")

    play, score = timeline.lines(view)

    assert [step.attempt for step in play.attempts] == [1, 2]
    assert [(span.start_s, span.end_s) for span in play.spans] == [(1, 2), (2, 3)]
    assert play.spans[0].label == "play, attempt 1 of 2: COMPLETED, 1.00 s"
    assert score.is_skipped
    assert score.last is None


async def test_the_step_a_run_is_at_has_a_line_before_it_is_reported(
    views: Views, index: RunIndex
) -> None:
    running(index, "run")
    index.record_steps("run", [report("box")], epoch=1, steps_done=1, current_step="play")

    lines = timeline.lines(await views.run("run"))

    assert [(line.step_id, line.is_skipped) for line in lines] == [("box", False), ("play", False)]
    assert lines[1].attempts == ()


async def test_the_axis_has_a_length_also_when_nothing_took_time(
    views: Views, index: RunIndex
) -> None:
    ended(index, "run")

    assert timeline.length_s(await views.run("run")) > 0
