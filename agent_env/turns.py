"""A turn that waits for its player: what trainer, workflow and activities tell each other. Pure.

The conversation of a turn is in the run index. What is here holds digests, numbers and names, so
that a long conversation leaves the workflow's history short.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from agent_env._model import WireModel
from agent_env.results import StepReport
from agent_env.task import StepSpec

STEP_TYPE = "prompt_agent"
"""The step type that opens a turn."""
OUTSIDE = "outside"
"""The player that is not ours: a trainer."""
TURN_TIMEOUT = timedelta(hours=1)
"""Longest an outside turn may be open when nobody says otherwise."""
TOOL_TIMEOUT_S = 600.0
"""Longest one tool may run when the trainer says nothing, in seconds."""
MAX_MESSAGE_BYTES = 1024 * 1024
"""Largest message, as JSON, in bytes."""
MAX_CALLS = 64
"""Most tool calls of one message."""
MAX_RESPONSE_CHARS = 8_000
"""What the step's output keeps of a reply, in characters; the conversation has all of it."""


class TurnKey(WireModel):
    """Which turn: a step, in one begin or retry of its episode."""

    step_id: str
    epoch: int


class Usage(WireModel):
    """What model calls used."""

    model: str | None = None
    """Of the last call that named one."""
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """Both together; the later model stands."""
        return Usage(
            model=other.model or self.model,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )


class CallRef(WireModel):
    """A tool call of a message. Its arguments are in the message."""

    id: str
    name: str


class Record(WireModel):
    """A message of the player, kept in the run index until the turn takes it up."""

    digest: str
    calls: tuple[CallRef, ...] = ()
    """Those of its tool calls that are for the turn's tools, in order: all of them are run."""
    by_model: bool = True
    """False for a call that the trainer made on its own."""
    usage: Usage = Usage()


class RecordTurn(WireModel):
    """Argument of the update ``record_turn``: a message, and its tool calls run."""

    turn: TurnKey
    seq: int
    """How many messages the trainer knows of: another number has been overtaken by another trainer.
    """
    record: Record
    tool_timeout_s: float = TOOL_TIMEOUT_S


class Recorded(WireModel):
    """Answer of ``record_turn``, and of the activity behind it."""

    messages: int
    """How many there are now: the tools' answers are the last ones, in the order of the calls."""
    failed: tuple[str, ...] = ()
    """Ids of the calls whose tool answered with an error."""
    is_cut: bool = False
    """Stopped with the turn: nobody is to be answered."""


class EndTurn(WireModel):
    """Argument of the update ``end_turn``."""

    turn: TurnKey
    seq: int
    record: Record | None = None
    response: str = ""
    """The reply, cut to what a step's output keeps."""


class NextTurn(WireModel):
    """Argument of the update ``next_turn``."""

    holding: tuple[TurnKey, ...] = ()
    """Turns that the trainer has already."""


class LastRecord(WireModel):
    """The last message that a turn took up, so that a repeat is told the same."""

    seq: int
    digest: str
    answer: Recorded


class OpenTurn(WireModel):
    """An open turn as the workflow keeps it, and as a trainer is told of it."""

    turn: TurnKey
    agent: str
    tools: tuple[str, ...] = ()
    """Names of the tools on offer."""
    tools_digest: str | None = None
    """Where the run index has all about them."""
    messages: int
    """How many the conversation has."""
    model_calls: int = 0
    opened_at: datetime
    deadline_at: datetime
    last: LastRecord | None = None


class TurnOffer(WireModel):
    """Answer of ``next_turn``: a turn, or why there is none."""

    turn: OpenTurn | None = None
    is_over: bool = False
    """No turn will come any more."""


class OpenTurns(WireModel):
    """Answer of the query ``open_turns``."""

    turns: tuple[TurnKey, ...] = ()


class TurnPlace(WireModel):
    """What an activity of a turn must know of its episode."""

    run_id: str
    epoch: int
    spec: StepSpec
    seed: Mapping[str, str]
    reports: tuple[StepReport, ...]
    """Surviving reports of the steps that ended before, in order."""
    host: str | None = None
    """Who is meant, when it did not come over the host's own queue."""


class BeginTurn(TurnPlace):
    """Argument of ``begin_turn``: write the prompt down, and find the tools."""


class TurnBegun(WireModel):
    """Answer of ``begin_turn``."""

    agent: str = ""
    messages: int = 0
    tools: tuple[str, ...] = ()
    tools_digest: str | None = None
    failure: StepReport | None = None
    """The step has failed: there is no turn."""


class PlayTurn(TurnPlace):
    """Argument of ``play_turn``: write the player's message down and run its tools."""

    seq: int
    record: Record
    usage: Usage
    """Of the whole episode, this message included."""
    tool_timeout_s: float
    is_rerun: bool = False
    """An attempt that came without a queue was cut off."""


def remaining_s(open_turn: OpenTurn, now: datetime) -> float:
    """Seconds until the turn's deadline; never negative."""
    return max(0.0, (open_turn.deadline_at - now).total_seconds())
