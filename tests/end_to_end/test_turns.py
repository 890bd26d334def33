"""Turns of the whole product: who plays one, and what it stands on, is killed."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from temporalio.client import WorkflowExecutionStatus

from agent_env.config import Settings
from agent_env.episode import Episode, EpisodeSpec
from agent_env.local import local_trainer
from agent_env.status import RunStatus
from agent_env.task import Task
from agent_env.turn import Turn
from tests.end_to_end.agreement import disagreements_left
from tests.end_to_end.conftest import ROOT, Product, processes_with
from tests.end_to_end.stage import box, command, sandbox_folders
from tests.end_to_end.turn_player import message
from tests.end_to_end.who_dies import LONG, Process, assert_ended, left_behind, nap, until, worker

SERVER = ROOT / "tests/agent_env/tools/stdio_server.py"
PLAYER = Path(__file__).with_name("turn_player.py")


def ask(step_id: str = "ask", **more: JsonValue) -> JsonValue:
    return {"id": step_id, "type": "prompt_agent", "prompt": "do it", **more}


TASK: JsonValue = {
    "id": "turns",
    "steps": [box(), ask(), command("check", "wc -l < log", score_from="stdout")],
}


def player(product: Product, how: str, run_id: str, commands: list[str]) -> Process:
    return Process(
        *(str(PLAYER), how, run_id, json.dumps(TASK)),
        # Not in its arguments: it would look like what it has run.
        env={
            "COMMANDS": json.dumps(commands),
            "PYTHONPATH": str(ROOT),
            **product.environ(),
        },
    )


async def started(product: Product, **more: int) -> tuple[Episode, Turn]:
    """An episode at its turn."""
    task = Task.of({"id": "turns", "steps": [box(), ask("ask", **more)]})
    spec = EpisodeSpec.from_task(task)
    episode = await product.trainer.start(spec)
    turn = await episode.next_turn()
    assert turn is not None
    return episode, turn


async def bash(turn: Turn, number: int, line: str) -> str:
    """Have a model call ``bash``; what it answered."""
    async with turn.tools(timeout=600) as tools:
        await turn.record_model_call(message(number, line))
        return (await tools.call("bash", {"command": line})).text


async def test_a_trainer_killed_in_a_turn_is_followed_by_another_that_goes_on(
    product: Product,
) -> None:
    sleep = nap(4)
    commands = ["echo one >> log", f"echo two >> log; sleep {sleep}", "echo three >> log"]
    with worker(product):
        first = player(product, "start", "run-turn", commands)
        try:
            await product.until(lambda: len(processes_with(f"sleep {sleep}")) > 0, LONG)
        finally:
            await asyncio.to_thread(first.kill)
        second = player(product, "attach", "run-turn", commands)
        said = await asyncio.to_thread(second.output)
        assert second.exit_code == 0, "".join(second.said)
        ended = json.loads(said)
        await assert_ended(product, "run-turn", RunStatus.COMPLETED, nap=sleep)

    handed = json.loads(second.said[0])
    assert handed["messages"] == ["user", "assistant", "tool", "assistant", "tool"]
    assert ended == ["COMPLETED", 3.0]


async def test_a_tool_whose_worker_is_killed_runs_again_and_its_trainer_gets_the_answer(
    product: Product,
) -> None:
    with worker(product) as first:
        episode, turn = await started(product)
        line = "echo x >> log; [ $(wc -l < log) -gt 1 ] || sleep 601.77; wc -l < log"
        calling = asyncio.create_task(bash(turn, 0, line))
        await product.until(lambda: len(processes_with("sleep 601.77")) > 0, LONG)
        first.kill()
        with worker(product):
            assert (await calling).strip() == "2"
            await turn.end("done")
            await episode.result()
            await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap="601.77")


async def test_a_tool_that_must_not_run_twice_tells_the_model_that_it_was_cut_off(
    product: Product,
) -> None:
    with worker(product) as first:
        episode, turn = await started(product, rerun=False)
        calling = asyncio.create_task(bash(turn, 0, "echo x >> log; sleep 602.77"))
        await product.until(lambda: len(processes_with("sleep 602.77")) > 0, LONG)
        first.kill()
        with worker(product):
            assert "is not run again" in await calling
            assert await bash(turn, 1, "wc -l < log") == "1"
            await turn.end("done")
            assert (await episode.result()).status is RunStatus.COMPLETED


async def test_a_turn_whose_host_is_lost_begins_again_on_another(
    product: Product, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    with worker(product, host_lost_after_s=2) as first:
        episode, turn = await started(product)
        assert await bash(turn, 0, "echo kept > log; cat log") == "kept"
        first.kill()
    with worker(product, other, host_lost_after_s=2):
        with pytest.raises(Exception, match="is over"):
            await bash(turn, 1, "cat log")
        again = await episode.next_turn()
        assert again is not None
        assert [each["role"] for each in again.messages] == ["user"]
        assert "No such file" in await bash(again, 0, "cat log")
        await again.end("done")
        assert (await episode.result()).status is RunStatus.COMPLETED
    with worker(product):  # removes what the lost host had kept
        await product.until(lambda: left_behind(product.state_dir, other) == [], LONG)


async def test_tools_of_a_server_in_the_sandbox_are_played_with(product: Product) -> None:
    brought = command("bring", "cat > server.py", stdin=SERVER.read_text(encoding="utf-8"))
    servers: JsonValue = {"small": {"command": ["python3", "server.py"]}}
    steps = [box(), brought, ask(tools=[], mcp_servers=servers)]
    task = Task.of({"id": "mcp", "steps": steps})
    with worker(product):
        episode = await product.trainer.start(EpisodeSpec.from_task(task))
        turn = await episode.next_turn()
        assert turn is not None
        async with turn.tools() as tools:
            counted = [(await tools.call("count")).text for _ in range(2)]
            failed = await tools.call("die")
        await turn.end("done")
        result = await episode.result()

    assert counted == ["1", "2"]
    assert failed.isError
    assert result.status is RunStatus.COMPLETED
    assert left_behind(product.state_dir) == []
    assert processes_with("server.py") == []


async def test_a_cancel_kills_a_tool_within_two_seconds(product: Product) -> None:
    with worker(product):
        episode, turn = await started(product)
        calling = asyncio.create_task(bash(turn, 0, "sleep 603.77 & setsid sleep 603.77; wait"))
        await product.until(lambda: len(processes_with("sleep 603.77")) > 2, LONG)

        asked = time.monotonic()
        await episode.cancel("enough")
        await product.until(lambda: processes_with("sleep 603.77") == [])
        took_s = time.monotonic() - asked

        with pytest.raises(Exception, match="is over"):
            await calling
        assert (await episode.result()).status is RunStatus.CANCELED
        assert took_s < 2
        assert sandbox_folders(product) == []


async def test_an_episode_terminated_in_a_turn_is_torn_down(product: Product) -> None:
    with product.worker():
        episode, turn = await started(product)
        handle = product.trainer.client.get_workflow_handle(episode.run_id)
        await handle.terminate(reason="gone")

        await until(lambda: _is_ended(episode))

        row = await episode.record()
        assert (row.status, row.error) == (RunStatus.CANCELED, "terminated: gone")
        assert sandbox_folders(product) == []
        assert await episode.next_turn() is None
        await turn.end("too late")


async def test_a_turn_stays_open_while_its_episode_goes_on_in_new_executions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent_env.specs.MAX_UPDATES", 5)
    async with local_trainer(Settings(state_dir=tmp_path)) as trainer:
        spec = EpisodeSpec.from_task(Task.of(TASK))
        episode = await trainer.start(spec)
        outcome = asyncio.create_task(trainer.attach(episode.run_id).result(teardown=False))
        turn = await episode.next_turn()
        assert turn is not None
        # Another trainer keeps looking on, as one that is about to take over.
        for number in range(20):
            await bash(turn, number, f"echo {number} >> log")
            looking = await trainer.attach(episode.run_id).next_turn()
            assert looking is not None
            assert looking.messages == turn.messages
        await turn.end("done")
        assert (await outcome).status is RunStatus.COMPLETED
        result = await episode.result()
        executions = [
            found.status
            async for found in trainer.client.list_workflows(f"WorkflowId = '{episode.run_id}'")
        ]
        assert await disagreements_left(trainer.client, trainer.index) == []

    assert (result.status, result.reward) == (RunStatus.COMPLETED, 20)
    assert len(executions) > 5
    assert executions.count(WorkflowExecutionStatus.CONTINUED_AS_NEW) == len(executions) - 1


async def test_callers_that_went_away_while_they_waited_are_in_nobodys_way(tmp_path: Path) -> None:
    """The engine takes ten requests of one episode at a time."""
    async with local_trainer(Settings(state_dir=tmp_path)) as trainer:
        task = Task.of({"id": "turns", "steps": [ask("one"), ask("two")]})
        spec = EpisodeSpec.from_task(task)
        playing = await trainer.start(spec)
        turn = await playing.next_turn()
        assert turn is not None
        for _ in range(12):
            await gone_waiting(playing)
        for _ in range(12):
            another = trainer.attach(playing.run_id)
            await another.next_turn()
            await gone_waiting(another)

        async with asyncio.timeout(30):
            await turn.end("1")
            last = await playing.next_turn()
            assert last is not None
            await last.end("2")
            result = await playing.result()

    assert (last.step_id, result.status) == ("two", RunStatus.COMPLETED)


async def gone_waiting(episode: Episode) -> None:
    """Wait for a turn that does not come, and lose patience."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await episode.next_turn()


async def test_a_long_conversation_leaves_a_short_history(product: Product) -> None:
    big = "x" * 100_000
    with worker(product):
        episode, turn = await started(product, max_output_bytes=200_000)
        for number in range(100):
            called = message(number, "head -c 100000 /dev/zero | tr '\\0' y")
            async with turn.tools() as tools:
                await turn.record_model_call({**called, "content": big})
                answer = await tools.call("bash", json.loads(_arguments(called)))
            assert len(answer.text) == 100_000
        await turn.end(big)
        result = await episode.result()
        described = await product.trainer.client.get_workflow_handle(episode.run_id).describe()

    info = described.raw_description.workflow_execution_info
    said = product.index.conversations.of_run(episode.run_id)
    assert result.status is RunStatus.COMPLETED
    assert len(said) == 202
    assert sum(len(json.dumps(each.message)) for each in said) > 20_000_000
    assert info.history_length < 5_000
    assert info.history_size_bytes < 2_000_000


def _arguments(called: dict[str, JsonValue]) -> str:
    calls: Any = called["tool_calls"]
    return calls[0]["function"]["arguments"]


async def _is_ended(episode: Episode) -> bool:
    return (await episode.record()).status.is_finished
