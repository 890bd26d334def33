"""What the player of a turn may do when."""

from datetime import UTC, datetime
from typing import Any

import pytest

from agent_env.turn_rules import Order, refusal
from agent_env.turns import (
    CallRef,
    EndTurn,
    LastRecord,
    OpenTurn,
    Record,
    Recorded,
    RecordTurn,
    TurnKey,
)

NOW = datetime(2026, 1, 31, tzinfo=UTC)
KEY = TurnKey(step_id="ask", epoch=1)
BASH = CallRef(id="1", name="bash")


def turn(**changes: Any) -> OpenTurn:
    values: dict[str, Any] = {
        "turn": KEY,
        "agent": "a",
        "tools": ("bash",),
        "messages": 4,
        "opened_at": NOW,
        "deadline_at": NOW,
    }
    return OpenTurn(**{**values, **changes})


def record(*calls: CallRef, seq: int = 4, by_model: bool = True) -> RecordTurn:
    made = Record(digest="d", calls=calls, by_model=by_model)
    return RecordTurn(turn=KEY, seq=seq, record=made)


def end(*calls: CallRef) -> EndTurn:
    return EndTurn(turn=KEY, seq=4, record=Record(digest="d", calls=calls))


@pytest.mark.parametrize(
    "order", [record(), record(BASH), record(BASH, by_model=False), end(), EndTurn(turn=KEY, seq=4)]
)
def test_what_comes_next_is_taken(order: Order) -> None:
    assert refusal(turn(), order, is_busy=False) is None


@pytest.mark.parametrize(
    ("order", "why"),
    [
        (record(seq=2), "4 messages by now, not 2: another trainer"),
        (end(BASH), "calls tools that have not run"),
        (record(*(CallRef(id=str(n), name="bash") for n in range(65))), "at most 64 tools"),
        (record(BASH, BASH), "one id"),
        (record(CallRef(id="1", name="rm")), "no tool 'rm'; it offers ['bash']"),
    ],
)
def test_what_does_not_is_refused(order: Order, why: str) -> None:
    assert why in (refusal(turn(), order, is_busy=False) or "")


def test_one_message_is_worked_on_at_a_time() -> None:
    assert "wait for its tools" in (refusal(turn(), record(), is_busy=True) or "")


def test_after_a_models_message_a_trainer_calls_nothing_of_its_own() -> None:
    own = record(BASH, by_model=False)

    assert "made no such call" in (refusal(turn(model_calls=1), own, is_busy=False) or "")


def test_a_repeat_is_no_offense() -> None:
    last = LastRecord(seq=2, digest="d", answer=Recorded(messages=4))

    assert refusal(turn(last=last), record(seq=2), is_busy=False) is None
    assert refusal(turn(last=last), record(seq=2), is_busy=True) is None
