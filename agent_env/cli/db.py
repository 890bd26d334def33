"""``episodes db``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from agent_env.cli._command import Command, Entry, Group
from agent_env.cli._session import Session

if TYPE_CHECKING:
    from rich.text import Text

COMMANDS = {
    "upgrade": Entry("db:upgrade_database", "Bring the run index's schema up to this version's."),
}


@click.command("db", cls=Group, entries=COMMANDS, example="episodes db upgrade")
def db() -> None:
    """Take care of the run index's database."""


@click.command("upgrade", cls=Command, example="episodes db upgrade")
@click.pass_obj
def upgrade_database(session: Session) -> None:
    """Bring the run index's schema up to this version's.

    SQLite is upgraded by whoever opens it; other databases only by this command. Repeating it
    changes nothing.
    """
    from agent_env.runs.schema import upgrade

    settings = session.at_home()
    done = upgrade(settings.database_url)
    target = str(settings.masked()["database"])
    detail = f"is at {done.after}"
    if done.changed:
        detail = f"from {done.before or 'empty'} to {done.after}"
    session.out.document(
        {"target": target, "changed": done.changed, "detail": detail},
        lambda: _line(f"{target}  {detail}"),
    )


def _line(words: str) -> Iterator[Text]:
    from rich.text import Text

    from agent_env.cli._words import printable

    yield Text(printable(words))
