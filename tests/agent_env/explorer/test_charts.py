"""Charts as text."""

import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.explorer import charts
from agent_env.explorer.charts import Member, Point, Reach, Scale, Span
from agent_env.explorer.group_views import Bin
from agent_env.scores import group_figures
from agent_env.status import RunStatus

MEMBERS = [
    Member("0 · a", RunStatus.COMPLETED, 1.0),
    Member("1 · b", RunStatus.COMPLETED, 0.25),
    Member("2 · c", RunStatus.COMPLETED, None),
    Member("3 · d", RunStatus.FAILED, None),
    Member("4 · e", RunStatus.CANCELED, None),
    Member("5 · f", RunStatus.RUNNING, None, is_canceling=True),
    Member("6 · g", RunStatus.QUEUED, None),
]
HOSTILE = '"/><script>alert(1)</script>'


def drawings() -> list[str]:
    figures = group_figures((member.status, member.reward) for member in MEMBERS)
    span = Span(0.0, 1.0, "FAILED", HOSTILE, is_open=True)
    return [
        charts.strip([*MEMBERS, Member(HOSTILE, RunStatus.FAILED, None)]),
        charts.strip([]),
        charts.mark(MEMBERS[0], Scale(0, 1), width=16, height=56),
        charts.counts_bar(figures),
        charts.histogram([Bin(low=0.0, high=0.5, count=3), Bin(low=0.5, high=1.0, count=0)]),
        charts.histogram([]),
        charts.track([span], 2.0),
        charts.axis(90.0),
        charts.trend([Point(HOSTILE, 0.5, 3, 0.1), Point("b", None, 0, 0.5)]),
        charts.reach(Reach(3, 1, 1), 8),
    ]


@pytest.mark.parametrize("drawing", drawings())
def test_a_chart_is_well_formed_has_a_title_and_no_style(drawing: str) -> None:
    root = ElementTree.fromstring(drawing)

    assert root.find("title") is not None
    assert root.get("role") == "img"
    assert [each.tag for each in root.iter() if "style" in each.attrib] == []
    assert [each.tag for each in root.iter() if each.tag in ("script", "style")] == []


def heights(drawing: str) -> list[float]:
    """Of the rectangles that are as wide as a mark."""
    root = ElementTree.fromstring(drawing)
    return [float(rect.get("height", "0")) for rect in root.iter("rect") if rect.get("x") == "0"]


def test_a_strip_has_a_mark_a_member_filled_to_the_height_of_its_reward() -> None:
    drawing = charts.strip(MEMBERS)

    assert drawing.count("translate(") == len(MEMBERS)
    assert heights(drawing) == [20.0, 5.0]
    assert "3 COMPLETED, 1 FAILED, 1 CANCELED, 1 RUNNING, 1 QUEUED" in drawing


def test_each_status_is_told_apart_without_color() -> None:
    shapes = {
        re.sub(
            r"<title>.*?</title>|class=\"[^\"]*\"", "", charts.strip([Member("m", status, None)])
        )
        for status in RunStatus
    }

    assert len(shapes) == len(RunStatus)


def test_a_mark_says_what_it_stands_for() -> None:
    assert charts.said(MEMBERS[1]) == "1 · b: COMPLETED, reward 0.250"
    assert charts.said(MEMBERS[5]) == "5 · f: canceling, unscored"


def test_what_a_strip_leaves_out_is_said() -> None:
    assert "the first 7 of 107" in charts.strip(MEMBERS, left_out=100)


@pytest.mark.parametrize(
    ("rewards", "scale"),
    [
        ([], Scale(0, 1)),
        ([None, 0.2, 0.4], Scale(0, 1)),
        ([200.0, 500.0], Scale(0, 500)),
        ([-3.0, 1.0], Scale(-3, 1)),
        ([-3.0, -1.0], Scale(-3, 0)),
    ],
)
def test_rewards_are_measured_from_0_to_1_or_from_0_to_the_most(
    rewards: list[float | None], scale: Scale
) -> None:
    assert charts.scale_of(rewards) == scale


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_reward_is_within_its_frame(rewards: list[float]) -> None:
    scale = charts.scale_of(rewards)

    assert all(0 <= scale.share(reward) <= 1 for reward in rewards)


def test_the_counts_bar_is_as_long_as_the_group() -> None:
    figures = group_figures((member.status, member.reward) for member in MEMBERS)
    root = ElementTree.fromstring(charts.counts_bar(figures))

    widths = [float(rect.get("width", "0%").rstrip("%")) for rect in root.iter("rect")]
    assert sum(widths) == pytest.approx(100, abs=0.01)
    assert widths[0] == pytest.approx(3 / 7 * 100, abs=0.01)


def test_the_tallest_bar_of_a_histogram_is_the_fullest_interval() -> None:
    found = [Bin(low=0, high=1, count=1), Bin(low=1, high=2, count=4)]
    root = ElementTree.fromstring(charts.histogram(found))

    tall = [float(rect.get("height", "0")) for rect in root.iter("rect")]
    assert tall[0] == pytest.approx(tall[1] / 4)
    assert "1.000 to 2.000: 4" in charts.histogram(found)


@pytest.mark.parametrize(
    ("length_s", "last"),
    [(0, "0 s"), (0.9, "0.8 s"), (3.0, "3 s"), (90, "90 s"), (150, "2.5 min"), (86_400 * 3, "3 d")],
)
def test_a_time_axis_has_few_round_ticks_in_one_unit(length_s: float, last: str) -> None:
    assert 1 <= len(charts.ticks(length_s)) <= 6
    assert re.findall(r">([^<]+)</text>", charts.axis(length_s))[-1] == last


@given(st.floats(min_value=0, max_value=1e10))
def test_ticks_are_within_the_axis(length_s: float) -> None:
    ticks = charts.ticks(length_s)

    assert len(ticks) <= 6
    assert all(tick <= length_s * (1 + 1e-6) for tick in ticks)


def test_attempts_stand_one_under_the_other_where_they_were_in_time() -> None:
    spans = [Span(0, 1, "FAILED", "first"), Span(1, 4, "COMPLETED", "second")]
    root = ElementTree.fromstring(charts.track(spans, 4))

    bars = [rect for rect in root.iter("rect") if str(rect.get("width", "")).endswith("%")]
    assert [bar.get("x") for bar in bars] == ["0.000%", "25.000%"]
    assert [bar.get("width") for bar in bars] == ["25.000%", "75.000%"]
    assert bars[0].get("y") != bars[1].get("y")


def test_a_trend_is_broken_where_nothing_was_scored() -> None:
    points = [Point(str(n), mean, 1, n / 5) for n, mean in enumerate((0.1, 0.2, None, 0.3, 0.4))]

    assert charts.trend(points).count("<polyline") == 2
