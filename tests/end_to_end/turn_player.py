"""A trainer in a process of its own: plays a turn by script, or takes up what another one left.

COMMANDS=… python turn_player.py start RUN_ID TASK    has the commands run, says what it sees
COMMANDS=… python turn_player.py attach RUN_ID TASK   goes on after those that were answered
"""

import asyncio
import json
import os
import sys
from typing import Any

from agent_env import EpisodeSpec, Task, Trainer, Turn


def say(**what: Any) -> None:
    sys.stderr.write(json.dumps(what) + "\n")
    sys.stderr.flush()


def message(number: int, command: str) -> dict[str, Any]:
    arguments = json.dumps({"command": command})
    call = {"id": f"c{number}", "type": "function"}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{**call, "function": {"name": "bash", "arguments": arguments}}],
    }


async def play(turn: Turn, commands: list[str]) -> None:
    done = sum(each["role"] == "tool" for each in turn.messages)
    say(turn=turn.step_id, messages=[each["role"] for each in turn.messages])
    async with turn.tools(timeout=60) as tools:
        for number, command in enumerate(commands):
            if number < done:
                continue
            await turn.record_model_call(message(number, command))
            say(calls=number)
            result = await tools.call("bash", {"command": command})
            say(answered=number, text=result.text, error=result.isError)
    await turn.end("done")


async def main(how: str, run_id: str, task: str) -> None:
    async with Trainer.connect() as trainer:
        if how == "start":
            spec = EpisodeSpec.from_task(Task.of(json.loads(task)))
            episode = await trainer.start(spec, run_id=run_id)
        else:
            episode = trainer.attach(run_id)
        while (turn := await episode.next_turn()) is not None:
            await play(turn, json.loads(os.environ["COMMANDS"]))
        result = await episode.result()
    sys.stdout.write(json.dumps([result.status, result.reward]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
