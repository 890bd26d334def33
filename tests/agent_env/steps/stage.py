"""A stage for fake steps: runs segments of them as a worker would, and keeps what it hears."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from agent_env.artifacts import ArtifactStore
from agent_env.plan import plan
from agent_env.results import StepReport
from agent_env.sandboxes import Providers
from agent_env.specs import RunSteps, StepProgress, StepsDone
from agent_env.status import StepStatus
from agent_env.steps import Step, Steps
from agent_env.steps.runner import SegmentRunner
from agent_env.task import Task
from agent_env.testing.fakes import FakeSandboxProvider
from agent_env.testing.steps import Act, step_of

PATIENCE_S = 20
"""Longest that anything here waits for what should be there at once, in seconds."""


def by_id(done: StepsDone) -> dict[str, StepReport]:
    return {report.step_id: report for report in done.reports}


def statuses(done: StepsDone) -> dict[str, StepStatus]:
    return {report.step_id: report.status for report in done.reports}


@dataclass
class Stage:
    """Runs segments of fake steps, and keeps every word of theirs."""

    folder: Path
    provider: FakeSandboxProvider = field(default_factory=FakeSandboxProvider)
    words: list[StepProgress] = field(default_factory=list[StepProgress])
    interrupt: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    grace: timedelta = timedelta(seconds=PATIENCE_S)
    types: dict[str, type[Step[Any]]] = field(default_factory=dict[str, type[Step[Any]]])
    runner: SegmentRunner = field(init=False)

    def __post_init__(self) -> None:
        self.runner = self.new_runner()

    def new_runner(self) -> SegmentRunner:
        """As of a worker that has just started."""
        return SegmentRunner(
            steps=Steps(self.types),
            providers=Providers(self.folder, {"fake": self.provider}),
            store=ArtifactStore(self.folder / "artifacts"),
            work_root=self.folder / "work",
            cancel_grace=self.grace,
            now=lambda: datetime.now(UTC),
        )

    def order(
        self, task: Task, *, reports: tuple[StepReport, ...] = (), **changes: object
    ) -> RunSteps:
        """All that can run of a task now."""
        segment = plan(task, reports).segment
        assert segment is not None
        order = RunSteps(
            run_id="run/1",
            task_id=task.id,
            artifacts={},
            seed={},
            epoch=1,
            segment=segment,
            reports=tuple(report for report in reports if not report.retried),
            steps_total=len(task.steps),
        )
        return order.model_copy(update=changes)

    def task(
        self, acts: Mapping[str, Act | type[Step[Any]]], **steps: dict[str, JsonValue]
    ) -> Task:
        """A task with a step for each act, and the fields that are given for it."""
        for name, act in acts.items():
            self.types[name] = act if isinstance(act, type) else step_of(act)
        self.runner = self.new_runner()
        listed: list[JsonValue] = [{"id": n, "type": n, **steps.get(n, {})} for n in acts]
        return Task.of({"id": "t", "steps": listed})

    async def run(
        self,
        order: RunSteps | Task,
        *,
        earlier: StepProgress | None = None,
        execution: str = "execution",
    ) -> StepsDone:
        """Run to the end."""
        order = self.order(order) if isinstance(order, Task) else order
        return await self.runner.run(
            order,
            execution=execution,
            earlier=earlier,
            on_change=self._hear,
            interrupt=self.interrupt,
        )

    def _hear(self, word: StepProgress) -> None:
        self.words.append(word)
        self.changed.set()

    async def until(self, holds: Callable[[StepProgress], bool]) -> None:
        """Wait until the last word says so."""
        async with asyncio.timeout(PATIENCE_S):
            while not (self.words and holds(self.words[-1])):
                self.changed.clear()
                await self.changed.wait()

    async def until_at_work(self, *names: str) -> None:
        """Wait until these steps have said something from within."""
        await self.until(
            lambda word: isinstance(word.detail, dict) and set(names) <= word.detail.keys()
        )

    def work_left(self) -> list[Path]:
        """What is left of the steps' folders, and of marks that a step was started."""
        left = (self.folder / "work").glob("*/*")
        return [path for path in left if path.suffix != ".kept"]

    async def interrupted(self, task: Task, *names: str) -> dict[str, StepReport]:
        """Run a task and interrupt it once these steps are at work."""
        running = asyncio.create_task(self.run(task))
        await self.until_at_work(*names)
        self.interrupt.set()
        return by_id(await running)
