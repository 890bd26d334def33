"""Names that a file system, a shell or a page could trip over, through a real worker."""

import json
from pathlib import Path

import pytest

from agent_env import ids
from agent_env.runs import RunFilter
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product
from tests.end_to_end.stage import box, command, python, sandbox_folders, spec

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("worker")]

NAMES = ["a/b c", "日本", "..", "<script>", "-rf", "'\"$(x)`;*", "%2F?#&", "{x} [red]", "e\u0301"]
LONGEST = "x" * (ids.MAX_ID_CHARS - 1) + "é"
LONGEST_GROUP = LONGEST[-ids.MAX_GROUP_ID_CHARS :]


@pytest.mark.parametrize("name", [*NAMES, LONGEST])
async def test_any_name_of_a_run_a_task_and_a_step_is_kept_from_start_to_cancel(
    shared: Product, name: str
) -> None:
    """L11."""
    cli = shared.cli()
    hangs = spec(
        box(id=f"{name[:-1]}1", sandbox_name=name),
        command(name, "echo $HOME > here; sleep 600", sandbox_name=name),
        task_id=name,
    )
    episode = await shared.trainer.start(hangs, run_id=name, run_group_id=f"group of {name[:20]}")
    await shared.until(lambda: shared.index.get(name).current_step == name)

    listed = cli.run("list", f"--task={name}", "--json").json
    shown = cli.run("show", "--json", "--", name).json
    as_text = cli.run("show", "--", name)
    asked = cli.run("cancel", "--json", "--", name).json
    result = await episode.result()

    assert [item["run_id"] for item in listed["items"]] == [name]
    assert (shown["run_id"], shown["task_id"], shown["current_step"]) == (name, name, name)
    assert as_text.code == 0
    assert name in as_text.out
    assert [item["target"] for item in asked["items"]] == [name]
    assert (result.run_id, result.task_id, result.status) == (name, name, RunStatus.CANCELED)
    assert [step.step_id for step in shared.index.steps(name)] == [f"{name[:-1]}1", name]
    assert sandbox_folders(shared) == []


@pytest.mark.parametrize("name", [*NAMES, LONGEST_GROUP])
async def test_any_name_of_a_group_is_kept_from_start_to_cancel(shared: Product, name: str) -> None:
    """L11."""
    cli = shared.cli()
    name = f"{name[:-1]}g"
    members = [ids.member_id(name, index) for index in range(2)]
    hangs = spec(box(), command("hang", "sleep 600"))
    group = await shared.trainer.start_group(hangs, size=2, run_group_id=name)

    listed = cli.run("groups", "list", "--json").json
    shown = cli.run("groups", "show", "--json", "--", name).json
    asked = cli.run("groups", "cancel", "--yes", "--json", "--", name)
    result = await group.result()

    assert name in [item["run_group_id"] for item in listed["items"]]
    assert (shown["run_group_id"], [one["run_id"] for one in shown["members"]]) == (name, members)
    assert asked.code == 0
    assert [member.run_id for member in result.members] == members
    assert {member.status for member in result.members} == {RunStatus.CANCELED}


async def test_any_name_of_a_task_file_and_its_folder_can_be_played(
    shared: Product, tmp_path: Path
) -> None:
    """L11."""
    folder = tmp_path / "a b" / "日本 <script>"
    folder.mkdir(parents=True)
    (folder / "it's $HOME.json").write_text(json.dumps([python("one", "returns_true", score=True)]))

    said = shared.cli().run("run", str(folder / "it's $HOME.json"), "--json")

    assert said.code == 0
    (run,) = shared.index.page(RunFilter(task_id="it's $HOME")).runs
    assert (run.status, run.reward) == (RunStatus.COMPLETED, 1.0)


@pytest.mark.parametrize(
    ("text", "place", "cure"),
    [
        ('{"id": "x", "id": "y", "steps": []}', "id", "is given twice; keep one"),
        ('[{"id": "w", "type": "wait", "seconds": NaN}]', "[0].seconds", "use a finite one"),
        ('{"steps": [{"id": "w", "type": "wait", "seconds": 1}], "rewad": "w"}', "rewad", "reward"),
        ('[{"id": "w", "type": "wait", "secs": 1}]', "'w'", "seconds"),
        ('[{"id": "w", "type": "wiat", "seconds": 1}]', "'w': type", "did you mean 'wait'?"),
    ],
)
async def test_a_mistake_in_a_task_file_is_refused_with_place_and_cure(
    shared: Product, tmp_path: Path, text: str, place: str, cure: str
) -> None:
    """L12."""
    path = tmp_path / "mistake.json"
    path.write_text(text)

    said = shared.cli().run("run", str(path))

    assert said.code == 2
    assert said.err.startswith(f"error: {path}: ")
    assert place in said.err
    assert cure in said.err
    assert shared.index.page(RunFilter(task_id="mistake")).runs == ()
