"""What one call of the command line works with. Imports nothing heavy: see ``episodes --help``."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent_env.cli._output import Output
    from agent_env.config import LoadedSettings, Settings
    from agent_env.runs import RunIndex


class Format(StrEnum):
    """What results are written as."""

    TEXT = "text"
    JSON = "json"
    JSONL = "jsonl"
    NONE = "none"


class TimeFormat(StrEnum):
    """How text shows a moment."""

    RELATIVE = "relative"
    ISO = "iso"
    RAW = "raw"
    """Seconds since 1970."""


class Color(StrEnum):
    """When text is colored."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass
class Session:
    """The options that every command has, and what they lead to."""

    format: Format = Format.TEXT
    time_format: TimeFormat = TimeFormat.RELATIVE
    color: Color = Color.AUTO
    debug: bool = False
    state_dir: str | None = None
    database: str | None = None
    more: Mapping[str, object] = field(default_factory=dict[str, object])
    """Settings that options of this command give."""
    run_id: str | None = None
    """The run that the command is about, for its errors."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the command was given."""

    @cached_property
    def out(self) -> Output:
        """Where results and words go."""
        from agent_env.cli._output import Output

        options: list[str] = []
        if self.state_dir is not None:
            options += ["--state-dir", self.state_dir]
        if self.database is not None and "@" not in self.database:  # may hold a password
            options += ["--database", self.database]
        return Output(self.format, self.time_format, self.color, options=options)

    @cached_property
    def loaded(self) -> LoadedSettings:
        """The settings, and where each came from.

        Raises:
            ConfigError: a value can't be used.
        """
        from agent_env.config import load_settings

        return load_settings({"state_dir": self.state_dir, "database": self.database, **self.more})

    @property
    def settings(self) -> Settings:
        """The settings alone; errors are those of ``loaded``."""
        return self.loaded.settings

    def at_home(self) -> Settings:
        """The settings, once their state folder is there.

        Raises:
            ConfigError: it can't be made.
        """
        from agent_env.errors import ConfigError

        folder = self.settings.state_dir
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"state_dir: {folder} can't be made: {error.strerror}; name another folder with "
                "EPISODES_STATE_DIR"
            ) from None
        return self.settings

    @contextmanager
    def index(self) -> Generator[RunIndex]:
        """The run index, which is all that a reading command needs.

        Raises:
            IndexUnavailableError: its database does not answer.
            ConfigError: its schema is not this code's.
        """
        from agent_env.runs import RunIndex

        index = RunIndex.open(self.at_home().database_url)
        try:
            yield index
        finally:
            index.close()
