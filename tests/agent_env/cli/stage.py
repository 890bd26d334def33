"""``episodes`` in processes of its own, and what an index may hold."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from agent_env.config import Settings
from agent_env.outcome import Outcome
from agent_env.results import StepReport
from agent_env.runs import Finished, GroupRecord, NewRun, RunIndex, RunRecord
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus, StepStatus

T0 = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
PATIENCE = timedelta(seconds=60)


@dataclass
class Said:
    """What one command wrote and how it exited."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Cli:
    """``episodes`` on one state folder."""

    state_dir: Path
    env: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def database_url(self) -> str:
        return Settings(state_dir=self.state_dir).database_url

    def read(self, run_id: str) -> RunRecord:
        """A run's row as it is now."""
        index = RunIndex.open(self.database_url)
        try:
            return index.get(run_id)
        finally:
            index.close()

    def run(self, *args: str) -> Said:
        """In a process of its own, to its end."""
        done = subprocess.run(
            self._argv(args),
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE.total_seconds(),
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr)

    @contextmanager
    def start(self, *args: str, ready: str) -> Generator["Started"]:
        """In a process group of its own; entered once it has written ``ready`` to stderr."""
        process = subprocess.Popen(
            self._argv(args),
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started = Started(process)
        try:
            started.until(ready)
            yield started
        finally:
            started.close()

    def _argv(self, args: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "agent_env.cli", *args]

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("EPISODES_", "TEMPORAL_"))
        }
        return {
            **kept,
            "EPISODES_STATE_DIR": str(self.state_dir),
            "XDG_CONFIG_HOME": str(self.state_dir),
            **self.env,
        }


class Started:
    """A command that runs."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.lines: list[str] = []

    def until(self, word: str) -> str:
        """The next line on stderr with this word."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.lines.append(line)
            if word in line:
                return line
        raise AssertionError(f"ended without {word!r}: {''.join(self.lines)}")

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """As a terminal does on Ctrl-C: the whole process group hears it."""
        os.killpg(self._process.pid, number)

    def ended(self) -> Said:
        """Wait for its end."""
        out, err = self._process.communicate(timeout=PATIENCE.total_seconds())
        return Said(self._process.returncode, out, "".join(self.lines) + err)

    def close(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()


def new_run(run_id: str, at: datetime = T0, **changes: Any) -> NewRun:
    values: dict[str, Any] = {
        "run_id": run_id,
        "task_id": "cartpole",
        "task_version": "1",
        "steps_total": 2,
        "created_at": at,
        "namespace": "default",
        "workflow_run_id": f"w-{run_id}",
        "seed": {"seed": "7"},
        "tags": {"who": "ana"},
    }
    return NewRun(**{**values, **changes})


def report(step_id: str, **changes: Any) -> StepReport:
    values: dict[str, Any] = {
        "step_id": step_id,
        "type": "run_code",
        "epoch": 1,
        "status": StepStatus.COMPLETED,
        "started_at": T0,
        "finished_at": T0 + timedelta(seconds=1.5),
    }
    return StepReport(**{**values, **changes})


def end(index: RunIndex, run: NewRun, outcome: Outcome, *reports: StepReport) -> None:
    """List a run, begin it and end it."""
    index.open_run(run, host="here", room=1000, at=run.created_at)
    index.finish_run(
        Finished(run=run, epoch=1, outcome=outcome, reports=reports),
        at=run.created_at + timedelta(seconds=2),
    )


COMPLETED = Outcome(status=RunStatus.COMPLETED, reward=1.0, scores={"score": 1.0})
FAILED = Outcome(status=RunStatus.FAILED, error_type="StepFailed", error="step 'b': exit code 3\nx")
CANCELED = Outcome(status=RunStatus.CANCELED, error_type="Canceled", error="wrong model")


def group(index: RunIndex, run_group_id: str, *outcomes: Outcome | None) -> list[str]:
    """A group with a member for each outcome; None has not begun."""
    members = [
        new_run(
            f"{run_group_id}-{number:04d}",
            run_group_id=run_group_id,
            member_index=number,
            workflow_run_id=None,
        )
        for number in range(len(outcomes))
    ]
    index.open_group(
        GroupRecord(
            run_group_id=run_group_id,
            task_id="cartpole",
            created_at=T0,
            size=len(members),
            figures=GroupFigures(n=len(members)),
        ),
        members,
    )
    for member, outcome in zip(members, outcomes, strict=True):
        if outcome is not None:
            end(index, member.model_copy(update={"workflow_run_id": "w"}), outcome)
    return [member.run_id for member in members]


def task_file(folder: Path, name: str, *steps: Mapping[str, object]) -> str:
    path = folder / f"{name}.json"
    path.write_text(json.dumps(steps), encoding="utf-8")
    return str(path)


BOX = {"id": "box", "type": "deploy_sandbox", "sandbox_name": "main"}
PASSES = {"id": "score", "type": "run_code", "command": "echo 1", "score_from": "stdout"}
FAILS = {"id": "break", "type": "run_code", "command": "echo boom >&2; exit 3"}
HANGS = {"id": "hang", "type": "run_code", "command": "sleep 600"}


def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.05)


def processes_with(marker: str) -> list[int]:
    """Processes whose command line has this text."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # no process, or it ended meanwhile
        if marker in command:
            found.append(int(entry.name))
    return found
