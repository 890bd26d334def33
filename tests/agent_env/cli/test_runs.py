"""agent_env/cli/runs.py: ``episodes list``."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from agent_env.runs import RunIndex
from tests.agent_env.cli.stage import COMPLETED, FAILED, T0, Said, end, new_run


@pytest.fixture
def three_runs(index: RunIndex) -> None:
    end(index, new_run("run-a"), COMPLETED)
    end(index, new_run("run-b", T0 + timedelta(minutes=1), task_id="maze"), FAILED)
    index.open_run(new_run("run-c", T0 + timedelta(minutes=2), tags={}), host="here", room=0, at=T0)


def test_an_empty_index_says_how_to_start(say: Callable[..., Said]) -> None:
    text, data = say("list"), say("list", "--json")

    assert (text.code, text.out) == (0, "")
    assert "no runs yet; start some with `episodes run TASK`" in text.err
    assert data.json == {"items": [], "next": None, "truncated": False}


@pytest.mark.usefixtures("three_runs")
def test_runs_are_listed_newest_first_with_a_failure_below(say: Callable[..., Said]) -> None:
    said = say("list")

    title, *rows = said.out.splitlines()
    assert title.split() == ["status", "run", "task", "group", "step", "reward", "listed", "took"]
    assert [row.split()[:4] for row in rows] == [
        ["◌", "QUEUED", "run-c", "cartpole"],
        ["✕", "FAILED", "run-b", "maze"],
        ["StepFailed:", "step", "'b':", "exit"],
        ["✓", "COMPLETED", "run-a", "cartpole"],
    ]
    assert "1.000" in rows[3]
    assert "2.00 s" in rows[3]
    assert said.err.rstrip().endswith("show run-b")


@pytest.mark.usefixtures("three_runs")
@pytest.mark.parametrize(
    ("options", "found"),
    [
        (("--status", "failed"), ["run-b"]),
        (("--status", "FAILED", "--status", "queued"), ["run-c", "run-b"]),
        (("--task", "maze"), ["run-b"]),
        (("--tag", "who=ana"), ["run-b", "run-a"]),
        (("--error", "exit code"), ["run-b"]),
        (("--since", "2026-01-31T09:30:30+00:00"), ["run-c", "run-b"]),
        (("--group", "none"), []),
        (("--task", "maze", "--status", "COMPLETED"), []),
    ],
)
def test_options_choose_runs(
    options: tuple[str, ...], found: list[str], say: Callable[..., Said]
) -> None:
    said = say("list", *options, "--json")

    assert [item["run_id"] for item in said.json["items"]] == found
    if not found:
        assert "no run matches" in say("list", *options).err


@pytest.mark.usefixtures("three_runs")
def test_pages_are_joined_without_a_gap(say: Callable[..., Said]) -> None:
    seen: list[str] = []
    page = say("list", "--limit", "2", "--json").json
    assert page["truncated"] is True
    seen += [item["run_id"] for item in page["items"]]
    last = say("list", "--limit", "2", "--json", "--after", page["next"]).json
    seen += [item["run_id"] for item in last["items"]]

    assert seen == ["run-c", "run-b", "run-a"]
    assert (last["next"], last["truncated"]) == (None, False)


@pytest.mark.usefixtures("three_runs")
def test_a_run_in_json_has_every_field_of_its_row(say: Callable[..., Said]) -> None:
    (item,) = say("list", "--task", "maze", "--json").json["items"]

    assert item["created_at"] == "2026-01-31T09:31:00Z"
    assert item["error"] == "step 'b': exit code 3\nx"
    assert {name: item[name] for name in ("status", "reward", "seed", "tags", "epoch")} == {
        "status": "FAILED",
        "reward": None,
        "seed": {"seed": "7"},
        "tags": {"who": "ana"},
        "epoch": 1,
    }


@pytest.mark.parametrize("limit", ["0", "501", "x"])
def test_a_limit_that_can_not_be_is_refused(limit: str, say: Callable[..., Said]) -> None:
    assert say("list", "--limit", limit).code == 2


def test_a_cursor_that_is_none_is_refused(say: Callable[..., Said]) -> None:
    said = say("list", "--after", "nonsense", "--json")

    assert said.code == 2
    assert said.json["error"]["kind"] == "usage"


def test_text_of_an_episode_does_not_move_the_cursor(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    evil = FAILED.model_copy(update={"error": "\x1b[2J\rgone"})
    end(index, new_run("日本 <script>", tags={}), evil)

    said = say("list")

    assert "\x1b" not in said.out
    assert "\\x1b[2J\\rgone" in said.out
    assert "日本 <script>" in said.out


def test_an_index_that_can_not_be_opened_is_unavailable(say: Callable[..., Said]) -> None:
    said = say("list", "--database", "sqlite:////proc/none/x.sqlite", "--json")

    assert said.code == 5
    assert said.json["error"]["kind"] == "unavailable"
    assert said.json["error"]["type"] == "IndexUnavailable"


def test_a_state_folder_that_can_not_be_made_is_a_setting_to_change(
    say: Callable[..., Said],
) -> None:
    said = say("list", "--state-dir", "/proc/none")

    assert said.code == 2
    assert "name another folder with EPISODES_STATE_DIR" in said.err
