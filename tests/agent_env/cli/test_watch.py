"""agent_env/cli/_watch.py."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from agent_env.cli._session import Session
from agent_env.cli._watch import LineView, LiveView, bar
from agent_env.runs import RunIndex
from agent_env.scores import GroupFigures
from tests.agent_env.cli.stage import COMPLETED, FAILED, T0, group

HEIGHT = 24


@pytest.fixture
def terminal() -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=100, height=HEIGHT, color_system=None
    )


@pytest.fixture
def live(terminal: Console) -> Callable[[RunIndex, str], list[str]]:
    """Draw once; the lines that were drawn."""
    session = Session()
    session.out.__dict__["side_console"] = terminal  # what the cached property would have made

    def drawn(index: RunIndex, run_group_id: str) -> list[str]:
        view = LiveView(session)
        view.read(index, run_group_id)
        view.say("canceling…")
        assert isinstance(terminal.file, io.StringIO)
        text = terminal.file.getvalue()
        view.close()
        return text.rpartition("\x1b[?25l")[2].splitlines()

    return drawn


def test_a_small_group_is_drawn_whole(
    index: RunIndex, live: Callable[[RunIndex, str], list[str]]
) -> None:
    group(index, "grp-1", COMPLETED, FAILED, None)

    lines = live(index, "grp-1")

    text = "\n".join(lines)
    assert "2/3  ✓ 1  ✕ 1  ◌ 1" in text
    assert "reward 1.000 (1 scored of 3)" in text
    assert "canceling…" in text
    assert "StepFailed: step 'b': exit code 3" in text
    for number in range(3):
        assert f"grp-1-000{number}" in text


def test_a_large_group_shows_what_runs_and_fits_the_terminal(
    index: RunIndex, live: Callable[[RunIndex, str], list[str]]
) -> None:
    ids = group(index, "grp-1", COMPLETED, *[None] * 199)
    for run_id in ids[1:60]:
        run = index.get(run_id)
        index.begin_run(run.run_id, host="here", room=1000, epoch=1, at=T0)

    lines = live(index, "grp-1")

    text = "\n".join(lines)
    assert len(lines) <= HEIGHT
    assert "1/200  ✓ 1  ● 59  ◌ 140" in text
    assert "✓ COMPLETED" not in text
    assert text.count("● RUNNING") == HEIGHT - 5


def test_without_a_terminal_each_change_is_a_line(
    index: RunIndex, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = group(index, "grp-1", None, COMPLETED)
    view = LineView(Session())

    def shown() -> list[str]:
        view.read(index, "grp-1")
        view.show()
        return capsys.readouterr().err.splitlines()

    before = shown()
    index.begin_run(first, host="here", room=1, epoch=1, at=T0)
    after = shown()

    assert before == [f"✓ COMPLETED  {second}  reward 1.000  2.00 s"]
    assert after == [f"● RUNNING  {first}"]
    assert shown() == []


def test_a_bar_is_as_long_whatever_has_ended() -> None:
    for ended in (0, 3, 10):
        figures = GroupFigures(n=10, completed=ended, queued=10 - ended)

        assert bar(figures).plain == f"{'━' * 32} {ended}/10"
