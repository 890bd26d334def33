"""Learns to balance the CartPole by group-relative policy gradients. Every rollout is an episode.

    python examples/grpo_group.py [ITERATIONS]

Each group of eight plays the same pole with the same weights; only their luck differs. How much
better than its group a member did, its advantage, weighs what it did: the gradient of the log
likelihood of its actions, which it leaves in a folder beside its reward in the run index.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from agent_env import EpisodeSpec, GroupResult, Task, Trainer, local_trainer

SIZE, RATE = 8, 2.0


def rollout(theta: str, pole: str, luck: str, into: str) -> float:
    """Play one pole to its fall; runs in a process of its own, on the host of the episode."""
    import gymnasium

    weights = np.array(json.loads(theta))
    chance = np.random.default_rng([int(pole), int(luck)])
    env = gymnasium.make("CartPole-v1")
    state, _ = env.reset(seed=int(pole))
    gradient, total, over = np.zeros(4), 0.0, False
    while not over:
        right = 1 / (1 + np.exp(-weights @ state))
        action = int(chance.random() < right)
        gradient += (action - right) * state
        state, reward, fell, timed_out, _ = env.step(action)
        total, over = total + float(reward), fell or timed_out
    Path(into, f"{pole}-{luck}.json").write_text(json.dumps(gradient.tolist()), encoding="utf-8")
    return total


def task(into: Path) -> Task:
    """One rollout; what stands in <> is each member's own seed."""
    step = {
        "id": "rollout",
        "type": "python",
        "function": f"{Path(__file__).resolve()}:rollout",
        "args": {"theta": "<theta>", "pole": "<pole>", "luck": "<luck>", "into": str(into)},
        "score": True,
        "timeout_seconds": 120,
    }
    return Task.of({"id": "grpo-cartpole", "steps": [step]})


def did(into: Path, pole: int, luck: int) -> np.ndarray:
    """What a rollout has left."""
    return np.array(json.loads((into / f"{pole}-{luck}.json").read_text(encoding="utf-8")))


async def improved(
    trainer: Trainer, theta: np.ndarray, pole: int, into: Path
) -> tuple[np.ndarray, GroupResult]:
    """One iteration: a group of rollouts, and the weights after it."""
    seeds = [
        {"theta": json.dumps(theta.tolist()), "pole": str(pole), "luck": str(luck)}
        for luck in range(SIZE)
    ]
    spec = EpisodeSpec.from_task(task(into), seed=seeds[0])
    group = await trainer.start_group(spec, seeds=seeds)
    result = await group.result()
    step = np.zeros_like(theta)
    for luck, advantage in enumerate(result.advantages):
        if advantage is not None:  # a member that failed has no score, and teaches nothing
            step += advantage * did(into, pole, luck) / SIZE
    return theta + RATE * step, result


async def learn(trainer: Trainer, iterations: int) -> list[float]:
    """The mean reward of each group, in order."""
    theta, means = np.zeros(4), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        for pole in range(iterations):
            theta, result = await improved(trainer, theta, pole, Path(folder))
            means.append(result.mean or 0.0)
            sys.stdout.write(f"group {pole}: mean reward {result.mean}\n")
    return means


async def main(iterations: int) -> None:
    """Learn on this machine; starts what is missing."""
    async with local_trainer() as trainer:
        await learn(trainer, iterations)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 8))
