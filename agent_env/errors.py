"""Every error this package raises.

    AgentEnvError
    ├── UserError                     the caller can fix it; never retried
    │   ├── InvalidSpecError
    │   ├── UnknownTypeError          step or provider
    │   ├── ConfigError
    │   └── ConflictError             another package or another run is in the way
    ├── RunIndexError
    │   ├── RunNotFoundError          also a LookupError
    │   ├── MoveRefusedError          a finished run does not move
    │   └── IndexUnavailableError     retried
    ├── UnavailableError              Temporal or a dependency does not answer; retried
    ├── ElsewhereError                work for another host came here
    └── EpisodeError                  recorded on the run; one type for each boundary
        ├── SandboxError
        │   ├── SandboxUnavailableError   retried
        │   └── SandboxLostError
        ├── StepError
        │   ├── StepFailedError
        │   ├── StepTimedOutError
        │   ├── TurnTimedOutError
        │   ├── StepInterruptedError
        │   ├── OutputTooLargeError
        │   └── ForeignError          recorded under the name of what a step's code raised
        ├── TurnError             what a trainer asked of a turn is refused
        │   └── TurnOverError
        └── VerifierError
            └── InvalidScoreError

A message is one sentence: what happened, to what, what to do. On a run, an error is recorded under
its class name without the ending ``Error``; see ``error_type``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

MAX_ERROR_CHARS = 8_000
"""Longest error text that is stored or sent anywhere, in characters."""
_MARK_CHARS = 40
"""Room for the mark in a text that was cut, in characters."""


class AgentEnvError(Exception):
    """Root of every error of this package."""

    exit_code = 70
    """What the command line exits with."""
    retryable = False
    """Whether doing the same again may succeed without anybody changing anything."""


class UserError(AgentEnvError):
    """The caller can fix it."""

    exit_code = 2


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input."""

    where: str
    """File and field, for example ``task.json: steps[2] 'load': artifact_id``."""
    what: str
    """What is wrong and how to fix it, without an ending period."""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" if self.where else self.what


class InvalidSpecError(UserError):
    """A task, a spec or a file of one is wrong. Lists every problem that was found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, where: str, what: str) -> InvalidSpecError:
        """An error with one problem."""
        return cls([Problem(where, what)])

    def __reduce__(self) -> tuple[type[InvalidSpecError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class UnknownTypeError(UserError):
    """A step type or a sandbox provider that nobody provides."""


class ConfigError(UserError):
    """A setting has a value that can't be used."""


class ConflictError(UserError):
    """Another run or another installed package is in the way."""

    exit_code = 4


class RunIndexError(AgentEnvError):
    """The run index refused or failed."""


class RunNotFoundError(RunIndexError, LookupError):
    """No run or group of that id is in the run index."""

    exit_code = 3


class MoveRefusedError(RunIndexError):
    """A finished run does not move."""

    exit_code = 4


class IndexUnavailableError(RunIndexError):
    """The run index's database does not answer or can't be written. Safe to retry."""

    exit_code = 5
    retryable = True


class UnavailableError(AgentEnvError):
    """Temporal or another dependency does not answer. Safe to retry."""

    exit_code = 5
    retryable = True


class ElsewhereError(AgentEnvError):
    """Work that is meant for another host came to this one."""


class EpisodeError(AgentEnvError):
    """Something an episode did or met; recorded on its run."""

    exit_code = 1


class SandboxError(EpisodeError):
    """A sandbox could not be used."""


class SandboxUnavailableError(SandboxError):
    """The provider could not serve the request. Safe to retry."""

    retryable = True


class SandboxLostError(SandboxError):
    """A sandbox that existed is gone."""


class StepError(EpisodeError):
    """A step could not do its work."""


class StepFailedError(StepError):
    """A step ran and failed."""


class StepTimedOutError(StepError):
    """A step took longer than its ``timeout_seconds``."""


class TurnTimedOutError(StepError):
    """Nobody ended a turn before its time was up."""


class StepInterruptedError(StepError):
    """A step with ``rerun: false`` was cut off when its worker died."""


class OutputTooLargeError(StepError):
    """A step returned more than an episode may carry."""


class ForeignError(StepError):
    """Code that a step ran in another process raised; ``kind`` is the name of what it raised."""

    def __init__(self, message: str = "", *, kind: str = "Foreign") -> None:
        self.kind = kind
        super().__init__(message)


class TurnError(EpisodeError):
    """A turn is over, or what is asked of it is against its rules. The episode goes on."""


class TurnOverError(TurnError):
    """A turn is over: ended, timed out, or closed with its episode."""


class VerifierError(EpisodeError):
    """A verifier could not score."""


class InvalidScoreError(VerifierError):
    """A score that is not a finite number."""


def error_type(error: BaseException) -> str:
    """The name an error is recorded under: ours without the ending ``Error``, others as it is."""
    if isinstance(error, ForeignError):
        return error.kind
    name = type(error).__name__
    return name.removesuffix("Error") if isinstance(error, AgentEnvError) else name


def root_cause(error: BaseException) -> BaseException:
    """The error to show a person: the first leaf of an exception group, else the error itself.

    Explicit causes are not followed: a boundary that chose its own type and message meant them.
    """
    while parts := _parts(error):
        error = parts[0]
    return error


def error_text(error: BaseException) -> str:
    """Its message, bounded. Empty for an error that was raised without one.

    Never raises, even when the error's own ``__str__`` does.
    """
    try:
        text = str(root_cause(error))
    except Exception as broken:
        text = f"(its message could not be read: {type(broken).__name__})"
    others = len(flattened(error)) - 1
    return bounded(f"{text} (and {others} more in the same group)" if others else text)


def flattened(error: BaseException) -> list[BaseException]:
    """The leaves of an exception group, in order; the error alone when it is not a group."""
    leaves: list[BaseException] = []
    waiting = [error]
    while waiting:  # a group may be nested deeper than Python recurses
        found = waiting.pop()
        if parts := _parts(found):
            waiting.extend(reversed(parts))
        else:
            leaves.append(found)
    return leaves


def _parts(error: BaseException) -> tuple[BaseException, ...]:
    """What a group holds; nothing for an error that is none."""
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast("BaseExceptionGroup[BaseException]", error).exceptions


def bounded(text: str, limit: int = MAX_ERROR_CHARS) -> str:
    """The text, cut in the middle to at most ``limit`` characters, with a mark where it was cut."""
    if len(text) <= limit:
        return text
    keep = limit - _MARK_CHARS
    if keep <= 0:
        return text[:limit]
    head = keep * 3 // 4
    mark = f"\n… {len(text) - keep:,} characters cut …\n"
    return text[:head] + mark + text[len(text) - (keep - head) :]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """What to say of a name that nothing has: the nearest one, and all there are."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, 1)
    hint = f": did you mean {near[0]!r}? Known: " if near else "; known: "
    return f"unknown {kind} {bounded(repr(name), 100)}{hint}{', '.join(names) or 'none'}"


def error_of(kind: str, message: str) -> AgentEnvError:
    """The error that was recorded or sent under this name; an AgentEnvError if none of ours was."""
    waiting: list[type[AgentEnvError]] = [AgentEnvError]
    while waiting:
        found = waiting.pop()
        if found.__name__.removesuffix("Error") == kind and found is not InvalidSpecError:
            return found(message)
        waiting.extend(found.__subclasses__())
    if kind == "InvalidSpec":
        return InvalidSpecError.of("", message)
    return AgentEnvError(f"{kind}: {message}" if kind else message)
