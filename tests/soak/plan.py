"""What a soak plays: a mix of kinds, alone and in groups, and which of them are canceled when."""

import random
from dataclasses import dataclass
from pathlib import Path

from agent_env import EpisodeSpec, ids
from agent_env._model import EdgeModel
from agent_env.task import Task
from tests.soak.kinds import KINDS, Kind, Steps

CANCELED_BY = "soak"
_GROUPED = 0.25
"""Share of episodes that are played in groups."""
_CANCELED = 0.08
"""Share of episodes and of groups that are canceled at a random moment, and may end before."""


@dataclass(frozen=True)
class Order:
    """One episode or one group to be started."""

    id: str
    kind: Kind
    seeds: tuple[int, ...]
    """One of an episode; one a member of a group."""
    max_parallel: int | None = None
    """Of a group."""
    cancel_after_s: float | None = None
    """When it is canceled, after it was listed."""

    @property
    def reason(self) -> str:
        """Why it is canceled."""
        return f"soak: {self.id} is not wanted"

    @property
    def is_group(self) -> bool:
        return self.max_parallel is not None

    @property
    def run_ids(self) -> tuple[str, ...]:
        """Its runs, one a seed."""
        if not self.is_group:
            return (self.id,)
        return tuple(ids.member_id(self.id, index) for index in range(len(self.seeds)))


class Line(EdgeModel):
    """An order as a trainer reads it."""

    id: str
    task: Task
    seeds: tuple[dict[str, str], ...]
    max_parallel: int | None

    def spec(self) -> EpisodeSpec:
        """What to start; of a group, its first member."""
        return EpisodeSpec.from_task(self.task, seed=self.seeds[0])


def planned(dice: random.Random, episodes: int) -> list[Order]:
    """Orders for so many episodes; every kind is among them if there are some dozens."""
    kinds = [kind for kind in KINDS for _ in range(max(1, round(kind.share * episodes / 100)))]
    dice.shuffle(kinds)
    orders: list[Order] = []
    seed = 0
    while seed < episodes:
        number, size, max_parallel = len(orders), 1, None
        kind = kinds[number % len(kinds)]
        if kind.end is not None and dice.random() < _GROUPED / 4:
            size, max_parallel = min(dice.randint(3, 6), episodes - seed), dice.randint(1, 3)
        is_canceled = kind.end is None or dice.random() < _CANCELED
        orders.append(
            Order(
                id=f"{'grp' if max_parallel else 'run'}-soak-{number:04d}",
                kind=kind,
                seeds=tuple(range(seed, seed + size)),
                max_parallel=max_parallel,
                cancel_after_s=dice.uniform(0, 6) if is_canceled else None,
            )
        )
        seed += size
    return orders


def write(path: Path, orders: list[Order], steps: Steps) -> None:
    """Write the orders for trainers, a line each."""
    with path.open("w", encoding="utf-8") as file:
        for order in orders:
            line = Line(
                id=order.id,
                task=order.kind.task(steps),
                seeds=tuple(
                    {"run": run_id, "seed": str(seed)}
                    for run_id, seed in zip(order.run_ids, order.seeds, strict=True)
                ),
                max_parallel=order.max_parallel,
            )
            file.write(f"{line.model_dump_json()}\n")
