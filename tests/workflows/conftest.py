"""Workflows under test: real workflow and activity code on the time-skipping server.

Only the steps and the sandbox provider are scripted, so that a test can hold a step where it wants
it. The run index is a real database.
"""

import asyncio
import sysconfig
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import JsonValue
from sqlalchemy import create_engine, text
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowHandle
from temporalio.testing import WorkflowEnvironment
from temporalio.worker._workflow import _WorkflowWorker  # pyright: ignore[reportPrivateUsage]

from agent_env.config import Settings
from agent_env.episode import Episode, EpisodeSpec
from agent_env.plugin import EpisodePlugin
from agent_env.results import EpisodeResult, SandboxRef
from agent_env.runs import RunIndex, RunRecord
from agent_env.sandboxes import Providers, SandboxSpec
from agent_env.status import RunStatus
from agent_env.steps import Params, Scoring, Step, StepContext, StepResult, Steps
from agent_env.task import Task
from agent_env.testing.fakes import FakeSandboxProvider
from agent_env.trainer import Trainer
from agent_env.worker import Services, open_services, serving

TEST_SERVER = Path(sysconfig.get_path("scripts")) / "temporal-test-server"


@dataclass
class Script:
    """What scripted steps do and did. ``hold`` names steps, or runs, that wait until let go."""

    ran: list[str] = field(default_factory=list[str])
    runs: list[str] = field(default_factory=list[str])
    """The run of each step that ran."""
    scores: dict[str, float | None] = field(default_factory=dict[str, float | None])
    """By run, in place of the step's own."""
    canceled: list[str] = field(default_factory=list[str])
    fails: dict[str, int] = field(default_factory=dict[str, int])
    """By step id, how many more times it fails."""
    held: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    swallows: set[str] = field(default_factory=set[str])
    """Steps that return a value when they are canceled."""

    def hold(self, step_or_run: str) -> asyncio.Event:
        """Make a step wait, or all steps of a run; set the event to let it go."""
        return self.held.setdefault(step_or_run, asyncio.Event())


class GatedProvider(FakeSandboxProvider):
    """Lets a test hold teardown, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.destroy_gate: asyncio.Event | None = None
        self.destroying = 0
        self.destroyed: list[str] = []

    async def destroy(self, ref: SandboxRef) -> None:
        self.destroying += 1
        if self.destroy_gate is not None:
            await self.destroy_gate.wait()
        await super().destroy(ref)
        self.destroyed.append(ref.id)


class ScriptParams(Params):
    score: float | None = None
    deploys: str | None = None


def scripted(script: Script) -> type[Step[ScriptParams]]:
    """A step type that follows a script."""

    class ScriptStep(Step[ScriptParams]):
        """Deploys, holds, fails or scores, as it is told."""

        type = "script"

        def scoring(self, params: ScriptParams) -> Scoring:
            return Scoring(records=params.score is not None)

        async def run(self, params: ScriptParams, ctx: StepContext) -> StepResult:
            script.ran.append(ctx.step_id)
            script.runs.append(ctx.run_id)
            if params.deploys:
                await ctx.deploy(SandboxSpec(type="fake", name=params.deploys))
            held = script.held.get(ctx.run_id) or script.held.get(ctx.step_id)
            if held is not None:
                try:
                    await held.wait()
                except asyncio.CancelledError:
                    script.canceled.append(ctx.step_id)
                    if ctx.step_id in script.swallows:
                        return StepResult(output="swallowed", score=1.0)
                    raise
            if script.fails.get(ctx.step_id, 0) > 0:
                script.fails[ctx.step_id] -= 1
                raise ValueError(f"{ctx.step_id} is broken")
            score = script.scores.get(ctx.run_id, params.score)
            return StepResult(output=ctx.step_id, score=score)

    return ScriptStep


class EpisodeHarness:
    """A trainer and a worker on one server, and what tests ask of them."""

    def __init__(
        self, env: WorkflowEnvironment, services: Services, provider: GatedProvider
    ) -> None:
        self.env = env
        self.client: Client = env.client
        self.services = services
        self.index: RunIndex = services.index
        self.provider = provider
        self.trainer = Trainer(env.client, services.index, services.store)

    def spec(self, *steps: dict[str, JsonValue], **task: JsonValue) -> EpisodeSpec:
        """A spec of scripted steps; ``type`` may be left out."""
        listed: list[JsonValue] = [{"type": "script", **step} for step in steps]
        return EpisodeSpec.from_task(
            Task.of({"id": "scripted", "steps": listed, **task}), steps=self.services.steps
        )

    async def play(self, *steps: dict[str, JsonValue], **task: JsonValue) -> EpisodeResult:
        """Start an episode and wait for its end."""
        return await (await self.trainer.start(self.spec(*steps, **task))).result()

    async def play_for(
        self, skipped: timedelta, *steps: dict[str, JsonValue], **task: JsonValue
    ) -> EpisodeResult:
        """Start an episode, skip this much time, and wait for its end."""
        episode = await self.trainer.start(self.spec(*steps, **task))
        await self.env.sleep(skipped)
        return await episode.result()

    def row(self, run_id: str) -> RunRecord:
        return self.index.get(run_id)

    async def workflow_status(self, run_id: str) -> WorkflowExecutionStatus | None:
        return (await self.client.get_workflow_handle(run_id).describe()).status

    async def agrees(self, run_id: str, status: RunStatus) -> bool:
        """Whether row and workflow both ended so."""
        found = await self.workflow_status(run_id)
        return self.row(run_id).status is status and found is WorkflowExecutionStatus[status.name]

    def sql(self, statement: str) -> None:
        """Change the run index behind its back."""
        engine = create_engine(self.services.settings.database_url)
        with engine.begin() as connection:
            connection.execute(text(statement))
        engine.dispose()

    async def until(
        self, condition: Callable[[], bool], *, within: timedelta = timedelta(seconds=20)
    ) -> None:
        """Wait for a condition with a deadline of real time."""
        async with asyncio.timeout(within.total_seconds()):
            while not condition():
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def meanwhile(self, run_id: str) -> AsyncGenerator[None]:
        """All that happens to a workflow while entered reaches it at once, in its next task."""
        handle: Any = _WorkflowWorker._handle_activation  # pyright: ignore[reportPrivateUsage]
        has_begun, may_end = asyncio.Event(), asyncio.Event()

        async def held(worker: Any, activation: Any) -> None:
            has_begun.set()
            await may_end.wait()
            await handle(worker, activation)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_WorkflowWorker, "_handle_activation", held)
            await self.client.get_workflow_handle(run_id).signal("begins a task, and nothing else")
            await has_begun.wait()
            try:
                yield
            finally:
                may_end.set()

    async def cancel_as_it_ends(
        self, run_id: str, end: asyncio.Event, *, comes_first: bool = True
    ) -> None:
        """Cancel a workflow so that it hears of this together with the end of its activity.

        Args:
            run_id: Its id.
            end: Lets the activity end.
            comes_first: The cancel, of the two.
        """
        handle = self.client.get_workflow_handle(run_id)
        async with self.meanwhile(run_id):
            if comes_first:
                await handle.cancel(reason="too late")
            end.set()
            while (await handle.describe()).raw_description.pending_activities:
                await asyncio.sleep(0.01)
            if not comes_first:
                await handle.cancel(reason="too late")

    async def canceled(self, episode: Episode, reason: str = "enough") -> EpisodeResult:
        """Cancel an episode and wait for its end."""
        await episode.cancel(reason, by="tester")
        return await episode.result()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction] (a fixture)
    """Ask again for a result: on a busy machine this server ends a long poll without an event."""
    ask = cast("Callable[..., Awaitable[Any]]", WorkflowHandle.result)  # pyright: ignore[reportUnknownMemberType]

    async def result(handle: WorkflowHandle[Any, Any], **options: Any) -> Any:
        while True:
            try:
                return await ask(handle, **options)
            except RuntimeError as error:
                if "No completion event" not in str(error):
                    raise

    monkeypatch.setattr(WorkflowHandle, "result", result)


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path, max_episodes=4, host="here", cancel_grace_s=1)


@pytest.fixture
async def env() -> AsyncGenerator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(TEST_SERVER), plugins=[EpisodePlugin(sandboxed=True)]
    ) as env:
        yield env


@pytest.fixture
async def idle(
    env: WorkflowEnvironment, settings: Settings, script: Script
) -> AsyncGenerator[EpisodeHarness]:
    """Everything but a worker."""
    provider = GatedProvider()
    async with open_services(
        settings,
        providers=Providers(settings.state_dir, {"fake": provider}),
        steps=Steps({"script": scripted(script)}),
    ) as services:
        yield EpisodeHarness(env, services, provider)


@pytest.fixture
async def episodes(idle: EpisodeHarness) -> AsyncGenerator[EpisodeHarness]:
    """Everything, with a worker."""
    async with serving(idle.client, idle.services):
        yield idle


@pytest.fixture
async def start_worker(
    idle: EpisodeHarness,
) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """Starts the worker when the test wants it."""
    async with AsyncExitStack() as stack:

        async def start() -> None:
            await stack.enter_async_context(serving(idle.client, idle.services))

        yield start
