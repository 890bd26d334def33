"""The life of one episode, and every way it can end."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus, WorkflowFailureError
from temporalio.exceptions import ApplicationError

from agent_env.errors import ConflictError, IndexUnavailableError
from agent_env.runs.records import CancelState
from agent_env.status import RunStatus, StepStatus
from tests.workflows.conftest import EpisodeHarness, Script


async def test_an_episode_that_passes_ends_completed_with_its_reward(
    episodes: EpisodeHarness,
) -> None:
    result = await episodes.play({"id": "a", "deploys": "box"}, {"id": "b", "score": 0.5})

    assert (result.status, result.reward) == (RunStatus.COMPLETED, 0.5)
    assert result.scores == {"b": 0.5}
    assert await episodes.agrees(result.run_id, RunStatus.COMPLETED)
    assert episodes.provider.live == []
    assert [step.status for step in episodes.index.steps(result.run_id)] == [
        StepStatus.COMPLETED,
        StepStatus.COMPLETED,
    ]


async def test_start_returns_when_the_row_exists(episodes: EpisodeHarness, script: Script) -> None:
    go = script.hold("a")

    episode = await episodes.trainer.start(episodes.spec({"id": "a"}))

    assert episodes.row(episode.run_id).status is RunStatus.RUNNING
    go.set()
    await episode.result()


async def test_a_fatal_failure_stops_the_rest_and_fails_workflow_and_row(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.fails["b"] = 1

    result = await episodes.play({"id": "a", "deploys": "box"}, {"id": "b"}, {"id": "c"})

    assert (result.status, result.error_type) == (RunStatus.FAILED, "ValueError")
    assert result.error == "step 'b': b is broken"
    assert script.ran == ["a", "b"]
    assert await episodes.agrees(result.run_id, RunStatus.FAILED)
    assert episodes.provider.live == []


async def test_a_failed_workflow_carries_the_result_as_its_detail(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.fails["a"] = 1
    result = await episodes.play({"id": "a"})

    with pytest.raises(WorkflowFailureError) as failed:
        await episodes.client.get_workflow_handle(result.run_id).result()

    cause = failed.value.cause
    assert isinstance(cause, ApplicationError)
    assert (cause.type, cause.details[0]["run_id"]) == ("ValueError", result.run_id)


async def test_a_tolerated_failure_lets_the_rest_go_on_and_ends_failed(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.fails["a"] = 1

    result = await episodes.play(
        {"id": "a", "fail_task_on_error": False}, {"id": "b", "score": 1.0}
    )

    assert script.ran == ["a", "b"]
    assert (result.status, result.reward) == (RunStatus.FAILED, 1.0)
    assert result.error == "step 'a': a is broken"
    assert await episodes.agrees(result.run_id, RunStatus.FAILED)


async def test_a_retry_runs_its_span_again_and_the_failure_stays_in_the_record(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.fails["b"] = 1

    result = await episodes.play(
        {"id": "a", "deploys": "box"},
        {"id": "b", "retry_config": {"retry_from_step_id": "a", "max_retries": 1}},
    )

    assert result.status is RunStatus.COMPLETED
    assert script.ran == ["a", "b", "a", "b"]
    recorded = [
        (step.step_id, step.epoch, step.status, step.retried)
        for step in episodes.index.steps(result.run_id)
    ]
    assert recorded == [
        ("a", 1, StepStatus.COMPLETED, True),
        ("b", 1, StepStatus.FAILED, True),
        ("a", 2, StepStatus.COMPLETED, False),
        ("b", 2, StepStatus.COMPLETED, False),
    ]
    assert episodes.provider.live == []
    assert len(episodes.provider.destroyed) == 2


async def test_a_step_whose_retries_are_used_up_fails_the_episode(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.fails["a"] = 9

    result = await episodes.play({"id": "a", "retry_config": {"max_retries": 2}})

    assert script.ran == ["a"] * 3
    assert result.status is RunStatus.FAILED


async def test_a_wait_of_a_week_passes_at_once(episodes: EpisodeHarness) -> None:
    began = time.monotonic()

    result = await episodes.play_for(
        timedelta(days=8),
        {"id": "a", "type": "wait", "seconds": 7 * 86_400},
        {"id": "b", "score": 1.0},
    )

    assert result.status is RunStatus.COMPLETED
    assert time.monotonic() - began < 20
    step = episodes.index.steps(result.run_id)[0]
    assert step.started_at is not None
    assert step.finished_at is not None
    assert step.finished_at - step.started_at >= timedelta(days=7)


async def test_a_deadline_of_a_day_ends_an_episode_that_waits_a_week(
    episodes: EpisodeHarness,
) -> None:
    result = await episodes.play_for(
        timedelta(days=2),
        {"id": "a", "deploys": "box"},
        {"id": "b", "type": "wait", "seconds": 7 * 86_400},
        deadline_seconds=86_400,
    )

    assert (result.status, result.error_type) == (RunStatus.FAILED, "DeadlineExceeded")
    assert result.error == "the episode took longer than 86400 s"
    assert await episodes.agrees(result.run_id, RunStatus.FAILED)
    assert episodes.provider.live == []


async def test_a_deadline_stops_a_running_step(episodes: EpisodeHarness, script: Script) -> None:
    script.hold("a")

    result = await episodes.play({"id": "a", "deploys": "box"}, deadline_seconds=1)

    assert (result.status, result.error_type) == (RunStatus.FAILED, "DeadlineExceeded")
    assert script.canceled == ["a"]
    assert episodes.provider.live == []


async def test_a_deadline_ends_an_episode_that_is_queued(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("a")
    full = [await episodes.trainer.start(episodes.spec({"id": "a"})) for _ in range(4)]

    result = await episodes.play({"id": "q"}, deadline_seconds=1)

    assert (result.status, result.error_type) == (RunStatus.FAILED, "DeadlineExceeded")
    assert "q" not in script.ran
    assert await episodes.agrees(result.run_id, RunStatus.FAILED)
    go.set()
    for episode in full:
        assert (await episode.result()).status is RunStatus.COMPLETED


async def test_steps_beside_a_wait_run_while_it_waits(
    episodes: EpisodeHarness, script: Script
) -> None:
    result = await episodes.play_for(
        timedelta(hours=2),
        {"id": "w", "type": "wait", "seconds": 3600},
        {"id": "a", "depends_on": []},
        {"id": "b", "depends_on": ["w", "a"]},
    )

    assert result.status is RunStatus.COMPLETED
    assert script.ran == ["a", "b"]


# -- cancel, by the phase in which it arrives


async def test_a_cancel_before_any_worker_is_up_ends_canceled_and_nothing_is_deployed(
    idle: EpisodeHarness, script: Script, start_worker: Callable[[], Awaitable[None]]
) -> None:
    spec = idle.spec({"id": "a", "deploys": "box"})
    starting = asyncio.create_task(idle.trainer.start(spec, run_id="early"))
    async with asyncio.timeout(10):
        while await status_or_none(idle, "early") is None:
            await asyncio.sleep(0.01)
    await idle.client.get_workflow_handle("early").cancel(reason="changed my mind")

    await start_worker()
    result = await (await starting).result()

    assert (result.status, result.error) == (RunStatus.CANCELED, "changed my mind")
    assert script.ran == []
    assert await idle.agrees("early", RunStatus.CANCELED)


async def test_a_cancel_in_a_step_stops_it_and_tears_down(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("b")
    episode = await episodes.trainer.start(
        episodes.spec({"id": "a", "deploys": "box", "score": 1.0}, {"id": "b"}, reward="a")
    )
    await episodes.until(lambda: "b" in script.ran)

    result = await episodes.canceled(episode)

    assert (result.status, result.error) == (RunStatus.CANCELED, "enough")
    assert script.canceled == ["b"]
    assert result.reward == 1.0, "scores from before a cancel are kept"
    assert episodes.provider.live == []
    assert await episodes.agrees(episode.run_id, RunStatus.CANCELED)
    assert [step.status for step in episodes.index.steps(episode.run_id)] == [
        StepStatus.COMPLETED,
        StepStatus.CANCELED,
    ]


async def test_a_cancel_in_a_timer_is_heard_at_once(episodes: EpisodeHarness) -> None:
    episode = await episodes.trainer.start(
        episodes.spec({"id": "w", "type": "wait", "seconds": 10**7}, {"id": "a"})
    )

    result = await episodes.canceled(episode)

    assert result.status is RunStatus.CANCELED
    assert await episodes.agrees(episode.run_id, RunStatus.CANCELED)


async def test_a_cancel_while_queued_is_heard_at_once(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("a")
    full = [await episodes.trainer.start(episodes.spec({"id": "a"})) for _ in range(4)]
    queued = await episodes.trainer.start(episodes.spec({"id": "q"}))
    assert episodes.row(queued.run_id).status is RunStatus.QUEUED

    result = await episodes.canceled(queued)

    assert result.status is RunStatus.CANCELED
    assert "q" not in script.ran
    go.set()
    for episode in full:
        assert (await episode.result()).status is RunStatus.COMPLETED


@pytest.mark.parametrize("fails", [0, 1])
async def test_a_workflow_terminated_in_teardown_gets_no_other_end(
    episodes: EpisodeHarness, script: Script, fails: int
) -> None:
    """The worker has not heard of it yet: what was terminated is for the reconciler to end."""
    script.fails["a"] = fails
    gate = episodes.provider.destroy_gate = asyncio.Event()
    episode = await episodes.trainer.start(episodes.spec({"id": "a", "deploys": "box"}))
    # A success is torn down by its last segment first, for a second; then by `finish`.
    await episodes.until(lambda: episodes.provider.destroying == 2 - fails)

    await episodes.client.get_workflow_handle(episode.run_id).terminate("enough")
    gate.set()
    attempts = episodes.services.settings.state_dir / "attempts"
    await episodes.until(lambda: episodes.provider.live == [] and not any(attempts.iterdir()))

    assert episodes.row(episode.run_id).status is RunStatus.RUNNING
    assert await episodes.workflow_status(episode.run_id) is WorkflowExecutionStatus.TERMINATED


async def test_a_cancel_in_teardown_is_recorded_and_changes_nothing(
    episodes: EpisodeHarness,
) -> None:
    episodes.provider.destroy_gate = asyncio.Event()
    episode = await episodes.trainer.start(episodes.spec({"id": "a", "deploys": "box"}))
    await episodes.until(lambda: episodes.provider.destroying > 0)

    answer = await episode.cancel("too late", by="tester")
    # The workflow has heard it: `finish` has taken over, and waits at the gate, too.
    await episodes.until(lambda: episodes.provider.destroying > 1)
    episodes.provider.destroy_gate.set()
    result = await episode.result()

    assert answer.state is CancelState.ASKED
    assert result.status is RunStatus.COMPLETED
    assert episodes.row(episode.run_id).cancel_requested_reason == "too late"
    assert await episodes.agrees(episode.run_id, RunStatus.COMPLETED)
    assert episodes.provider.live == []


@pytest.mark.parametrize("comes_first", [True, False])
async def test_a_cancel_that_meets_the_end_of_the_last_segment_is_too_late(
    episodes: EpisodeHarness, script: Script, comes_first: bool
) -> None:
    """It is not torn down within a second, so its row is yet to be written."""
    episodes.provider.destroy_gate = asyncio.Event()
    end = script.hold("a")
    spec = episodes.spec({"id": "a", "deploys": "box", "score": 1.0})
    episode = await episodes.trainer.start(spec)
    await episodes.until(lambda: "a" in script.ran)

    await episodes.cancel_as_it_ends(episode.run_id, end, comes_first=comes_first)
    await episodes.until(lambda: episodes.provider.destroying > 1)
    episodes.provider.destroy_gate.set()
    result = await episode.result()

    assert (result.status, result.reward) == (RunStatus.COMPLETED, 1.0)
    assert await episodes.agrees(episode.run_id, RunStatus.COMPLETED)
    assert episodes.provider.live == []


async def test_a_step_that_swallows_its_cancel_is_canceled_all_the_same(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("a")
    script.swallows.add("a")
    episode = await episodes.trainer.start(episodes.spec({"id": "a", "score": 1.0}))
    await episodes.until(lambda: "a" in script.ran)

    result = await episodes.canceled(episode)

    assert (result.status, result.reward) == (RunStatus.CANCELED, None)
    assert [step.output for step in episodes.index.steps(episode.run_id)] == [None]


async def test_canceling_twice_and_in_teardown_keeps_the_first_reason(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("b")
    episodes.provider.destroy_gate = asyncio.Event()
    episode = await episodes.trainer.start(
        episodes.spec({"id": "a", "deploys": "box"}, {"id": "b"})
    )
    await episodes.until(lambda: "b" in script.ran)

    first = await episode.cancel("first", by="ana")
    second = await episode.cancel("second", by="bob")
    await episodes.until(lambda: episodes.provider.destroying > 0)
    third = await episode.cancel("third", by="cy")
    episodes.provider.destroy_gate.set()
    result = await episode.result()
    fourth = await episode.cancel("fourth", by="di")

    assert [a.state for a in (first, second, third, fourth)] == [
        CancelState.ASKED,
        CancelState.ALREADY_ASKED,
        CancelState.ALREADY_ASKED,
        CancelState.FINISHED,
    ]
    assert (result.status, result.error) == (RunStatus.CANCELED, "first")
    row = episodes.row(episode.run_id)
    assert (row.cancel_requested_by, row.cancel_requested_reason) == ("ana", "first")
    assert len(episodes.provider.destroyed) == 1


async def test_a_cancel_from_temporal_alone_fills_in_the_request(
    episodes: EpisodeHarness, script: Script
) -> None:
    script.hold("a")
    episode = await episodes.trainer.start(episodes.spec({"id": "a"}))
    await episodes.until(lambda: "a" in script.ran)

    await episodes.client.get_workflow_handle(episode.run_id).cancel()
    result = await episode.result()

    assert (result.status, result.error) == (RunStatus.CANCELED, "canceled in Temporal")
    row = episodes.row(episode.run_id)
    assert row.cancel_requested_at is not None
    assert row.cancel_requested_reason == "canceled in Temporal"


# -- what keeps an episode from existing


async def test_the_same_run_id_twice_at_once_is_one_episode(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("a")
    spec = episodes.spec({"id": "a"})

    answers = await asyncio.gather(
        *(episodes.trainer.start(spec, run_id="twin") for _ in range(2)), return_exceptions=True
    )

    refused = [answer for answer in answers if isinstance(answer, ConflictError)]
    assert len(refused) == 1
    assert "'twin' is taken by agent_env.Episode" in str(refused[0])
    go.set()
    assert (await episodes.trainer.attach("twin").result()).status is RunStatus.COMPLETED
    assert script.ran == ["a"]


async def test_an_index_that_refuses_the_row_fails_start_and_leaves_nothing(
    episodes: EpisodeHarness, script: Script
) -> None:
    spec = episodes.spec({"id": "a"})
    rename(episodes, "runs", "elsewhere")

    with pytest.raises(IndexUnavailableError):
        await episodes.trainer.start(spec, run_id="refused")

    assert await episodes.workflow_status("refused") is WorkflowExecutionStatus.FAILED
    rename(episodes, "elsewhere", "runs")
    assert script.ran == []
    episode = await episodes.trainer.start(spec, run_id="refused")
    assert (await episode.result()).status is RunStatus.COMPLETED


async def test_an_episode_waits_for_an_index_that_is_down_at_its_end(
    episodes: EpisodeHarness, script: Script
) -> None:
    go = script.hold("a")
    episode = await episodes.trainer.start(episodes.spec({"id": "a", "deploys": "box"}))
    await episodes.until(lambda: "a" in script.ran)
    rename(episodes, "runs", "elsewhere")

    go.set()
    await episodes.until(lambda: len(episodes.provider.destroyed) == 1)
    still_open = await episodes.workflow_status(episode.run_id)
    rename(episodes, "elsewhere", "runs")

    assert still_open is WorkflowExecutionStatus.RUNNING
    assert (await episode.result()).status is RunStatus.COMPLETED


async def test_the_outcome_is_known_before_teardown_ends(episodes: EpisodeHarness) -> None:
    episodes.provider.destroy_gate = asyncio.Event()
    episode = await episodes.trainer.start(
        episodes.spec({"id": "a", "deploys": "box", "score": 0.25})
    )

    early = await episode.result(teardown=False)

    assert (early.status, early.reward) == (RunStatus.COMPLETED, 0.25)
    assert episodes.row(episode.run_id).status is RunStatus.RUNNING
    episodes.provider.destroy_gate.set()
    assert (await episode.result()).reward == 0.25


async def test_what_teardown_can_not_remove_is_named_and_fails_nothing(
    episodes: EpisodeHarness,
) -> None:
    episodes.provider.fail_destroy_times = 1000

    result = await episodes.play({"id": "a", "deploys": "box", "score": 1.0})

    assert (result.status, result.reward) == (RunStatus.COMPLETED, 1.0)
    assert [ref.name for ref in result.still_up] == ["box"]


def rename(episodes: EpisodeHarness, old: str, new: str) -> None:
    """Take a table away, as a broken or foreign database lacks it."""
    episodes.sql(f"ALTER TABLE {old} RENAME TO {new}")


async def status_or_none(episodes: EpisodeHarness, run_id: str) -> WorkflowExecutionStatus | None:
    from temporalio.service import RPCError

    try:
        return await episodes.workflow_status(run_id)
    except RPCError:
        return None
