"""``episodes run``."""

from __future__ import annotations

import asyncio
import secrets
import signal
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agent_env.cli import _values
from agent_env.cli._cancel import user_name
from agent_env.cli._command import Command
from agent_env.cli._session import Session
from agent_env.cli._signals import Interrupts

if TYPE_CHECKING:
    from agent_env.cli._watch import View
    from agent_env.episode import EpisodeSpec
    from agent_env.group import RolloutGroup
    from agent_env.trainer import Trainer

REASON = "interrupted (Ctrl-C)"
"""Why a group is canceled whose command was interrupted."""


@dataclass(frozen=True)
class _Order:
    """What is to be started."""

    spec: EpisodeSpec
    run_group_id: str
    size: int
    max_parallel: int | None
    surplus: int
    min_scored: int | None
    deadline: timedelta | None

    @property
    def members(self) -> int:
        return self.size + self.surplus

    async def start(self, trainer: Trainer) -> RolloutGroup:
        return await trainer.start_group(
            self.spec,
            size=self.size,
            max_parallel=self.max_parallel,
            surplus=self.surplus,
            min_scored=self.min_scored,
            deadline=self.deadline,
            run_group_id=self.run_group_id,
        )


@click.command("run", cls=Command, example="episodes run examples/cartpole -n 8 --seed 100")
@click.argument("task", type=click.Path(path_type=Path))
@click.option(
    "-n",
    "--size",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="How many episodes; each gets a seed of its own.",
)
@click.option(
    "--seed",
    "seeds",
    type=_values.seed,
    multiple=True,
    metavar="N|KEY=VALUE",
    help="The first member's seed, or what <KEY> in the task becomes. May be repeated.",
)
@click.option(
    "--surplus",
    type=click.IntRange(min=0),
    default=0,
    help="How many more to start; those left are canceled once SIZE have a reward.",
)
@click.option(
    "--min-scored",
    type=click.IntRange(min=1),
    help="Cancel the others once so many have a reward.",
)
@click.option(
    "--group-deadline",
    type=_values.duration,
    metavar="DURATION",
    help="Longest the group may take; who has no outcome then is canceled.",
)
@click.option("--name", help="Which task of a bundle with several.")
@click.option("--max-parallel", type=click.IntRange(min=1), help="Most episodes that run at once.")
@click.option(
    "--deadline",
    type=_values.duration,
    metavar="DURATION",
    help="Longest each episode may take: 90, 5m, 2h.",
)
@click.option(
    "--tag",
    "tags",
    type=_values.pair,
    multiple=True,
    metavar="KEY=VALUE",
    help="Label to find the runs by. May be repeated.",
)
@click.option("--group", "run_group_id", metavar="ID", help="The group's id; made if not given.")
@click.option("--detach", is_flag=True, help="Start them for a worker that runs, and return.")
@click.pass_obj
def run(
    session: Session,
    task: Path,
    size: int,
    seeds: tuple[tuple[str, str], ...],
    surplus: int,
    min_scored: int | None,
    group_deadline: timedelta | None,
    name: str | None,
    max_parallel: int | None,
    deadline: timedelta | None,
    tags: tuple[tuple[str, str], ...],
    run_group_id: str | None,
    detach: bool,
) -> int:
    """Play a task as a group of episodes, and watch them to their end.

    TASK is a file, a folder with a task.json, or a bundle. Starts the Temporal server and a worker
    of this machine if none runs. Ctrl-C cancels the group and waits for its teardown; a second one
    leaves at once.

    Exit code: 0 if all completed, 1 if some failed, 6 if some were canceled.
    """
    from agent_env import ids
    from agent_env.cli import _logs
    from agent_env.episode import EpisodeSpec
    from agent_env.errors import InvalidSpecError, Problem
    from agent_env.task_files import load_task

    seed, labels = {"seed": "0", **_values.mapping(seeds)}, _values.mapping(tags)
    loaded = load_task(task, name)
    try:
        spec = EpisodeSpec.from_task(
            loaded, seed=seed, tags=labels, deadline=deadline, trainer_agents=()
        )
    except InvalidSpecError as error:
        raise InvalidSpecError(
            Problem(f"{task}: {problem.where}", problem.what) for problem in error.problems
        ) from None
    group_id = run_group_id or ids.group_id(session.now, secrets.randbits(30))
    order = _Order(spec, group_id, size, max_parallel, surplus, min_scored, group_deadline)
    _logs.off(debug=session.debug)
    return asyncio.run((_detached if detach else _played)(session, order))


async def _played(session: Session, order: _Order) -> int:
    from agent_env.cli._report import exit_code, hint_after, write_group
    from agent_env.cli._watch import open_view, watch
    from agent_env.local import local_stack

    async with AsyncExitStack() as stack:
        view = open_view(session)
        stack.callback(view.close)
        interrupts = stack.enter_context(
            Interrupts(signal.SIGINT, leave=lambda: _left(session, view, order))
        )
        local = await stack.enter_async_context(local_stack(session.at_home()))
        interrupts.ready()
        group = await order.start(local.trainer)
        session.out.say(f"{group.run_group_id}: {_episodes(order.members)} of {order.spec.task.id}")
        async with asyncio.TaskGroup() as tasks:
            canceler = tasks.create_task(_cancel_when_asked(interrupts.asked, group, view))
            await watch(group, local.trainer.index, view)
            canceler.cancel()
        record = await asyncio.to_thread(local.trainer.index.group, group.run_group_id)
        members = await asyncio.to_thread(local.trainer.index.members, group.run_group_id)
        write_group(session, record, members)
    hint_after(session, record, members)
    return exit_code(record.figures)


async def _cancel_when_asked(asked: asyncio.Event, group: RolloutGroup, view: View) -> None:
    await asked.wait()
    view.say("canceling…  (Ctrl-C again leaves at once)")
    await group.cancel(REASON, by=user_name())


def _left(session: Session, view: View, order: _Order) -> str:
    view.close()
    again = session.out.command("groups", "cancel", order.run_group_id, "--yes")
    return f"left; {session.out.command('up')} goes on with what was started, {again} cancels it"


async def _detached(session: Session, order: _Order) -> int:
    from agent_env import ids
    from agent_env.cli._serving import check_served
    from agent_env.cli._table import plain
    from agent_env.trainer import Trainer

    async with Trainer.connect(session.at_home()) as trainer:
        await check_served(trainer.client, session.settings)
        group = await order.start(trainer)
    run_ids = [ids.member_id(group.run_group_id, index) for index in range(order.members)]
    session.out.document(
        {"run_group_id": group.run_group_id, "run_ids": run_ids},
        lambda: plain([group.run_group_id, *run_ids]),
    )
    session.out.hint("groups", "wait", group.run_group_id)
    return 0


def _episodes(count: int) -> str:
    return f"{count:,} episode{'' if count == 1 else 's'}"
