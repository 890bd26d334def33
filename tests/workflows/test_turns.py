"""Turns that a trainer plays: what it may do when, who else may, and every way a turn can end."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from pydantic import JsonValue
from temporalio.client import WorkflowFailureError, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from agent_env import ids, names
from agent_env.episode import Episode, EpisodeSpec
from agent_env.errors import TurnError
from agent_env.sandboxes import SandboxSpec
from agent_env.specs import EpisodeStart, Placement, Resumed
from agent_env.status import RunStatus
from agent_env.task import Task
from agent_env.turn import Turn
from agent_env.turns import OpenTurn, Record, RecordTurn, TurnKey, Usage
from tests.workflows.conftest import EpisodeHarness, Script

BOX: dict[str, JsonValue] = {"id": "box", "type": "script", "deploys": "box"}


def ask(step_id: str = "ask", **more: JsonValue) -> dict[str, JsonValue]:
    return {"id": step_id, "type": "prompt_agent", "prompt": f"do {step_id}", **more}


def calls(*made: tuple[str, dict[str, JsonValue]], text: str | None = None) -> dict[str, Any]:
    """A message of a model that calls tools."""
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {
                "id": f"call-{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(made)
        ],
    }


def write(path: str, content: str) -> tuple[str, dict[str, JsonValue]]:
    return "write_file", {"path": path, "content": content}


def read(path: str) -> tuple[str, dict[str, JsonValue]]:
    return "read_file", {"path": path}


def spec(h: EpisodeHarness, *steps: dict[str, JsonValue], **more: Any) -> EpisodeSpec:
    task = Task.of({"id": "asks", "steps": list(steps)})
    return EpisodeSpec.from_task(task, steps=h.services.steps, **more)


async def started(h: EpisodeHarness, *steps: dict[str, JsonValue], **more: Any) -> Episode:
    return await h.trainer.start(spec(h, *(steps or (BOX, ask())), **more))


async def turn_of(episode: Episode) -> Turn:
    async with asyncio.timeout(30):
        turn = await episode.next_turn()
    assert turn is not None
    return turn


async def test_a_trainer_plays_a_turn_with_tools_and_the_episode_goes_on(
    episodes: EpisodeHarness,
) -> None:
    episode = await started(
        episodes, BOX, ask(system_prompt="be brief"), {"id": "after", "type": "script", "score": 1}
    )

    turn = await turn_of(episode)
    async with turn.tools() as tools:
        offered = [tool.name for tool in tools.list()]
        await turn.record_model_call(calls(write("note", "hello"), read("note")), model="m")
        await tools.call(*write("note", "hello"))
        answer = await tools.call(*read("note"))
        await turn.record_model_call("done", model="m", usage={"prompt_tokens": 7})
        await turn.end("done")
    result = await episode.result()

    assert (turn.prompt, turn.system_prompt, turn.agent) == ("do ask", "be brief", "default-agent")
    assert offered == ["bash", "read_file", "write_file"]
    assert (answer.text, answer.isError) == ("hello", False)
    assert (result.status, result.reward) == (RunStatus.COMPLETED, 1)
    step = next(s for s in episodes.index.steps(episode.run_id) if s.step_id == "ask")
    assert step.output == {"response": "done", "messages": 6, "model_calls": 2}
    roles = [said.message["role"] for said in episodes.index.conversations.of_run(episode.run_id)]
    assert roles == ["system", "user", "assistant", "tool", "tool", "assistant"]
    row = episodes.row(episode.run_id)
    assert (row.model, row.prompt_tokens) == ("m", 7)
    assert await episode.next_turn() is None
    assert episode.finished


async def test_a_turn_that_nobody_ends_fails_its_step_and_is_torn_down(
    episodes: EpisodeHarness,
) -> None:
    episode = await started(episodes, turn_timeout=600)
    turn = await turn_of(episode)

    await episodes.env.sleep(timedelta(seconds=601))
    result = await episode.result()

    assert (result.status, result.error_type) == (RunStatus.FAILED, "TurnTimedOut")
    assert "within 600 s" in (result.error or "")
    assert episodes.provider.live == []
    await turn.record_model_call("held until the next one")
    with pytest.raises(TurnError, match="is over"):
        await turn.record_model_call("too late")
    await turn.end()


async def test_a_cancel_closes_a_turn_at_once(episodes: EpisodeHarness) -> None:
    episode = await started(episodes)
    turn = await turn_of(episode)
    waiting = asyncio.create_task(episode.next_turn())

    async with asyncio.timeout(5):
        await episode.abandon("not worth it")
        assert await waiting is None

    assert episodes.row(episode.run_id).status is RunStatus.CANCELED
    assert episodes.row(episode.run_id).error == "not worth it"
    assert episodes.provider.live == []
    await turn.record_model_call("held until the next one")
    with pytest.raises(TurnError, match="is over"):
        await turn.record_model_call("too late")


async def test_an_open_turn_is_handed_out_again_with_what_was_recorded(
    episodes: EpisodeHarness,
) -> None:
    episode = await started(episodes)
    first = await turn_of(episode)
    async with first.tools() as tools:
        await first.record_model_call(calls(write("note", "x")))
        await tools.call(*write("note", "x"))

    again = await turn_of(episodes.trainer.attach(episode.run_id))

    assert again.messages == first.messages
    assert [message["role"] for message in again.messages] == ["user", "assistant", "tool"]
    await again.record_model_call("on")
    await again.end("on")
    await first.record_model_call("held until the next one")
    with pytest.raises(TurnError, match="is over"):
        await first.record_model_call("too late")
    assert (await episode.result()).status is RunStatus.COMPLETED


async def test_what_is_asked_again_because_its_answer_was_lost_is_done_once(
    episodes: EpisodeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    once = cast(Any, WorkflowHandle).execute_update

    async def asked_again(self: WorkflowHandle[Any, Any], *args: Any, **how: Any) -> object:
        await once(self, *args, **how)  # nobody hears this answer
        return await once(self, *args, **how)

    monkeypatch.setattr(WorkflowHandle, "execute_update", asked_again)
    episode = await started(episodes)
    turn = await turn_of(episode)
    async with turn.tools() as tools:
        await turn.record_model_call(calls(write("note", "x")), usage={"prompt_tokens": 7})
        await tools.call(*write("note", "x"))
    await turn.record_model_call("done")
    await turn.end("done")

    said = episodes.index.conversations.of_run(episode.run_id)
    assert [each.message["role"] for each in said] == ["user", "assistant", "tool", "assistant"]
    assert (await episode.result()).status is RunStatus.COMPLETED
    assert episodes.row(episode.run_id).prompt_tokens == 7


async def test_a_trainer_that_was_overtaken_is_told(episodes: EpisodeHarness) -> None:
    episode = await started(episodes)
    slow, fast = await turn_of(episode), await turn_of(episodes.trainer.attach(episode.run_id))
    await fast.record_model_call("first")
    await fast.record_model_call("second")

    await slow.record_model_call("mine")
    with pytest.raises(TurnError, match="another trainer"):
        await slow.end("mine")

    await fast.end("second")
    texts = [s.message["content"] for s in episodes.index.conversations.of_run(episode.run_id)]
    assert texts == ["do ask", "first", "second"]


async def test_all_calls_of_a_message_are_made_before_the_next(episodes: EpisodeHarness) -> None:
    turn = await turn_of(await started(episodes))
    async with turn.tools() as tools:
        await turn.record_model_call(calls(write("a", "1"), write("b", "2")))

        with pytest.raises(TurnError, match="does not call read_file"):
            await tools.call(*read("a"))
        with pytest.raises(TurnError, match="write_file, write_file"):
            await turn.record_model_call("next")
        await tools.call(*write("b", "2"))
        with pytest.raises(TurnError, match="write_file, which has not been called"):
            await turn.end("done")
        await tools.call(*write("a", "1"))
        with pytest.raises(TurnError, match="nothing"):
            await tools.call(*write("a", "1"))
        await turn.end("done")


async def test_before_any_message_a_trainer_calls_what_it_likes(episodes: EpisodeHarness) -> None:
    episode = await started(episodes)
    turn = await turn_of(episode)
    async with turn.tools() as tools:
        await tools.call(*write("note", "mine"))
        answer = await tools.call(*read("note"))
        missing = await tools.call(*read("nothing"))
        await turn.end()

    assert answer.text == "mine"
    assert (missing.isError, missing.text) == (True, "there is no file 'nothing'")
    assert (await episode.result()).status is RunStatus.COMPLETED


async def test_two_agents_of_one_task_are_played_by_one_trainer(episodes: EpisodeHarness) -> None:
    episode = await started(
        episodes,
        ask("one", agent_name="left", tools=[], depends_on=[]),
        ask("two", agent_name="right", tools=[], depends_on=[]),
        trainer_agents=["left", "right"],
    )

    turns = [await turn_of(episode), await turn_of(episode)]
    for turn in reversed(turns):
        await turn.record_model_call(f"I am {turn.agent}")
        await turn.end()

    assert sorted(turn.agent for turn in turns) == ["left", "right"]
    assert (await episode.result()).status is RunStatus.COMPLETED


async def test_turns_of_two_episodes_are_open_at_once(episodes: EpisodeHarness) -> None:
    both = [await started(episodes) for _ in range(2)]

    turns = await asyncio.gather(*map(turn_of, both))
    await asyncio.gather(*(turn.end(f"{n}") for n, turn in enumerate(turns)))

    assert [(await episode.result()).status for episode in both] == [RunStatus.COMPLETED] * 2


async def test_the_members_of_a_group_are_played_one_by_one(episodes: EpisodeHarness) -> None:
    asked = spec(episodes, BOX, ask("say", system_prompt="you are <seed>"), turn_timeout=600)
    group = await episodes.trainer.start_group(asked, size=3)

    for index in range(3):
        member = episodes.trainer.attach(ids.member_id(group.run_group_id, index))
        turn = await turn_of(member)
        await turn.end(turn.system_prompt)
    result = await group.result()

    assert result.figures.completed == 3
    said = [
        episodes.index.conversations.of_run(member.run_id)[-1].message["content"]
        for member in result.members
    ]
    assert said == ["you are 0", "you are 1", "you are 2"]


async def test_a_retry_is_a_new_turn(episodes: EpisodeHarness, script: Script) -> None:
    script.fails["check"] = 1
    retry: JsonValue = {"retry_from_step_id": "ask", "max_retries": 1}
    check: dict[str, JsonValue] = {"id": "check", "type": "script", "retry_config": retry}
    episode = await started(episodes, BOX, ask(), check)

    first = await turn_of(episode)
    await first.end("wrong")
    second = await turn_of(episode)
    await second.end("right")
    result = await episode.result()

    assert result.status is RunStatus.COMPLETED
    said = episodes.index.conversations.of_run(episode.run_id)
    assert [(each.turn.epoch, each.message["content"]) for each in said] == [
        (1, "do ask"),
        (1, "wrong"),
        (2, "do ask"),
        (2, "right"),
    ]


async def test_a_turn_that_can_not_be_begun_fails_its_step(episodes: EpisodeHarness) -> None:
    servers: JsonValue = {"gone": {"url": "http://127.0.0.1:9/mcp"}}
    episode = await started(episodes, BOX, ask(mcp_servers=servers))

    result = await episode.result()

    assert (result.status, result.error_type) == (RunStatus.FAILED, "StepFailed")
    assert "the MCP server 'gone' can't be used" in (result.error or "")
    assert await episode.next_turn() is None


async def test_the_end_is_not_waited_for_while_one_holds_a_turn(episodes: EpisodeHarness) -> None:
    episode = await started(episodes)
    turn = await turn_of(episode)

    with pytest.raises(TurnError, match="'ask' of agent 'default-agent' is not ended"):
        await episode.result()

    await turn.end()
    assert (await episode.result()).status is RunStatus.COMPLETED


async def test_a_caller_that_is_canceled_cancels_nothing(episodes: EpisodeHarness) -> None:
    episode = await started(episodes, BOX, ask("one"), ask("two"))
    turn = await turn_of(episode)

    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await episode.next_turn()
    await turn.end("1")
    following = await turn_of(episode)
    await following.end("2")

    assert (turn.step_id, following.step_id) == ("one", "two")
    assert (await episode.result()).status is RunStatus.COMPLETED


@pytest.fixture
def few_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that starts after this lets executions be asked only five times."""
    monkeypatch.setattr("agent_env.specs.MAX_UPDATES", 5)


@pytest.mark.usefixtures("few_updates")
async def test_an_episode_goes_on_in_a_new_execution_with_its_turns_open(
    episodes: EpisodeHarness,
) -> None:
    episode = await started(episodes, BOX, ask(), {"id": "after", "type": "script", "score": 1})
    early = asyncio.create_task(episodes.trainer.attach(episode.run_id).result(teardown=False))
    turn = await turn_of(episode)
    first = (await episodes.client.get_workflow_handle(episode.run_id).describe()).run_id

    async with turn.tools() as tools:
        for number in range(12):
            call = write("note", str(number))
            await turn.record_model_call(calls(call))
            await tools.call(*call)
        again = await turn_of(episodes.trainer.attach(episode.run_id))
    said = again.messages[:]
    latest = (await episodes.client.get_workflow_handle(episode.run_id).describe()).run_id
    await again.end("done")
    result = await episode.result()

    assert latest != first
    assert said == turn.messages
    assert len(said) == 25
    assert (result.status, result.reward) == (RunStatus.COMPLETED, 1)
    assert (await early).status is RunStatus.COMPLETED
    assert await episodes.agrees(episode.run_id, RunStatus.COMPLETED)
    assert episodes.provider.live == []


async def test_a_cancel_before_a_new_execution_has_run_closes_its_turns_and_tears_down(
    idle: EpisodeHarness, start_worker: Callable[[], Awaitable[None]]
) -> None:
    now = datetime.now(UTC)
    await idle.provider.create(SandboxSpec(type="fake", name="box"), owner="resumed", key="k")
    resumed = Resumed(
        created_at=now,
        placement=Placement(host="here"),
        losses=0,
        epoch=1,
        reports=(),
        destroy=(),
        turns=(
            OpenTurn(
                turn=TurnKey(step_id="ask", epoch=1),
                agent="a",
                messages=1,
                opened_at=now,
                deadline_at=now + timedelta(hours=1),
            ),
        ),
        usage=Usage(),
        deadline_at=None,
    )
    start = EpisodeStart(run_id="resumed", task=spec(idle, ask()).task, resumed=resumed)
    handle = await idle.client.start_workflow(
        names.EPISODE, start, id="resumed", task_queue=names.TASK_QUEUE
    )
    order = RecordTurn(turn=resumed.turns[0].turn, seq=1, record=Record(digest="0"))
    asked = asyncio.create_task(handle.execute_update(names.RECORD_TURN, order))
    await handle.cancel(reason="enough")

    await start_worker()
    with pytest.raises(WorkflowUpdateFailedError) as refused:
        await asked

    assert isinstance(refused.value.cause, ApplicationError)
    assert refused.value.cause.type == "TurnOver"
    with pytest.raises(WorkflowFailureError):
        await handle.result()
    assert await idle.agrees("resumed", RunStatus.CANCELED)
    assert idle.provider.live == []
