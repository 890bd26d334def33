"""Whoever asks an episode to stop, in whichever phase: it ends as promised and leaves nothing."""

import asyncio
import getpass
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from itertools import product as pairs
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import JsonValue
from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from agent_env.episode import Episode, EpisodeSpec
from agent_env.errors import UnavailableError
from agent_env.outcome import CANCELED_IN_TEMPORAL
from agent_env.results import EpisodeResult, StepReport
from agent_env.runs import RunRecord
from agent_env.sandboxes import Providers
from agent_env.status import RunStatus
from tests.end_to_end.asking import REASON, Who, ask
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.launched import launched
from tests.end_to_end.launcher import CANCELED, HELD, OPEN
from tests.end_to_end.stage import box, command, sandbox_folders, spec

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # The first test plays all episodes. One that hangs ends at a limit of its own, and is named.
    pytest.mark.timeout(600),
]


class Phase(StrEnum):
    """Where an episode is when somebody asks it to stop."""

    BEFORE_ANY_WORKER = "before any worker"
    QUEUED = "queued"
    IN_COMMAND = "in a command"
    IN_FUNCTION = "in a function"
    IN_WAIT = "in a wait"
    IN_RETRY = "in a retry"
    IN_TEARDOWN = "in teardown"
    ENDED = "after the end"


NEVER_BEGUN = (Phase.BEFORE_ANY_WORKER, Phase.QUEUED)
RUNNING = (Phase.IN_COMMAND, Phase.IN_FUNCTION, Phase.IN_WAIT, Phase.IN_RETRY)
"""All running when the first is asked, so together they fill the host."""
TOO_LATE = (Phase.IN_TEARDOWN, Phase.ENDED)


class Cell:
    """One episode, from its start to the facts that are left of it."""

    told: str
    result: EpisodeResult
    row: RunRecord
    workflow: WorkflowExecutionStatus | None
    steps: Sequence[StepReport]
    left: list[object]
    """Sandboxes and processes."""

    def __init__(self, product: Product, gate: Path, phase: Phase, who: Who) -> None:
        self._product = product
        self._gate = gate
        self._phase = phase
        self._who = who
        self._nap = f"sleep 600.{random.randrange(10**6, 10**7)}"
        self.run_id = f"{phase}, {who}"
        self.error: Exception | None = None

    async def reach(self) -> None:
        """Start the episode and wait until it is in its phase."""
        starting = asyncio.create_task(
            self._product.trainer.start(self._spec(), run_id=self.run_id)
        )
        self._episode: asyncio.Task[Episode] = starting
        async with asyncio.timeout(60):
            if self._phase is Phase.BEFORE_ANY_WORKER:
                await self._workflow_exists()
                return
            episode = await starting
            row = self._product.index.get(self.run_id)
            if self._phase is Phase.ENDED:
                await episode.result()
            elif self._phase is Phase.QUEUED:
                assert row.status is RunStatus.QUEUED
            else:
                while not await self._is_in_phase():
                    await asyncio.sleep(0.05)

    async def ask(self) -> None:
        """Ask it to stop."""
        self.told = await ask(self._product, self._who, self.run_id)
        if (self._phase, self._who) == (Phase.IN_TEARDOWN, Who.TERMINATE):
            # The worker hears by heartbeat that its teardown is nobody's any more.
            heard = self._gate / f"{HELD} {self._who.name}{CANCELED}"
            await self._product.until(heard.exists, within=timedelta(seconds=60))

    async def end(self) -> None:
        """Wait for its end, and look at what is there then."""
        async with asyncio.timeout(90):
            self.result = await (await self._episode).result()
        self.row = self._product.index.get(self.run_id)
        self.workflow = await self._product.status(self.run_id)
        self.steps = self._product.index.steps(self.run_id)
        provider = Providers(self._product.state_dir).open("local")
        self.left = [*await provider.list_owned(self.run_id), *processes_with(self._nap)]

    def _spec(self) -> EpisodeSpec:
        match self._phase:
            case Phase.IN_WAIT:
                return spec({"id": "nap", "type": "wait", "seconds": 600})
            case Phase.IN_FUNCTION:
                args: JsonValue = {"args": [*self._nap.split()]}
                return spec(
                    {"id": "nap", "type": "python", "function": "subprocess:call", "args": args}
                )
            case Phase.IN_RETRY:
                retry: JsonValue = {"retry_from_step_id": "nap", "max_retries": 1}
                line = f"test -e failed && {self._nap}; touch failed; exit 1"
                return spec(box(), command("nap", line, retry_config=retry))
            case Phase.IN_TEARDOWN | Phase.ENDED:
                name = f"{HELD} {self._who.name}" if self._phase is Phase.IN_TEARDOWN else "box"
                return spec(box(sandbox_name=name), command("score", "echo 1", score_from="stdout"))
            case _:
                return spec(box(), command("nap", self._nap))

    async def _workflow_exists(self) -> None:
        while True:
            try:
                await self._product.status(self.run_id)
                return
            except RPCError:
                await asyncio.sleep(0.05)

    async def _is_in_phase(self) -> bool:
        if self._phase is Phase.IN_TEARDOWN:
            return (self._gate / f"{HELD} {self._who.name}").exists()
        if self._phase is Phase.IN_WAIT:
            handle = self._product.trainer.client.get_workflow_handle(self.run_id)
            events = [event.event_type async for event in handle.fetch_history_events()]
            return EventType.EVENT_TYPE_TIMER_STARTED in events
        epoch = 2 if self._phase is Phase.IN_RETRY else 1
        is_asleep = bool(processes_with(self._nap))
        return is_asleep and self._product.index.get(self.run_id).epoch == epoch


async def each(cells: Iterable[Cell], do: Callable[[Cell], Awaitable[None]]) -> None:
    """Do it for all side by side; one that fails keeps its error and is left alone."""

    async def one(cell: Cell) -> None:
        if cell.error is None:
            try:
                await do(cell)
            except Exception as error:
                cell.error = error

    await asyncio.gather(*map(one, cells))


Matrix = Mapping[tuple[Phase, Who], Cell]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def matrix(shared: Product, tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """Every episode of the matrix, played to its end on one worker."""
    gate = tmp_path_factory.mktemp("gate")
    all_cells = {(phase, who): Cell(shared, gate, phase, who) for phase, who in pairs(Phase, Who)}
    by_phase = {phase: [all_cells[phase, who] for who in Who] for phase in Phase}
    running = [cell for phase in RUNNING for cell in by_phase[phase]]
    late = [cell for phase in TOO_LATE for cell in by_phase[phase]]

    await each(by_phase[Phase.BEFORE_ANY_WORKER], Cell.reach)
    await each(by_phase[Phase.BEFORE_ANY_WORKER], Cell.ask)
    room = {"EPISODES_MAX_EPISODES": str(len(running)), "EPISODES_RECONCILE_EVERY_S": "2"}
    with launched(shared, "--gate", str(gate), env=room):
        await each(by_phase[Phase.BEFORE_ANY_WORKER], Cell.end)
        await each(running, Cell.reach)
        for do in (Cell.reach, Cell.ask, Cell.end):
            await each(by_phase[Phase.QUEUED], do)
        for do in (Cell.ask, Cell.end):
            await each(running, do)
        for do in (Cell.reach, Cell.ask):
            await each(late, do)
        (gate / OPEN).touch()
        await each(late, Cell.end)
    return all_cells


@pytest.mark.parametrize("who", Who)
@pytest.mark.parametrize("phase", Phase)
async def test_an_episode_that_is_asked_to_stop_ends_as_promised(
    matrix: Matrix, phase: Phase, who: Who
) -> None:
    cell = matrix[phase, who]

    if (phase, who) == (Phase.BEFORE_ANY_WORKER, Who.TERMINATE):
        # Nobody is left who could list it, so its start says so.
        assert isinstance(cell.error, UnavailableError)
        assert f"terminated in Temporal before a worker could list it: {REASON}" in str(cell.error)
        return
    if cell.error is not None:
        raise cell.error
    is_too_late = phase is Phase.ENDED or (phase is Phase.IN_TEARDOWN and who is not Who.TERMINATE)
    status = RunStatus.COMPLETED if is_too_late else RunStatus.CANCELED
    assert cell.result.status is cell.row.status is status
    assert cell.workflow is workflow_status(phase, who, status)
    assert cell.row.error == (None if is_too_late else reason(who))
    asked = (cell.row.cancel_requested_by, cell.row.cancel_requested_reason)
    assert asked == asked_as(phase, who)
    assert (cell.row.cancel_requested_at is None) == (asked == (None, None))
    assert cell.left == []
    assert cell.row.still_up == ()
    if phase in NEVER_BEGUN:
        assert (cell.steps, cell.row.started_at, cell.row.host) == ((), None, None)
    if phase is Phase.ENDED:
        assert TOLD_AFTER_THE_END[who] in cell.told


async def test_nothing_is_left_on_the_host(matrix: Matrix, shared: Product) -> None:
    assert sandbox_folders(shared) == []
    for folder in ("work", "attempts"):
        assert list((shared.state_dir / folder).iterdir()) == []


TOLD_AFTER_THE_END = {
    Who.PYTHON: "finished, COMPLETED",
    Who.COMMAND_LINE: "ended COMPLETED",
    # The engine takes a cancel of what is over, and does nothing.
    Who.TEMPORAL_CLIENT: "",
    Who.TEMPORAL_COMMAND: "",
    Who.TEMPORAL_BATCH: "",
    Who.TERMINATE: "already completed",
}


def reason(who: Who) -> str:
    if who is Who.TERMINATE:
        return f"terminated: {REASON}"
    # The temporal command sends no reason: with --query it belongs to the batch alone.
    is_silent = who in (Who.TEMPORAL_COMMAND, Who.TEMPORAL_BATCH)
    return CANCELED_IN_TEMPORAL if is_silent else REASON


def asked_as(phase: Phase, who: Who) -> tuple[str | None, str | None]:
    """Who asked, and why, as the row has it."""
    if phase is Phase.ENDED:
        return (None, None)
    if who is Who.PYTHON:
        return ("ana", REASON)
    if who is Who.COMMAND_LINE:
        return (getpass.getuser(), REASON)
    # Nobody but the workflow can note such a request, and it has written its end already.
    is_over = phase is Phase.IN_TEARDOWN and who is not Who.TERMINATE
    return (None, None) if is_over else ("Temporal", reason(who))


def workflow_status(phase: Phase, who: Who, status: RunStatus) -> WorkflowExecutionStatus:
    if who is Who.TERMINATE and phase is not Phase.ENDED:
        return WorkflowExecutionStatus.TERMINATED
    return WorkflowExecutionStatus[status.name]
