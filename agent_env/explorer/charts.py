"""Numbers to inline SVG. Pure: presentation attributes only, a title in each, a table beside it.

Colors come from the page: a shape is drawn in ``currentColor`` and has the class of its status.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple

from agent_env._readable import number
from agent_env.explorer.group_views import Bin
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus

COUNT_ORDER = (
    RunStatus.COMPLETED,
    RunStatus.FAILED,
    RunStatus.CANCELED,
    RunStatus.RUNNING,
    RunStatus.QUEUED,
)
"""Ends first: a bar fills from the left."""

_STRIP_HEIGHT = 20
_MARK_WIDTH = 8
_MARK_GAP = 3
_AXIS_TICKS = 5
_TICKS = (
    *(step * 10**power for power in (-3, -2, -1) for step in (1, 2, 5)),
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200),
)
"""Distances between the ticks of a time axis, in seconds; days after these."""


class Scale(NamedTuple):
    """What a reward is measured against."""

    low: float
    high: float

    def share(self, reward: float) -> float:
        """Where a reward is between the two, from 0 to 1."""
        if self.high <= self.low:
            return 1.0
        return min(1.0, max(0.0, (reward - self.low) / (self.high - self.low)))


class Member(NamedTuple):
    """One mark of a strip."""

    label: str
    status: RunStatus
    reward: float | None
    is_canceling: bool = False


def scale_of(rewards: Iterable[float | None]) -> Scale:
    """From 0 to 1 where that holds every reward; else from 0, or the least, to the most."""
    known = [reward for reward in rewards if reward is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    if low >= 0 and high <= 1:
        return Scale(0.0, 1.0)
    return Scale(min(low, 0.0), max(high, 0.0))


def said(member: Member) -> str:
    """A member in words, for a tooltip."""
    status = "canceling" if member.is_canceling else member.status.value
    reward = "unscored" if member.reward is None else f"reward {number(member.reward)}"
    return f"{member.label}: {status}, {reward}"


def strip(members: Sequence[Member], *, left_out: int = 0) -> str:
    """One mark a member, in order: its status, and filled to the height of its reward.

    Args:
        members: In order of their index.
        left_out: How many more there are than are drawn.
    """
    scale = scale_of(member.reward for member in members)
    step = _MARK_WIDTH + _MARK_GAP
    width = max(1, len(members) * step - _MARK_GAP)
    marks = "".join(
        f'<g transform="translate({place * step} 0)">'
        f"{_shape(member, _MARK_WIDTH, _STRIP_HEIGHT, scale)}</g>"
        for place, member in enumerate(members)
    )
    more = f", the first {len(members)} of {len(members) + left_out}" if left_out else ""
    title = f"{_counted(members)}{more}"
    return _svg(width, _STRIP_HEIGHT, title, marks, kind="strip")


def mark(member: Member, scale: Scale, *, width: int, height: int) -> str:
    """One member of a strip on its own, large enough to be a link."""
    return _svg(width, height, said(member), _shape(member, width, height, scale), kind="mark")


def counts_bar(figures: GroupFigures) -> str:
    """The five counts as one bar, ends first."""
    parts: list[str] = []
    x = 0.0
    for status in COUNT_ORDER:
        count: int = getattr(figures, status.value.lower())
        share = 100 * count / figures.n if figures.n else 0.0
        if count:
            parts.append(
                f'<rect class="{css_class(status)}" x="{x:.3f}%" y="0" width="{share:.3f}%" '
                f'height="6" fill="currentColor"/>'
            )
        x += share
    words = ", ".join(
        f"{getattr(figures, status.value.lower())} {status.value}" for status in COUNT_ORDER
    )
    return _wide(6, words, "".join(parts), kind="counts")


def histogram(found: Sequence[Bin]) -> str:
    """How rewards are spread: a bar an interval, its count above it, ends of the range below."""
    height, base, top = 112, 92, 16
    most = max((each.count for each in found), default=1)
    width = 100 / max(1, len(found))
    parts: list[str] = []
    for place, each in enumerate(found):
        tall = (base - top) * each.count / most
        x = place * width
        parts.append(
            f'<rect x="{x + width * 0.06:.3f}%" y="{base - tall:.2f}" '
            f'width="{width * 0.88:.3f}%" height="{tall:.2f}" fill="currentColor">'
            f"<title>{number(each.low)} to {number(each.high)}: {each.count}</title></rect>"
        )
        if each.count:
            parts.append(_text(x + width / 2, base - tall - 4, str(each.count), "middle"))
    parts.append(
        f'<line x1="0" x2="100%" y1="{base}.5" y2="{base}.5" stroke="currentColor" '
        'stroke-opacity="0.35"/>'
    )
    if found:
        parts.append(_text(0, height - 4, number(found[0].low), "start"))
        if len(found) > 1:
            parts.append(_text(100, height - 4, number(found[-1].high), "end"))
    count = sum(each.count for each in found)
    return _wide(height, f"how {count} rewards are spread", "".join(parts), kind="histogram")


class Span(NamedTuple):
    """One attempt of a step on a time axis, in seconds from its start."""

    start_s: float
    end_s: float
    status: str
    label: str
    is_open: bool = False


def track(spans: Sequence[Span], length_s: float) -> str:
    """The attempts of one step, one under the other, on the axis of the whole run."""
    row, thick = 20, 8
    parts: list[str] = []
    for place, span in enumerate(spans):
        x = _percent(span.start_s, length_s)
        wide = max(0.0, _percent(span.end_s, length_s) - x)
        y = place * row + (row - thick) // 2
        color = f"s-{span.status.lower()}"
        faded = ' fill-opacity="0.55"' if span.is_open else ""
        parts.append(
            f'<g class="{color}"><title>{escape(span.label)}</title>'
            f'<rect x="{x:.3f}%" y="{y}" width="{wide:.3f}%" height="{thick}" '
            f'fill="currentColor"{faded}/>'
            # What is too short to be seen still is: a tick where it starts.
            f'<rect x="{x:.3f}%" y="{y}" width="2" height="{thick}" fill="currentColor"/></g>'
        )
    words = "; ".join(span.label for span in spans)
    return _wide(row * max(1, len(spans)), words, "".join(parts), kind="track")


def axis(length_s: float) -> str:
    """The time axis over the tracks."""
    parts: list[str] = []
    for tick in ticks(length_s):
        x = _percent(tick, length_s)
        anchor = "start" if tick == 0 else ("end" if x > 92 else "middle")
        parts.append(_text(x, 12, _seconds(tick, length_s), anchor))
    words = f"time, from 0 to {_seconds(length_s, length_s)}"
    return _wide(16, words, "".join(parts), kind="axis")


def ticks(length_s: float) -> tuple[float, ...]:
    """Round times from 0 to a length, in seconds: at most ``_AXIS_TICKS`` of them after 0."""
    if length_s <= 0:
        return (0.0,)
    days = 86_400.0 * math.ceil(length_s / 86_400 / _AXIS_TICKS)
    step = next((step for step in _TICKS if length_s / step <= _AXIS_TICKS), days)
    return tuple(step * place for place in range(int(length_s / step + 1e-9) + 1))


class Point(NamedTuple):
    """A mean of some rewards."""

    label: str
    mean: float | None
    n: int
    place: float
    """Where it is in time, from 0 to 1."""


def trend(points: Sequence[Point]) -> str:
    """Mean reward over time: a line, broken where nothing was scored."""
    width, height, pad = 240, 32, 3
    known = [point.mean for point in points if point.mean is not None]
    scale = scale_of(known)
    lines: list[list[str]] = [[]]
    dots: list[str] = []
    for point in points:
        if point.mean is None:
            lines.append([])
            continue
        x = pad + (width - 2 * pad) * point.place
        y = height - pad - (height - 2 * pad) * scale.share(point.mean)
        lines[-1].append(f"{x:.1f},{y:.1f}")
        text = escape(f"{point.label}: {number(point.mean)} over {point.n}")
        radius = 2.5 if len(points) <= 20 else 1.5
        dots.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="currentColor">'
            f"<title>{text}</title></circle>"
        )
    drawn = "".join(
        f'<polyline points="{" ".join(line)}" fill="none" stroke="currentColor" '
        'stroke-width="1.5" stroke-linejoin="round"/>'
        for line in lines
        if len(line) > 1
    )
    title = f"mean reward over time, between {number(scale.low)} and {number(scale.high)}"
    base = (
        f'<line x1="0" x2="{width}" y1="{height - 0.5}" y2="{height - 0.5}" '
        'stroke="currentColor" stroke-opacity="0.25"/>'
    )
    return _svg(width, height, title, base + drawn + "".join(dots), kind="trend")


class Reach(NamedTuple):
    """How many members came to a step, and how it ended for them."""

    completed: int
    failed: int
    other: int


def reach(found: Reach, of: int) -> str:
    """One bar of a funnel: who completed a step, failed in it, or is there or was stopped there."""
    parts: list[str] = []
    x = 0.0
    for count, color in (
        (found.completed, "s-completed"),
        (found.failed, "s-failed"),
        (found.other, "s-running"),
    ):
        share = _percent(count, of)
        if count:
            parts.append(
                f'<rect class="{color}" x="{x:.3f}%" y="3" width="{share:.3f}%" height="10" '
                'fill="currentColor"/>'
            )
        x += share
    parts.append(
        '<line x1="0" x2="100%" y1="15.5" y2="15.5" stroke="currentColor" stroke-opacity="0.15"/>'
    )
    words = f"{found.completed} completed, {found.failed} failed, {found.other} other of {of}"
    return _wide(16, words, "".join(parts), kind="reach")


def css_class(status: RunStatus) -> str:
    """The class that gives a shape its color."""
    return f"s-{status.value.lower()}"


def _shape(member: Member, width: int, height: int, scale: Scale) -> str:
    """A frame, filled to the reward; what is no plain success has a sign of its own in it."""
    color = "s-canceling" if member.is_canceling else css_class(member.status)
    is_waiting = member.status is RunStatus.QUEUED
    dashes = ' stroke-dasharray="2 2"' if is_waiting else ""
    inner_width, inner_height = width - 1, height - 1
    tip = escape(said(member))
    parts = [
        f"<title>{tip}</title>",
        f'<rect x="0.5" y="0.5" width="{inner_width}" height="{inner_height}" rx="1.5" '
        f'fill="currentColor" fill-opacity="0.08" stroke="currentColor" stroke-opacity="0.55"'
        f"{dashes}/>",
    ]
    if member.reward is not None:
        tall = max(1.5, height * scale.share(member.reward))
        faint = "" if member.status is RunStatus.COMPLETED else ' fill-opacity="0.45"'
        parts.append(
            f'<rect x="0" y="{height - tall:.2f}" width="{width}" height="{tall:.2f}" rx="1.5" '
            f'fill="currentColor"{faint}/>'
        )
    parts.append(_sign(member, width, height))
    return f'<g class="{color}">{"".join(parts)}</g>'


def _sign(member: Member, width: int, height: int) -> str:
    """The same signs as the marks in the tables, drawn."""
    middle, radius = width / 2, max(1.5, min(width / 2 - 2, 4.5))
    y = height / 2
    line = 'stroke="currentColor" stroke-width="1.4" stroke-linecap="round"'
    left, right = middle - radius, middle + radius
    if member.status is RunStatus.RUNNING:
        return f'<circle cx="{middle:g}" cy="{y:g}" r="{radius:g}" fill="currentColor"/>'
    if member.status is RunStatus.FAILED:
        return (
            f'<path d="M{left:g} {y - radius:g}L{right:g} {y + radius:g}'
            f'M{right:g} {y - radius:g}L{left:g} {y + radius:g}" {line}/>'
        )
    if member.status is RunStatus.CANCELED:
        return f'<path d="M{left:g} {y + radius:g}L{right:g} {y - radius:g}" {line}/>'
    if member.status is RunStatus.COMPLETED and member.reward is None:
        return f'<path d="M{left:g} {y:g}H{right:g}" {line}/>'
    return ""


def _counted(members: Sequence[Member]) -> str:
    counts = {status: sum(member.status is status for member in members) for status in COUNT_ORDER}
    return ", ".join(f"{count} {status.value}" for status, count in counts.items() if count)


def _percent(value: float, whole: float) -> float:
    return 100 * min(1.0, max(0.0, value / whole)) if whole > 0 else 0.0


def _seconds(value: float, longest: float) -> str:
    """A time in the unit that suits the longest one beside it."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if longest >= 2 * length:
            return f"{value / length:.3g} {unit}" if value else "0"
    return f"{value:.3g} s"


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.3f}%" y="{y:.1f}" text-anchor="{anchor}" font-size="11" '
        f'fill="currentColor">{escape(words)}</text>'
    )


def _svg(width: float, height: float, title: str, inside: str, *, kind: str) -> str:
    return (
        f'<svg class="chart {kind}" role="img" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}"><title>{escape(title)}</title>{inside}</svg>'
    )


def _wide(height: float, title: str, inside: str, *, kind: str) -> str:
    """As wide as its place: shapes are placed in percent, so that text is not stretched."""
    return (
        f'<svg class="chart {kind}" role="img" width="100%" height="{height:g}">'
        f"<title>{escape(title)}</title>{inside}</svg>"
    )
