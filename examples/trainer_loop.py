"""A trainer that plays an agent's turn by script, where a real one asks its model.

Starts a Temporal server and a worker if none runs, plays the task and prints the reward:

    python examples/trainer_loop.py

Killed in the middle and started again with the run's id, it goes on where it was:

    python examples/trainer_loop.py RUN_ID
"""

import asyncio
import json
import sys
from typing import Any

from agent_env import Episode, EpisodeSpec, Task, Turn, local_trainer

TASK = Task.of(
    [
        {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box"},
        {
            "id": "solve",
            "type": "prompt_agent",
            "agent_name": "solver",
            "system_prompt": "You work in a sandbox. Use your tools.",
            "prompt": "Write the sum of the numbers from 1 to <top> into sum.txt.",
        },
        {
            "id": "check",
            "type": "run_code",
            "command": "test $(cat sum.txt) -eq $(( <top> * (<top> + 1) / 2 ))",
            "score_from": "exit_code",
        },
    ],
    where="sum",
)


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What a model says next: here, by script. Put your own in its place."""
    done = sum(message["role"] == "tool" for message in messages)
    top = messages[1]["content"].split(" to ")[1].split()[0]
    script = [
        ("bash", {"command": f"seq {top} | paste -sd+ | python3 -c 'print(eval(input()))'"}),
        ("write_file", {"path": "sum.txt", "content": str(messages[-1]["content"])}),
    ]
    if done == len(script):
        return {"role": "assistant", "content": "The sum is in sum.txt."}
    name, arguments = script[done]
    function = {"name": name, "arguments": json.dumps(arguments)}
    calls = [{"id": f"call-{done}", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


async def play(turn: Turn) -> None:
    """Ask the model and run its tools until it replies."""
    async with turn.tools(timeout=60) as tools:
        while True:
            messages = list(turn.messages)
            message = model(messages)
            await turn.record_model_call(message, model="script")
            for call in message.get("tool_calls", []):
                function = call["function"]
                result = await tools.call(function["name"], json.loads(function["arguments"]))
                print(f"{function['name']}: {result.text}")
            if not message.get("tool_calls"):
                return await turn.end(message["content"])


async def main(run_id: str | None) -> None:
    """Play an episode: a new one, or the one of this id."""
    spec = EpisodeSpec.from_task(
        TASK, trainer_agents=["solver"], seed={"top": "100"}, turn_timeout=600
    )
    async with local_trainer():
        episode = Episode.attach(run_id) if run_id else await spec.start()
        print(f"playing {episode.run_id}")
        while (turn := await episode.next_turn()) is not None:
            await play(turn)
        result = await episode.result()
        print(f"{result.status}: reward {result.reward}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2] or [None]))
