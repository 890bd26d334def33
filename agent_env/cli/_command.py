"""Commands as this command line has them: global options everywhere, an example in each help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import Any, NamedTuple, cast

import click

from agent_env.cli._session import Color, Format, Session, TimeFormat
from agent_env.errors import unknown_name


def global_options() -> list[click.Option]:
    """Options of every command; the one nearest to the end of the line wins."""
    return [
        _shared("-o", "--output", "format", one_of=Format, help="What to write."),
        _shared("--json", "as_format", flag_value=Format.JSON, help="Short for --output json."),
        _shared("--time-format", one_of=TimeFormat, help="How text shows times."),
        _shared("--color", one_of=Color, help="When to use color."),
        _shared("--state-dir", metavar="DIR", help="State folder, instead of the one that is set."),
        _shared("--database", metavar="URL", help="Run index, instead of the one that is set."),
        _shared("--debug", flag_value=True, help="Show where an error comes from."),
    ]


def _shared(
    *names: str, one_of: type[StrEnum] | None = None, flag_value: object = None, **options: Any
) -> click.Option:
    """An option that is kept in the session under its name."""

    def kept(ctx: click.Context, param: click.Parameter, value: object) -> None:
        if value:
            chosen = flag_value or (one_of(str(value)) if one_of else value)
            setattr(ctx.ensure_object(Session), param.name.removeprefix("as_"), chosen)

    if flag_value is not None:
        options["is_flag"] = True
    if one_of is not None:
        options["type"] = click.Choice([choice.value for choice in one_of])
    return click.Option(names, callback=kept, expose_value=False, **options)


class Command(click.Command):
    """A command with the global options, whose help ends with an example that works."""

    def __init__(self, *args: Any, example: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.example = example
        self.globals = global_options()
        self.params += self.globals

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The command's own options, then the global ones."""
        write_options(self, self.globals, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The example."""
        write_example(self.example, formatter)


class Entry(NamedTuple):
    """A command that is imported when it is used."""

    place: str
    """``module:name``."""
    help: str
    """What a list of commands says of it: the first sentence of its own help."""
    section: str = "Commands"


class Group(click.Group):
    """A noun or the root. Its commands are imported when they are used.

    A bare noun does what its ``default`` command does.
    """

    def __init__(
        self,
        *args: Any,
        example: str,
        entries: Mapping[str, Entry],
        default: str | None = None,
        **attributes: Any,
    ) -> None:
        attributes.setdefault("invoke_without_command", default is not None)
        attributes.setdefault("no_args_is_help", default is None)
        super().__init__(*args, **attributes)
        self.example = example
        self.entries = entries
        self.default = default
        self.globals = global_options()
        self.params += self.globals

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the table, the everyday ones first."""
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self.entries:
            return None
        module, _, name = self.entries[cmd_name].place.partition(":")
        return cast(click.Command, getattr(import_module(f"agent_env.cli.{module}"), name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; for one that is unknown, say which it could be."""
        if not ctx.resilient_parsing and args[0] not in self.entries:
            raise click.UsageError(unknown_name("command", args[0], self.entries), ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command that was named, or the default one."""
        result = super().invoke(ctx)
        if self.default is None or ctx.invoked_subcommand is not None:
            return result
        command = self.get_command(ctx, self.default)
        assert command is not None
        with command.make_context(self.default, [], parent=ctx) as inner:
            return command.invoke(inner)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section, then the options."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.entries.items():
            sections.setdefault(entry.section, []).append((name, entry.help))
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        write_options(self, self.globals, ctx, formatter)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The example."""
        write_example(self.example, formatter)


def write_options(
    command: click.Command,
    shared: Sequence[click.Option],
    ctx: click.Context,
    formatter: click.HelpFormatter,
) -> None:
    """Two lists: what is this command's own, and what every command has."""
    own = [
        param
        for param in command.get_params(ctx)
        if isinstance(param, click.Option) and param not in shared
    ]
    for title, params in (("Options", own), ("Global options", shared)):
        rows = [row for param in params if (row := param.get_help_record(ctx)) is not None]
        if rows:
            with formatter.section(title):
                formatter.write_dl(rows)


def write_example(example: str, formatter: click.HelpFormatter) -> None:
    """Last in a help, ready to be copied."""
    with formatter.section("Example"):
        formatter.write(f"{'':>{formatter.current_indent}}{example}\n")  # whole, to be copied
