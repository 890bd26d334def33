"""How values read on a page. Pure. Text from episodes is data: it is shown, never done."""

from __future__ import annotations

import functools
import json
import re
from datetime import datetime

from markupsafe import Markup, escape
from pydantic import JsonValue

from agent_env._readable import NONE, duration, number
from agent_env.explorer.views import RunRow
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus, StepStatus

MARKS = {
    "QUEUED": "◌",
    "RUNNING": "●",
    "COMPLETED": "✓",
    "FAILED": "✕",
    "CANCELED": "⊘",
    "SKIPPED": "◌",
}
"""Each status has a mark, so that it reads without color."""

_TAIL = 12
"""What stays of an id when its middle is cut: the end tells members of a group apart."""

# Controls, lone surrogates and what turns the direction of text around: a name could look like
# another one, and a surrogate is no UTF-8.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with what can't be seen or sent shown as an escape; lines and tabs stay."""
    if text.isascii() and text.isprintable():  # nearly all there is
        return text
    return _HIDDEN.sub(lambda found: _escaped(found[0]), text.replace("\r\n", "\n"))


def _escaped(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def finalized(value: object) -> object:
    """What a template writes for a value: everything that is text is made visible."""
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return value


def ident(value: str, *, tail: int = _TAIL) -> Markup:
    """An id that is cut in the middle where it has no room, and is copied whole."""
    # Written by hand, since there are many on a page and ``Markup.format`` is slow.
    shown = visible(value)
    if len(shown) <= 2 * tail:
        return Markup(f'<span class="id"><span>{escape(shown)}</span></span>')
    head, end = escape(shown[:-tail]), escape(shown[-tail:])
    return Markup(
        f'<span class="id" title="{head}{end}"><span>{head}</span><span>{end}</span></span>'
    )


@functools.cache
def status_mark(status: str, *, is_canceling: bool = False, word: bool = False) -> Markup:
    """A status: its mark, and its word for those who want or need it."""
    said = "canceling" if is_canceling else status
    kind = "canceling" if is_canceling else status.lower()
    hidden = "" if word else ' class="hidden-words"'
    return Markup(
        '<span class="s-{}"><span class="mark" aria-hidden="true">{}</span>'
        "<span" + hidden + ">{}</span></span>"
    ).format(kind, MARKS[status], said)


def moment(at: datetime | None, now: datetime) -> Markup:
    """A time in UTC, which the page's script turns into the reader's; a date unless it is today."""
    if at is None:
        return Markup(NONE)
    shape = "%H:%M:%S" if at.date() == now.date() else "%b %d %H:%M"
    if at.year != now.year:
        shape = "%Y-%m-%d"
    exact = at.isoformat().replace("+00:00", "Z")
    return Markup(
        f'<time datetime="{exact}" title="{at:%Y-%m-%d %H:%M:%S} UTC">{at:{shape}}</time>'
    )


def ago(seconds: float | None) -> str:
    """How long ago, in whole units."""
    return NONE if seconds is None else duration(float(round(seconds))).replace(".00", "")


def took(row: RunRow) -> Markup:
    """How long a run took; of a running one, so far: the page's script counts on."""
    if row.status is RunStatus.RUNNING and row.started_at is not None:
        return since(row.started_at, row.took_s or 0.0)
    return Markup(escape(duration(row.took_s)))


def since(at: datetime, seconds: float) -> Markup:
    """Seconds that go on counting."""
    return Markup('<span data-since="{}">{}</span>').format(
        at.isoformat().replace("+00:00", "Z"), ago(seconds)
    )


def progress(row: RunRow) -> str:
    """How far a run is: steps done of all, and the one that it is at."""
    is_done = row.status is RunStatus.COMPLETED
    at = f" {row.current_step}" if row.current_step and not is_done else ""
    return f"{row.steps_done}/{row.steps_total}{at}"


def counts(figures: GroupFigures) -> Markup:
    """The counts of a group with their marks, ends first; a status nobody has is faint."""
    order = ("COMPLETED", "FAILED", "CANCELED", "RUNNING", "QUEUED")
    parts = [
        Markup('<span class="{}" title="{}"><span aria-hidden="true">{}</span> {}</span>').format(
            f"s-{status.lower()}" if count else "none",
            f"{count} {status}",
            MARKS[status],
            f"{count:,}",
        )
        for status in order
        for count in [int(getattr(figures, status.lower()))]
    ]
    return Markup('<span class="counts">{}</span>').format(Markup("").join(parts))


def is_step_over(status: StepStatus) -> bool:
    """Whether a step will not change any more."""
    return status is not StepStatus.RUNNING


def pretty(value: JsonValue) -> str:
    """JSON for reading; a text as it is."""
    if isinstance(value, str):
        return value
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def size(text: str) -> str:
    """How much a folded text is."""
    lines = text.count("\n") + 1
    if lines > 1:
        return f"{lines:,} lines"
    return f"{len(text):,} characters"


def times(count: int, one: str, many: str | None = None) -> str:
    """``1 run``, ``2 runs``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


__all__ = [
    "MARKS",
    "NONE",
    "ago",
    "counts",
    "duration",
    "finalized",
    "ident",
    "is_step_over",
    "moment",
    "number",
    "pretty",
    "progress",
    "since",
    "size",
    "status_mark",
    "times",
    "took",
    "visible",
]
