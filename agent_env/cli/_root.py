"""The root of the command line: finds the command, runs it, and says how it failed."""

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from agent_env._version import __version__
from agent_env.cli._command import Entry, Group, global_options
from agent_env.cli._exit import BROKEN_PIPE, OutputError, failure_of
from agent_env.cli._session import Format, Session

_EVERYDAY = "Everyday"
_PARTS = "Servers"
_CARE = "Care"

COMMANDS = {
    "run": Entry(
        "run:run", "Play a task as a group of episodes, and watch them to their end.", _EVERYDAY
    ),
    "list": Entry("runs:list_runs", "List runs, newest first.", _EVERYDAY),
    "show": Entry("show:show", "Show everything about one run.", _EVERYDAY),
    "cancel": Entry(
        "cancel:cancel",
        "Ask runs to stop: each ends CANCELED after its sandboxes are gone.",
        _EVERYDAY,
    ),
    "groups": Entry("groups:groups", "List, show, cancel and wait for groups.", _EVERYDAY),
    "task": Entry("task:task", "Check tasks.", _EVERYDAY),
    "up": Entry("worker:up", "Serve episodes on this machine until Ctrl-C.", _PARTS),
    "worker": Entry(
        "worker:worker", "Serve episodes for a Temporal server that runs, until Ctrl-C.", _PARTS
    ),
    "explorer": Entry(
        "explorer:explorer",
        "Serve the explorer, on which runs are watched and canceled, until Ctrl-C.",
        _PARTS,
    ),
    "reconcile": Entry(
        "reconcile:reconcile", "Compare live runs with Temporal, and repair what disagrees.", _CARE
    ),
    "db": Entry("db:db", "Take care of the run index's database.", _CARE),
    "config": Entry("config:config", "Show the settings and where each comes from.", _CARE),
    "doctor": Entry("doctor:doctor", "Check what episodes need on this machine.", _CARE),
}


class _Root(Group):
    """Also notices that whoever read the output has left."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(BROKEN_PIPE)
        return result


@click.command(cls=_Root, entries=COMMANDS, example="episodes run examples/cartpole -n 8")
@click.version_option(__version__, prog_name="episodes", message="%(prog)s %(version)s")
def root() -> None:
    """Durable episodes: play an agent on a task many times, and know how each play ended."""


def main(args: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        args: What follows the program's name; None means this process's own.

    Returns:
        The exit code.
    """
    given = list(sys.argv[1:] if args is None else args)
    session = Session()
    for stream in (sys.stdout, sys.stderr):
        # A terminal that can't show a mark must not turn a result into an error.
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    try:
        code = root.main(given, prog_name="episodes", standalone_mode=False, obj=session)
    except (Exception, KeyboardInterrupt) as error:
        if isinstance(error, click.UsageError):
            session.format = _asked_format(given) or session.format
        return _told(error, session)
    return code if isinstance(code, int) else 0


def run_and_exit() -> NoReturn:
    """Run this process's command and end the process.

    Temporal's core has threads of its own: CPython now and then aborts or hangs when it finalizes
    under them (sdk-python#300). Everything is closed by now, so a process that used Temporal skips
    that.
    """
    _complete_streams()
    code = main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # Nobody takes it, and Python would complain again when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    if "temporalio" in sys.modules:
        os._exit(code)
    sys.exit(code)


def _complete_streams() -> None:
    """Give a process that was started without a standard stream an empty one.

    Else the next file that is opened would take its number.
    """
    for fd, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(fd)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest that is free
            stream = os.fdopen(fd, mode, encoding="utf-8", closefd=False)
            setattr(sys, name, stream)


def _told(error: BaseException, session: Session) -> int:
    failure = failure_of(error)
    lines = failure.lines(debug=session.debug)
    if session.format in (Format.JSON, Format.JSONL):
        # When stdout is what failed, there is stderr.
        with contextlib.suppress(OutputError, BrokenPipeError):
            session.out.document(failure.document(session.run_id))
            lines = iter(failure.trace.splitlines() if session.debug else ())
    session.out.complain(lines)
    return failure.exit_code


def _asked_format(args: Sequence[str]) -> Format | None:
    """The format that a line asks for which is wrong in another place."""
    reader = click.Command(
        "episodes",
        params=list(global_options()),
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
        add_help_option=False,
    )
    found = Session()
    try:
        reader.make_context("episodes", list(args), obj=found)
    except click.UsageError:
        return None
    return found.format
