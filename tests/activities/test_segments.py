"""activities/_segments.py: segments of a run that was ended from outside; what a worker held."""

import asyncio
from datetime import timedelta
from pathlib import Path

from activities._segments import Segments
from agent_env._abandoned import HeldAttempt
from agent_env.specs import Interrupt

ATTEMPT = HeldAttempt("run", "w", "1")


async def test_stopping_a_run_waits_until_what_runs_of_it_is_over(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    told, go = asyncio.Event(), asyncio.Event()

    async def play(run_id: str) -> None:
        with segments.running(run_id, 1, ("a",), ATTEMPT) as stop:
            await stop.wait()
            told.set()
            await go.wait()

    async with asyncio.timeout(30):
        playing = asyncio.create_task(play("run"))
        other = asyncio.create_task(play("other"))
        while len(segments) < 2:
            await asyncio.sleep(0)
        stopping = asyncio.create_task(segments.stopped("run"))
        await told.wait()
        was_done = stopping.done()
        go.set()
        await stopping

        assert not was_done
        assert len(segments) == 1
        await playing
        other.cancel()
        await asyncio.wait([other])


async def test_stopping_a_run_does_not_wait_for_ever(tmp_path: Path) -> None:
    segments = Segments(tmp_path)

    with segments.running("run", 1, ("a",), ATTEMPT) as stop:
        async with asyncio.timeout(30):
            await segments.stopped("run", within=timedelta(milliseconds=50))

        assert stop.is_set()
        assert len(segments) == 1


async def test_stopping_a_run_of_which_nothing_runs_takes_no_time(tmp_path: Path) -> None:
    async with asyncio.timeout(1):
        await Segments(tmp_path).stopped("run")


def test_an_attempt_that_could_not_be_given_back_is_left_to_the_next_worker(
    tmp_path: Path,
) -> None:
    with Segments(tmp_path).held(ATTEMPT):
        interrupted = next(Segments(tmp_path).abandoned())
        given_back = [*Segments(tmp_path).abandoned()]
        left = [*Segments(tmp_path).abandoned()]

    assert (interrupted, given_back, left) == (ATTEMPT, [ATTEMPT], [])


async def test_a_run_that_was_stopped_ahead_answers_only_when_its_cancel_is_heard(
    tmp_path: Path,
) -> None:
    segments = Segments(tmp_path)
    with segments.running("run", 1, ("a",), ATTEMPT) as stop:
        segments.stop_ahead("run")
        waiting = asyncio.create_task(segments.cancel_heard("run"))
        await asyncio.sleep(0)

        assert stop.is_set()
        assert not waiting.done()
        segments.interrupt(Interrupt(run_id="run", epoch=1, step_ids=("a",)))
        async with asyncio.timeout(30):
            await waiting


async def test_a_segment_that_comes_after_its_run_was_stopped_is_stopped_as_it_comes(
    tmp_path: Path,
) -> None:
    segments = Segments(tmp_path)
    segments.stop_ahead("run")

    with (
        segments.running("run", 2, ("b",), ATTEMPT) as stop,
        segments.running("other", 1, ("b",), ATTEMPT._replace(workflow_id="other")) as goes_on,
    ):
        assert (stop.is_set(), goes_on.is_set()) == (True, False)


async def test_a_run_that_has_ended_is_not_stopped_ahead_any_more(tmp_path: Path) -> None:
    segments = Segments(tmp_path)
    segments.stop_ahead("run")

    segments.forget("run")

    async with asyncio.timeout(30):
        await segments.cancel_heard("run")
    with segments.running("run", 1, ("a",), ATTEMPT) as stop:
        assert not stop.is_set()
