"""``episodes cancel``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

import click

from agent_env.cli._cancel import Change, confirmed, reach, reason_given, user_name, write_changes
from agent_env.cli._command import Command
from agent_env.cli._select import Chosen, run_filter, selectors
from agent_env.cli._session import Session
from agent_env.errors import RunNotFoundError, UnavailableError
from agent_env.status import LIVE, RunStatus

if TYPE_CHECKING:
    from agent_env.runs import CancelAnswer, RunIndex, RunRecord
    from agent_env.trainer import Trainer

_AT_ONCE = 16
"""Most requests that wait for Temporal at one time."""
_PAGE = 500


@click.command(
    "cancel", cls=Command, example='episodes cancel --task cartpole --reason "wrong model" --yes'
)
@click.argument("run_ids", metavar="[RUN]...", nargs=-1)
@selectors(live_only=True)
@click.option("--reason", default="", help="Kept, and shown wherever the run is.")
@click.option("-y", "--yes", is_flag=True, help="Don't ask before touching several runs.")
@click.option("--dry-run", is_flag=True, help="Say what would be canceled, and change nothing.")
@click.option("--wait", is_flag=True, help="Return when they have ended.")
@click.pass_obj
def cancel(
    session: Session,
    run_ids: tuple[str, ...],
    reason: str,
    yes: bool,
    dry_run: bool,
    wait: bool,
    **chosen: Unpack[Chosen],
) -> None:
    """Ask runs to stop: each ends CANCELED after its sandboxes are gone.

    Name runs, or choose live ones with options. Asking twice is no error, nor is asking for a run
    that has ended.
    """
    if bool(run_ids) == any(chosen.values()):
        raise click.UsageError("name runs, or choose them with options like --task; one of the two")
    session.run_id = run_ids[0] if len(run_ids) == 1 else None
    with session.index() as index:
        runs = [_named(session, index, run_id) for run_id in dict.fromkeys(run_ids)]
        runs = runs or list(_live(index, chosen))
        live = [run for run in runs if not run.status.is_finished]
        if dry_run:
            write_changes(session, [_would(run) for run in runs])
            return
        confirmed(session, len(live), yes=yes)
        answers: dict[str, CancelAnswer] = {}
        if live:
            asking = _canceled(session, index, live, reason_given(reason), wait=wait)
            answers = asyncio.run(asking)
        write_changes(session, [_change(run, answers.get(run.run_id)) for run in runs])
    if any(not answer.run.status.is_finished for answer in answers.values()) and not wait:
        session.out.hint("show", live[0].run_id)


def _named(session: Session, index: RunIndex, run_id: str) -> RunRecord:
    """A run by its id, also one that Temporal has and no worker has listed yet.

    Raises:
        RunNotFoundError: there is no such run.
    """
    try:
        return index.get(run_id)
    except RunNotFoundError:
        if not asyncio.run(_is_listed_now(session, index, run_id)):
            raise
        return index.get(run_id)


async def _is_listed_now(session: Session, index: RunIndex, run_id: str) -> bool:
    from agent_env._unlisted import list_unlisted

    try:
        trainer = await reach(session, index)
    except UnavailableError:
        return False
    return await list_unlisted(trainer.client, index, run_id, at=session.now)


def _live(index: RunIndex, chosen: Chosen) -> Iterator[RunRecord]:
    """Every live run that the options choose."""
    where = run_filter(chosen)
    if not where.status:
        where = where.model_copy(update={"status": LIVE})
    page = index.page(where, limit=_PAGE)
    yield from page.runs
    while page.next is not None:
        page = index.page(where, after=page.next, limit=_PAGE)
        yield from page.runs


async def _canceled(
    session: Session, index: RunIndex, runs: Sequence[RunRecord], reason: str, *, wait: bool
) -> dict[str, CancelAnswer]:
    """Ask for each run; with ``wait``, each answer's row is how it ended."""
    by = user_name()
    try:
        trainer = await reach(session, index)
    except UnavailableError as error:
        for run in runs:
            index.request_cancel(run.run_id, by=by, reason=reason, at=session.now)
        raise UnavailableError(
            f"{error}; the request is kept: repeat this command once it runs"
        ) from error
    room = asyncio.Semaphore(_AT_ONCE)

    async def asked(run_id: str) -> CancelAnswer:
        async with room:
            return await _asked(trainer, run_id, by=by, reason=reason, wait=wait)

    answers = await asyncio.gather(*(asked(run.run_id) for run in runs))
    return {answer.run.run_id: answer for answer in answers}


async def _asked(
    trainer: Trainer, run_id: str, *, by: str, reason: str, wait: bool
) -> CancelAnswer:
    episode = trainer.attach(run_id)
    answer = await episode.cancel(reason, by=by)
    if not wait or answer.run.status.is_finished:
        return answer
    await episode.result()
    return answer.model_copy(update={"run": await episode.record()})


def _would(run: RunRecord) -> Change:
    if run.status.is_finished:
        return Change(run.run_id, changed=False, detail=_ended(run))
    return Change(run.run_id, changed=False, detail=f"would ask; it is {run.status}")


def _change(run: RunRecord, answer: CancelAnswer | None) -> Change:
    from agent_env.runs.records import CancelState

    if answer is None:
        return Change(run.run_id, changed=False, detail=_ended(run))
    now = answer.run
    changed = answer.state is CancelState.ASKED
    detail = answer.state.value
    if now.status.is_finished:
        detail = _ended(now)
    elif not changed:
        detail = f"{detail}, by {now.cancel_requested_by or 'nobody known'}"
    return Change(run.run_id, changed=changed, detail=detail)


def _ended(run: RunRecord) -> str:
    if run.status is RunStatus.COMPLETED or not run.error:
        return f"ended {run.status}"
    return f"ended {run.status}: {run.error.splitlines()[0]}"
