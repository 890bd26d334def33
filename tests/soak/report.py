"""How a soak went, as text."""

from collections import Counter
from collections.abc import Iterator, Sequence

from agent_env.status import RunStatus
from tests.soak.killer import Killer
from tests.soak.kinds import KINDS
from tests.soak.verdict import Record, ended_as_its_kind

_MOST_FAULTS = 40


def report(
    record: Record, killer: Killer, *, faults: Sequence[str], seed: int, took_s: float
) -> str:
    """Seed, ends of each kind, kills, and what should not be as it is."""
    return "\n".join(_lines(record, killer, faults, seed, took_s))


def _lines(
    record: Record, killer: Killer, faults: Sequence[str], seed: int, took_s: float
) -> Iterator[str]:
    yield f"SEED={seed}: {len(record.rows)} episodes in {took_s:.0f} s"
    statuses: Counter[tuple[str, RunStatus]] = Counter()
    natural: Counter[str] = Counter()
    for order in record.orders:
        for run_id, its_seed in zip(order.run_ids, order.seeds, strict=True):
            if (row := record.rows.get(run_id)) is not None:
                statuses[order.kind.name, row.status] += 1
                natural[order.kind.name] += ended_as_its_kind(order, row, its_seed)
    yield f"{'kind':<10}" + "".join(f"{status:>10}" for status in RunStatus) + f"{'own end':>10}"
    for kind in KINDS:
        counts = "".join(f"{statuses[kind.name, status]:>10}" for status in RunStatus)
        yield f"{kind.name:<10}{counts}{natural[kind.name]:>10}"
    again = sum(row.epoch > 1 for row in record.rows.values())
    yield f"{len(record.steps)} runs of steps; {again} episodes have a later epoch than 1"
    yield "did: " + ", ".join(f"{what} ×{times}" for what, times in sorted(killer.done.items()))
    yield f"{len(faults)} faults"
    yield from faults[:_MOST_FAULTS]
