"""Templates with what they may use. Everything written is escaped; what can't be seen is shown."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from agent_env.explorer import charts, columns, talk, words
from agent_env.explorer.group_views import Bin, Reached
from agent_env.explorer.health_views import TaskPoint, TaskRow, TasksView
from agent_env.explorer.queries import PageQuery
from agent_env.explorer.run_views import StepView
from agent_env.explorer.views import Cause, GroupRow, LiveCounts, Mark, RunRow
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus, StepStatus

_FOLDER = Path(__file__).parent / "templates"
_CUT = 300
_LARGE_MARK = (16, 56)
_DRAWN = 60
"""Most members of a strip in a list."""


def rendered(template: str, /, **values: object) -> str:
    """A template filled in."""
    return _environment().get_template(template).render(**values)


def url(path: str, **items: str) -> str:
    """An address on this site; ids stay whole in it, whatever they hold."""
    return f"{path}?{urlencode(items, errors='surrogatepass')}"


def again(query: PageQuery, path: str = "/runs", **changes: object) -> str:
    """The address that asks for the same but for these changes."""
    items = urlencode(query.url_items(**changes), errors="surrogatepass")
    return f"{path}?{items}" if items else path


def anchor(*parts: object) -> str:
    """An element's id that is the same for the same thing on every page."""
    plain = "\n".join(str(part) for part in parts).encode("utf-8", "surrogatepass")
    return f"e{hashlib.sha256(plain).hexdigest()[:16]}"


def quoted(value: str) -> str:
    """An id as scripts send it back."""
    return quote(value, safe="", errors="surrogatepass")


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=words.finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    names: dict[str, Any] = environment.globals
    names.update(
        after_click=columns.sort_after_click,
        again=again,
        anchor=anchor,
        ago=words.ago,
        all_columns=columns.COLUMNS,
        cause=_cause,
        counts=words.counts,
        counts_bar=_drawing(charts.counts_bar),
        direction=columns.direction,
        first_line=_first_line,
        axis=_drawing(charts.axis),
        group_state=_group_state,
        highlighted=talk.highlighted,
        histogram=_drawing(_histogram),
        ident=words.ident,
        is_long=_is_long,
        large_mark=_drawing(_large_mark),
        live_words=_live_words,
        mean=_mean,
        moment=words.moment,
        number=words.number,
        pairs=_pairs,
        plain=_plain,
        pretty=words.pretty,
        progress=words.progress,
        quoted=quoted,
        reach=_drawing(_reach),
        since=words.since,
        since_to_choose=_since_to_choose,
        size=words.size,
        status_mark=words.status_mark,
        status_words=_status_words,
        step_took=_step_took,
        strip=_drawing(_strip),
        tasks_to_choose=_tasks_to_choose,
        times=words.times,
        took=words.took,
        track=_drawing(charts.track),
        trend=_drawing(_trend),
        url=url,
        usual_columns=columns.USUAL,
        versions=_versions,
    )
    return environment


def _drawing(draw: Callable[..., str]) -> Callable[..., Markup]:
    """A chart, which escapes what it is given itself."""

    @functools.wraps(draw)
    def drawn(*arguments: Any) -> Markup:
        return Markup(words.visible(draw(*arguments)))

    return drawn


def member(mark: Mark) -> charts.Member:
    """A mark as charts take it."""
    place = "" if mark.member_index is None else f"{mark.member_index} · "
    return charts.Member(f"{place}{mark.run_id}", mark.status, mark.reward, mark.is_canceling)


def _strip(marks: Sequence[Mark], left_out: int) -> str:
    drawn = [member(mark) for mark in marks[:_DRAWN]]
    return charts.strip(drawn, left_out=left_out + len(marks) - len(drawn))


def _large_mark(mark: Mark, scale: charts.Scale) -> str:
    width, height = _LARGE_MARK
    return charts.mark(member(mark), scale, width=width, height=height)


def _histogram(found: Sequence[Bin]) -> str:
    return charts.histogram(found)


def _trend(points: Sequence[TaskPoint], view: TasksView) -> str:
    whole = max(1.0, (view.now - view.since).total_seconds())
    middle = view.stretch_s / 2
    return charts.trend(
        [
            charts.Point(
                f"{each.starts_at:%Y-%m-%d %H:%M}",
                each.mean,
                each.n_scored,
                min(1.0, ((each.starts_at - view.since).total_seconds() + middle) / whole),
            )
            for each in points
        ]
    )


def _reach(step: Reached, of: int) -> str:
    other = step.reached - step.completed - step.failed
    return charts.reach(charts.Reach(step.completed, step.failed, other), of)


def _mean(figures: GroupFigures) -> Markup:
    spread = "" if figures.std is None else f" ± {words.number(figures.std)}"
    return Markup('{}{} <span class="second small">{} scored of {}</span>').format(
        words.number(figures.mean), spread, f"{figures.n_scored:,}", f"{figures.n:,}"
    )


def _cause(cause: Cause) -> str:
    return f"{cause.type}: {cause.said}" if cause.said else cause.type


def _first_line(text: str) -> str:
    line = next((line for line in text.split("\n") if line.strip()), "")
    return line[:120]


def _is_long(step: StepView) -> bool:
    """Whether an error says more than its first line."""
    error = step.report.error or ""
    return "\n" in error.strip() or len(error) > _CUT


def _live_words(live: LiveCounts) -> str:
    most = 10_000
    running, queued = (
        f"{count:,}{'+' if count >= most else ''}" for count in (live.running, live.queued)
    )
    return f"{running} running" + (f" · {queued} queued" if live.queued else "")


def _status_words(row: RunRow) -> Markup:
    kind = "canceling" if row.is_canceling else row.status.value.lower()
    word = "canceling" if row.is_canceling else row.status.value
    return Markup('<b class="s-{}">{}</b>').format(kind, word)


def _step_took(step: StepView, now: object) -> Markup:
    report = step.report
    if report.status is StepStatus.RUNNING and report.started_at is not None:
        return words.since(report.started_at, step.took_s or 0.0)
    return Markup(words.duration(step.took_s))


def _pairs(values: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={value}" for key, value in values.items()) or words.NONE


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def _versions(versions: Iterable[str]) -> str:
    return ", ".join(f"v{version}" for version in versions)


def _tasks_to_choose(tasks: Sequence[str], chosen: str | None) -> list[str]:
    return [*tasks, *([chosen] if chosen is not None and chosen not in tasks else [])]


def _since_to_choose(chosen: str | None) -> list[tuple[str, str]]:
    usual = [
        ("", "any time"),
        ("1h", "last hour"),
        ("24h", "last 24 h"),
        ("7d", "last 7 days"),
        ("30d", "last 30 days"),
        ("365d", "last year"),
    ]
    if chosen is not None and chosen not in dict(usual):
        usual.append((chosen, f"since {chosen}"))
    return usual


def _group_state(group: GroupRow | TaskRow) -> str:
    if isinstance(group, TaskRow):
        return group.task_id
    counts = [str(getattr(group.figures, status.value.lower())) for status in RunStatus]
    return " ".join([*counts, str(group.figures.n_scored), str(group.figures.mean)])
