"""``episodes explorer``, and the explorer of ``episodes up``."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import click

from agent_env.cli._cancel import user_name
from agent_env.cli._command import Command
from agent_env.cli._session import Session
from agent_env.cli._signals import Interrupts

if TYPE_CHECKING:
    from rich.text import Text

    from agent_env.config import Settings
    from agent_env.explorer.server import Explorer
    from agent_env.runs import RunIndex

_EXTRA = "durable-episodes[explorer]"


@click.command("explorer", cls=Command, example="episodes explorer --port 8080")
@click.option(
    "--host", metavar="ADDRESS", help="Where to listen; one that others reach needs a token."
)
@click.option("--port", type=click.IntRange(0, 65535), help="Port; 0 means any that is free.")
@click.option("--read-only", is_flag=True, help="Nothing can be changed from the pages.")
@click.pass_obj
def explorer(session: Session, host: str | None, port: int | None, read_only: bool) -> None:
    """Serve the explorer, on which runs are watched and canceled, until Ctrl-C.

    Needs the run index; Temporal only to cancel, to run again and for the health page. With a token
    (EPISODES_EXPLORER_TOKEN), the link that is printed lets one browser in.
    """
    from agent_env.cli import _logs

    _logs.to_stderr(debug=session.debug)
    session.more = {
        "explorer_host": host,
        "explorer_port": port,
        "explorer_read_only": True if read_only else None,
    }
    asyncio.run(_explorer(session))


async def _explorer(session: Session) -> None:
    from agent_env._connect import open_index, settled

    check_extra()
    settings = session.at_home()
    async with AsyncExitStack() as stack:
        interrupts = stack.enter_context(
            Interrupts(signal.SIGINT, signal.SIGTERM, leave=lambda: "left at once")
        )
        index = await open_index(settings)
        stack.callback(index.close)
        stack.push_async_callback(settled)
        served = await stack.enter_async_context(_serving(settings, index, may_move=False))
        interrupts.ready()
        facts = {
            "url": served.url,
            "link": served.link if served.link != served.url else None,
            "read_only": settings.explorer_read_only,
            "database": index.reads.database,
        }
        session.out.document(facts, lambda: _lines(facts))
        session.out.say("serving; Ctrl-C stops")
        await interrupts.asked.wait()


def check_extra() -> None:
    """Make sure that what the explorer needs is installed.

    Raises:
        ConfigError: it is not; names what to install.
    """
    from importlib.util import find_spec

    from agent_env.errors import ConfigError

    missing = [name for name in ("fastapi", "jinja2", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the explorer is not installed ({', '.join(missing)} is missing); "
            f"pip install '{_EXTRA}'"
        )


@asynccontextmanager
async def explorer_beside(session: Session, index: RunIndex) -> AsyncGenerator[Explorer | None]:
    """The explorer beside a worker: None, and a word on it, when it can't be served."""
    from agent_env.errors import ConfigError, ConflictError

    async with AsyncExitStack() as stack:
        served = None
        loaded = session.loaded
        # A port that nobody chose may be another's; a second explorer takes the next.
        may_move = loaded.sources["explorer_port"] == "default"
        try:
            check_extra()
            served = await stack.enter_async_context(
                _serving(loaded.settings, index, may_move=may_move)
            )
        except (ConfigError, ConflictError) as error:
            session.out.say(f"no explorer: {error}")
        yield served


@asynccontextmanager
async def _serving(
    settings: Settings, index: RunIndex, *, may_move: bool
) -> AsyncGenerator[Explorer]:
    from agent_env.explorer.server import explorer_serving, services_of

    services = services_of(settings, index, user=user_name())
    host, port = settings.explorer_host, settings.explorer_port
    async with explorer_serving(services, host=host, port=port, may_move=may_move) as served:
        yield served


def _lines(facts: Mapping[str, object]) -> Iterator[Text]:
    from agent_env.cli._table import fields
    from agent_env.cli._words import printable

    pairs = [(name.replace("_", " "), printable(str(value))) for name, value in facts.items()]
    yield from fields([(name, value) for name, value in pairs if value not in ("None", "False")])
