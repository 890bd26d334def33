"""Plays steps as a worker's activity does: all real, but for the workflow around them."""

import asyncio
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import JsonValue

from agent_env.artifacts import ArtifactStore
from agent_env.plan import plan
from agent_env.results import StepReport
from agent_env.sandboxes import Providers
from agent_env.specs import RunSteps, StepProgress
from agent_env.steps import Steps
from agent_env.steps.runner import SegmentRunner
from agent_env.task import Task

RUN_ID = "run/1"
PATIENCE_S = 20
"""Longest that anything here waits for what should be there soon, in seconds."""
BOX: dict[str, JsonValue] = {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box"}


class RealHost:
    """Plays tasks on this machine, and keeps every word of their steps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.providers = Providers(folder)
        self.steps = Steps()
        self.store = ArtifactStore(folder / "artifacts")
        self.words: list[StepProgress] = []
        self.interrupt = asyncio.Event()
        self.refs: dict[str, str] = {}

    def artifact(self, name: str, files: Mapping[str, str]) -> None:
        """Give the tasks an artifact."""
        folder = self.folder / "sources" / name
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text, encoding="utf-8")
        self.refs[name] = self.store.put(folder)

    async def play(
        self, *steps: dict[str, JsonValue], seed: Mapping[str, str] | None = None
    ) -> dict[str, StepReport]:
        """Check the steps, play them to their end, and report on each."""
        task = self.steps.check(
            Task.of({"id": "t", "steps": list(steps), "reward": None, "artifacts": self.refs}), seed
        )
        segment = plan(task, ()).segment
        assert segment is not None
        assert len(segment.steps) == len(steps)
        order = RunSteps(
            run_id=RUN_ID,
            task_id=task.id,
            artifacts=task.artifacts,
            seed=seed or {},
            epoch=1,
            segment=segment,
            reports=(),
            steps_total=len(steps),
        )
        runner = SegmentRunner(
            steps=self.steps,
            providers=self.providers,
            store=self.store,
            work_root=self.folder / "work",
            cancel_grace=timedelta(seconds=PATIENCE_S),
            now=lambda: datetime.now(UTC),
        )
        done = await runner.run(
            order,
            execution=secrets.token_hex(8),
            earlier=None,
            on_change=self._hear,
            interrupt=self.interrupt,
        )
        return {report.step_id: report for report in done.reports}

    async def play_one(self, **step: JsonValue) -> StepReport:
        """Play a step with the id ``it`` alone."""
        return (await self.play({"id": "it", **step}))["it"]

    async def play_in_box(self, **step: JsonValue) -> StepReport:
        """Play a step with the id ``it`` after one that deploys a sandbox."""
        return (await self.play(BOX, {"id": "it", **step}))["it"]

    def work_left(self) -> list[Path]:
        """What is left of the steps' folders, and of marks that a step was started."""
        left = (self.folder / "work").glob("*/*")
        return [path for path in left if path.suffix != ".kept"]

    def _hear(self, word: StepProgress) -> None:
        self.words.append(word)
