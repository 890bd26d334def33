"""Watches a group to its end: drawn on a terminal, else a line for each change of state."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple, Protocol

from rich.live import Live
from rich.text import Text

from agent_env.cli import _words
from agent_env.cli._report import member_lines
from agent_env.cli._session import Session
from agent_env.errors import AgentEnvError
from agent_env.runs import RunFilter
from agent_env.status import RunStatus

if TYPE_CHECKING:
    from agent_env.group import RolloutGroup
    from agent_env.runs import GroupRecord, RunIndex, RunRecord
    from agent_env.scores import GroupFigures

_POLL_S = 0.2
"""How often the index is read, in seconds; less often when a read takes long."""
_SHARE = 10
"""A tenth of the time at most is spent reading."""
_BAR_CELLS = 32
_RESERVED_LINES = 5
"""Of a terminal's height: the bar, the titles and what is around them."""


class View(Protocol):
    """What somebody who waits sees."""

    def read(self, index: RunIndex, run_group_id: str) -> None:
        """Look at the group as it is now. Blocks."""
        ...

    def show(self) -> None:
        """Show what was read last."""
        ...

    def say(self, words: str) -> None:
        """Say something beside it."""
        ...

    def close(self) -> None:
        """Leave the terminal as it was."""
        ...


def open_view(session: Session) -> View:
    """The view that fits where words go."""
    return LiveView(session) if session.out.is_live else LineView(session)


async def watch(group: RolloutGroup, index: RunIndex, view: View) -> None:
    """Show a group until every member has ended.

    Raises:
        UnavailableError: Temporal has not answered for minutes.
    """
    ended = asyncio.ensure_future(group.result())
    clock = asyncio.get_running_loop().time
    try:
        while True:
            is_last = ended.done()
            before = clock()
            try:
                await asyncio.to_thread(view.read, index, group.run_group_id)
                view.show()
            except AgentEnvError as error:
                if not error.retryable:
                    raise
                view.say(f"{error}; trying again")
            if is_last:
                await ended
                return
            await asyncio.wait([ended], timeout=max(_POLL_S, _SHARE * (clock() - before)))
    finally:
        ended.cancel()
        view.close()


class _Seen(NamedTuple):
    group: GroupRecord
    rows: Sequence[RunRecord]


class LiveView:
    """A progress bar and a table that fits the terminal, drawn anew in place."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: _Seen | None = None
        self._words: str | None = None
        self._live = Live(
            console=session.out.side_console, auto_refresh=False, transient=True, screen=False
        )
        self._live.start()

    def read(self, index: RunIndex, run_group_id: str) -> None:
        """All members if they fit the terminal, else those that run."""
        room = max(1, self._session.out.side_console.height - _RESERVED_LINES)
        group = index.group(run_group_id)
        if 2 * group.figures.n <= room:  # each may have an error under it
            self._seen = _Seen(group, index.members(run_group_id))
        else:
            where = RunFilter(run_group_id=run_group_id, status=(RunStatus.RUNNING,))
            self._seen = _Seen(group, index.page(where, limit=min(room, 500)).runs)

    def show(self) -> None:
        """Draw it."""
        if self._seen is not None:
            self._live.update(Text("\n").join(self._lines(self._seen)), refresh=True)

    def say(self, words: str) -> None:
        """Keep this under the bar."""
        self._words = words
        self.show()

    def close(self) -> None:
        """Remove what was drawn."""
        self._live.stop()

    def _lines(self, seen: _Seen) -> Iterator[Text]:
        figures = seen.group.figures
        yield bar(figures) + Text("  ") + _words.counts(figures)
        yield Text(f"reward {_words.mean_and_std(figures)}")
        if self._words is not None:
            yield Text(_words.printable(self._words), style="yellow")
        if seen.rows:
            yield from member_lines(seen.rows, figures, datetime.now(UTC))


class LineView:
    """A line for each member whose status changed."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counts: tuple[int, ...] | None = None
        self._known: dict[str, RunStatus] = {}
        self._lines: list[Text] = []

    def read(self, index: RunIndex, run_group_id: str) -> None:
        """Read the members only when the counts say that one has changed."""
        figures = index.group(run_group_id).figures
        counts = (figures.queued, figures.running, figures.completed, figures.failed)
        if (*counts, figures.canceled) == self._counts:
            return
        members = index.members(run_group_id)
        self._lines += [
            changed_line(run)
            for run in members
            if run.status is not self._known.get(run.run_id, RunStatus.QUEUED)
        ]
        self._known = {run.run_id: run.status for run in members}
        self._counts = (*counts, figures.canceled)

    def show(self) -> None:
        """Write what is new."""
        for line in self._lines:
            self._session.out.say(line)
        self._lines = []

    def say(self, words: str) -> None:
        """Write it."""
        self._session.out.say(_words.printable(words))

    def close(self) -> None:
        """Nothing was drawn."""


def bar(figures: GroupFigures) -> Text:
    """How many members have ended, as a bar and as numbers."""
    ended = figures.n - figures.queued - figures.running
    filled = _BAR_CELLS * ended // max(1, figures.n)
    return (
        Text("━" * filled, style="green")
        + Text("━" * (_BAR_CELLS - filled), style="bright_black")
        + Text(f" {ended}/{figures.n}")
    )


def changed_line(run: RunRecord) -> Text:
    """A member and what has become of it."""
    line = _words.status(run) + Text(f"  {_words.printable(run.run_id)}")
    if not run.status.is_finished:
        return line
    now = run.finished_at or run.created_at
    line += Text(f"  reward {_words.number(run.reward)}  {_words.duration(_words.took(run, now))}")
    said = _words.error(run)
    return line if said is None else line + Text("  ") + said
