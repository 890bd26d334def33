"""agent_env/cli/groups.py and _report.py."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_env.cli._report import MAX_ROWS, exit_code, pass_at
from agent_env.runs import RunIndex
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus
from tests.agent_env.cli.stage import (
    BOX,
    CANCELED,
    COMPLETED,
    FAILED,
    HANGS,
    Cli,
    Said,
    group,
    task_file,
)

ZERO = COMPLETED.model_copy(update={"reward": 0.0})


def test_without_groups_the_list_says_how_to_start(say: Callable[..., Said]) -> None:
    said = say("groups")

    assert (said.code, said.out) == (0, "")
    assert "no groups yet" in said.err


def test_the_bare_noun_lists(index: RunIndex, say: Callable[..., Said]) -> None:
    group(index, "grp-1", COMPLETED, ZERO, FAILED, None)

    bare, listed = say("groups"), say("groups", "list")

    assert bare == listed
    row = " ".join(bare.out.splitlines()[1].split())
    assert row.startswith("grp-1 cartpole ✓ 2 ✕ 1 ◌ 1 0.500 ± 0.707 (2 scored of 4) ")


def test_json_lists_figures(index: RunIndex, say: Callable[..., Said]) -> None:
    group(index, "grp-1", COMPLETED, FAILED)
    group(index, "grp-2", None)

    page = say("--json", "groups", "list", "--limit", "1").json
    rest = say("--json", "groups", "list", "--after", page["next"]).json

    found = {item["run_group_id"]: item for item in page["items"] + rest["items"]}
    assert set(found) == {"grp-1", "grp-2"}
    assert found["grp-1"]["size"] == 2
    assert found["grp-1"]["figures"]["failed"] == 1
    assert found["grp-1"]["figures"]["n_scored"] == 1


def test_a_group_is_shown_with_its_strip_and_its_failures(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    group(index, "grp-1", COMPLETED, ZERO, FAILED, CANCELED, None)

    said = say("groups", "show", "grp-1")

    lines = said.out.splitlines()
    assert "grp-1  cartpole  ✓ 2  ✕ 1  ⊘ 1  ◌ 1" in lines
    assert "reward 0.500 ± 0.707 (2 scored of 5)" in lines
    assert "pass@1 0.500  pass@2 1.000" in lines
    assert lines[-1] == "✓✓✕⊘◌"
    assert "    StepFailed: step 'b': exit code 3" in lines
    assert said.err.rstrip().endswith("groups wait grp-1")


def test_json_has_every_member_with_its_advantage(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    ids = group(index, "grp-1", COMPLETED, ZERO, FAILED)

    data = say("groups", "show", "grp-1", "--json").json
    each = say("groups", "show", "grp-1", "-o", "jsonl").out.splitlines()

    assert [member["run_id"] for member in data["members"]] == ids
    assert data["members"][0]["advantage"] == pytest.approx(0.7071, abs=1e-3)
    assert data["members"][2]["advantage"] is None
    assert data["pass_at"] == {"1": 0.5, "2": 1.0}
    assert len(each) == 3


def test_a_large_group_lists_failures_first_and_says_what_is_left_out(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    ids = group(index, "grp-1", *[None] * MAX_ROWS, None, FAILED)

    lines = say("groups", "show", "grp-1").out.splitlines()

    assert ids[-1] in lines[1]
    assert "… 2 more members: --json has all of them" in lines


def test_an_unknown_group_is_not_found(say: Callable[..., Said]) -> None:
    for words in (("show",), ("cancel", "--yes"), ("wait",)):
        said = say("groups", words[0], "grp-x", *words[1:], "--json")

        assert said.code == 3
        assert said.json["error"]["kind"] == "not_found"


def test_a_finished_group_needs_no_temporal_to_be_waited_for_or_canceled(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    group(index, "grp-ok", COMPLETED)
    group(index, "grp-failed", COMPLETED, FAILED, CANCELED)
    group(index, "grp-canceled", COMPLETED, CANCELED)

    codes = [say("groups", "wait", f"grp-{name}").code for name in ("ok", "failed", "canceled")]
    canceled = say("groups", "cancel", "grp-failed", "--json")

    assert codes == [0, 1, 6]
    assert canceled.json["items"] == [
        {"target": "grp-failed", "changed": False, "detail": "every member has ended"}
    ]


def test_without_temporal_the_request_is_kept_on_each_member(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    ids = group(index, "grp-1", COMPLETED, None, None)

    dry = say("groups", "cancel", "grp-1", "--dry-run", "--json")
    said = say("groups", "cancel", "grp-1", "--yes", "--reason", "why", "--json")

    assert dry.json["items"][0]["detail"] == "would ask 2 live members"
    assert said.code == 5
    assert "the request is kept" in said.json["error"]["message"]
    assert [index.get(run_id).cancel_requested_reason for run_id in ids] == [None, "why", "why"]


def test_several_members_need_a_yes(index: RunIndex, say: Callable[..., Said]) -> None:
    group(index, "grp-1", None, None)

    said = say("groups", "cancel", "grp-1")

    assert said.code == 2
    assert "this cancels 2 runs; say --yes" in said.err


def test_ctrl_c_stops_waiting_and_not_the_group(server: Cli, tmp_path: Path) -> None:
    task = task_file(tmp_path, "hang", BOX, HANGS)
    started = server.run("run", task, "-n", "2", "--detach", "--json").json
    run_group_id = started["run_group_id"]

    with server.start("groups", "wait", run_group_id, ready="RUNNING") as waiting:
        waiting.interrupt(signal.SIGINT)
        stopped = waiting.ended()
    status = server.read(started["run_ids"][0]).status
    canceled = server.run("groups", "cancel", run_group_id, "--yes", "--wait", "--json")

    assert stopped.code == 130
    assert f"episodes groups cancel {run_group_id} cancels it" in stopped.err
    assert status is RunStatus.RUNNING
    assert canceled.json["items"] == [
        {
            "target": run_group_id,
            "changed": True,
            "detail": "asked 2 of 2 members: all have ended",
        }
    ]


def test_pass_at_k_ends_with_the_scored_members() -> None:
    assert pass_at(GroupFigures(n=9)) == {}
    assert list(pass_at(GroupFigures(n=9, n_scored=5, n_passed=1))) == [1, 2, 4]


def test_a_failure_outweighs_a_cancel() -> None:
    assert exit_code(GroupFigures(n=2, failed=1, canceled=1)) == 1
    assert exit_code(GroupFigures(n=2, completed=1, canceled=1)) == 6
    assert exit_code(GroupFigures(n=1, completed=1)) == 0
