"""Writes to a run index as fast as it goes, in a process of its own."""

import time
from datetime import UTC, datetime

from agent_env.outcome import Outcome
from agent_env.results import StepReport
from agent_env.runs import Finished, NewRun, RunIndex
from agent_env.status import RunStatus, StepStatus


def writes(url: str, name: str, duration_s: float) -> int:
    """List runs of a host and end them, one after the other; how many."""
    index = RunIndex.open(url)
    done = 0
    until = time.monotonic() + duration_s
    while time.monotonic() < until:
        now = datetime.now(UTC)
        run = NewRun(
            run_id=f"{name}-{done}",
            task_id="task",
            task_version="1",
            steps_total=2,
            created_at=now,
            namespace="default",
            workflow_run_id=f"wf-{name}-{done}",
            run_group_id=f"{name}-{done // 8}",
            member_index=done % 8,
        )
        index.open_run(run, host=name, room=100, at=now)
        steps = tuple(
            StepReport(
                step_id=step,
                type="run_code",
                epoch=1,
                status=StepStatus.COMPLETED,
                started_at=now,
                finished_at=now,
            )
            for step in ("play", "verify")
        )
        outcome = Outcome(status=RunStatus.COMPLETED, reward=1.0, scores={"verify": 1.0})
        index.finish_run(Finished(run=run, epoch=1, outcome=outcome, reports=steps), at=now)
        done += 1
    index.close()
    return done
