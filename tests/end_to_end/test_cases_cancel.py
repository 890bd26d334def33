"""Cancels that meet a step that does not listen, and a group in all its states."""

import random
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue

from agent_env.episode import EpisodeSpec
from agent_env.status import RunStatus, StepStatus
from agent_env.steps import Steps
from agent_env.task import Task
from tests.end_to_end import stubborn_step
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.launched import launched
from tests.end_to_end.stage import box, command, sandbox_folders, spec

GRACE_S = 2.0


def nap() -> str:
    """A command that outlives any test, and that no other test has."""
    return f"sleep 600.{random.randrange(10**6, 10**7)}"


def stubborn(first: str, then: str = "") -> EpisodeSpec:
    step: JsonValue = {
        "id": "stubborn",
        "type": "stubborn",
        "command": [*first.split()],
        "then": [*then.split()],
    }
    steps = Steps({"stubborn": stubborn_step.Stubborn})
    return EpisodeSpec.from_task(Task.of({"id": "case", "steps": [box(), step]}), steps=steps)


async def test_what_a_step_returns_once_it_is_canceled_is_ignored(
    product: Product, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """C4."""
    plugins = tmp_path_factory.mktemp("plugins")
    stubborn_step.install(plugins)
    first = nap()
    with launched(product, env={"PYTHONPATH": str(plugins)}):
        episode = await product.trainer.start(stubborn(first))
        await product.until(lambda: bool(processes_with(first)))

        await episode.cancel("enough", by="ana")
        result = await episode.result()

    row = await episode.record()
    assert result.status is row.status is RunStatus.CANCELED
    assert row.error == "enough"
    assert (row.reward, dict(row.scores)) == (None, {})
    step = product.index.steps(episode.run_id)[-1]
    assert (step.step_id, step.status) == ("stubborn", StepStatus.CANCELED)
    assert (step.output, step.score) == (None, None)
    assert processes_with(first) == []
    assert sandbox_folders(product) == []


async def test_a_step_that_does_not_stop_is_abandoned_and_its_sandbox_destroyed_under_it(
    product: Product, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """C4."""
    plugins = tmp_path_factory.mktemp("plugins")
    stubborn_step.install(plugins)
    first, then = nap(), nap()
    env = {"PYTHONPATH": str(plugins), "EPISODES_CANCEL_GRACE_S": str(GRACE_S)}
    with launched(product, env=env) as worker:
        episode = await product.trainer.start(stubborn(first, then))
        await product.until(lambda: bool(processes_with(first)))

        asked = time.monotonic()
        await episode.cancel("enough", by="ana")
        await product.until(lambda: bool(processes_with(then)))
        result = await episode.result()
        took = time.monotonic() - asked

        assert processes_with(then) == []
        assert sandbox_folders(product) == []
        after = await (await product.trainer.start(spec(box(), command("good", "true")))).result()
        assert worker.poll() is None

    row = await episode.record()
    assert result.status is row.status is RunStatus.CANCELED
    assert (row.error, row.reward, row.still_up) == ("enough", None, ())
    assert GRACE_S <= took < GRACE_S + 20
    assert after.status is RunStatus.COMPLETED


async def test_a_group_is_canceled_in_all_its_states(product: Product, tmp_path: Path) -> None:
    """C9."""
    sleeping = nap()
    play: JsonValue = {
        "id": "play",
        "type": "python",
        "function": "tests.end_to_end.functions:first_come",
        "args": {"folder": str(tmp_path), "served": 8, "else_command": [*sleeping.split()]},
        "score": True,
    }
    member = spec(box(), play)
    with launched(product, env={"EPISODES_MAX_EPISODES": "8"}):
        group = await product.trainer.start_group(member, size=32, max_parallel=None)

        def counts() -> Counter[RunStatus]:
            members = product.index.members(group.run_group_id)
            return Counter(row.status for row in members)

        await product.until(
            lambda: (
                counts() == {RunStatus.COMPLETED: 8, RunStatus.RUNNING: 8, RunStatus.QUEUED: 16}
                and len(processes_with(sleeping)) >= 8
            ),
            within=timedelta(seconds=60),
        )
        before = {row.run_id: row for row in product.index.members(group.run_group_id)}

        asked = await group.cancel("wrong model", by="ana")
        result = await group.result()

    assert asked == 24
    figures = result.figures
    assert (figures.n, figures.completed, figures.canceled) == (32, 8, 24)
    for row in product.index.members(group.run_group_id):
        was = before[row.run_id]
        if was.status is RunStatus.COMPLETED:
            assert row == was
            continue
        assert (row.status, row.error) == (RunStatus.CANCELED, "wrong model")
        assert (row.cancel_requested_by, row.cancel_requested_reason) == ("ana", "wrong model")
        assert row.still_up == ()
        if was.status is RunStatus.QUEUED:
            assert (row.started_at, row.host) == (None, None)
            assert product.index.steps(row.run_id) == ()
    assert processes_with(sleeping) == []
    assert sandbox_folders(product) == []
