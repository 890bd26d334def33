import math
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from agent_env.explorer import rows
from agent_env.explorer._cut import cut_texts
from agent_env.runs import RunIndex
from agent_env.runs.lists import TaskSpan
from agent_env.status import RunStatus, StepStatus
from tests.agent_env.explorer.conftest import T0, ended, new_run, report, running

NOW = T0 + timedelta(seconds=30)


def test_a_cause_is_the_first_line_that_says_something() -> None:
    found = rows.cause("StepFailed", "\n  \n boom \nmore")

    assert found is not None
    assert (found.type, found.said) == ("StepFailed", "boom")
    assert rows.cause(None, None) is None
    long = rows.cause("E", "x" * 5000)
    assert long is not None
    assert len(long.said) <= 300


def test_a_running_run_has_taken_until_now(index: RunIndex) -> None:
    running(index, "r")

    assert rows.run_row(index.get("r"), NOW).took_s == 30
    ended(index, "r")
    assert rows.run_row(index.get("r"), NOW).took_s == 5


def test_attempts_of_a_step_are_numbered_and_a_skipped_one_is_none() -> None:
    reports = [
        report("play", status=StepStatus.FAILED, retried=True),
        report("play", epoch=2),
        report("score", status=StepStatus.SKIPPED, started_at=None, finished_at=None),
        report("now", status=StepStatus.RUNNING, finished_at=None),
    ]

    views = rows.step_views(reports, NOW)

    assert [(view.attempt, view.attempts) for view in views] == [(1, 2), (2, 2), (1, 0), (1, 1)]
    assert [view.took_s for view in views] == [1, 1, None, 30]


def test_the_axis_of_a_live_run_ends_now(index: RunIndex) -> None:
    running(index, "r")
    before = T0 - timedelta(seconds=1)

    assert rows.axis(index.get("r"), [report(started_at=before)], NOW) == (before, NOW)
    ended(index, "r")
    assert rows.axis(index.get("r"), [], NOW) == (T0, T0 + timedelta(seconds=5))


def test_canceling_is_past_its_budget_after_a_while(index: RunIndex) -> None:
    running(index, "r")
    budget = timedelta(seconds=10)
    assert rows.canceling(index.get("r"), NOW, budget) is None
    index.request_cancel("r", by="ana", reason="why", at=T0 + timedelta(seconds=20))

    early = rows.canceling(index.get("r"), NOW, budget)
    late = rows.canceling(index.get("r"), NOW + timedelta(seconds=1), budget)

    assert early is not None
    assert late is not None
    assert (early.by, early.reason, early.seconds, early.is_past_budget) == (
        "ana",
        "why",
        10,
        False,
    )
    assert late.is_past_budget
    ended(index, "r", RunStatus.CANCELED)
    assert rows.canceling(index.get("r"), NOW, budget) is None


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=50))
def test_every_reward_is_in_one_bar(rewards: list[float]) -> None:
    bins = rows.histogram(rewards)

    assert sum(found.count for found in bins) == len(rewards)
    if rewards:
        assert bins[0].low == min(rewards)
        assert bins[-1].high == max(rewards)
        assert all(math.isfinite(found.low) and math.isfinite(found.high) for found in bins)


def test_equal_rewards_are_one_bar() -> None:
    assert [(b.low, b.high, b.count) for b in rows.histogram([2.0, 2.0])] == [(2.0, 2.0, 2)]


def test_bars_have_equal_widths() -> None:
    bins = rows.histogram([0.0, 0.1, 0.9, 1.0])

    assert [found.count for found in bins] == [2, 0, 0, 2]
    assert [found.low for found in bins] == [0.0, 0.25, 0.5, 0.75]


def span(task: str, version: str, place: int, **changes: object) -> TaskSpan:
    values = {
        "n": 2,
        "queued": 0,
        "running": 0,
        "completed": 2,
        "failed": 0,
        "canceled": 0,
        "n_scored": 2,
        "reward_sum": 1.0,
        "last_at": T0 + timedelta(minutes=place),
    }
    return TaskSpan(task, version, place, **{**values, **changes})  # pyright: ignore[reportArgumentType]


def test_a_task_is_summed_up_over_its_versions() -> None:
    found = rows.task_rows(
        [
            span("a", "1", 0),
            span("a", "2", 0, reward_sum=3.0),
            span("a", "2", 2, n_scored=0, reward_sum=None),
            span("b", "1", 3),
        ],
        since=T0,
        stretch=timedelta(minutes=1),
    )

    assert [row.task_id for row in found] == ["b", "a"]
    a = found[1]
    assert (a.n, a.completed, a.n_scored, a.mean) == (6, 6, 4, 1.0)
    assert a.versions == ("2", "1")
    assert [(point.starts_at, point.n, point.mean) for point in a.points] == [
        (T0, 4, 1.0),
        (T0 + timedelta(minutes=2), 2, None),
    ]


def test_what_differs_comes_first(index: RunIndex) -> None:
    ended(index, "a", reward=1.0, run=new_run("a", seed={"seed": "1"}, tags={"x": "y"}))
    other = new_run("b", seed={"seed": "2"})
    ended(index, "b", RunStatus.FAILED, run=other, error_type="StepFailed", error="boom")

    facts = rows.facts_compared([index.get("a"), index.get("b")], NOW)

    differing = [fact.name for fact in facts if fact.differs]
    assert [fact.name for fact in facts][: len(differing)] == differing
    assert {"status", "reward", "cause", "seed seed", "tag x"} <= set(differing)
    by_name = {fact.name: fact for fact in facts}
    assert by_name["cause"].values == (None, "StepFailed: boom")
    assert by_name["task"].values == ("task v1", "task v1")


def test_steps_are_compared_by_their_latest_attempt() -> None:
    first = [report("play", status=StepStatus.FAILED, error_type="E", error="x"), report("play")]
    second = [report("play", score=0.5)]

    (fact,) = rows.steps_compared([first, second])

    assert fact.values == ("COMPLETED", "COMPLETED, score 0.5")


def test_long_texts_are_cut_wherever_they_are() -> None:
    message = {"content": [{"text": "x" * 200}, 1, None], "role": "user"}

    cut, is_cut = cut_texts(message, 100)

    assert is_cut
    assert len(cut["content"][0]["text"]) <= 100
    assert cut["content"][1:] == [1, None]
    assert cut_texts({"a": ["short"]}, 100) == ({"a": ["short"]}, False)


def test_a_completed_run_shows_no_cause(index: RunIndex) -> None:
    ended(index, "r")

    assert rows.run_row(index.get("r"), NOW).cause is None
