"""``episodes config``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from agent_env.cli._command import Command, Entry, Group
from agent_env.cli._session import Session

if TYPE_CHECKING:
    from rich.text import Text

COMMANDS = {
    "show": Entry("config:show_config", "Show each setting, its value and where it comes from."),
}


@click.command(
    "config", cls=Group, entries=COMMANDS, default="show", example="episodes config show"
)
def config() -> None:
    """Show the settings and where each comes from."""


@click.command("show", cls=Command, example="episodes config show")
@click.pass_obj
def show_config(session: Session) -> None:
    """Show each setting, its value and where it comes from.

    Secrets are masked. Temporal's address is none of these settings: see TEMPORAL_ADDRESS and
    Temporal's profile file.
    """
    settings, sources = session.loaded
    items = [
        {"name": name, "value": value, "source": sources[name]}
        for name, value in settings.masked().items()
    ]
    session.out.items(items, lambda: _lines(items))


def _lines(items: Sequence[dict[str, object]]) -> Iterator[Text]:
    from agent_env.cli._table import Column, Row, table
    from agent_env.cli._words import printable

    yield from table(
        [Column("setting"), Column("value"), Column("from")],
        [Row([printable(str(item[key])) for key in ("name", "value", "source")]) for item in items],
    )
