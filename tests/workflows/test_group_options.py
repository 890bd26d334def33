"""Groups with bounds, members that are played again, and groups that are longer than a history."""

from datetime import timedelta
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus, WorkflowHistory
from temporalio.worker import Replayer

from agent_env.errors import InvalidSpecError
from agent_env.plugin import EpisodePlugin
from agent_env.status import RunStatus
from tests.workflows.conftest import EpisodeHarness, Script
from workflows import _members, _window
from workflows.registry import WORKFLOWS

PATIENT = timedelta(seconds=90)
SCORES: dict[str, JsonValue] = {"id": "a", "score": 1.0}


async def test_a_group_is_complete_when_enough_have_scored(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("grp-0001")
    group = await episodes.trainer.start_group(
        episodes.spec(SCORES), size=2, surplus=3, run_group_id="grp", max_parallel=2
    )

    result = await group.result()

    assert [member.status for member in result.members] == [
        RunStatus.COMPLETED,
        RunStatus.CANCELED,
        RunStatus.COMPLETED,
        RunStatus.CANCELED,
        RunStatus.CANCELED,
    ]
    assert (result.figures.n, result.figures.n_scored) == (5, 2)
    assert {result.members[index].error for index in (1, 3, 4)} == {"group complete"}
    assert script.runs.count("grp-0004") == 0, "members that had not begun never begin"
    assert await episodes.workflow_status("grp") is WorkflowExecutionStatus.COMPLETED
    assert await episodes.agrees("grp-0001", RunStatus.CANCELED)


async def test_members_without_a_score_do_not_make_a_group_complete(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.scores = {"grp-0000": None, "grp-0002": None}

    group = await episodes.trainer.start_group(
        episodes.spec(SCORES), size=2, surplus=4, run_group_id="grp", max_parallel=1
    )
    result = await group.result()

    assert [member.status for member in result.members] == (
        [RunStatus.COMPLETED] * 4 + [RunStatus.CANCELED] * 2
    )
    assert (result.figures.n_scored, result.mean) == (2, 1.0)


async def test_a_group_where_too_few_score_is_played_to_its_end(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.fails["a"] = 2

    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=3, min_scored=2)
    result = await group.result()

    assert (result.figures.failed, result.figures.n_scored) == (2, 1)
    assert result.figures.canceled == 0


async def test_a_group_that_takes_longer_than_its_deadline_cancels_who_is_left(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("grp-0001")
    group = await episodes.trainer.start_group(
        episodes.spec(SCORES),
        size=4,
        run_group_id="grp",
        max_parallel=2,
        deadline=timedelta(seconds=2),
    )
    script.hold("grp-0003")

    result = await group.result()

    assert [member.status for member in result.members] == [
        RunStatus.COMPLETED,
        RunStatus.CANCELED,
        RunStatus.COMPLETED,
        RunStatus.CANCELED,
    ]
    assert result.members[1].error == "the group took longer than 2 s"
    assert await episodes.workflow_status("grp") is WorkflowExecutionStatus.COMPLETED


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"size": 3, "min_scored": 4}, "min_scored: is 1 to 3 here"),
        ({"size": 3, "min_scored": 0}, "min_scored: is 1 to 3 here"),
        ({"size": 3, "surplus": -1}, "surplus: is 0 or more"),
        ({"seeds": [{"seed": "1"}], "surplus": 1}, "surplus: .* count it into `seeds`"),
        ({"size": 9_999, "surplus": 2}, "1 to 10,000 members, not 10001"),
        ({"size": 0, "surplus": 2}, "1 to 10,000 members, not 0"),
        ({"size": 3, "deadline": timedelta(0)}, "deadline: is longer than nothing"),
    ],
)
async def test_bounds_that_can_not_be_are_refused(
    idle: EpisodeHarness, options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidSpecError, match=field):
        await idle.trainer.start_group(idle.spec(SCORES), **options)


async def test_a_member_that_is_played_again_is_replaced_and_the_new_score_counts(
    episodes: EpisodeHarness, script: Script
) -> None:
    """S7."""
    go = script.hold("grp-0002")
    script.scores = {"grp-0001": 0.0, "grp-0001-r1": 5.0}
    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=3, run_group_id="grp")
    await episodes.until(lambda: episodes.row("grp-0001").status is RunStatus.COMPLETED)

    again = await group.replace("1")
    await again.result()
    go.set()
    result = await group.result()

    assert again.run_id == "grp-0001-r1"
    assert [member.run_id for member in result.members] == ["grp-0000", "grp-0001-r1", "grp-0002"]
    assert [member.reward for member in result.members] == [1.0, 5.0, 1.0]
    assert (result.figures.n, result.figures.max) == (3, 5.0)
    assert episodes.index.group("grp").figures == result.figures, "SQL counts by the same rule"
    assert episodes.row("grp-0001-r1").seed == episodes.row("grp-0001").seed
    assert [m.reward for m in [member async for member in group.as_completed()]].count(0.0) == 0


async def test_a_member_that_runs_is_canceled_when_it_is_replaced(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("grp-0000")
    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=2, run_group_id="grp")
    await episodes.until(lambda: "grp-0000" in script.runs)

    await group.replace(0)
    result = await group.result()

    assert (result.figures.n, result.figures.completed) == (2, 2)
    old = episodes.row("grp-0000")
    assert (old.status, old.error) == (RunStatus.CANCELED, "replaced by grp-0000-r1")
    assert await episodes.agrees("grp-0000", RunStatus.CANCELED)


async def test_a_member_that_has_not_begun_needs_no_replacing(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("a")
    group = await episodes.trainer.start_group(
        episodes.spec(SCORES), size=3, run_group_id="grp", max_parallel=1
    )

    same = await group.replace(2)
    go.set()

    assert same.run_id == "grp-0002"
    assert (await group.result()).figures.completed == 3
    assert script.runs.count("grp-0002") == 1


async def test_a_member_can_be_replaced_after_the_group_has_ended_and_again(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.scores = {"grp-0001": 0.0, "grp-0001-r1": 2.0, "grp-0001-r2": 3.0}
    group = await episodes.trainer.start_group(
        episodes.spec(SCORES), size=1, surplus=1, min_scored=2, run_group_id="grp"
    )
    await group.result()

    first = await group.replace(1)
    assert (await group.result()).members[1].reward == 2.0
    second = await group.replace(1)
    result = await group.result()

    assert (first.run_id, second.run_id) == ("grp-0001-r1", "grp-0001-r2")
    assert [member.reward for member in result.members] == [1.0, 3.0]
    assert result.figures.n == 2
    assert await episodes.workflow_status("grp") is WorkflowExecutionStatus.COMPLETED


async def test_a_member_of_a_canceled_group_can_be_played_again(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("grp-0000")
    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=1, run_group_id="grp")
    await episodes.until(lambda: "grp-0000" in script.runs)
    await group.cancel("by mistake")

    await group.replace(0)

    assert (await group.result()).figures.completed == 1


@pytest.mark.parametrize("index", [2, -1, "x", "1.0", ""])
async def test_a_member_that_the_group_has_not_can_not_be_replaced(
    episodes: EpisodeHarness, index: int | str
) -> None:
    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=2)

    with pytest.raises(InvalidSpecError, match="members 0 to 1, not"):
        await group.replace(index)


async def test_a_group_of_single_episodes_has_nobody_to_replace(
    episodes: EpisodeHarness,
) -> None:
    await episodes.trainer.start(episodes.spec(SCORES), run_group_id="loose")

    with pytest.raises(InvalidSpecError, match="started one by one; start another one"):
        await episodes.trainer.attach_group("loose").replace(0)


async def test_a_new_run_streams_after_the_one_it_replaces(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("grp-0001")
    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=2, run_group_id="grp")
    stream = group.as_completed()

    first = await anext(stream)
    again = await group.replace(0)
    second = await anext(stream)
    go.set()
    rest = [member.run_id async for member in stream]

    assert [first.run_id, second.run_id, *rest] == ["grp-0000", again.run_id, "grp-0001"]


async def test_a_group_that_is_longer_than_a_history_goes_on_in_the_next_one(
    episodes: EpisodeHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_members, "MOST_EVENTS", 60)
    slow = script.hold("grp-0000")
    script.scores = {"grp-0023": 7.0}
    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=24, run_group_id="grp")
    await episodes.until(lambda: episodes.row("grp-0023").status.is_finished, within=PATIENT)

    slow.set()
    result = await group.result()

    assert (result.figures.n, result.figures.completed) == (24, 24)
    assert sorted(script.runs) == [f"grp-{index:04d}" for index in range(24)], "each ran once"
    lengths = [len(history.events) for history in await histories(episodes, "grp")]
    assert len(lengths) > 2
    assert max(lengths) < 150


async def test_a_group_that_looks_for_room_goes_on_in_the_next_execution(
    episodes: EpisodeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is under way when an execution ends must ask for nothing after its last command."""
    monkeypatch.setattr(_members, "MOST_EVENTS", 60)
    monkeypatch.setattr(_window, "_FIRST_PAUSE", timedelta(milliseconds=1))
    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=30, run_group_id="grp")

    await episodes.until(
        lambda: episodes.index.group("grp").figures.completed == 30, within=PATIENT
    )
    result = await group.result()

    assert (result.figures.n, result.figures.completed) == (30, 30)
    _, *earlier = await histories(episodes, "grp")
    assert len(earlier) > 1
    for history in earlier:
        # A look that is canceled is the last. Taken for one that failed it was made again and
        # again, for 33 s.
        assert since_the_last_end(history) < timedelta(seconds=15)


async def test_a_canceled_group_cancels_what_earlier_executions_started(
    episodes: EpisodeHarness, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_members, "MOST_EVENTS", 60)
    script.hold("grp-0000")
    script.hold("grp-0023")
    group = await episodes.trainer.start_group(episodes.spec(SCORES), size=24, run_group_id="grp")
    await episodes.until(lambda: "grp-0023" in script.runs, within=PATIENT)
    await episodes.until(
        lambda: episodes.index.group("grp").figures.completed == 22, within=PATIENT
    )

    await group.cancel("enough", by="ana")
    result = await group.result()

    assert (result.figures.completed, result.figures.canceled) == (22, 2)
    for run_id in ("grp-0000", "grp-0023"):
        assert episodes.row(run_id).error == "enough"
        assert await episodes.agrees(run_id, RunStatus.CANCELED)


def since_the_last_end(history: WorkflowHistory) -> timedelta:
    """From the end of the last member that an execution started and saw end to its own."""
    kind = EventType.EVENT_TYPE_CHILD_WORKFLOW_EXECUTION_COMPLETED
    *_, last = history.events
    ends = [event for event in history.events if event.event_type == kind]
    since = ends[-1] if ends else last
    return last.event_time.ToDatetime() - since.event_time.ToDatetime()


async def histories(episodes: EpisodeHarness, workflow_id: str) -> list[WorkflowHistory]:
    """Of each execution, the last first; every one must replay."""
    found: list[WorkflowHistory] = []
    run_id: str | None = None
    while run_id != "":
        history = await episodes.client.get_workflow_handle(
            workflow_id, run_id=run_id
        ).fetch_history()
        await Replayer(
            workflows=WORKFLOWS, plugins=[EpisodePlugin(sandboxed=True)]
        ).replay_workflow(history)
        found.append(history)
        started = history.events[0].workflow_execution_started_event_attributes
        run_id = started.continued_execution_run_id
    return found
