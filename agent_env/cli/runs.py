"""``episodes list``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

import click

from agent_env.cli._command import Command
from agent_env.cli._select import Chosen, run_filter, selectors
from agent_env.cli._session import Session

if TYPE_CHECKING:
    from rich.text import Text

    from agent_env.runs import RunRecord


@click.command("list", cls=Command, example="episodes list --status FAILED --since 24h")
@selectors()
@click.option(
    "--limit", type=click.IntRange(1, 500), default=50, show_default=True, help="Most runs to list."
)
@click.option("--after", metavar="CURSOR", help="Go on after the page that gave this cursor.")
@click.pass_obj
def list_runs(session: Session, limit: int, after: str | None, **chosen: Unpack[Chosen]) -> None:
    """List runs, newest first.

    Needs the run index only: works while no Temporal server runs.
    """
    from agent_env.runs import RunCursor, RunFilter

    where = run_filter(chosen)
    cursor = None if after is None else RunCursor.of(after)
    with session.index() as index:
        page = index.page(where, after=cursor, limit=limit)
    session.out.items(
        [run.model_dump(mode="json") for run in page.runs],
        lambda: _lines(page.runs, session),
        next=page.next.text() if page.next else None,
    )
    if page.runs:
        failed = (run.run_id for run in page.runs if run.error_type is not None)
        session.out.hint("show", next(failed, page.runs[0].run_id))
    elif where == RunFilter() and cursor is None:
        session.out.remark("no runs yet; start some with `episodes run TASK`")
    else:
        session.out.remark("no run matches; leave out an option to see more")


def _lines(runs: Sequence[RunRecord], session: Session) -> Iterator[Text]:
    from agent_env.cli import _words
    from agent_env.cli._table import Column, Row, table

    if not runs:
        return
    now, form = session.now, session.out.time_format
    columns = (
        Column("status"),
        Column("run"),
        Column("task"),
        Column("group"),
        Column("step"),
        Column("reward", right=True),
        Column("listed", right=True),
        Column("took", right=True),
    )
    rows = [
        Row(
            (
                _words.status(run),
                _words.printable(run.run_id),
                _words.printable(f"{run.task_id} v{run.task_version}"),
                _words.printable(run.run_group_id or _words.NONE),
                _words.progress(run),
                _words.number(run.reward),
                _words.moment(run.created_at, now, form),
                _words.duration(_words.took(run, now)),
            ),
            _words.error(run),
        )
        for run in runs
    ]
    yield from table(columns, rows)
