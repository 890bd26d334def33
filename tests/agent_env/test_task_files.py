import json
import os
from pathlib import Path

import pytest

from agent_env.errors import InvalidSpecError
from agent_env.task_files import load_task, load_tasks

STEPS = [{"id": "a", "type": "x"}]


def put(path: Path, data: object = STEPS) -> Path:
    """Write a JSON file, and the folders it needs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def folder(path: Path) -> str:
    """Make a folder with a file in it; its path."""
    put(path / "data.txt", "content")
    return str(path)


def refused(path: Path, name: str | None = None) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        load_task(path, name)
    return str(caught.value)


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """Three tasks in the three formats, two artifacts, and files that are neither."""
    root = tmp_path / "bundle"
    put(root / "tasks/hello.json")
    put(root / "tasks/more/deep.yaml", "- {id: a, type: x}\n")
    put(root / "tasks/named.toml", 'id = "own name"\n[[steps]]\nid = "a"\ntype = "x"\n')
    put(root / "tasks/README.md", "not a task")
    folder(root / "artifacts/repo")
    folder(root / "artifacts/.hidden")
    put(root / "artifacts/note.txt", "a file is no artifact")
    return root


def test_a_bundle_holds_its_tasks_by_their_path_and_its_artifacts(bundle: Path) -> None:
    tasks = load_tasks(bundle)

    assert [task.id for task in tasks] == ["hello", "more/deep", "own name"]
    for task in tasks:
        assert task.artifacts == {"repo": str(bundle / "artifacts/repo")}
        assert [step.id for step in task.steps] == ["a"]


@pytest.mark.parametrize("file", ["hello.json", "more/deep.yaml", "named.toml"])
def test_a_task_of_a_bundle_is_the_same_when_it_is_loaded_alone(bundle: Path, file: str) -> None:
    alone = load_task(bundle / "tasks" / file)

    assert alone == load_task(bundle, alone.id)


def test_relative_paths_are_taken_from_the_working_directory(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = load_tasks(bundle)
    monkeypatch.chdir(bundle / "tasks")

    assert load_tasks(Path("..")) == expected
    assert load_task(Path("more/deep.yaml")) == expected[1]


def test_a_folder_with_a_task_file_is_a_task_of_the_folders_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "cartpole/task.json")
    repo = folder(tmp_path / "cartpole/artifacts/repo")

    of_folder = load_task(tmp_path / "cartpole")
    monkeypatch.chdir(tmp_path / "cartpole")

    assert (of_folder.id, of_folder.artifacts) == ("cartpole", {"repo": repo})
    assert load_task(Path("task.json")) == of_folder
    assert load_task(Path()) == of_folder


def test_a_single_file_is_a_task_of_its_name(tmp_path: Path) -> None:
    assert load_task(put(tmp_path / "日本 x.json")).id == "日本 x"


def test_artifacts_that_a_file_names_start_at_the_file(tmp_path: Path) -> None:
    stored = "sha256:" + "0" * 64
    given = folder(tmp_path / "elsewhere")
    beside = folder(tmp_path / "b/artifacts/beside")
    folder(tmp_path / "b/artifacts/replaced")
    file = put(
        tmp_path / "b/tasks/t.json",
        {
            "steps": STEPS,
            "artifacts": {"near": "../../elsewhere", "replaced": given, "kept": stored},
        },
    )

    assert load_task(file).artifacts == {
        "beside": beside,
        "near": given,
        "replaced": given,
        "kept": stored,
    }


def test_an_artifact_that_is_not_there_is_named(tmp_path: Path) -> None:
    file = put(tmp_path / "t.json", {"steps": STEPS, "artifacts": {"repo": "../gone"}})

    said = refused(file)

    assert said == (
        f"{file}: artifacts.repo: there is no {tmp_path.parent / 'gone'}; paths start at the file"
    )


def test_what_is_wrong_with_any_file_of_a_bundle_is_said_at_once(bundle: Path) -> None:
    put(bundle / "tasks/broken.json", '{"id": NaN}')
    put(bundle / "tasks/odd.json", {"steps": [{"id": "a", "type": "x", "depends_on": ["b"]}]})

    lines = refused(bundle).splitlines()

    assert lines[0].startswith(f"{bundle / 'tasks/broken.json'}: id: a number must be finite")
    assert lines[1].startswith(f"{bundle / 'tasks/odd.json'}: steps[0] 'a': depends_on: there is")
    assert len(lines) == 2


def test_two_files_with_one_id_are_refused(tmp_path: Path) -> None:
    first = put(tmp_path / "tasks/a.json")
    second = put(tmp_path / "tasks/a.yaml", "- {id: a, type: x}")

    assert refused(tmp_path) == f"{second}: id: {first} has the id 'a' too; change one"


def test_one_of_several_tasks_must_be_named(bundle: Path) -> None:
    assert refused(bundle) == f"{bundle}: holds 3 tasks; name one of: hello, more/deep, own name"
    assert refused(bundle, "helo") == (
        f"{bundle}: unknown task 'helo': did you mean 'hello'? Known: hello, more/deep, own name"
    )
    assert load_task(bundle, "own name").id == "own name"


def test_a_single_task_must_match_a_name_that_is_given(tmp_path: Path) -> None:
    file = put(tmp_path / "hello.json")

    assert load_task(file, "hello").id == "hello"
    assert "unknown task 'other'; known: hello" in refused(file, "other")


@pytest.mark.parametrize("data", ["null", '"text"', "3"])
def test_a_file_that_holds_no_task_is_refused(tmp_path: Path, data: str) -> None:
    file = put(tmp_path / "t.json", data)

    assert refused(file) == f"{file}: a task is an object with steps, or a list of steps"


def test_an_unknown_field_is_answered_with_the_nearest(tmp_path: Path) -> None:
    file = put(tmp_path / "t.json", {"steps": STEPS, "rewards": "a"})

    assert f"{file}: rewards: unknown key 'rewards': did you mean 'reward'?" in refused(file)


def test_a_missing_file_is_answered_with_near_names(tmp_path: Path) -> None:
    put(tmp_path / "hello.json")
    put(tmp_path / "zebra.json")

    assert refused(tmp_path / "helo.json") == (
        f"{tmp_path / 'helo.json'}: there is no such file or folder; did you mean 'hello.json'?"
    )
    assert refused(tmp_path / "q").endswith("there is no such file or folder")
    assert refused(tmp_path / "no/hello.json").endswith(f"there is no folder {tmp_path / 'no'}")


def test_a_link_that_leads_nowhere_is_told_from_a_missing_file(tmp_path: Path) -> None:
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("nowhere.json")

    for name in ("loop.json", "gone.json"):
        assert (
            refused(tmp_path / name) == f"{tmp_path / name}: is a link that leads nowhere; mend it"
        )


def test_a_folder_without_a_task_says_how_to_add_one(tmp_path: Path) -> None:
    assert "holds no task; add a task.json" in refused(tmp_path)

    put(tmp_path / "tasks/README.md", "nothing here")

    assert "the bundle has no task; add one as tasks/*.{json,toml,yaml,yml}" in refused(tmp_path)


def test_a_folder_with_two_task_files_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "task.json")
    put(tmp_path / "task.yaml", "- {id: a, type: x}")

    assert "has several task files, task.json, task.yaml; keep one" in refused(tmp_path)


def test_what_is_neither_file_nor_folder_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)

    assert refused(pipe) == f"{pipe}: is neither a file nor a folder; name one"


def test_a_name_that_the_system_refuses_is_an_answer_too(tmp_path: Path) -> None:
    assert "can't be read: File name too long" in refused(tmp_path / ("x" * 5000))
