"""A training loop in a process of its own: starts an episode and a group, or finds them again.

python training_loop.py start|attach RUN_ID GROUP_ID TASK
"""

import asyncio
import json
import sys

from agent_env import EpisodeSpec, Trainer
from agent_env.task import Task


async def main(how: str, run_id: str, run_group_id: str, task: str) -> None:
    async with Trainer.connect() as trainer:
        if how == "start":
            spec = EpisodeSpec.from_task(Task.of(json.loads(task)))
            episode = await trainer.start(spec, run_id=run_id)
            group = await trainer.start_group(spec, size=3, run_group_id=run_group_id)
        else:
            episode, group = trainer.attach(run_id), trainer.attach_group(run_group_id)
        members = [member async for member in group.as_completed()]
        ended = [await episode.result(), *members, *(await group.result()).members]
        sys.stdout.write(json.dumps([(result.run_id, result.status) for result in ended]))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
