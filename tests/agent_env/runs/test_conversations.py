"""What is said in turns is kept whole, in its place, and once."""

import pytest

from agent_env.errors import IndexUnavailableError, RunNotFoundError
from agent_env.runs import RunIndex
from agent_env.runs.conversations import Message
from agent_env.turns import TurnKey, Usage
from tests.agent_env.runs.conftest import T0, finished, opened

TURN = TurnKey(step_id="ask", epoch=1)
HELLO: Message = {"role": "user", "content": "hello"}
ANSWER: Message = {"role": "assistant", "content": "hi \0 there \ud800 ␀"}


def test_messages_come_back_in_order_whatever_is_in_them(index: RunIndex) -> None:
    opened(index, "run-1")

    index.conversations.write("run-1", TURN, {1: ANSWER, 0: HELLO})

    assert index.conversations.of_turn("run-1", TURN) == (HELLO, ANSWER)
    assert index.conversations.of_turn("run-1", TURN, first=1) == (ANSWER,)


def test_writing_twice_changes_nothing(index: RunIndex) -> None:
    opened(index, "run-1")
    for _ in range(2):
        index.conversations.write("run-1", TURN, {0: HELLO})

    assert [said.message for said in index.conversations.of_run("run-1")] == [HELLO]


def test_a_retrys_turn_is_another_one(index: RunIndex) -> None:
    opened(index, "run-1")
    again = TurnKey(step_id="ask", epoch=2)

    index.conversations.write("run-1", again, {0: ANSWER})
    index.conversations.write("run-1", TURN, {0: HELLO})

    assert [said.turn for said in index.conversations.of_run("run-1")] == [TURN, again]


def test_a_kept_text_is_kept_until_it_is_taken_up(index: RunIndex) -> None:
    opened(index, "run-1")
    digests = {index.conversations.keep("run-1", "text \ud800") for _ in range(2)}
    (digest,) = digests

    before = index.conversations.kept("run-1", digest)
    index.conversations.write("run-1", TURN, {0: HELLO}, taken_up=digest)

    assert before == "text \ud800"
    assert index.conversations.kept("run-1", digest) is None


def test_the_row_says_what_the_model_used(index: RunIndex) -> None:
    opened(index, "run-1")

    usage = Usage(model="m", prompt_tokens=3, completion_tokens=4)
    index.conversations.write("run-1", TURN, {0: HELLO}, usage=usage)

    row = index.get("run-1")
    assert (row.model, row.prompt_tokens, row.completion_tokens) == ("m", 3, 4)


def test_nothing_is_added_to_a_run_that_has_ended(index: RunIndex) -> None:
    opened(index, "run-1")
    index.finish_run(finished(), at=T0)

    index.conversations.write("run-1", TURN, {0: HELLO})

    assert index.conversations.of_run("run-1") == ()


def test_a_row_that_is_gone_is_waited_for(index: RunIndex) -> None:
    with pytest.raises(IndexUnavailableError, match="listed again soon"):
        index.conversations.write("run-1", TURN, {0: HELLO})
    with pytest.raises(RunNotFoundError):
        index.conversations.keep("run-1", "text")
