"""Sandboxes whose making or removing meets a cancel, a failure or a death: nothing is left."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import WorkflowExecutionStatus
from typing_extensions import override

from agent_env.config import Settings
from agent_env.results import SandboxRef
from agent_env.sandboxes import Providers, SandboxSpec
from agent_env.sandboxes.base import ExecResult
from agent_env.status import RunStatus
from agent_env.testing.fakes import FakeSandboxProvider
from agent_env.worker import Services, open_services, serving
from tests.end_to_end import sleeper
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.stage import box, command, sandbox_folders, spec

SOON = timedelta(seconds=60)
TAKES = timedelta(seconds=5)
JANITOR_EVERY_S = 0.3


class Remote(FakeSandboxProvider):
    """Makes a sandbox some time after it was asked, whether or not anybody still wants it.

    Until then it does not list it: nobody can know of it.
    """

    def __init__(self, takes: timedelta = TAKES) -> None:
        super().__init__(type="remote")
        self.takes = takes
        self.asked: list[str] = []
        """The key of each call of ``create``."""
        self._making: dict[str, asyncio.Task[SandboxRef]] = {}

    @override
    async def create(self, spec: SandboxSpec, *, owner: str, key: str) -> SandboxRef:
        self.asked.append(key)
        if key not in self._making:
            self._making[key] = asyncio.create_task(self._make(spec, owner, key))
        return await asyncio.shield(self._making[key])

    async def _make(self, spec: SandboxSpec, owner: str, key: str) -> SandboxRef:
        await asyncio.sleep(self.takes.total_seconds())
        return await super().create(spec, owner=owner, key=key)


class Stubborn(Remote):
    """Its client does not let itself be canceled."""

    @override
    async def create(self, spec: SandboxSpec, *, owner: str, key: str) -> SandboxRef:
        making = asyncio.create_task(super().create(spec, owner=owner, key=key))
        while not making.done():
            try:
                await asyncio.shield(making)
            except asyncio.CancelledError:
                continue
        return making.result()


class Obedient(Remote):
    """Lists what it makes from the start, and stops when it is canceled: half of it is there."""

    @override
    async def create(self, spec: SandboxSpec, *, owner: str, key: str) -> SandboxRef:
        self.asked.append(key)
        self.create_delay = self.takes
        return await FakeSandboxProvider.create(self, spec, owner=owner, key=key)


@asynccontextmanager
async def served(
    product: Product, provider: FakeSandboxProvider, **settings: float
) -> AsyncGenerator[Services]:
    """A worker in this process, whose sandboxes of type ``remote`` are this provider's."""
    state_dir = product.state_dir
    chosen: dict[str, JsonValue] = {"janitor_every_s": JANITOR_EVERY_S, **settings}
    async with (
        open_services(
            Settings.model_validate({"state_dir": state_dir, "host": "in-process", **chosen}),
            index=product.index,
            providers=Providers(state_dir, {"remote": provider}),
        ) as services,
        serving(product.trainer.client, services),
    ):
        yield services


@pytest.mark.parametrize("kind", [Obedient, Remote, Stubborn])
async def test_a_cancel_while_a_sandbox_is_made_leaves_none(
    product: Product, kind: Callable[[], Remote]
) -> None:
    """C5."""
    provider = kind()
    async with served(product, provider):
        episode = await product.trainer.start(spec(box(sandbox_type="remote")))
        await product.until(lambda: bool(provider.asked), SOON)

        await episode.cancel("not needed", by="tester")
        result = await episode.result()
        # A provider that does not hear of it goes on, and answers when all is over.
        await product.until(lambda: provider.made == 1, SOON)
        await product.until(lambda: not provider.live, SOON)

    row = product.index.get(episode.run_id)
    assert (result.status, result.error) == (RunStatus.CANCELED, "not needed")
    assert row.status is RunStatus.CANCELED
    assert await product.status(episode.run_id) is WorkflowExecutionStatus.CANCELED
    assert (row.still_up, provider.made) == ((), 1)


async def test_what_can_not_be_destroyed_at_first_is_gone_in_the_end_and_the_error_stands(
    product: Product,
) -> None:
    """P7."""
    provider = FakeSandboxProvider(
        type="remote", fail_destroy_times=3, answer=lambda _: ExecResult(3, "", "no such luck")
    )
    async with served(product, provider):
        episode = await product.trainer.start(
            spec(box(sandbox_type="remote"), command("breaks", "exit 3"))
        )
        result = await episode.result()
        await product.until(lambda: product.index.get(episode.run_id).still_up == (), SOON)
        left = provider.live

    row = product.index.get(episode.run_id)
    assert [ref.name for ref in result.still_up] == ["box"]
    assert left == []
    assert result.status is row.status is RunStatus.FAILED
    assert result.error == row.error
    assert row.error_type == "StepFailed"
    assert "breaks" in (row.error or "")
    assert "no such luck" in (row.error or "")


async def test_a_sandbox_that_is_asked_for_again_before_it_is_made_is_made_once(
    product: Product,
) -> None:
    """P8: the client went away and another asked."""
    provider = Remote()
    async with served(product, provider, graceful_shutdown_s=0):
        episode = await product.trainer.start(
            spec(box(sandbox_type="remote"), command("uses", "true"))
        )
        await product.until(lambda: len(provider.asked) == 1, SOON)

    async with served(product, provider):
        await product.until(lambda: len(provider.asked) == 2, SOON)
        made_before = provider.made
        result = await episode.result()

    assert made_before == 0, "it answered before it was asked again"
    assert result.status is RunStatus.COMPLETED
    assert len(set(provider.asked)) == 1
    assert (provider.made, provider.live) == (1, [])


async def test_a_sandbox_that_comes_after_its_step_was_given_up_does_not_outlive_the_episode(
    product: Product,
) -> None:
    """P8: the step timed out and was retried, and the first answer comes when all is over."""
    provider = Remote(takes=timedelta(seconds=6))
    deploy = box(
        sandbox_type="remote",
        timeout_seconds=1,
        retry_config={"retry_from_step_id": "box", "max_retries": 1},
    )
    async with served(product, provider):
        episode = await product.trainer.start(spec(deploy))
        result = await episode.result()
        await product.until(lambda: provider.made == 2, SOON)
        await product.until(lambda: not provider.live, SOON)

    assert (result.status, result.error_type) == (RunStatus.FAILED, "StepTimedOut")
    assert len(set(provider.asked)) == 2
    assert product.index.get(episode.run_id).still_up == ()


async def test_sandboxes_of_a_killed_worker_are_adopted_or_gone(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P9."""
    monkeypatch.setenv("EPISODES_JANITOR_EVERY_S", "0.2")
    monkeypatch.setenv("EPISODES_MAX_EPISODES", "8")
    mark = random.randrange(10**6, 10**7)
    with product.worker() as worker:
        goes_on, is_canceled = [
            [
                await product.trainer.start(
                    spec(
                        box(),
                        command("marks", "echo mine > mark"),
                        command("nap", f"sleep {seconds}.{mark} && cat mark"),
                    )
                )
                for _ in range(4)
            ]
            for seconds in (4, 600)
        ]
        everyone = [*goes_on, *is_canceled]
        await product.until(
            lambda: all(product.index.get(each.run_id).steps_done == 2 for each in everyone), SOON
        )
        before = sandbox_folders(product)
        await asyncio.to_thread(worker.kill)
    for episode in is_canceled:
        await episode.cancel("no more", by="tester")

    with product.worker():
        results = [await episode.result() for episode in everyone]

    assert len(before) == 8
    assert [result.status for result in results] == 4 * [RunStatus.COMPLETED] + 4 * [
        RunStatus.CANCELED
    ]
    for episode in goes_on:  # what was in the sandbox before is still there after
        (last,) = [step for step in product.index.steps(episode.run_id) if step.step_id == "nap"]
        assert isinstance(last.output, dict)
        assert last.output["stdout"] == "mine\n"
    assert processes_with(f".{mark}") == []
    assert left_in(product.state_dir) == []


async def test_a_lost_host_that_comes_back_removes_what_its_episodes_left(
    product: Product, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EPISODES_JANITOR_EVERY_S", "0.2")
    nap = f"sleep 600.{random.randrange(10**6, 10**7)}"
    beside: JsonValue = {
        "id": "beside",
        "type": "python",
        "function": f"{sleeper.__file__}:sleeps",
        "args": {"seconds": 600},
        "depends_on": [],
    }
    steps = (box(), command("nap", nap), beside)
    lost, other = product.state_dir, tmp_path_factory.mktemp("other")
    with product.worker(lost) as worker:
        goes_on = await product.trainer.start(spec(*steps))
        has_ended = await product.trainer.start(spec(*steps))
        both = (goes_on.run_id, has_ended.run_id)
        await product.until(lambda: len(processes_with(nap)) >= 2, SOON)
        await product.until(lambda: len(list((lost / "work").glob("*/*/"))) == 2, SOON)
        await asyncio.to_thread(worker.kill)
    lost_host = product.index.get(goes_on.run_id).host
    was_left = left_in(lost)

    with product.worker(other):
        await product.until(
            lambda: all(_runs_elsewhere(product, run_id, lost_host) for run_id in both), SOON
        )
        await has_ended.cancel("one is enough", by="tester")
        await has_ended.result()
        with product.worker(lost):
            await product.until(lambda: left_in(lost) == [], SOON)
            row = product.index.get(goes_on.run_id)
            kept = [path for path in other.glob("sandboxes/*/*") if path.is_dir()]
            await product.until(lambda: bool(processes_with(nap)), SOON)
        await goes_on.cancel("seen enough", by="tester")
        result = await goes_on.result()

    assert len(was_left) == 2 * len(("sandbox", "work folder", "its note", "attempt")), was_left
    assert (row.status, row.epoch) == (RunStatus.RUNNING, 2)
    assert len(kept) == 1
    assert result.status is RunStatus.CANCELED
    assert left_in(other) == left_in(lost) == []


def _runs_elsewhere(product: Product, run_id: str, host: str | None) -> bool:
    row = product.index.get(run_id)
    return row.status is RunStatus.RUNNING and row.host != host and row.steps_done >= 1


def left_in(state_dir: Path) -> list[Path]:
    """What single episodes have in a state folder."""
    patterns = ("sandboxes/*/*/", "work/*", "attempts/*")
    return [path for pattern in patterns for path in state_dir.glob(pattern)]
