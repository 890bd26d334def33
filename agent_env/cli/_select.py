"""The options that choose runs: the same for a list and for a cancel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from agent_env.cli import _values
from agent_env.status import LIVE, RunStatus

if TYPE_CHECKING:
    from agent_env.runs import RunFilter

_F = TypeVar("_F", bound=Callable[..., Any])


class Chosen(TypedDict):
    """What the options of ``selectors`` give a command."""

    status: tuple[str, ...]
    task_id: str | None
    run_group_id: str | None
    since: datetime | None
    error: str | None
    tags: tuple[tuple[str, str], ...]


def selectors(*, live_only: bool = False) -> Callable[[_F], _F]:
    """Add the options; all that are given must hold."""
    statuses = [status.value for status in (LIVE if live_only else RunStatus)]

    def decorated(function: _F) -> _F:
        for option in reversed(
            (
                click.option(
                    "--status",
                    type=click.Choice(statuses, case_sensitive=False),
                    multiple=True,
                    help="Runs with this status. May be repeated.",
                ),
                click.option("--task", "task_id", metavar="ID", help="Runs of this task."),
                click.option("--group", "run_group_id", metavar="ID", help="Runs of this group."),
                click.option(
                    "--since",
                    type=_values.moment,
                    metavar="WHEN",
                    help="Runs listed since then: 2h, 3d, 2026-01-31T09:30.",
                ),
                click.option("--error", metavar="TEXT", help="Runs whose error contains this."),
                click.option(
                    "--tag",
                    "tags",
                    type=_values.pair,
                    multiple=True,
                    metavar="KEY=VALUE",
                    help="Runs with this tag. May be repeated.",
                ),
            )
        ):
            function = option(function)
        return function

    return decorated


def run_filter(chosen: Mapping[str, Any]) -> RunFilter:
    """The options as the index takes them. An empty filter matches every run."""
    from agent_env.runs import RunFilter

    return RunFilter(
        status=tuple(RunStatus(status) for status in chosen["status"]),
        task_id=chosen["task_id"],
        run_group_id=chosen["run_group_id"],
        created_after=chosen["since"],
        error_contains=chosen["error"],
        tag=_values.mapping(chosen["tags"]),
    )
