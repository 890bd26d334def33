"""The janitor destroys what is garbage, and nothing else. Real local sandboxes, a real index."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from agent_env._garbage import (
    FORGOTTEN_AFTER,
    UNLISTED_GRACE,
    Verdict,
    Workflow,
    is_forgotten,
    verdict,
)
from agent_env.errors import IndexUnavailableError, SandboxUnavailableError, UnavailableError
from agent_env.janitor import Janitor
from agent_env.outcome import Outcome
from agent_env.results import SandboxRef
from agent_env.runs import Finished, NewRun, RunIndex, RunPlace
from agent_env.sandboxes import Providers, SandboxSpec
from agent_env.sandboxes.local import LocalProvider
from agent_env.status import RunStatus
from agent_env.steps._work_dirs import WorkDirs
from agent_env.steps.work_folders import WorkFolders
from agent_env.testing.fakes import FakeSandboxProvider

HERE = "here"
SECOND = timedelta(seconds=1)
T0 = datetime(2026, 1, 31, tzinfo=UTC)


def place(status: RunStatus, host: str | None = HERE, epoch: int = 1) -> RunPlace:
    return RunPlace(status, host, epoch)


@pytest.mark.parametrize(
    ("run", "is_local", "expected"),
    [
        (None, True, Verdict.UNLISTED),
        *((place(RunStatus(s)), True, Verdict.ENDED) for s in ("COMPLETED", "FAILED", "CANCELED")),
        (place(RunStatus.FAILED, host="there"), False, Verdict.ENDED),
        (place(RunStatus.RUNNING), True, Verdict.KEEP),
        (place(RunStatus.RUNNING, epoch=3), True, Verdict.KEEP),
        (place(RunStatus.QUEUED, host=None), True, Verdict.KEEP),
        # Between two hosts, or restored: nobody says that it is not here.
        (place(RunStatus.QUEUED, host=None, epoch=2), True, Verdict.KEEP),
        (place(RunStatus.RUNNING, host="there", epoch=2), True, Verdict.MOVED),
        (place(RunStatus.RUNNING, host="there", epoch=2), False, Verdict.KEEP),
        # In its first epoch it has never been anywhere else: this host's name was changed.
        (place(RunStatus.RUNNING, host="there", epoch=1), True, Verdict.KEEP),
    ],
)
def test_the_row_says_what_becomes_of_what_a_run_owns(
    run: RunPlace | None, is_local: bool, expected: Verdict
) -> None:
    assert verdict(run, host=HERE, is_local=is_local) is expected


@pytest.mark.parametrize("is_local", [True, False])
def test_what_is_not_listed_goes_only_when_temporal_does_not_object(is_local: bool) -> None:
    week = timedelta(days=7)

    assert not is_forgotten(Workflow.OPEN, week, is_local=is_local)
    assert is_forgotten(Workflow.CLOSED, UNLISTED_GRACE, is_local=is_local)
    assert not is_forgotten(Workflow.CLOSED, UNLISTED_GRACE - SECOND, is_local=is_local)
    assert not is_forgotten(Workflow.UNKNOWN, FORGOTTEN_AFTER - SECOND, is_local=is_local)
    assert is_forgotten(Workflow.UNKNOWN, FORGOTTEN_AFTER, is_local=is_local) is is_local


class Broken(FakeSandboxProvider):
    """Raises whatever it is asked."""

    @override
    async def owners(self) -> set[str]:
        raise RuntimeError("no listing today")


class Temporal:
    """Answers as it is told, and counts."""

    def __init__(self) -> None:
        self.workflows: dict[str, Workflow] = {}
        self.error: Exception | None = None
        self.asked: list[str] = []

    async def __call__(self, workflow_id: str) -> Workflow:
        self.asked.append(workflow_id)
        if self.error is not None:
            raise self.error
        return self.workflows.get(workflow_id, Workflow.UNKNOWN)


class House:
    """A state folder with an index, and a janitor for it."""

    def __init__(self, state_dir: Path, index: RunIndex) -> None:
        self.state_dir = state_dir
        self.index = index
        self.local = LocalProvider(state_dir)
        self.fake = FakeSandboxProvider()
        self.given: dict[str, Any] = {"local": self.local, "fake": self.fake}
        self.temporal = Temporal()
        self.later = timedelta()
        self.dirs = WorkDirs(state_dir / "work")
        self._janitor: Janitor | None = None

    @property
    def janitor(self) -> Janitor:
        if self._janitor is None:
            self._janitor = Janitor(
                self.index,
                Providers(self.state_dir, self.given),
                others=[WorkFolders(self.state_dir / "work")],
                host=HERE,
                ask_temporal=self.temporal,
                every=timedelta(milliseconds=20),
                now=lambda: datetime.now(UTC) + self.later,
            )
        return self._janitor

    async def deploy(self, owner: str, type: str = "local", name: str = "box") -> SandboxRef:
        provider = self.given[type]
        return await provider.create(
            SandboxSpec(type=type, name=name), owner=owner, key=f"{owner}/{name}"
        )

    def begin(self, run_id: str, host: str = HERE) -> None:
        self.index.open_run(_new(run_id), host=host, room=10_000, at=T0)

    def move(self, run_id: str, host: str) -> None:
        self.index.requeue_run(run_id, epoch=2)
        self.index.begin_run(run_id, host=host, room=10_000, epoch=2, at=T0)

    def end(
        self, run_id: str, *still_up: SandboxRef, status: RunStatus = RunStatus.COMPLETED
    ) -> None:
        outcome = Outcome(status=status)
        self.index.finish_run(
            Finished(run=_new(run_id), epoch=1, outcome=outcome, still_up=still_up), at=T0
        )


def _new(run_id: str) -> NewRun:
    return NewRun(
        run_id=run_id,
        task_id="task",
        task_version="1",
        steps_total=1,
        created_at=T0,
        namespace="default",
        workflow_run_id=f"w-{run_id}",
    )


@pytest.fixture
def house(tmp_path: Path) -> Generator[House]:
    index = RunIndex.open(f"sqlite:///{tmp_path}/index.sqlite")
    yield House(tmp_path / "state", index)
    index.close()


@pytest.fixture
async def janitor_runs(house: House) -> AsyncGenerator[None]:
    async with house.janitor.running():
        yield


async def test_what_an_ended_run_left_goes_and_what_a_live_one_has_stays(house: House) -> None:
    for run_id in ("ended", "live", "queued"):
        await house.deploy(run_id)
        await house.deploy(run_id, "fake")
        house.dirs.make(run_id, "step", 1)
    house.begin("live")
    house.index.open_run(_new("queued"), host=HERE, room=0, at=T0)
    house.begin("ended")
    house.end("ended", status=RunStatus.FAILED)

    await house.janitor.sweep()

    assert await house.local.owners() == await house.fake.owners() == {"live", "queued"}
    assert {each.run_id for each in house.dirs.found()} == {"live", "queued"}
    assert house.temporal.asked == []


async def test_what_a_run_has_here_that_went_on_elsewhere_goes_but_not_what_is_remote(
    house: House,
) -> None:
    await house.deploy("moved")
    await house.deploy("moved", "fake")
    house.dirs.make("moved", "step", 1)
    house.begin("moved")
    house.move("moved", "there")

    await house.janitor.sweep()

    assert await house.local.owners() == set()
    assert house.dirs.found() == []
    assert await house.fake.owners() == {"moved"}


class ComesBack(LocalProvider):
    """Its run comes back to this host, and makes a sandbox, while it is asked what it has."""

    come_back: Callable[[], None] = staticmethod(lambda: None)

    @override
    async def list_owned(self, owner: str) -> list[SandboxRef]:
        found = await super().list_owned(owner)
        self.come_back()
        return found


async def test_a_run_that_comes_back_in_mid_pass_keeps_what_it_has(house: House) -> None:
    local = ComesBack(house.state_dir)
    house.given["local"] = local
    ref = await house.deploy("moved")
    house.begin("moved")
    house.move("moved", "there")

    def come_back() -> None:
        house.index.requeue_run("moved", epoch=3)
        house.index.begin_run("moved", host=HERE, room=10, epoch=3, at=T0)

    local.come_back = come_back

    await house.janitor.sweep()

    assert [kept.id for kept in await house.local.list_owned("moved")] == [ref.id]


async def test_what_nobody_knows_of_is_kept_for_a_day(house: House) -> None:
    await house.deploy("script")
    await house.deploy("script", "fake")

    await house.janitor.sweep()
    house.later = FORGOTTEN_AFTER - timedelta(minutes=1)
    await house.janitor.sweep()
    assert await house.local.owners() == {"script"}

    house.later = FORGOTTEN_AFTER + timedelta(minutes=1)
    await house.janitor.sweep()

    assert await house.local.owners() == set()
    assert await house.fake.owners() == {"script"}


async def test_what_an_unlisted_run_has_goes_a_minute_later_if_its_workflow_is_closed(
    house: House,
) -> None:
    for run_id in ("open", "closed"):
        await house.deploy(run_id)
        await house.deploy(run_id, "fake")
    house.temporal.workflows = {"open": Workflow.OPEN, "closed": Workflow.CLOSED}

    await house.janitor.sweep()
    assert await house.local.owners() == {"open", "closed"}
    assert house.temporal.asked == []

    house.later = 2 * UNLISTED_GRACE
    await house.janitor.sweep()

    assert await house.local.owners() == await house.fake.owners() == {"open"}


async def test_what_does_not_know_its_age_grows_old_too(house: House) -> None:
    class Ageless(FakeSandboxProvider):
        @override
        async def list_owned(self, owner: str) -> list[SandboxRef]:
            now = datetime.now(UTC) + house.later
            found = await super().list_owned(owner)
            return [ref.model_copy(update={"created_at": now}) for ref in found]

    house.given["ageless"] = Ageless(type="ageless")
    await house.deploy("closed", "ageless")
    house.temporal.workflows = {"closed": Workflow.CLOSED}

    await house.janitor.sweep()
    assert await house.given["ageless"].owners() == {"closed"}

    house.later = 2 * UNLISTED_GRACE
    await house.janitor.sweep()

    assert await house.given["ageless"].owners() == set()


async def test_while_temporal_does_not_answer_only_what_is_not_listed_stays(house: House) -> None:
    await house.deploy("unlisted")
    await house.deploy("ended")
    house.begin("ended")
    house.end("ended")
    house.temporal.error = UnavailableError("Temporal does not answer")
    house.later = 2 * FORGOTTEN_AFTER

    await house.janitor.sweep()

    assert await house.local.owners() == {"unlisted"}


async def test_without_the_index_nothing_is_destroyed(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.deploy("ended")
    house.begin("ended")
    house.end("ended")

    def down(_: object) -> None:
        raise IndexUnavailableError("the database is down")

    monkeypatch.setattr(house.index, "places", down)
    with pytest.raises(IndexUnavailableError):
        await house.janitor.sweep()

    assert await house.local.owners() == {"ended"}


@pytest.mark.usefixtures("janitor_runs")
async def test_a_pass_that_fails_is_told_once_and_followed_by_another(
    house: House,
    monkeypatch: pytest.MonkeyPatch,
    until: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    passes = 0

    def down(_: object) -> None:
        nonlocal passes
        passes += 1
        raise IndexUnavailableError("the database is down")

    monkeypatch.setattr(house.index, "places", down)
    await until(lambda: passes >= 3)
    monkeypatch.undo()
    await house.deploy("ended")
    house.begin("ended")
    house.end("ended")
    await until(lambda: not list((house.state_dir / "sandboxes").iterdir()))

    assert _warnings(caplog) == 1


async def test_what_is_named_as_still_up_is_tried_until_it_is_gone_and_told_once(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = [await house.deploy("run", "fake", name) for name in ("one", "two")]
    house.begin("run")
    house.end("run", first, second)
    house.fake.fail_destroy_times = 3

    await house.janitor.sweep()  # fails twice
    assert house.index.get("run").still_up == (first, second)
    await house.janitor.sweep()  # fails once
    assert len(house.index.get("run").still_up) == 1
    await house.janitor.sweep()

    assert house.index.get("run").still_up == ()
    assert house.index.get("run").status is RunStatus.COMPLETED
    assert house.fake.live == []
    assert _warnings(caplog) == 1
    assert "of run run is still up: SandboxUnavailable: the fake sandbox" in caplog.text


async def test_what_went_by_itself_is_not_named_any_more(house: House) -> None:
    ref = await house.deploy("run")
    await house.local.destroy(ref)
    house.begin("run")
    house.end("run", ref)

    await house.janitor.sweep()

    assert house.index.get("run").still_up == ()


async def test_what_another_host_may_still_have_stays_named(house: House) -> None:
    ref = await house.deploy("run")
    await house.local.destroy(ref)
    gone = SandboxRef(type="uninstalled", id="1", name="box", created_at=T0)
    house.begin("run", host="there")
    house.end("run", ref, gone)

    await house.janitor.sweep()

    assert house.index.get("run").still_up == (ref, gone)


async def test_every_page_of_runs_with_something_still_up_gets_its_turn(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Holds(FakeSandboxProvider):
        @override
        async def destroy(self, ref: SandboxRef) -> None:
            if ref.id in "ab":
                raise SandboxUnavailableError("not this one")

    monkeypatch.setattr("agent_env.janitor._PAGE", 2)
    house.given["holds"] = Holds(type="holds")
    for run_id in "abcde":
        house.begin(run_id)
        house.end(run_id, SandboxRef(type="holds", id=run_id, name="box", created_at=T0))

    for _ in range(3):
        await house.janitor.sweep()

    assert [left.run_id for left in house.index.still_up()] == ["a", "b"]


async def test_a_provider_that_fails_keeps_no_other_from_being_swept(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    class Cancels(FakeSandboxProvider):
        @override
        async def owners(self) -> set[str]:
            raise asyncio.CancelledError

    house.given = {"broken": Broken(), "cancels": Cancels(), **house.given}
    await house.deploy("ended")
    await house.deploy("ended", "fake")
    house.begin("ended")
    house.end("ended")
    house.fake.fail_destroy_times = 1

    await house.janitor.sweep()
    assert await house.local.owners() == set()
    await house.janitor.sweep()

    assert await house.fake.owners() == set()
    assert "RuntimeError: no listing today" in caplog.text


async def test_a_provider_that_hangs_is_given_up(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Hangs(FakeSandboxProvider):
        @override
        async def owners(self) -> set[str]:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr("agent_env._keepers._ANSWER_S", 0.5)
    house.given = {"hangs": Hangs(), **house.given}
    await house.deploy("ended")
    house.begin("ended")
    house.end("ended")

    async with asyncio.timeout(30):
        while await house.local.owners():  # a busy machine may take longer than that as well
            await house.janitor.sweep()

    assert "can't say what it has: SandboxUnavailable: it took longer than 0.5 s" in caplog.text


async def test_it_stops_at_once_in_mid_pass(house: House, until: Callable[..., Any]) -> None:
    entered = asyncio.Event()

    class Slow(FakeSandboxProvider):
        @override
        async def destroy(self, ref: SandboxRef) -> None:
            entered.set()
            await asyncio.Event().wait()

    house.given["slow"] = Slow(type="slow")
    await house.deploy("ended", "slow")
    house.begin("ended")
    house.end("ended")

    async with house.janitor.running():
        async with asyncio.timeout(30):
            await entered.wait()
        began = time.monotonic()

    assert time.monotonic() - began < 1


async def test_a_pass_asks_the_index_once_for_all_owners(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await house.deploy(f"run-{number}", "fake")
        house.begin(f"run-{number}")
    asked: list[int] = []
    ask = house.index.places

    def places(run_ids: Sequence[str]) -> Mapping[str, RunPlace]:
        asked.append(len(run_ids))
        return ask(run_ids)

    monkeypatch.setattr(house.index, "places", places)

    await house.janitor.sweep()

    assert [number for number in asked if number] == [30]


def _warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum(record.levelno >= logging.WARNING for record in caplog.records)
