"""The documentation is complete and true: all is mentioned, and what can be run is run."""

import ast
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Generator, Iterator
from pathlib import Path

import click
import pytest

import agent_env
from agent_env.cli._root import root
from agent_env.cli._session import Session
from agent_env.config import ENV_PREFIX, Settings, load_settings
from agent_env.episode import EpisodeSpec
from agent_env.processes import Isolation
from agent_env.results import EpisodeResult
from agent_env.sandboxes import Providers
from agent_env.status import RunStatus
from agent_env.steps import Steps
from agent_env.task import StepSpec, Task
from agent_env.task_files import load_task
from agent_env.trainer import Trainer
from tests.pages import (
    HOW_TO,
    PAGES,
    README,
    ROOT,
    Block,
    anchors,
    blocks,
    laid_out,
    prose,
    section,
    text_of,
)

ALL = [block for page in PAGES for block in blocks(page)]
SCRIPTS = [block for block in ALL if block.is_script]
PLAYED = [HOW_TO / "tasks.md", HOW_TO / "sandboxes.md", HOW_TO / "extend.md"]
EVERYTHING = "\n".join(map(text_of, PAGES))


def test_every_setting_is_explained() -> None:
    page = text_of(HOW_TO / "settings.md")

    for name in Settings.model_fields:
        assert f"| `{name}` |" in page
        assert f"`{ENV_PREFIX}{name.upper()}`" in page


@pytest.mark.parametrize("type", Steps().known)
def test_every_step_type_is_explained_with_all_its_fields(type: str) -> None:
    text = section(HOW_TO / "tasks.md", f"`{type}`")

    fields = Steps().open(type).params.model_fields
    rows = "".join(re.findall(r"^\| (.*?) \|", text, re.MULTILINE))
    assert [name for name in fields if f"`{name}`" not in rows] == []
    assert f"type: {type}" in text, "there is no example"


@pytest.mark.parametrize(
    ("title", "model"), [("Fields of a task", Task), ("Fields of every step", StepSpec)]
)
def test_every_field_of_a_task_is_explained(title: str, model: type[Task | StepSpec]) -> None:
    text = section(HOW_TO / "tasks.md", title)

    assert [name for name in model.model_fields if f"| `{name}` |" not in text] == []


def test_every_provider_and_isolation_is_explained(tmp_path: Path) -> None:
    page = text_of(HOW_TO / "sandboxes.md")

    known = Providers(tmp_path).known
    assert [name for name in known if f"## The `{name}` provider" not in page] == []
    assert [name for name in Isolation if f"| `{name}` |" not in page] == []


def test_every_public_name_exists_and_is_mentioned() -> None:
    public = sorted(set(agent_env.__all__) - {"__version__"})

    assert [name for name in public if getattr(agent_env, name, None) is None] == []
    assert [name for name in public if not re.search(rf"\b{name}\b", EVERYTHING)] == []


def test_every_command_is_mentioned() -> None:
    found = list(commands(root))

    assert "episodes groups wait" in found
    assert [name for name in found if not re.search(rf"{name}\b", EVERYTHING)] == []


def commands(group: click.Group, path: str = "episodes") -> Iterator[str]:
    """Every command that does something, as it is typed."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


COMMAND_LINES = [
    pytest.param(found[1], id=f"{block}: {found[1]}")
    for block in ALL
    if block.language in ("text", "shell")
    for line in block.text.splitlines()
    if (found := re.match(r"(?:\$ )?(?:\w+=\S+ )*episodes (.*)", line))
]


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_a_command_line_is_understood(line: str) -> None:
    command, name, words = resolved(line)

    command.make_context(name, words, obj=Session())


def test_commands_that_a_text_names_exist() -> None:
    for page in PAGES:
        for line in re.findall(r"`episodes ([^`]+)`", prose(page)):
            resolved(line)


def resolved(line: str) -> tuple[click.Command, str, list[str]]:
    """The command that a line calls, its name, and what follows it."""
    words = shlex.split(line, comments=True)
    command, name = root, "episodes"
    while isinstance(command, click.Group) and words:
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"there is no command {name!r}"
        command = found
    return command, name, words


def test_every_guarantee_has_a_test() -> None:
    _, _, table = text_of(README).partition("| guarantee | test |\n")
    rows = [line for line in table.partition("\n\n")[0].splitlines()[1:] if line]
    named = [re.search(r"\| \[`(\w+)`\]\(([\w./]+)\) \|$", row) for row in rows]

    assert len(rows) > 20
    assert [row for row, found in zip(rows, named, strict=True) if found is None] == []
    missing = [found[1] for found in named if found and found[1] not in functions(ROOT / found[2])]
    assert missing == []


def functions(path: Path) -> set[str]:
    """Names of the functions in a file."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(text_of(path))) if isinstance(node, kinds)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target:
            continue
        place, _, anchor = target.partition("#")
        path = (page.parent / place).resolve() if place else page
        assert path.exists(), target
        assert path.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(path), target


def test_settings_files_are_read(tmp_path: Path) -> None:
    file = laid_out(HOW_TO / "settings.md", tmp_path) / "episodes.toml"

    loaded = load_settings(cwd=tmp_path, environ={})

    for name in tomllib.loads(text_of(file)):
        assert loaded.sources[name] == str(file)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page on plugins shows, as if it were installed."""
    folder = laid_out(HOW_TO / "extend.md", tmp_path_factory.mktemp("plugins"))
    project = tomllib.loads(text_of(folder / "pyproject.toml"))["project"]
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines: list[str] = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def served(plugins: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A state folder that ``episodes up`` serves, with the plugins installed."""
    state_dir = tmp_path_factory.mktemp("served")
    log = state_dir / "up.log"
    with log.open("w") as said:
        argv = [sys.executable, "-m", "agent_env.cli", "up"]
        env = environment(state_dir, PYTHONPATH=str(plugins))
        process = subprocess.Popen(argv, env=env, stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + 60
        while "serving" not in text_of(log):
            assert process.poll() is None, text_of(log)
            assert time.monotonic() < deadline, text_of(log)
            time.sleep(0.02)
        yield state_dir
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0, text_of(log)


def environment(state_dir: Path, **more: str) -> dict[str, str]:
    """This process's environment, without what would lead elsewhere."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith((ENV_PREFIX, "TEMPORAL_"))}
    return {**kept, "EPISODES_STATE_DIR": str(state_dir), **more}


async def played(page: Path, folder: Path, state_dir: Path) -> dict[str, EpisodeResult]:
    """How each task of a page ended, by its file."""
    laid_out(page, folder)
    tasks = {block.file: load_task(folder / block.file) for block in blocks(page) if block.is_task}
    specs = {file: EpisodeSpec.from_task(task, seed={"seed": "3"}) for file, task in tasks.items()}
    async with Trainer.connect(Settings(state_dir=state_dir)) as trainer:
        episodes = {file: await trainer.start(spec) for file, spec in specs.items()}
        for file, spec in specs.items():
            for _ in spec.prompts:
                turn = await episodes[file].next_turn()
                assert turn is not None
                await turn.end("done")
        return {file: await episode.result() for file, episode in episodes.items()}


@pytest.mark.parametrize("page", PLAYED, ids=lambda page: page.name)
async def test_the_tasks_of_a_page_are_played(
    page: Path, served: Path, plugins: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (name for name in os.environ if name.startswith("TEMPORAL_")):
        monkeypatch.delenv(name)
    monkeypatch.syspath_prepend(str(plugins))

    ended = await played(page, tmp_path, served)

    assert {file: result.error for file, result in ended.items()} == dict.fromkeys(ended)
    assert {result.status for result in ended.values()} == {RunStatus.COMPLETED}
    # A step that scores is there for its score.
    assert [file for file, result in ended.items() if None in result.scores.values()] == []
    if "essay.yaml" in ended:
        assert ended["essay.yaml"].reward == 0.75


def test_every_task_is_on_a_page_whose_tasks_are_played() -> None:
    assert [str(block) for block in ALL if block.is_task and block.page not in PLAYED] == []


@pytest.fixture(scope="module")
def running(served: Path) -> Generator[dict[str, subprocess.Popen[str]]]:
    """Every script, all at once: most of what they do is wait."""
    started = {
        str(script): subprocess.Popen(
            [sys.executable, "-c", script.text],
            cwd=ROOT,
            env=environment(served),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for script in SCRIPTS
    }
    yield started
    for process in started.values():
        with process:
            process.kill()


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_a_script_runs(script: Block, running: dict[str, subprocess.Popen[str]]) -> None:
    said, _ = running[str(script)].communicate(timeout=100)

    assert running[str(script)].returncode == 0, said


def test_the_plugins_of_the_page_pass_their_contracts(plugins: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "tests"],
        cwd=plugins,
        env=environment(tmp_path, PYTHONPATH=str(plugins)),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout
