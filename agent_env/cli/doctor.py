"""``episodes doctor``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from agent_env.cli._command import Command
from agent_env.cli._session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from agent_env.cli._checks import Check


@click.command("doctor", cls=Command, example="episodes doctor")
@click.pass_obj
def doctor(session: Session) -> int:
    """Check what episodes need on this machine.

    Changes nothing. Exit code: 1 if something keeps episodes from running.
    """
    from agent_env.cli import _logs
    from agent_env.cli._checks import Verdict, all_checks

    _logs.off(debug=session.debug)
    checks = list(all_checks(session.settings))
    session.out.items([check._asdict() for check in checks], lambda: _lines(checks))
    return int(any(check.verdict is Verdict.FAIL for check in checks))


def _lines(checks: Sequence[Check]) -> Iterator[Text]:
    from rich.text import Text

    from agent_env.cli._checks import Verdict
    from agent_env.cli._words import printable

    looks = {
        Verdict.OK: ("✓", "green"),
        Verdict.WARN: ("!", "yellow"),
        Verdict.FAIL: ("✕", "red"),
    }
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark, color = looks[check.verdict]
        line = Text(f"{mark} {check.verdict:<4}  ", style=color)
        line.append(f"{check.name:<{width}}  ", style="bold")
        line.append(printable(check.detail), style="default")
        yield line
        if check.cure is not None:
            yield Text(printable(f"  cure: {check.cure}"))
