"""``episodes up`` and ``episodes worker``."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from agent_env.cli._command import Command
from agent_env.cli._session import Session
from agent_env.cli._signals import Interrupts

if TYPE_CHECKING:
    from rich.text import Text

_STOPS = (signal.SIGINT, signal.SIGTERM)


@click.command("up", cls=Command, example="episodes up")
@click.pass_obj
def up(session: Session) -> None:
    """Serve episodes on this machine until Ctrl-C.

    Starts the embedded Temporal server, a worker and the explorer. Ctrl-C, or SIGTERM, drains:
    steps may end, and what is not done goes on at the next start. A second one leaves at once.
    """
    from agent_env.cli import _logs

    _logs.to_stderr(debug=session.debug)
    asyncio.run(_up(session))


@click.command("worker", cls=Command, example="TEMPORAL_ADDRESS=127.0.0.1:7233 episodes worker")
@click.pass_obj
def worker(session: Session) -> None:
    """Serve episodes for a Temporal server that runs, until Ctrl-C.

    Its address is read as Temporal's own tools read it: TEMPORAL_ADDRESS or a profile. Ctrl-C, or
    SIGTERM, drains; a second one leaves at once.
    """
    from agent_env.cli import _logs

    _logs.to_stderr(debug=session.debug)
    asyncio.run(_worker(session))


async def _up(session: Session) -> None:
    from agent_env.cli.explorer import explorer_beside
    from agent_env.local import local_stack

    settings = session.at_home()
    async with AsyncExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(*_STOPS, leave=_left))
        local = await stack.enter_async_context(local_stack(settings))
        explorer = await stack.enter_async_context(explorer_beside(session, local.trainer.index))
        interrupts.ready()
        facts = {
            "explorer": None if explorer is None else explorer.link,
            "temporal_ui": local.ui_url,
            "temporal_address": local.trainer.client.service_client.config.target_host,
            "state_dir": str(settings.state_dir),
            "max_episodes": settings.max_episodes,
            "is_worker": local.is_worker,
        }
        session.out.document(facts, lambda: _lines(facts))
        if local.is_worker:
            session.out.say("serving; Ctrl-C drains and stops")
        else:
            session.out.say("another process serves this state folder: this one is its stand-in")
        session.out.hint("run", "TASK", "-n", "8")
        await _asked(session, interrupts)


async def _worker(session: Session) -> None:
    from agent_env.local import worker_alone

    settings = session.at_home()
    async with AsyncExitStack() as stack:
        interrupts = stack.enter_context(Interrupts(*_STOPS, leave=_left))
        services = await stack.enter_async_context(worker_alone(settings))
        interrupts.ready()
        facts = {
            "host": services.host,
            "state_dir": str(settings.state_dir),
            "max_episodes": settings.max_episodes,
        }
        session.out.document(facts, lambda: _lines(facts))
        session.out.say(f"serving on host {services.host}; Ctrl-C drains and stops")
        await _asked(session, interrupts)


async def _asked(session: Session, interrupts: Interrupts) -> None:
    await interrupts.asked.wait()
    limit = session.settings.graceful_shutdown_s
    session.out.say(f"draining: steps may end for {limit:g} s  (again leaves at once)")


def _left() -> str:
    return "left at once; what runs goes on at the next start"


def _lines(facts: Mapping[str, object]) -> Iterator[Text]:
    from agent_env.cli._table import fields
    from agent_env.cli._words import printable

    pairs = [(name.replace("_", " "), printable(str(value))) for name, value in facts.items()]
    yield from fields([(name, value) for name, value in pairs if value not in ("None", "True")])
