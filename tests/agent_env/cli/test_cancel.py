"""agent_env/cli/cancel.py and _cancel.py."""

import json
import os
import pty
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from agent_env.runs import RunIndex
from tests.agent_env.cli.stage import (
    BOX,
    CANCELED,
    COMPLETED,
    HANGS,
    T0,
    Cli,
    Said,
    end,
    new_run,
    task_file,
    until,
)


def live(index: RunIndex, *run_ids: str, **changes: object) -> None:
    for number, run_id in enumerate(run_ids):
        run = new_run(run_id, T0 + timedelta(seconds=number), **changes)
        index.open_run(run, host="here", room=100, at=T0)


@pytest.mark.parametrize(
    ("outcome", "detail"),
    [(COMPLETED, "ended COMPLETED"), (CANCELED, "ended CANCELED: wrong model")],
)
def test_a_finished_run_says_how_it_ended(
    outcome: object, detail: str, index: RunIndex, say: Callable[..., Said]
) -> None:
    end(index, new_run("run-a"), outcome)  # pyright: ignore[reportArgumentType] (parametrized)

    said = say("cancel", "run-a", "--json")

    assert said.code == 0
    assert said.json["items"] == [{"target": "run-a", "changed": False, "detail": detail}]


def test_an_unknown_run_is_not_found_and_then_nothing_is_asked(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    live(index, "run-a")

    said = say("cancel", "run-a", "run-x", "--yes", "--json")

    assert said.code == 3
    assert said.json["error"]["kind"] == "not_found"
    assert index.get("run-a").cancel_requested_at is None


@pytest.mark.parametrize("words", [(), ("--yes",), ("run-a", "--task", "cartpole")])
def test_a_change_needs_one_way_to_choose(words: tuple[str, ...], say: Callable[..., Said]) -> None:
    said = say("cancel", *words)

    assert said.code == 2
    assert "name runs, or choose them with options" in said.err


def test_a_dry_run_changes_nothing(index: RunIndex, say: Callable[..., Said]) -> None:
    live(index, "run-a", "run-b")
    end(index, new_run("run-c"), COMPLETED)

    said = say("cancel", "--task", "cartpole", "--dry-run", "--json")

    assert said.code == 0
    assert said.json["items"] == [
        {"target": "run-b", "changed": False, "detail": "would ask; it is RUNNING"},
        {"target": "run-a", "changed": False, "detail": "would ask; it is RUNNING"},
    ]
    assert index.get("run-a").cancel_requested_at is None


def test_several_runs_need_a_yes_when_there_is_nobody_to_ask(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    live(index, "run-a", "run-b")

    said = say("cancel", "--status", "running")

    assert said.code == 2
    assert "this cancels 2 runs; say --yes" in said.err
    assert index.get("run-a").cancel_requested_at is None


def test_a_person_who_says_no_changes_nothing(
    index: RunIndex, say: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    live(index, "run-a", "run-b")
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    with os.fdopen(theirs, "r", encoding="utf-8") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)

        said = say("cancel", "run-a", "run-b")

    os.close(ours)
    assert said.code == 6
    assert "Cancel 2 runs? Teardown runs; this can't be undone [y/N]" in said.err
    assert said.err.rstrip().endswith("nothing was changed")
    assert index.get("run-a").cancel_requested_at is None


def test_without_temporal_the_request_is_kept(index: RunIndex, say: Callable[..., Said]) -> None:
    live(index, "run-a")

    said = say("cancel", "run-a", "--reason", "too slow", "--json")

    assert said.code == 5
    error = said.json["error"]
    assert (error["kind"], error["run_id"]) == ("unavailable", "run-a")
    assert "episodes up" in error["message"]
    assert "the request is kept: repeat this command once it runs" in error["message"]
    row = index.get("run-a")
    assert (row.is_canceling, row.cancel_requested_reason) == (True, "too slow")


def test_nothing_that_matches_is_no_error(index: RunIndex, say: Callable[..., Said]) -> None:
    end(index, new_run("run-a"), COMPLETED)

    text, data = say("cancel", "--task", "cartpole"), say("cancel", "--tag", "x=y", "--json")

    assert (text.code, data.code) == (0, 0)
    assert "no live run matches" in text.err
    assert data.json["items"] == []


def test_live_runs_end_canceled_with_the_reason(server: Cli, tmp_path: Path) -> None:
    task = task_file(tmp_path, "hang", BOX, HANGS)
    started = server.run("run", task, "-n", "3", "--detach", "--tag", "of=cancel", "--json").json
    first, second, third = started["run_ids"]
    until(lambda: server.read(first).current_step == "hang")
    waited = server.run("cancel", first, "--reason", "too slow", "--wait", "--json")
    asked = server.run("cancel", "--tag", "of=cancel", "--yes", "--json")
    again = server.run("cancel", second, "--json")

    assert waited.json["items"] == [
        {"target": first, "changed": True, "detail": "ended CANCELED: too slow"}
    ]
    assert server.read(first).cancel_requested_reason == "too slow"
    assert json.loads(asked.out)["items"] == [
        {"target": third, "changed": True, "detail": "asked"},
        {"target": second, "changed": True, "detail": "asked"},
    ]
    (change,) = again.json["items"]
    assert (again.code, change["changed"]) == (0, False)
    assert change["detail"].startswith(("already asked, by ", "ended CANCELED: canceled by "))
    until(lambda: all(server.read(run_id).status.is_finished for run_id in (second, third)))
