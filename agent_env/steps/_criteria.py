"""What ``verify_sandbox`` can ask of a sandbox: its criteria, and how each is looked at."""

import asyncio
import difflib
import posixpath
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import regex
from pydantic import BaseModel, ConfigDict, model_validator

from agent_env.sandboxes import Sandbox
from agent_env.steps._scoring_env import SCORING_ENV

HANDLED = ("probe_file_exists", "probe_dir_exists", "probe_file_contains", "bash_cmd_succeeds")
_MAX_SEARCHED_BYTES = 8 * 1024 * 1024
_TEST = 'flag=$1; shift; for path do test "$flag" "$path" || printf "%s\\n" "$path"; done'


class Criterion(BaseModel):
    """One thing that must hold. Beside its fields it may hold notes; they are not looked at."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    type: str
    """One of ``HANDLED``; any other is skipped."""
    criterion: str = ""
    """What it means, in words."""
    weight: float = 1.0
    """Counts in a weighted average; negative takes away."""
    paths: tuple[str, ...] = ()
    """For probes: relative ones start in ``base_dir``."""
    expected: str | None = None
    """Regular expression that the first path's content must match somewhere."""
    value: str | None = None
    """Another name of ``expected``."""
    bash_cmd: str | None = None
    """Run by ``bash -c`` in ``base_dir``; must exit with 0."""

    @property
    def pattern(self) -> str | None:
        """The regular expression."""
        return self.expected if self.expected is not None else self.value

    @model_validator(mode="after")
    def _is_complete(self) -> "Criterion":
        if self.type not in HANDLED:
            return self
        for key in self.model_extra or {}:
            if near := difflib.get_close_matches(key, type(self).model_fields, 1, 0.8):
                raise ValueError(f"unknown key {key!r}: did you mean {near[0]!r}?")
        if self.type.startswith("probe_") and not self.paths:
            raise ValueError("needs paths, a list; add it")
        if self.type == "bash_cmd_succeeds" and not self.bash_cmd:
            raise ValueError("needs bash_cmd; add it")
        if self.type == "probe_file_contains":
            if self.pattern is None:
                raise ValueError("needs expected, a regular expression; add it")
            try:
                regex.compile(self.pattern)
            except (regex.error, RecursionError, OverflowError) as error:
                raise ValueError(f"expected is no regular expression: {error}") from None
        return self


class Finding(NamedTuple):
    """Whether a criterion holds, and why."""

    passed: bool
    justification: str


class Examiner(NamedTuple):
    """Looks at one sandbox, for a criterion at a time."""

    sandbox: Sandbox
    base_dir: str
    timeout: timedelta
    """Longest that one command or one search may take."""

    async def examine(self, criterion: Criterion) -> Finding:
        """Look whether it holds. A command that can't do its work counts against the agent.

        Raises:
            SandboxError: the sandbox is lost or can't be used now.
        """
        if criterion.type == "bash_cmd_succeeds":
            return await self._runs(criterion.bash_cmd or "")
        paths = [posixpath.join(self.base_dir, path) for path in criterion.paths]
        if criterion.type == "probe_file_contains":
            return await self._contains(paths[0], criterion.pattern or "")
        return await self._exist(paths, "-d" if criterion.type == "probe_dir_exists" else "-e")

    async def _runs(self, command: str) -> Finding:
        done = await self.sandbox.exec(
            ["bash", "-c", command], env=SCORING_ENV, cwd=self.base_dir, timeout=self.timeout
        )
        if done.timed_out:
            return Finding(False, f"took longer than {self._seconds}")
        said = f"; stderr: {done.stderr.strip()}" if done.stderr.strip() else ""
        return Finding(done.exit_code == 0, f"exit code {done.exit_code}{said}")

    async def _exist(self, paths: Sequence[str], flag: str) -> Finding:
        done = await self.sandbox.exec(
            ["sh", "-c", _TEST, "sh", flag, *paths], timeout=self.timeout
        )
        if done.timed_out or done.exit_code != 0:
            why = f"took longer than {self._seconds}" if done.timed_out else done.stderr.strip()
            return Finding(False, f"can't be looked at: {why or f'exit code {done.exit_code}'}")
        missing = done.stdout.strip("\n")
        return Finding(not missing, f"missing: {missing}" if missing else "all are there")

    async def _contains(self, path: str, pattern: str) -> Finding:
        try:
            content = await self.sandbox.read_file(path, max_bytes=_MAX_SEARCHED_BYTES)
        except (OSError, ValueError) as error:
            return Finding(False, f"can't be read: {error}")
        text = content.decode(errors="replace")
        try:
            found = await asyncio.to_thread(self._found, pattern, text)
        except TimeoutError:
            return Finding(
                False, f"searching {path} for {pattern!r} took longer than {self._seconds}"
            )
        return Finding(found, f"{path} {'matches' if found else 'does not match'} {pattern!r}")

    def _found(self, pattern: str, text: str) -> bool:
        """Search with a limit, unlike ``re``: the text is the agent's, and may need for ever."""
        seconds = self.timeout.total_seconds()
        return regex.search(pattern, text, timeout=seconds, concurrent=True) is not None

    @property
    def _seconds(self) -> str:
        return f"{self.timeout.total_seconds():g} s"
