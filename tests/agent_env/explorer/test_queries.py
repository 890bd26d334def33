from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from agent_env.explorer.queries import GroupsQuery, RunsQuery, moment
from agent_env.runs import RunCursor, RunFilter
from agent_env.runs.lists import RunSort
from agent_env.status import RunStatus

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("30m", NOW - timedelta(minutes=30)),
        ("24h", NOW - timedelta(hours=24)),
        ("7d", NOW - timedelta(days=7)),
        ("2026-01-31T09:30", datetime(2026, 1, 31, 9, 30, tzinfo=UTC)),
        ("2026-01-31T09:30+02:00", datetime(2026, 1, 31, 7, 30, tzinfo=UTC)),
        ("2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
    ],
)
def test_a_moment_is_a_time_or_how_long_ago_it_was(value: str, found: datetime) -> None:
    assert moment(value, NOW) == found


@pytest.mark.parametrize("value", ["", "yesterday", "-5h", "0001-01-01T00:00+23:00", "9999999d"])
def test_what_is_no_moment_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="is not a time; write"):
        moment(value, NOW)


def test_a_query_becomes_a_filter() -> None:
    query = RunsQuery.model_validate(
        {
            "status": ["FAILED", "RUNNING"],
            "task": " cartpole ",
            "group": "g",
            "reward_min": "0.5",
            "since": "1h",
            "until": "2026-01-31",
            "text": "boom",
            "tag": ["model=x=y"],
            "sort": "-reward",
        }
    )

    assert query.filter(NOW) == RunFilter(
        status=(RunStatus.FAILED, RunStatus.RUNNING),
        task_id="cartpole",
        run_group_id="g",
        reward_min=0.5,
        created_after=NOW - timedelta(hours=1),
        created_before=datetime(2026, 1, 31, tzinfo=UTC),
        text="boom",
        tag={"model": "x=y"},
    )
    assert query.sort is RunSort.BEST
    assert query.is_filtered


def test_empty_values_as_forms_send_them_are_not_there() -> None:
    query = RunsQuery.model_validate({"status": [""], "task": "", "reward_min": "", "since": ""})

    assert query == RunsQuery()
    assert not query.is_filtered


def test_an_address_is_written_back_without_what_is_usual() -> None:
    query = RunsQuery(status=(RunStatus.FAILED, RunStatus.QUEUED), text="a&b", limit=10)

    assert query.url_items() == [
        ("status", "FAILED"),
        ("status", "QUEUED"),
        ("text", "a&b"),
        ("limit", "10"),
    ]
    assert query.url_items(status=(), text=None, limit=50, sort=RunSort.OLDEST) == [
        ("sort", "created")
    ]
    assert RunsQuery().url_items() == []


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"status": ["DONE"]}, "QUEUED"),
        ({"reward_min": "nan"}, "finite"),
        ({"reward_min": "2", "reward_max": "1"}, "nothing can match"),
        ({"since": "soon"}, "is not a time"),
        ({"tag": ["novalue"]}, "is not KEY=VALUE"),
        ({"after": "!!!"}, "is not a cursor"),
        ({"limit": "1000"}, "less than or equal to 200"),
        ({"what": "1"}, "Extra inputs"),
        ({"text": "x" * 1001}, "at most 1000"),
    ],
)
def test_what_can_not_be_asked_is_refused(data: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        RunsQuery.model_validate(data)


def test_a_page_starts_where_the_one_before_ended() -> None:
    cursor = RunCursor(created_at=NOW, run_id="a")

    assert RunsQuery(after=cursor.text()).place == cursor
    assert GroupsQuery().place is None
    assert GroupsQuery(task="t").is_filtered
