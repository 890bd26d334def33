"""A worker whose clock is ten minutes ahead, beside one whose clock is right."""

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import JsonValue

from agent_env.results import StepReport
from agent_env.runs import RunRecord
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.launched import launched
from tests.end_to_end.stage import box, command, spec

AHEAD = ("--clock-ahead-s", "600")
WAIT: JsonValue = {"id": "wait", "type": "wait", "seconds": 0.5}


async def test_order_and_durations_of_steps_hold_on_a_host_whose_clock_is_ahead(
    product: Product,
) -> None:
    """L10."""
    steps = [box(), command("nap", "sleep 1"), WAIT, command("last", "echo 1", score_from="stdout")]
    began = datetime.now(UTC)
    with launched(product, *AHEAD):
        await (await product.trainer.start(spec(box()))).result()
        episode = await product.trainer.start(spec(*steps))
        result = await episode.result()
    ended = datetime.now(UTC)

    row = await episode.record()
    reports = product.index.steps(episode.run_id)
    assert result.status is RunStatus.COMPLETED
    assert [report.step_id for report in reports] == ["box", "nap", "wait", "last"]
    check_times(row, reports, began, ended)
    nap = next(report for report in reports if report.step_id == "nap")
    assert 1 <= duration_s(nap.started_at, nap.finished_at) < 30
    shown = product.cli().run("show", episode.run_id)
    assert "in 10 m" not in shown.out


async def test_a_host_whose_clock_is_ahead_is_not_declared_dead_nor_anybody_by_it(
    product: Product, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """L10."""
    naps = [f"sleep {seconds}.{random.randrange(10**6, 10**7)}" for seconds in (15, 3)]
    began = datetime.now(UTC)
    with launched(product, *AHEAD, env={"EPISODES_MAX_EPISODES": "1"}):
        first = await product.trainer.start(spec(box(), command("nap", naps[0])))
        await product.until(lambda: bool(processes_with(naps[0])))
        with launched(product, state_dir=tmp_path_factory.mktemp("right")):
            second = await product.trainer.start(spec(box(), command("nap", naps[1])))
            await product.until(lambda: bool(processes_with(naps[1])))
            results = await asyncio.gather(first.result(), second.result())
    ended = datetime.now(UTC)

    rows = [await first.record(), await second.record()]
    assert {result.status for result in results} == {RunStatus.COMPLETED}
    assert {row.epoch for row in rows} == {1}
    assert len({row.host for row in rows}) == 2
    for row in rows:
        check_times(row, product.index.steps(row.run_id), began, ended)


async def test_an_episode_that_moves_between_hosts_has_a_duration_that_makes_sense(
    product: Product, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """L10."""
    nap = f"sleep 2.{random.randrange(10**6, 10**7)}"
    began = datetime.now(UTC)
    with launched(product, *AHEAD) as ahead:
        episode = await product.trainer.start(spec(box(), command("nap", nap)))
        await product.until(lambda: bool(processes_with(nap)))
        ahead.kill()
        ahead.wait(timeout=10)
    with launched(product, state_dir=tmp_path_factory.mktemp("right")):
        result = await episode.result()
    ended = datetime.now(UTC)

    row = await episode.record()
    assert (result.status, row.epoch) == (RunStatus.COMPLETED, 2)
    check_times(row, product.index.steps(episode.run_id), began, ended)
    assert duration_s(row.started_at, row.finished_at) >= 2


def check_times(
    row: RunRecord, reports: Sequence[StepReport], began: datetime, ended: datetime
) -> None:
    """All within the test's own time, by the clock of the server, and in order."""
    slack = timedelta(seconds=5)
    times = [began - slack, row.created_at, row.started_at, row.finished_at, ended + slack]
    assert None not in times
    assert times == sorted(time for time in times if time is not None)
    for report in reports:
        if report.retried:
            continue  # its host died with it
        assert report.started_at is not None
        assert report.finished_at is not None
        assert began - slack <= report.started_at <= report.finished_at <= ended + slack


def duration_s(start: datetime | None, end: datetime | None) -> float:
    assert start is not None
    assert end is not None
    return (end - start).total_seconds()
