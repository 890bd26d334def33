"""agent_env/cli/_root.py and _command.py."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from agent_env.cli._command import Command, Group
from agent_env.cli._root import root
from agent_env.cli._session import Session
from agent_env.status import RunStatus
from tests.agent_env.cli.stage import BOX, PASSES, Cli, Said, task_file

HEAVY = ("temporalio", "sqlalchemy", "pydantic", "rich", "ruamel", "asyncio")


def every_command(
    command: click.Command = root, *path: str
) -> Iterator[tuple[tuple[str, ...], Command | Group]]:
    """Each command with the words that lead to it, the root first."""
    assert isinstance(command, Command | Group)
    yield path, command
    if isinstance(command, Group):
        for name in command.entries:
            found = command.get_command(click.Context(command), name)
            assert found is not None
            yield from every_command(found, *path, name)


COMMANDS = dict(every_command())


def test_every_command_that_the_design_names_is_there() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "",
        "run",
        "list",
        "show",
        "cancel",
        "groups",
        "groups list",
        "groups show",
        "groups cancel",
        "groups replace",
        "groups wait",
        "task",
        "task check",
        "up",
        "worker",
        "explorer",
        "reconcile",
        "db",
        "db upgrade",
        "config",
        "config show",
        "doctor",
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_ends_with_one_example(path: tuple[str, ...], say: Callable[..., Said]) -> None:
    said = say(*path, "--help")

    assert said.code == 0
    assert said.out.rstrip().endswith(COMMANDS[path].example)
    assert said.out.count("Example:") == 1


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_example_parses(path: tuple[str, ...]) -> None:
    words = shlex.split(COMMANDS[path].example)
    while "=" in words[0]:  # a variable for this command
        words.pop(0)

    assert words.pop(0) == "episodes"
    assert tuple(words[: len(path)]) == path
    command = COMMANDS[path]
    parsed = command.make_context(" ".join(path), words[len(path) :], obj=Session())
    assert parsed.command is command


def test_lists_of_commands_say_what_the_commands_say_of_themselves() -> None:
    for command in COMMANDS.values():
        if not isinstance(command, Group):
            continue
        for name, entry in command.entries.items():
            found = command.get_command(click.Context(command), name)
            assert found is not None
            assert found.help is not None
            assert " ".join(re.split(r"(?<=\.)\s", found.help)[0].split()) == entry.help


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(option: str) -> None:
    code = f"""
import sys
from agent_env.cli import main
main([{option!r}])
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stderr.strip() == "[]"
    assert done.stdout


def test_a_reading_command_does_not_import_temporal(cli: Cli) -> None:
    code = f"""
import sys
from agent_env.cli import main
code = main(["--state-dir", {str(cli.state_dir)!r}, "list", "--json"])
print(code, [name for name in ("temporalio", "alembic") if name in sys.modules], file=sys.stderr)
"""
    assert cli.run("list").code == 0  # makes the database

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )

    assert done.stderr.strip() == "0 []"


def test_an_unknown_command_is_answered_with_the_nearest_one(say: Callable[..., Said]) -> None:
    said = say("lsit")

    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("error: unknown command 'lsit': did you mean 'list'? Known: ")


@pytest.mark.parametrize(
    "line",
    [
        ("list", "--nonsense", "--json"),
        ("--json", "list", "--nonsense"),
        ("nonsense", "-o", "json"),
        ("list", "--limit", "0", "-ojson"),
        ("run", "--output=json"),
    ],
)
def test_a_wrong_line_that_asks_for_json_is_answered_in_json(
    line: tuple[str, ...], say: Callable[..., Said]
) -> None:
    said = say(*line)

    assert said.code == 2
    assert said.json["error"] == {
        "kind": "usage",
        "message": said.json["error"]["message"],
        "type": "Usage",
        "run_id": None,
    }
    assert said.json["error"]["message"]
    assert said.err == ""


def test_global_options_count_before_and_after_the_command(cli: Cli) -> None:
    before = cli.run("--json", "--state-dir", str(cli.state_dir / "other"), "config")
    after = cli.run("config", "show", "--json", "--state-dir", str(cli.state_dir / "other"))

    assert before.json == after.json
    assert before.json["items"][0] == {
        "name": "state_dir",
        "value": str(cli.state_dir / "other"),
        "source": "option",
    }


def test_the_option_nearest_to_the_end_wins(say: Callable[..., Said]) -> None:
    said = say("--json", "config", "show", "-o", "jsonl")

    assert len(said.out.splitlines()) > 1
    assert all(json.loads(line)["name"] for line in said.out.splitlines())


def in_shell(cli: Cli, command: str) -> Said:
    """A line of a shell, in which ``episodes`` is this command line on this state folder."""
    episodes = f"{shlex.quote(sys.executable)} -m agent_env.cli"
    done = subprocess.run(
        command.replace("episodes", episodes),
        shell=True,
        executable="/bin/bash",
        env={**os.environ, "EPISODES_STATE_DIR": str(cli.state_dir)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("options", ["", "--json"])
def test_a_reader_that_leaves_is_no_error(cli: Cli, options: str) -> None:
    said = in_shell(cli, f"episodes config {options} | true; exit ${{PIPESTATUS[0]}}")

    assert said.code == 141
    assert said.err == ""


@pytest.mark.parametrize("command", ["config", "config --json", "show nobody --json"])
def test_output_that_cannot_be_written_is_told_on_stderr(cli: Cli, command: str) -> None:
    said = in_shell(cli, f"episodes {command} > /dev/full")

    assert said.code == (3 if "nobody" in command else 70)
    assert said.err.startswith("error: ")
    assert said.err.count("\n") == 1
    assert "nobody" in command or "the output can't be written: No space left" in said.err


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_stream_that_is_closed_or_full_keeps_no_episode_from_its_end(
    cli: Cli, tmp_path: Path, closed: str
) -> None:
    task = task_file(tmp_path, "good", BOX, PASSES)

    said = in_shell(cli, f"episodes run {shlex.quote(task)} --group grp-quiet {closed}")

    assert said.code == 0, said.err
    assert cli.read("grp-quiet-0000").status is RunStatus.COMPLETED


def test_a_terminal_without_unicode_still_gets_its_result(cli: Cli) -> None:
    narrow = Cli(cli.state_dir, {"PYTHONIOENCODING": "ascii"})

    said = narrow.run("doctor")

    assert said.code == 0
    assert "\\u2713 ok" in said.out
