"""``episodes groups``."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import click

from agent_env.cli._cancel import Change, confirmed, reach, reason_given, user_name, write_changes
from agent_env.cli._command import Command, Entry, Group
from agent_env.cli._exit import StoppedError
from agent_env.cli._session import Session
from agent_env.cli._signals import Interrupts
from agent_env.errors import UnavailableError

if TYPE_CHECKING:
    from rich.text import Text

    from agent_env.cli._watch import View
    from agent_env.runs import GroupRecord, RunIndex

COMMANDS = {
    "list": Entry("groups:list_groups", "List groups, newest first."),
    "show": Entry("groups:show_group", "Show a group's figures and members."),
    "cancel": Entry("groups:cancel_group", "Ask every live member of a group to stop."),
    "replace": Entry("groups:replace_member", "Play one member of a group again."),
    "wait": Entry("groups:wait_for_group", "Watch a group until every member has ended."),
}


@click.command(
    "groups", cls=Group, entries=COMMANDS, default="list", example="episodes groups list --limit 10"
)
def groups() -> None:
    """List, show, cancel and wait for groups. Alone, it lists."""


@click.command("list", cls=Command, example="episodes groups list --limit 10")
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    help="Most groups to list.",
)
@click.option("--after", metavar="CURSOR", help="Go on after the page that gave this cursor.")
@click.pass_obj
def list_groups(session: Session, limit: int, after: str | None) -> None:
    """List groups, newest first.

    Needs the run index only: works while no Temporal server runs.
    """
    from agent_env.runs import RunCursor

    cursor = None if after is None else RunCursor.of(after)
    with session.index() as index:
        page = index.groups(after=cursor, limit=limit)
    session.out.items(
        [group.model_dump(mode="json") for group in page.groups],
        lambda: _lines(page.groups, session),
        next=page.next.text() if page.next else None,
    )
    if page.groups:
        session.out.hint("groups", "show", page.groups[0].run_group_id)
    else:
        session.out.remark("no groups yet; start one with `episodes run TASK -n 8`")


@click.command("show", cls=Command, example="episodes groups show grp-20260131-093005-k3f9q2")
@click.argument("run_group_id", metavar="GROUP")
@click.pass_obj
def show_group(session: Session, run_group_id: str) -> None:
    """Show a group's figures and members.

    Needs the run index only: works while no Temporal server runs.
    """
    from agent_env.cli._report import write_group

    with session.index() as index:
        group = index.group(run_group_id)
        members = index.members(run_group_id)
    write_group(session, group, members)
    if not group.figures.is_finished:
        session.out.hint("groups", "wait", run_group_id)
    elif worth := next((run for run in members if run.error_type is not None), None):
        session.out.hint("show", worth.run_id)


@click.command(
    "cancel",
    cls=Command,
    example='episodes groups cancel grp-20260131-093005-k3f9q2 --reason "wrong model" --yes',
)
@click.argument("run_group_id", metavar="GROUP")
@click.option("--reason", default="", help="Kept, and shown at each member.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask before touching several runs.")
@click.option("--dry-run", is_flag=True, help="Say what would be canceled, and change nothing.")
@click.option("--wait", is_flag=True, help="Return when every member has ended.")
@click.pass_obj
def cancel_group(
    session: Session, run_group_id: str, reason: str, yes: bool, dry_run: bool, wait: bool
) -> None:
    """Ask every live member of a group to stop. Those not yet begun never begin.

    Asking twice is no error, nor is asking for a group that has ended.
    """
    with session.index() as index:
        figures = index.group(run_group_id).figures
        live = figures.queued + figures.running
        if dry_run or live == 0:
            write_changes(session, [Change(run_group_id, changed=False, detail=_would(live))])
            return
        confirmed(session, live, yes=yes)
        asked = asyncio.run(
            _canceled(session, index, run_group_id, reason_given(reason), wait=wait)
        )
        detail = f"asked {asked} of {figures.n} members" + (": all have ended" if wait else "")
        write_changes(session, [Change(run_group_id, changed=asked > 0, detail=detail)])
    session.out.hint("groups", "show" if wait else "wait", run_group_id)


@click.command(
    "replace", cls=Command, example="episodes groups replace grp-20260131-093005-k3f9q2 3"
)
@click.argument("run_group_id", metavar="GROUP")
@click.argument("index", metavar="INDEX")
@click.pass_obj
def replace_member(session: Session, run_group_id: str, index: str) -> None:
    """Play one member of a group again.

    A worker must run. The new run stands for the member of this index from now on, with the same
    seed. A run that has not ended is canceled; a member that has not begun is left as it is.
    """
    from agent_env.cli._table import plain

    with session.index() as index_of_runs:
        run_id = asyncio.run(_replaced(session, index_of_runs, run_group_id, index))
    session.out.document({"run_group_id": run_group_id, "run_id": run_id}, lambda: plain([run_id]))
    session.out.hint("groups", "wait", run_group_id)


@click.command("wait", cls=Command, example="episodes groups wait grp-20260131-093005-k3f9q2")
@click.argument("run_group_id", metavar="GROUP")
@click.pass_obj
def wait_for_group(session: Session, run_group_id: str) -> int:
    """Watch a group until every member has ended.

    Ctrl-C stops waiting, not the group.

    Exit code: 0 if all completed, 1 if some failed, 6 if some were canceled.
    """
    from agent_env.cli._report import exit_code, hint_after, write_group

    with session.index() as index:
        if not index.group(run_group_id).figures.is_finished:
            asyncio.run(_waited(session, index, run_group_id))
        group = index.group(run_group_id)
        members = index.members(run_group_id)
    write_group(session, group, members)
    hint_after(session, group, members)
    return exit_code(group.figures)


async def _canceled(
    session: Session, index: RunIndex, run_group_id: str, reason: str, *, wait: bool
) -> int:
    by = user_name()
    try:
        trainer = await reach(session, index)
    except UnavailableError as error:
        index.request_group_cancel(run_group_id, by=by, reason=reason, at=session.now)
        raise UnavailableError(
            f"{error}; the request is kept: repeat this command once it runs"
        ) from error
    group = trainer.attach_group(run_group_id)
    asked = await group.cancel(reason, by=by)
    if wait:
        await group.result()
    return asked


async def _replaced(session: Session, index: RunIndex, run_group_id: str, member: str) -> str:
    from agent_env.cli._serving import check_served

    trainer = await reach(session, index)
    group = trainer.attach_group(run_group_id)
    index.group(run_group_id)  # a wrong id is said before a missing worker
    await check_served(trainer.client, session.settings, otherwise="then repeat this command")
    return (await group.replace(member)).run_id


async def _waited(session: Session, index: RunIndex, run_group_id: str) -> None:
    from agent_env.cli._watch import open_view, watch

    trainer = await reach(session, index)
    async with AsyncExitStack() as stack:
        view = open_view(session)
        stack.callback(view.close)
        interrupts = stack.enter_context(
            Interrupts(signal.SIGINT, leave=lambda: _left(session, view, run_group_id))
        )
        interrupts.ready()
        watching = asyncio.create_task(watch(trainer.attach_group(run_group_id), index, view))
        asked = asyncio.create_task(interrupts.asked.wait())
        await asyncio.wait({watching, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if interrupts.asked.is_set():
            watching.cancel()
            await asyncio.wait({watching})
            raise StoppedError(_left(session, view, run_group_id))
        await watching


def _left(session: Session, view: View, run_group_id: str) -> str:
    view.close()
    command = session.out.command("groups", "cancel", run_group_id)
    return f"stopped waiting; the group goes on; {command} cancels it"


def _would(live: int) -> str:
    return f"would ask {live} live members" if live else "every member has ended"


def _lines(found: Sequence[GroupRecord], session: Session) -> Iterator[Text]:
    from agent_env.cli import _words
    from agent_env.cli._table import Column, Row, table

    if not found:
        return
    columns = (
        Column("group"),
        Column("task"),
        Column("members"),
        Column("reward"),
        Column("listed", right=True),
    )
    rows = [
        Row(
            (
                _words.printable(group.run_group_id),
                _words.printable(group.task_id),
                _words.counts(group.figures),
                _words.mean_and_std(group.figures),
                _words.moment(group.created_at, session.now, session.out.time_format),
            )
        )
        for group in found
    ]
    yield from table(columns, rows)
