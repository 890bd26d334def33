"""What canceling a run and canceling a group have in common."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from agent_env.cli._exit import DeclinedError
from agent_env.cli._session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from agent_env.runs import RunIndex
    from agent_env.trainer import Trainer


class Change(NamedTuple):
    """What a change did to one thing."""

    target: str
    changed: bool
    detail: str


def write_changes(session: Session, changes: Sequence[Change]) -> None:
    """Say what was done, one line a target."""
    session.out.items([change._asdict() for change in changes], lambda: _lines(changes))
    if not changes:
        session.out.remark("no live run matches; nothing was asked")


def _lines(changes: Sequence[Change]) -> Iterator[Text]:
    from rich.text import Text

    from agent_env.cli._words import printable

    for change in changes:
        yield Text(printable(f"{change.target}  {change.detail}"))


def confirmed(session: Session, count: int, *, yes: bool) -> None:
    """Ask before several runs are touched.

    Raises:
        DeclinedError: the answer was no.
        click.UsageError: there is nobody to ask.
    """
    if yes or count < 2:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"this cancels {count} runs; say --yes, or look with --dry-run")
    if not click.confirm(f"Cancel {count} runs? Teardown runs; this can't be undone", err=True):
        raise DeclinedError("nothing was changed")


async def reach(session: Session, index: RunIndex) -> Trainer:
    """A trainer on this index.

    Raises:
        UnavailableError: no Temporal server answers; the message says how to start one.
    """
    from agent_env._connect import connect
    from agent_env.artifacts import ArtifactStore
    from agent_env.cli import _logs
    from agent_env.trainer import Trainer

    _logs.off(debug=session.debug)
    state_dir = session.settings.state_dir
    return Trainer(await connect(state_dir), index, ArtifactStore(state_dir / "artifacts"))


def reason_given(reason: str) -> str:
    """The reason that is kept; one that is empty would read as a cancel in Temporal's UI."""
    return reason.strip() or f"canceled by {user_name()}"


def user_name() -> str:
    """Who asks; a container may have no name for its user."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
