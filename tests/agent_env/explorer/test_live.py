import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from agent_env.errors import IndexUnavailableError
from agent_env.explorer.live import Poller, Snapshot, differences
from agent_env.explorer.temporal import Temporal
from agent_env.explorer.views import Changes, LiveCounts
from agent_env.runs import RunIndex
from agent_env.runs.lists import LiveRow, WatchedRun
from agent_env.runs.reads import IndexReads
from tests.agent_env.explorer.conftest import ended, new_run, nowhere, running, say

EVERY_S = 0.01
NONE = LiveCounts(queued=0, running=0)


async def in_thread(work: Callable[..., Any], *args: Any) -> Any:
    return await asyncio.to_thread(work, *args)


@pytest.fixture
def poller(index: RunIndex) -> Poller:
    return Poller(index.reads, in_thread=in_thread, temporal=Temporal(nowhere), every_s=EVERY_S)


def row(run_id: str, **changes: Any) -> LiveRow:
    values: dict[str, Any] = {
        "run_id": run_id,
        "run_group_id": "g",
        "created_at": datetime(2026, 1, 31, tzinfo=UTC),
        "status": "RUNNING",
        "steps_done": 0,
        "current_step": None,
        "host": "here",
        "epoch": 1,
        "cancel_requested_at": None,
        "reward": None,
        "prompt_tokens": None,
        "completion_tokens": None,
    }
    return LiveRow(**{**values, **changes})


def snapshot(*live: LiveRow, new: tuple[LiveRow, ...] = ()) -> Snapshot:
    return Snapshot({r.run_id: r for r in live}, {r.run_id: r for r in new}, NONE)


def test_what_began_changed_or_ended_is_different() -> None:
    before = snapshot(row("same"), row("steps"), row("ended", run_group_id="h"))
    after = snapshot(row("same"), row("steps", steps_done=1), row("began", run_group_id=None))

    runs, groups = differences(before, after)

    assert runs == {"steps", "ended", "began"}
    assert groups == {"g", "h"}


def test_a_run_that_began_and_ended_between_two_polls_is_new() -> None:
    quick = row("quick", status="COMPLETED")

    assert differences(snapshot(), snapshot(new=(quick,)))[0] == {"quick"}
    assert differences(snapshot(new=(quick,)), snapshot(new=(quick,)))[0] == set()


def watching(**watched: WatchedRun) -> Snapshot:
    return Snapshot({}, {}, NONE, watched)


def test_a_watched_run_is_different_when_it_is_first_watched_or_tells_more() -> None:
    silent = WatchedRun("g", "COMPLETED", None, [], messages=0)
    talked, group = silent._replace(messages=1), "g"

    assert differences(watching(), watching(r=silent)) == ({"r"}, {group})
    assert differences(watching(r=silent), watching(r=silent)) == (set(), set())
    assert differences(watching(r=silent), watching(r=talked)) == ({"r"}, {group})
    assert differences(watching(r=silent), watching()) == (set(), set())


async def following(poller: Poller, after: Changes) -> Changes:
    """The next answer that has something to say."""
    async with asyncio.timeout(20):
        while (found := poller.since(after.seq)).seq == after.seq:
            await asyncio.sleep(0.01)
    return found


async def quiet(poller: Poller) -> Changes:
    """After the first poll, which knows of no names."""
    first = poller.since(None)
    return await following(poller, first)


async def test_a_change_is_told_by_name(index: RunIndex, poller: Poller) -> None:
    running(index, "r", run_group_id="g", member_index=0)
    async with poller.running():
        start = await quiet(poller)
        ended(index, "r", run=new_run("r", run_group_id="g", member_index=0))

        change = await following(poller, start)

        assert (change.runs, change.groups, change.all) == (("r",), ("g",), False)
        assert change.live == NONE
        assert poller.since(start.seq).runs == ("r",)
        assert poller.since(change.seq).runs == ()


async def test_of_a_watched_run_messages_are_told_and_of_no_other(
    index: RunIndex, poller: Poller
) -> None:
    running(index, "watched", run_group_id="g", member_index=0)
    running(index, "other")
    async with poller.running():
        start = await quiet(poller)
        poller.since(start.seq, run_id="watched")
        first = await following(poller, start)
        assert (first.runs, first.all) == (("watched",), False)

        say(index, "other", "hello")
        say(index, "watched", "hello")
        change = await following(poller, first)

        assert (change.runs, change.groups, change.all) == (("watched",), ("g",), False)


async def test_the_runs_asked_about_last_are_watched(
    index: RunIndex, poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_env.explorer.live._MOST_WATCHED", 2)
    for run_id in ("a", "b", "c"):
        running(index, run_id)
    async with poller.running():
        start = await quiet(poller)
        for run_id in ("a", "b", "a", "c"):
            poller.since(start.seq, run_id=run_id)

        assert (await following(poller, start)).runs == ("a", "c")


async def test_a_run_is_watched_for_as_long_as_its_stream_is_open(
    index: RunIndex, poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_env.explorer.live._LAST_LISTENER_S", 0.2)
    running(index, "r")
    async with poller.running():
        stream = poller.stream(None, run_id="r", beat_s=0.05)
        await _tells_of(stream, "r")
        for _ in range(10):
            assert await anext(stream) is None
        say(index, "r", "hello")

        await _tells_of(stream, "r")
        await stream.aclose()


async def test_who_asks_after_too_long_is_told_to_fetch_all(
    index: RunIndex, poller: Poller
) -> None:
    async with poller.running():
        start = await quiet(poller)
        running(index, "r")
        now = await following(poller, start)
        assert not now.all

        assert poller.since(start.seq - 1000).all
        assert poller.since(now.seq + 1000).all
        assert not poller.since(start.seq).all


async def test_nobody_who_watches_means_no_poll(poller: Poller, index: RunIndex) -> None:
    async with poller.running():
        await asyncio.sleep(0.1)

        assert poller.polls == 0


async def test_fifty_listeners_cost_the_polls_of_one(poller: Poller, index: RunIndex) -> None:
    async with poller.running():
        streams = [poller.stream(None) for _ in range(50)]
        firsts = await asyncio.gather(*(anext(stream) for stream in streams))
        assert all(first is not None for first in firsts)
        assert poller.listeners == 50
        before, began = poller.polls, time.monotonic()
        running(index, "r")

        async with asyncio.timeout(20):
            await asyncio.gather(*(_tells_of(stream, "r") for stream in streams))

        assert poller.polls - before <= 2 + (time.monotonic() - began) / EVERY_S
        for stream in streams:
            await stream.aclose()
        assert poller.listeners == 0


async def _tells_of(stream: AsyncIterator[Changes | None], run_id: str) -> None:
    async for change in stream:
        if change is not None and (change.all or run_id in change.runs):
            return


async def test_a_stream_beats_while_nothing_happens(poller: Poller) -> None:
    async with poller.running():
        await quiet(poller)
        stream = poller.stream(None, beat_s=0.05)

        first = await anext(stream)
        second = await anext(stream)

        assert first is not None
        assert second is None
        await stream.aclose()


async def test_streams_end_when_the_server_stops(poller: Poller) -> None:
    async with poller.running():
        await quiet(poller)
        stream = poller.stream(None)
        await anext(stream)

        await poller.stop()

        async with asyncio.timeout(20):
            assert [change async for change in stream if change is not None] == []


@pytest.mark.parametrize(
    "error", [IndexUnavailableError("the run index is away"), KeyError("the run index is away")]
)
async def test_an_index_that_is_away_is_told_and_so_is_its_return(
    index: RunIndex, poller: Poller, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def away(self: IndexReads, **_: object) -> None:
        raise error

    async with poller.running():
        start = await quiet(poller)
        assert start.index is None
        assert start.temporal == "no Temporal server runs here"
        with monkeypatch.context() as patch:
            patch.setattr(IndexReads, "live_rows", away)

            gone = await following(poller, start)
            assert "the run index is away" in str(gone.index)

        back = await following(poller, gone)
        assert back.index is None
        assert back.all
