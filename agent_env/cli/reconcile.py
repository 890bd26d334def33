"""``episodes reconcile``."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from agent_env.cli._command import Command
from agent_env.cli._exit import SOME_FAILED
from agent_env.cli._session import Session

if TYPE_CHECKING:
    from rich.text import Text
    from temporalio.client import Client

    from agent_env.reconciler import Look
    from agent_env.runs import RunIndex
    from agent_env.specs import Reconciled

_ID_BITS = 40


@click.command("reconcile", cls=Command, example="episodes reconcile --check")
@click.option("--check", is_flag=True, help="Only say what disagrees, and change nothing.")
@click.pass_obj
def reconcile(session: Session, check: bool) -> int:
    """Compare live runs with Temporal, and repair what disagrees.

    Runs whose workflow was terminated, timed out or deleted are torn down and ended; open episodes
    without a row are listed again; cancels that never reached Temporal are asked for again. A
    worker does the same by itself; --check needs none.

    Exit code: 1 if something disagrees, or could not be repaired.
    """
    from agent_env.cli import _logs

    _logs.off(debug=session.debug)
    if not check:
        return _write_repaired(session, asyncio.run(_reconciled(session)))
    with session.index() as index:
        return _write_look(session, asyncio.run(_looked(session, index)))


async def _looked(session: Session, index: RunIndex) -> Look:
    from datetime import UTC, datetime

    from agent_env.reconciler import Reconciler

    client = await _connected(session)
    return await Reconciler(client, index, now=lambda: datetime.now(UTC)).look()


async def _reconciled(session: Session) -> Reconciled:
    from agent_env import names
    from agent_env.cli._serving import check_served
    from agent_env.specs import Reconcile, Reconciled

    client = await _connected(session)
    await check_served(
        client,
        session.settings,
        otherwise="which reconciles by itself, or only look with --check",
    )
    handle = await client.start_workflow(
        names.RECONCILER,
        Reconcile(once=True),
        id=f"{names.RECONCILER_ID}-{secrets.randbits(_ID_BITS):010x}",
        task_queue=names.TASK_QUEUE,
        result_type=Reconciled,
    )
    if session.out.is_live:
        session.out.say("comparing; a host that does not answer is waited for, then given up")
    return await handle.result()


async def _connected(session: Session) -> Client:
    from agent_env._connect import connect

    return await connect(session.settings.state_dir)


def _write_look(session: Session, look: Look) -> int:
    items = [
        {"target": found.target, "kind": found.kind.value, "detail": found.detail}
        for found in look.found
    ]
    lines = [f"{found.target}  {found.kind}: {found.detail}" for found in look.found]
    session.out.items(items, lambda: _text(lines))
    if not look.is_whole:
        session.out.complain(["there are more: look again once these are repaired"])
    if look.found:
        session.out.hint("reconcile")
    else:
        session.out.remark(f"all agree: {look.live} live runs, {look.open} open workflows")
    return SOME_FAILED if look.found else 0


def _write_repaired(session: Session, done: Reconciled) -> int:
    items = [repaired.model_dump() for repaired in done.repaired]
    lines = [f"{repaired.target}  {repaired.detail}" for repaired in done.repaired]
    session.out.items(items, lambda: _text(lines))
    if done.count > len(done.repaired):
        session.out.complain([f"and {done.count - len(done.repaired)} more"])
    if done.more:
        session.out.complain(["not all is repaired yet: repeat this command"])
    if not done.count:
        session.out.remark("all agree: there was nothing to repair")
    is_done = not done.more and all(repaired.agrees for repaired in done.repaired)
    return 0 if is_done else SOME_FAILED


def _text(lines: Sequence[str]) -> Iterator[Text]:
    from rich.text import Text

    from agent_env.cli._words import first_line

    for line in lines:
        yield Text(first_line(line))
