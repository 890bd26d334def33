"""Groups: listed at once, bounded, independent, canceled as one."""

import asyncio
import dataclasses

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError

from agent_env import names
from agent_env.errors import ConflictError, IndexUnavailableError, InvalidSpecError
from agent_env.status import RunStatus
from tests.workflows.conftest import EpisodeHarness, Script
from tests.workflows.ended_member import ended_member
from tests.workflows.test_episode import rename


async def test_all_members_are_listed_when_start_returns(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("a")

    group = await episodes.trainer.start_group(
        episodes.spec({"id": "a"}), size=6, run_group_id="grp"
    )

    rows = episodes.index.members("grp")
    assert [row.run_id for row in rows] == [f"grp-{index:04d}" for index in range(6)]
    assert [row.seed for row in rows] == [{"seed": str(index)} for index in range(6)]
    go.set()
    assert (await group.result()).figures.completed == 6


async def test_a_group_gives_its_members_in_order_and_their_figures(
    episodes: EpisodeHarness,
) -> None:
    group = await episodes.trainer.start_group(episodes.spec({"id": "a", "score": 0.5}), size=3)

    result = await group.result()

    assert [member.member_index for member in result.members] == [0, 1, 2]
    assert (result.mean, result.figures.std, result.figures.n_scored) == (0.5, 0.0, 3)
    assert result.advantages == (0.0, 0.0, 0.0)
    assert await episodes.workflow_status(group.run_group_id) is WorkflowExecutionStatus.COMPLETED


async def test_one_member_that_fails_cancels_no_other(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.fails["a"] = 1

    group = await episodes.trainer.start_group(
        episodes.spec({"id": "a", "score": 1.0}), size=4, max_parallel=1
    )
    result = await group.result()

    assert [member.status for member in result.members] == [
        RunStatus.FAILED,
        RunStatus.COMPLETED,
        RunStatus.COMPLETED,
        RunStatus.COMPLETED,
    ]
    assert (result.figures.n, result.figures.n_scored, result.mean) == (4, 3, 1.0)
    assert result.advantages[0] is None


async def test_no_more_than_max_parallel_members_run_at_once(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("a")
    group = await episodes.trainer.start_group(episodes.spec({"id": "a"}), size=5, max_parallel=2)
    await episodes.until(lambda: len(script.ran) == 2)

    at_once = (await group.snapshot()).figures

    assert (at_once.running, at_once.queued) == (2, 3)
    go.set()
    assert (await group.result()).figures.completed == 5


async def test_no_more_members_run_than_the_host_has_room_for(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("a")
    group = await episodes.trainer.start_group(episodes.spec({"id": "a"}), size=9)
    await episodes.until(lambda: len(script.ran) == 4)

    at_once = (await group.snapshot()).figures

    assert (at_once.running, at_once.queued) == (4, 5)
    go.set()
    assert (await group.result()).figures.completed == 9


async def test_members_stream_as_they_end_each_once(
    episodes: EpisodeHarness, script: Script
) -> None:
    group = await episodes.trainer.start_group(
        episodes.spec({"id": "a", "score": 1.0}), size=5, max_parallel=2
    )

    seen = [member.run_id async for member in group.as_completed()]

    assert sorted(seen) == [f"{group.run_group_id}-{index:04d}" for index in range(5)]


async def test_canceling_a_group_ends_running_and_waiting_members_and_keeps_finished_ones(
    episodes: EpisodeHarness, script: Script
) -> None:
    spec = episodes.spec({"id": "a"}, {"id": "b", "depends_on": []})
    group = await episodes.trainer.start_group(spec, size=2, run_group_id="done")
    await group.result()
    script.ran.clear()
    script.hold("a")
    group = await episodes.trainer.start_group(spec, size=8, max_parallel=3)
    await episodes.until(lambda: script.ran.count("a") == 3)

    asked = await group.cancel("no more", by="ana")
    result = await group.result()

    assert asked == 8
    assert {member.status for member in result.members} == {RunStatus.CANCELED}
    assert {member.error for member in result.members} == {"no more"}
    assert script.ran.count("a") == 3, "members that had not begun never begin"
    rows = episodes.index.members(group.run_group_id)
    assert {row.cancel_requested_by for row in rows} == {"ana"}
    for row in rows[:3]:
        assert await episodes.agrees(row.run_id, RunStatus.CANCELED)
    assert await episodes.workflow_status(group.run_group_id) is WorkflowExecutionStatus.CANCELED
    assert (await episodes.trainer.attach_group("done").result()).figures.completed == 2


async def test_a_group_canceled_in_temporal_ends_its_members_with_the_reason(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("a")
    group = await episodes.trainer.start_group(episodes.spec({"id": "a"}), size=3, max_parallel=2)
    await episodes.until(lambda: len(script.ran) == 2)

    await episodes.client.get_workflow_handle(group.run_group_id).cancel(reason="from the UI")
    result = await group.result()

    assert [member.status for member in result.members] == [RunStatus.CANCELED] * 3
    assert {member.error for member in result.members} == {"from the UI"}


async def test_the_same_group_id_twice_is_refused(episodes: EpisodeHarness, script: Script) -> None:
    spec = episodes.spec({"id": "a"})
    group = await episodes.trainer.start_group(spec, size=2, run_group_id="twin")
    await group.result()

    with pytest.raises(ConflictError, match=r"'twin' is taken by agent_env\.RolloutGroup"):
        await episodes.trainer.start_group(spec, size=2, run_group_id="twin")

    assert script.ran == ["a", "a"]


async def test_an_index_that_refuses_the_rows_fails_start_and_nothing_is_started(
    episodes: EpisodeHarness, script: Script
) -> None:
    rename(episodes, "runs", "elsewhere")

    with pytest.raises(IndexUnavailableError):
        await episodes.trainer.start_group(
            episodes.spec({"id": "a"}), size=2, run_group_id="refused"
        )

    assert await episodes.workflow_status("refused") is WorkflowExecutionStatus.FAILED
    assert script.ran == []


async def test_single_episodes_can_name_a_group_and_are_canceled_with_it(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("a")
    spec = episodes.spec({"id": "a"})
    for run_id in ("one", "two"):
        await episodes.trainer.start(spec, run_id=run_id, run_group_id="loose")
    group = episodes.trainer.attach_group("loose")
    assert (await group.snapshot()).figures.n == 2

    await group.cancel("together", by="ana")
    result = await group.result()

    assert [member.status for member in result.members] == [RunStatus.CANCELED] * 2


@pytest.mark.parametrize("size", [0, -1, 10_001])
async def test_a_group_of_no_or_too_many_members_is_refused(
    idle: EpisodeHarness, size: int
) -> None:
    with pytest.raises(InvalidSpecError, match="1 to 10,000 members"):
        await idle.trainer.start_group(idle.spec({"id": "a"}), size=size)


async def test_a_large_task_starts_its_members_in_small_batches(
    episodes: EpisodeHarness,
) -> None:
    spec = episodes.spec({"id": "a"})
    big = spec.task.model_copy(update={"artifacts": {"note": "sha256:" + "0" * 700_000}})
    group = await episodes.trainer.start_group(dataclasses.replace(spec, task=big), size=6)

    assert (await group.result()).figures.completed == 6


async def test_a_member_whose_row_was_ended_before_it_began_closes_as_its_row_says(
    episodes: EpisodeHarness, script: Script
) -> None:
    start = ended_member(episodes)

    handle = await episodes.client.start_workflow(
        names.EPISODE, start, id="grp-0000", task_queue=names.TASK_QUEUE
    )
    with pytest.raises(WorkflowFailureError):
        async with asyncio.timeout(20):
            await handle.result()

    assert await episodes.agrees("grp-0000", RunStatus.CANCELED)
    assert script.ran == []
