"""A group as a result: figures, a strip of its members, and the members."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from agent_env.cli._exit import CANCELED, SOME_FAILED
from agent_env.cli._session import Format, Session
from agent_env.status import RunStatus

if TYPE_CHECKING:
    from rich.text import Text

    from agent_env.runs import GroupRecord, RunRecord
    from agent_env.scores import GroupFigures

MAX_ROWS = 100
"""Most members that text lists one by one."""


def write_group(session: Session, group: GroupRecord, members: Sequence[RunRecord]) -> None:
    """Write a group as it is now, and name the next useful command.

    JSON has every member. Text lists ``MAX_ROWS``, failed ones first, and says what it left out.
    """
    if session.format is Format.JSONL:
        session.out.items([member.model_dump(mode="json") for member in members], tuple)
    else:
        session.out.document(_document(group, members), lambda: _lines(session, group, members))


def hint_after(session: Session, group: GroupRecord, members: Sequence[RunRecord]) -> None:
    """Name what is worth looking at once a group has ended."""
    failed = next((run for run in members if run.status is RunStatus.FAILED), None)
    if failed is not None:
        session.out.hint("show", failed.run_id)
    else:
        session.out.hint("groups", "show", group.run_group_id)


def exit_code(figures: GroupFigures) -> int:
    """Of a command that waited for a group."""
    if figures.failed:
        return SOME_FAILED
    return CANCELED if figures.canceled else 0


def pass_at(figures: GroupFigures) -> dict[int, float]:
    """Pass@k for 1, 2, 4, … up to the number of scored members."""
    found: dict[int, float] = {}
    k = 1
    while (chance := figures.pass_at(k)) is not None:
        found[k] = chance
        k *= 2
    return found


def _document(group: GroupRecord, members: Sequence[RunRecord]) -> dict[str, object]:
    advantages = group.figures.advantages(member.reward for member in members)
    return {
        **group.model_dump(mode="json"),
        "pass_at": {str(k): chance for k, chance in pass_at(group.figures).items()},
        "members": [
            {**member.model_dump(mode="json"), "advantage": advantage}
            for member, advantage in zip(members, advantages, strict=True)
        ],
    }


def _lines(session: Session, group: GroupRecord, members: Sequence[RunRecord]) -> Iterator[Text]:
    from rich.text import Text

    from agent_env.cli import _words

    figures = group.figures
    rows = sorted(members, key=lambda run: run.status is not RunStatus.FAILED)[:MAX_ROWS]
    if len(members) <= MAX_ROWS:
        rows = list(members)
    yield from member_lines(rows, figures, session.now)
    if len(rows) < len(members):
        yield Text(f"… {len(members) - len(rows):,} more members: --json has all of them")
    yield Text()
    yield (
        Text(_words.printable(group.run_group_id), style="bold")
        + Text(f"  {_words.printable(group.task_id)}  ")
        + _words.counts(figures)
    )
    yield Text(f"reward {_words.mean_and_std(figures)}")
    if chances := pass_at(figures):
        yield Text("  ".join(f"pass@{k} {_words.number(p)}" for k, p in chances.items()))
    width = max(20, session.out.console.width)
    marks = [_words.mark(member.status) for member in members]
    for start in range(0, len(marks), width):
        yield Text("").join(marks[start : start + width])


def member_lines(
    members: Sequence[RunRecord], figures: GroupFigures, now: datetime
) -> Iterator[Text]:
    """A row a member, its root cause under it."""
    from agent_env.cli import _words
    from agent_env.cli._table import Column, Row, table

    columns = (
        Column("status"),
        Column("run"),
        Column("step"),
        Column("reward", right=True),
        Column("advantage", right=True),
        Column("took", right=True),
    )
    advantages = figures.advantages(member.reward for member in members)
    yield from table(
        columns,
        [
            Row(
                (
                    _words.status(run),
                    _words.printable(run.run_id),
                    _words.progress(run),
                    _words.number(run.reward),
                    _words.number(advantage),
                    _words.duration(_words.took(run, now)),
                ),
                _words.error(run),
            )
            for run, advantage in zip(members, advantages, strict=True)
        ],
    )
