"""agent_env/cli/task.py."""

from collections.abc import Callable
from pathlib import Path

from tests.agent_env.cli.stage import BOX, FAILS, PASSES, Said, task_file


def test_a_good_task_shows_its_segments_and_its_reward(
    say: Callable[..., Said], tmp_path: Path
) -> None:
    wait = {"id": "rest", "type": "wait", "seconds": 5}
    path = task_file(tmp_path, "good", BOX, wait, PASSES)

    text, data = say("task", "check", path), say("task", "check", path, "--json")

    assert (text.code, data.code) == (0, 0)
    assert text.out.splitlines() == [
        "✓ good v1",
        "  segment 1: box (deploy_sandbox)",
        "  segment 2: rest (wait)",
        "  segment 3: score (run_code)",
        "  reward: the score of score",
    ]
    assert text.err.rstrip().endswith(f"run {path}")
    assert data.json["items"] == [
        {
            "task_id": "good",
            "task_version": "1",
            "ok": True,
            "reward": "score",
            "segments": [["box"], ["rest"], ["score"]],
            "problems": [],
        }
    ]


def test_every_problem_is_named_with_its_place(say: Callable[..., Said], tmp_path: Path) -> None:
    path = task_file(
        tmp_path,
        "bad",
        {"id": "a", "type": "run_kode"},
        {"id": "b", "type": "run_code", "comand": "x"},
    )

    text, data = say("task", "check", path), say("task", "check", path, "--json")

    (item,) = data.json["items"]
    assert (text.code, data.code) == (2, 2)
    assert (item["ok"], item["segments"]) == (False, [])
    places = [problem["where"] for problem in item["problems"]]
    assert any(place.startswith("steps[0] 'a'") for place in places)
    assert any(place.startswith("steps[1] 'b'") for place in places)
    assert "did you mean 'run_code'?" in text.out


def test_each_task_of_a_bundle_is_checked(say: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    task_file(tmp_path / "tasks", "one", BOX, PASSES)
    task_file(tmp_path / "tasks", "two", BOX, {**FAILS, "type": "nonsense"})

    both = say("task", "check", str(tmp_path), "--json")
    one = say("task", "check", str(tmp_path), "--name", "one", "--json")

    assert both.code == 2
    assert [(item["task_id"], item["ok"]) for item in both.json["items"]] == [
        ("one", True),
        ("two", False),
    ]
    assert (one.code, len(one.json["items"])) == (0, 1)


def test_a_file_that_can_not_be_read_is_an_error(say: Callable[..., Said], tmp_path: Path) -> None:
    (tmp_path / "twice.json").write_text('{"steps": [], "steps": []}', encoding="utf-8")

    missing = say("task", "check", str(tmp_path / "none.json"), "--json")
    twice = say("task", "check", str(tmp_path / "twice.json"), "--json")

    assert (missing.code, twice.code) == (2, 2)
    assert missing.json["error"]["type"] == "InvalidSpec"
    assert "is given twice" in twice.json["error"]["message"]
