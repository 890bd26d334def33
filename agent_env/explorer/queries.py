"""What the address of a page asks for: filters, order, place. Strict; made into index filters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self, cast

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from agent_env._model import EdgeModel
from agent_env.errors import InvalidSpecError
from agent_env.runs import RunCursor, RunFilter
from agent_env.runs.lists import RunSort
from agent_env.status import RunStatus

MAX_ROWS = 200
"""Most rows of one page."""
_UNITS = {"m": 60, "h": 3600, "d": 86_400}
_AGO = re.compile(r"(\d{1,6}) ?([mhd])")


def _text_given(value: object) -> object:
    return value.strip() if isinstance(value, str) else value


def _moment_checked(value: str | None) -> str | None:
    if value is not None:
        moment(value, datetime.now(UTC))
    return value


def _cursor_checked(value: str | None) -> str | None:
    if value is not None:
        try:
            RunCursor.of(value)
        except InvalidSpecError as error:
            raise ValueError(error.problems[0].what) from None
    return value


def _tags_checked(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not value.partition("=")[0] or "=" not in value:
            raise ValueError(f"{value!r} is not KEY=VALUE")
    return values


def moment(value: str, now: datetime) -> datetime:
    """A time, or how long ago it was: ``24h``, ``30m``, ``7d``, ``2026-01-31T09:30``.

    A time without a zone is UTC.

    Raises:
        ValueError: it is neither.
    """
    if found := _AGO.fullmatch(value.strip()):
        return now - timedelta(seconds=int(found[1]) * _UNITS[found[2]])
    try:
        parsed = datetime.fromisoformat(value)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{value[:40]!r} is not a time; write 30m, 24h, 7d or 2026-01-31T09:30"
        ) from None


Text = Annotated[str | None, BeforeValidator(_text_given), Field(max_length=1000)]
Moment = Annotated[str | None, BeforeValidator(_text_given), AfterValidator(_moment_checked)]
Cursor = Annotated[str | None, AfterValidator(_cursor_checked), Field(max_length=2000)]


class PageQuery(EdgeModel):
    """What every page's address may carry. Empty values, as forms send them, are not there."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        found = cast("Mapping[str, Any]", data)
        return {
            key: [item for item in cast("list[Any]", value) if item != ""]
            if isinstance(value, list)
            else value
            for key, value in found.items()
            if value != ""
        }

    def url_items(self, **changes: object) -> list[tuple[str, str]]:
        """The pairs of an address that asks for the same but for these changes; None leaves out."""
        changed = self.model_copy(update=changes)
        items: list[tuple[str, str]] = []
        for name, info in type(self).model_fields.items():
            value = getattr(changed, name)
            if value == info.get_default(call_default_factory=True) or value is None:
                continue
            values = cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,))
            items += [(name, str(item)) for item in values]
        return items

    @property
    def place(self) -> RunCursor | None:
        """Where the page starts."""
        after = cast("str | None", getattr(self, "after", None))
        return None if after is None else RunCursor.of(after)


class RunsQuery(PageQuery):
    """Which runs, in which order."""

    status: tuple[RunStatus, ...] = ()
    """One or more; none means all."""
    task: Text = None
    """Id of a task."""
    group: Text = None
    """Id of a group."""
    reward_min: float | None = None
    """Inclusive, like ``reward_max``; unscored runs match neither."""
    reward_max: float | None = None
    since: Moment = None
    """Listed since: ``24h``, ``7d`` or a time."""
    until: Moment = None
    """Listed before: the same."""
    text: Text = None
    """Part of an error, an id, a task or a tag's value."""
    tag: Annotated[tuple[str, ...], AfterValidator(_tags_checked)] = ()
    """``KEY=VALUE``; each must hold."""
    sort: RunSort = RunSort.NEWEST
    """Any order but by creation looks at the newest 10,000 runs that match."""
    after: Cursor = None
    """``next`` of the page before."""
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 50
    columns: Text = None
    """Of the table on the page, by name with commas between."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        least, most = self.reward_min, self.reward_max
        if least is not None and most is not None and least > most:
            raise ValueError("reward_min is over reward_max: nothing can match")
        return self

    def filter(self, now: datetime) -> RunFilter:
        """As the run index understands it."""
        return RunFilter(
            status=self.status,
            task_id=self.task,
            run_group_id=self.group,
            created_after=None if self.since is None else moment(self.since, now),
            created_before=None if self.until is None else moment(self.until, now),
            reward_min=self.reward_min,
            reward_max=self.reward_max,
            text=self.text,
            tag=dict(cast("tuple[str, str]", tag.split("=", 1)) for tag in self.tag),
        )

    @property
    def is_filtered(self) -> bool:
        """Whether some runs are left out."""
        own = {"sort", "after", "limit", "columns"}
        return any(name not in own for name, _ in self.url_items())


class GroupsQuery(PageQuery):
    """Which groups; the newest come first."""

    task: Text = None
    """Id of a task."""
    since: Moment = None
    """Listed since: ``24h``, ``7d`` or a time."""
    until: Moment = None
    """Listed before: the same."""
    text: Text = None
    """Start of a group's id."""
    after: Cursor = None
    limit: Annotated[int, Field(ge=1, le=MAX_ROWS)] = 25

    @property
    def is_filtered(self) -> bool:
        """Whether some groups are left out."""
        return any(name not in {"after", "limit"} for name, _ in self.url_items())


class MessagesQuery(PageQuery):
    """Which part of a run's conversation."""

    id: Annotated[str, Field(max_length=1000)]
    """The run."""
    after: Annotated[str | None, Field(max_length=1000)] = None
    """``next`` of the page before."""
    find: Text = None
    """Only messages with this text in them; upper and lower case of ASCII are the same."""
    limit: Annotated[int, Field(ge=1, le=500)] = 100


class TasksQuery(PageQuery):
    """Over which time tasks are summed up."""

    since: Moment = "7d"
    """Runs listed since."""
