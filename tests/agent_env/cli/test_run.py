"""agent_env/cli/run.py: whole groups, in processes of their own, on the real server."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_env.embedded import find_running
from agent_env.status import RunStatus
from tests.agent_env.cli.stage import (
    BOX,
    FAILS,
    HANGS,
    PASSES,
    Cli,
    Said,
    processes_with,
    task_file,
    until,
)

GROUP_KEYS = {"run_group_id", "task_id", "created_at", "size", "figures", "pass_at", "members"}


def test_a_group_that_passes_is_shown_with_its_figures(server: Cli, tmp_path: Path) -> None:
    task = task_file(tmp_path, "good", BOX, PASSES)

    said = server.run("run", task, "-n", "2", "--group", "grp-good", "--seed", "5")

    lines = said.out.splitlines()
    assert said.code == 0
    assert [line.split()[:3] for line in lines[1:3]] == [
        ["✓", "COMPLETED", "grp-good-0000"],
        ["✓", "COMPLETED", "grp-good-0001"],
    ]
    assert "grp-good  good  ✓ 2" in lines
    assert "reward 1.000 ± 0.000 (2 scored of 2)" in lines
    assert said.err.splitlines()[0] == "grp-good: 2 episodes of good"
    assert "✓ COMPLETED  grp-good-0001  reward 1.000" in said.err
    assert said.err.rstrip().endswith("next: episodes groups show grp-good")
    assert [server.read(f"grp-good-000{i}").seed["seed"] for i in range(2)] == ["5", "6"]


def test_a_failure_is_told_by_its_root_cause_and_the_exit_code(server: Cli, tmp_path: Path) -> None:
    task = task_file(tmp_path, "bad", BOX, FAILS)

    said = server.run("run", task, "--group", "grp-bad")

    assert said.code == 1
    row, below = said.out.splitlines()[1:3]
    assert row.startswith("✕ FAILED  grp-bad-0000")
    assert below.startswith("    StepFailed: step 'break': ")
    assert "boom" in below
    assert said.err.rstrip().endswith("next: episodes show grp-bad-0000")


def test_json_is_one_document_on_stdout(server: Cli, tmp_path: Path) -> None:
    task = task_file(tmp_path, "good", BOX, PASSES)

    said = server.run("run", task, "--json", "--tag", "who=ana")

    assert said.code == 0
    assert set(said.json) == GROUP_KEYS
    assert said.json["figures"]["mean"] == 1.0
    (member,) = said.json["members"]
    assert (member["status"], member["tags"]) == ("COMPLETED", {"who": "ana"})


def test_bad_input_starts_nothing(cli: Cli, say: Callable[..., Said], tmp_path: Path) -> None:
    task = task_file(tmp_path, "bad", {"id": "a", "type": "run_kode"}, {"id": "a", "type": "wait"})

    said = say("run", task, "-n", "3")

    assert said.code == 2
    assert said.out == ""
    assert all(line.startswith(f"error: {task}") for line in said.err.splitlines())
    assert not cli.state_dir.exists()


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ({"id": "a", "type": "run_kode"}, "steps[0] 'a': type"),
        ({"id": "a", "type": "wait", "seconds": -1}, "steps[0] 'a'"),
    ],
)
def test_what_only_a_step_knows_is_told_with_its_file(
    step: dict[str, object], place: str, say: Callable[..., Said], tmp_path: Path
) -> None:
    task = task_file(tmp_path, "bad", step)

    said = say("run", task)

    assert said.code == 2
    assert said.err.startswith(f"error: {task}: {place}")


def test_a_bundle_with_several_tasks_needs_a_name(say: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    task_file(tmp_path / "tasks", "one", BOX)
    task_file(tmp_path / "tasks", "two", BOX)

    said = say("run", str(tmp_path))

    assert said.code == 2
    assert "holds 2 tasks; name one of: one, two" in said.err


def test_an_id_that_is_taken_is_a_conflict(server: Cli, tmp_path: Path) -> None:
    task = task_file(tmp_path, "good", BOX, PASSES)
    first = server.run("run", task, "--group", "grp-taken", "--detach", "-o", "none")

    said = server.run("run", task, "--group", "grp-taken", "--json")

    assert (first.code, first.out, first.err) == (0, "", "")
    assert said.code == 4
    assert said.json["error"]["kind"] == "conflict"


def test_detached_needs_a_worker(say: Callable[..., Said], tmp_path: Path) -> None:
    task = task_file(tmp_path, "good", BOX, PASSES)

    said = say("run", task, "--detach", "--json")

    assert said.code == 5
    assert "episodes up" in said.json["error"]["message"]


def test_ctrl_c_cancels_the_group_and_waits_for_its_teardown(cli: Cli, tmp_path: Path) -> None:
    marker = f"sleep 6{os.getpid()}"
    task = task_file(tmp_path, "hang", BOX, {**HANGS, "command": marker})

    with cli.start("run", task, "-n", "2", "--group", "grp-c", ready="RUNNING") as running:
        until(lambda: len(processes_with(marker)) >= 2)
        running.interrupt()
        said = running.ended()

    assert said.code == 6
    assert "canceling…" in said.err
    assert "reward – (0 scored of 2)" in said.out
    assert processes_with(marker) == []
    for number in range(2):
        member = cli.read(f"grp-c-000{number}")
        assert member.status is RunStatus.CANCELED
        assert member.cancel_requested_reason == member.error == "interrupted (Ctrl-C)"
        assert member.still_up == ()


def test_a_second_ctrl_c_leaves_at_once_and_the_group_can_be_ended_later(
    cli: Cli, tmp_path: Path
) -> None:
    task = task_file(tmp_path, "hang", BOX, HANGS)

    with cli.start("run", task, "--group", "grp-2c", ready="RUNNING") as running:
        server = find_running(cli.state_dir)
        assert server is not None
        os.kill(server.pid, signal.SIGSTOP)  # so that the cancel can't get through
        try:
            running.interrupt()
            running.until("canceling…")
            running.interrupt()
            said = running.ended()
        finally:
            os.kill(server.pid, signal.SIGCONT)
    with cli.start("up", ready="serving"):
        ended = cli.run("groups", "cancel", "grp-2c", "--yes", "--wait", "--json")

    assert said.code == 130
    assert "episodes groups cancel grp-2c --yes cancels it" in said.err
    assert ended.code == 0
    assert cli.read("grp-2c-0000").status is RunStatus.CANCELED


def test_enough_scores_end_a_group_and_a_member_can_be_played_again(
    server: Cli, tmp_path: Path
) -> None:
    task = task_file(tmp_path, "good", BOX, PASSES)

    said = server.run("run", task, "-n", "1", "--surplus", "1", "--group", "grp-more")
    again = server.run("groups", "replace", "grp-more", "1", "--json")
    waited = server.run("groups", "wait", "grp-more", "--json")
    wrong = server.run("groups", "replace", "grp-more", "2")

    assert said.err.splitlines()[0] == "grp-more: 2 episodes of good"
    assert again.json["run_id"].startswith("grp-more-0001")
    assert waited.json["members"][1]["run_id"] == again.json["run_id"]
    assert waited.json["members"][1]["status"] == "COMPLETED"
    assert waited.json["figures"]["n"] == 2
    assert wrong.code == 2
    assert wrong.err.strip() == "error: index: the group has members 0 to 1, not '2'"
