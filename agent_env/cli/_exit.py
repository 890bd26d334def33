"""The one place that turns what went wrong into an exit code, a kind and words."""

import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import click

from agent_env.errors import AgentEnvError, UnavailableError, error_text, error_type, root_cause

INTERRUPTED = 130
"""Exit code after Ctrl-C."""
BROKEN_PIPE = 141
"""Exit code when whoever read the output left."""
SOME_FAILED = 1
CANCELED = 6


class Kind(StrEnum):
    """What kind of failure it is. Closed: scripts match on it."""

    USAGE = "usage"
    CONFLICT = "conflict"
    NOT_FOUND = "not_found"
    UNAVAILABLE = "unavailable"
    EPISODE = "episode"
    CANCELED = "canceled"
    INTERNAL = "internal"


_KINDS = {
    1: Kind.EPISODE,
    2: Kind.USAGE,
    3: Kind.NOT_FOUND,
    4: Kind.CONFLICT,
    5: Kind.UNAVAILABLE,
    CANCELED: Kind.CANCELED,
    INTERRUPTED: Kind.CANCELED,
}


class OutputError(AgentEnvError):
    """Whatever the output goes to does not take it."""


class StoppedError(AgentEnvError):
    """The person at the keyboard stopped the command."""

    exit_code = INTERRUPTED


class DeclinedError(StoppedError):
    """The person at the keyboard said no."""

    exit_code = CANCELED


@dataclass(frozen=True)
class Failure:
    """What went wrong, as it is told."""

    exit_code: int
    type: str
    message: str
    trace: str
    is_expected: bool
    """False for a bug: then the type is part of the message."""

    @property
    def kind(self) -> Kind:
        """Its place in the closed list."""
        return _KINDS.get(self.exit_code, Kind.INTERNAL)

    def document(self, run_id: str | None) -> dict[str, object]:
        """As JSON; ``run_id`` is the run the command was about."""
        return {
            "error": {
                "kind": self.kind,
                "message": self.message,
                "type": self.type,
                "run_id": run_id,
            }
        }

    def lines(self, *, debug: bool) -> Iterator[str]:
        """As a person reads it: one line a problem; the traceback only when asked for."""
        if debug:
            yield from self.trace.splitlines()
        if self.kind is Kind.CANCELED:
            yield self.message
        elif self.is_expected:
            yield from (f"error: {line}" for line in self.message.splitlines())
        else:
            hint = "" if debug else " (the option --debug shows where)"
            yield f"error: {self.type}: {self.message.strip() or 'no message'}{hint}"


def failure_of(error: BaseException) -> Failure:
    """How an exception that ended a command is told."""
    trace = "".join(traceback.format_exception(error))
    cause = root_cause(error)
    if isinstance(cause, click.ClickException):
        return Failure(2, "Usage", _sentence(cause.format_message()), trace, is_expected=True)
    if isinstance(cause, KeyboardInterrupt | click.Abort):
        cause = StoppedError("interrupted")
    elif _is_temporals(cause):
        cause = UnavailableError(f"Temporal answered with an error: {error_text(cause)}; try again")
    if not isinstance(cause, AgentEnvError):
        return Failure(70, error_type(cause), error_text(cause), trace, is_expected=False)
    return Failure(cause.exit_code, error_type(cause), error_text(cause), trace, is_expected=True)


def _sentence(text: str) -> str:
    """Click's words in the form of ours: no capital, no period."""
    return (text[:1].lower() + text[1:]).rstrip(".")


def _is_temporals(error: BaseException) -> bool:
    # Not imported here: it takes longer than most commands do.
    service = sys.modules.get("temporalio.service")
    return service is not None and isinstance(error, service.RPCError)
