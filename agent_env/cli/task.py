"""``episodes task``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from agent_env.cli import _values
from agent_env.cli._command import Command, Entry, Group
from agent_env.cli._session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from agent_env.errors import Problem
    from agent_env.task import Task

COMMANDS = {
    "check": Entry("task:check", "Check everything that can be known before a run."),
}


@click.command("task", cls=Group, entries=COMMANDS, example="episodes task check examples/cartpole")
def task() -> None:
    """Check tasks."""


@click.command("check", cls=Command, example="episodes task check examples/cartpole")
@click.argument("path", metavar="TASK", type=click.Path(path_type=Path))
@click.option("--name", help="Which task of a bundle; all if not given.")
@click.option(
    "--seed",
    "seeds",
    type=_values.seed,
    multiple=True,
    metavar="N|KEY=VALUE",
    help="As for a run. May be repeated.",
)
@click.pass_obj
def check(
    session: Session, path: Path, name: str | None, seeds: tuple[tuple[str, str], ...]
) -> int:
    """Check everything that can be known before a run.

    Shows how each task's steps are cut into segments and which step's score is the reward, or all
    that is wrong. Exit code: 2 if anything is.
    """
    from agent_env.task_files import load_task, load_tasks

    tasks = load_tasks(path) if name is None else [load_task(path, name)]
    seed = {"seed": "0", **_values.mapping(seeds)}
    found = [_checked(one, seed) for one in tasks]
    session.out.items([one.document() for one in found], lambda: _lines(found))
    wrong = any(one.problems for one in found)
    if not wrong:
        session.out.hint("run", str(path), *(["--name", tasks[0].id] if len(tasks) > 1 else []))
    return 2 if wrong else 0


class _Checked(NamedTuple):
    """What is known of a task."""

    task: Task
    problems: Sequence[Problem]

    def document(self) -> dict[str, object]:
        return {
            "task_id": self.task.id,
            "task_version": self.task.version,
            "ok": not self.problems,
            "reward": self.task.reward,
            "segments": [] if self.problems else segments(self.task),
            "problems": [{"where": one.where, "what": one.what} for one in self.problems],
        }


def _checked(one: Task, seed: dict[str, str]) -> _Checked:
    from agent_env.errors import InvalidSpecError
    from agent_env.steps import Steps

    try:
        return _Checked(Steps().check(one, seed), ())
    except InvalidSpecError as error:
        return _Checked(one, error.problems)


def segments(task: Task) -> list[list[str]]:
    """The ids of the steps that run in one activity, in order; waits and turns stand alone.

    As they are cut when no step fails.
    """
    from agent_env.plan import plan
    from agent_env.results import StepReport
    from agent_env.status import StepStatus

    found: list[list[str]] = []
    reports: list[StepReport] = []
    while not (now := plan(task, reports)).is_empty:
        parts = [[step.id] for step in (*now.waits, *now.turns)]
        if now.segment is not None:
            parts.append(list(now.segment.ids))
        found += parts
        reports += [
            StepReport(
                step_id=step_id,
                type=task.step(step_id).type,
                epoch=1,
                status=StepStatus.COMPLETED,
            )
            for part in parts
            for step_id in part
        ]
    return found


def _lines(found: Sequence[_Checked]) -> Iterator[Text]:
    from rich.text import Text

    from agent_env.cli._words import printable

    for one in found:
        title = f"{one.task.id} v{one.task.version}"
        if one.problems:
            yield Text("✕ ", style="red") + Text(printable(title), style="bold")
            yield from (Text(printable(f"  {problem}")) for problem in one.problems)
            continue
        yield Text("✓ ", style="green") + Text(printable(title), style="bold")
        for number, ids in enumerate(segments(one.task), 1):
            types = [f"{step_id} ({one.task.step(step_id).type})" for step_id in ids]
            yield Text(printable(f"  segment {number}: {', '.join(types)}"))
        reward = f"the score of {one.task.reward}" if one.task.reward else "none: no step scores"
        yield Text(printable(f"  reward: {reward}"))
