"""Writes results to stdout and words for people to stderr."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, TextIO

from agent_env.cli._exit import OutputError
from agent_env.cli._session import Color, Format, TimeFormat

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

Lines = Callable[[], "Iterable[Text]"]
"""Makes the text of a result. Called only when text is asked for, since it needs rich."""


class Output:
    """One command's results and words.

    Args:
        format: What results are written as.
        time_format: How text shows moments.
        color: When text is colored.
        options: What commands that are named to a person need to reach the same place.
    """

    def __init__(
        self,
        format: Format,
        time_format: TimeFormat,
        color: Color,
        *,
        options: Sequence[str] = (),
    ) -> None:
        self.format = format
        self.time_format = time_format
        self._color = color
        self._options = options

    def document(self, data: Mapping[str, object], text: Lines | None = None) -> None:
        """Write one result."""
        if self.format is Format.JSON:
            self._write(json.dumps(data, ensure_ascii=False, indent=2))
        elif self.format is Format.JSONL:
            self._write(json.dumps(data, ensure_ascii=False))
        elif self.format is Format.TEXT and text is not None:
            with _written():
                self._print(self.console, text())

    def items(
        self, items: Sequence[Mapping[str, object]], text: Lines, *, next: str | None = None
    ) -> None:
        """Write a list.

        Args:
            items: What is on this page.
            text: The same for a person.
            next: Cursor of the next page; None when this is all.
        """
        if self.format is Format.JSONL:
            for item in items:
                self._write(json.dumps(item, ensure_ascii=False))
        else:
            self.document({"items": items, "next": next, "truncated": next is not None}, text)
        if next is not None and self.format in (Format.TEXT, Format.JSONL):
            self.complain([f"there are more: the same command with --after {next}"])

    def hint(self, *arguments: str) -> None:
        """Name the next useful command, for a person."""
        if self.format is Format.TEXT:
            self.complain(["", f"next: {self.command(*arguments)}"])

    def command(self, *arguments: str) -> str:
        """A command as it can be pasted into a shell."""
        return shlex.join(["episodes", *self._options, *arguments])

    def remark(self, line: str) -> None:
        """Say what a result means, to a person who reads it as text."""
        if self.format is Format.TEXT:
            self.complain([line])

    def say(self, line: Text | str) -> None:
        """Write a word on what is going on."""
        if self.format is not Format.NONE:
            with suppress(OSError):  # what goes on is no less true when nobody can read it
                self._print(self.side_console, [line])

    def complain(self, lines: Iterable[str]) -> None:
        """Write lines to stderr, whatever the format is."""
        with suppress(OSError):
            for line in lines:
                sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    @cached_property
    def console(self) -> Console:
        """Where results go."""
        return self._console(sys.stdout)

    @cached_property
    def side_console(self) -> Console:
        """Where everything else goes."""
        return self._console(sys.stderr)

    @property
    def is_live(self) -> bool:
        """Whether progress may be drawn and redrawn."""
        return self.format is not Format.NONE and self.side_console.is_terminal

    def _console(self, file: TextIO) -> Console:
        from rich.console import Console

        class Plain(Console):
            """Leaves it to the root of the command line that the reader has left."""

            def on_broken_pipe(self) -> None:
                raise BrokenPipeError

        never = self._color is Color.NEVER
        return Plain(
            file=file,
            color_system=None if never else "auto",
            force_terminal=True if self._color is Color.ALWAYS else None,
            no_color=False if self._color is Color.ALWAYS else None,
            highlight=False,
            markup=False,
            emoji=False,
        )

    def _print(self, console: Console, lines: Iterable[Text | str]) -> None:
        # In a file or a pipe nothing is cut or wrapped: a line there is a fact.
        whole = not console.file.isatty()
        for line in lines:
            if whole:
                console.print(line, soft_wrap=True, overflow="ignore")
            else:
                console.print(line)
        console.file.flush()

    def _write(self, line: str) -> None:
        with _written():
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()


@contextmanager
def _written() -> Generator[None]:
    """Say of a result that can't be written that it is this, and not what it was about."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"the output can't be written: {error.strerror}") from error
