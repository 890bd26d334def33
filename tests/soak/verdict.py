"""What must hold when a soak is over, whatever was killed meanwhile."""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from agent_env.results import EpisodeResult
from agent_env.runs import RunRecord
from agent_env.status import RunStatus
from tests.soak.killer import REASON
from tests.soak.ledger import StepRun
from tests.soak.machines import Machine, Span
from tests.soak.plan import CANCELED_BY, Order

_LAST_SECOND_S = 1.0
"""How long before it is cut off a step may have ended that runs again: its process says so before
its worker has seen it end, and the machine is busy."""
_DIES_S = 0.5
"""How long after a kill was noted its process may still be at work."""
_HEARS_S = 15.0
"""How long a cancel may take to be heard when worker or server have been killed as it came."""
_RECONNECTS_S = 3.0
"""How long after a server is back clients may still wait to try it again."""
_HOST_LOSSES = 2
"""How often an episode begins again on another host; the next time it ends."""


@dataclass(frozen=True)
class Record:
    """All that is known of a soak."""

    orders: Sequence[Order]
    rows: Mapping[str, RunRecord]
    terminated: Collection[str]
    canceled_at: Mapping[str, float]
    """When a cancel was answered, in seconds since 1970, by the id of the order."""
    told: Sequence[EpisodeResult]
    """What trainers were told."""
    steps: Sequence[StepRun]
    hosts: Mapping[Path, Machine]
    """By state folder."""
    server_downs: Sequence[Span]
    host_lost_after_s: float
    graceful_shutdown_s: float


def faults(record: Record) -> Iterator[str]:
    """Whatever should not be as it is, a line each."""
    wanted = {run_id for order in record.orders for run_id in order.run_ids}
    for run_id in sorted(wanted ^ set(record.rows)):
        yield f"{run_id}: {'has no row' if run_id in wanted else 'nobody asked for it'}"
    runs: dict[str, list[StepRun]] = defaultdict(list)
    for step in record.steps:
        runs[step.run_id].append(step)
    for order in record.orders:
        for run_id, seed in zip(order.run_ids, order.seeds, strict=True):
            if (row := record.rows.get(run_id)) is not None:
                about = f"{run_id} ({order.kind.name}, {row.status}, epoch {row.epoch})"
                found = [*_end(record, order, row, seed), *_steps(record, order, row, runs[run_id])]
                yield from (f"{about}: {fault}" for fault in found)
    yield from _told(record)


def ended_as_its_kind(order: Order, row: RunRecord, seed: int) -> bool:
    """Whether an episode came to the end that its steps lead to."""
    end = order.kind.end
    return (
        end is not None
        and (row.status, row.error_type) == (end.status, end.error_type)
        and _is_close(row.reward, end.reward(seed))
    )


def _end(record: Record, order: Order, row: RunRecord, seed: int) -> Iterator[str]:
    if not row.status.is_finished:
        yield "has not ended"
    elif not ended_as_its_kind(order, row, seed) and not _is_explained(record, order, row):
        yield f"ended with {row.error_type}: {row.error}; reward {row.reward}"
    if row.still_up:
        yield f"is said to have left {row.still_up}"


def _is_explained(record: Record, order: Order, row: RunRecord) -> bool:
    """Whether an end that is not its kind's is one that somebody or something has brought about."""
    if row.error_type == "HostLost":
        return row.epoch > _HOST_LOSSES and _has_lost_a_host(record, row)
    if row.status is not RunStatus.CANCELED:
        return False
    if order.cancel_after_s is not None and row.error == order.reason:
        return row.cancel_requested_by == CANCELED_BY
    if row.run_id in record.terminated:
        return (row.error or "").startswith(f"terminated: {REASON}")
    return order.id in record.terminated  # Temporal cancels the members, and gives no reason


def _steps(record: Record, order: Order, row: RunRecord, runs: Sequence[StepRun]) -> Iterator[str]:
    for step_id in order.kind.never:
        if any(run.step_id == step_id for run in runs):
            yield f"step {step_id!r} ran"
    heard_at = record.canceled_at.get(order.id, math.inf) + _HEARS_S
    if any(run.began_at > heard_at for run in runs):
        yield f"went on {_HEARS_S:g} s after it was canceled"
    epochs = max((run.epoch for run in runs), default=1)
    if epochs > 1 + order.kind.retries and not _has_lost_a_host(record, row):
        yield f"began again {epochs - 1} times, with {order.kind.retries} retries and no host lost"
    by_step: dict[str, list[StepRun]] = defaultdict(list)
    for run in runs:
        by_step[run.step_id].append(run)
    for step_id, mine in by_step.items():
        for before, after in pairwise(mine):
            if before.over_at is None:
                continue
            if after.began_at < before.over_at:
                yield f"step {step_id!r} ran twice at a time, {_times(before, after)}"
            elif before.epoch == after.epoch and not _is_last_second(record, before, after):
                yield f"step {step_id!r} had ended and ran again, {_times(before, after)}"


def _times(before: StepRun, after: StepRun) -> str:
    return (
        f"on {before.host.name} {before.began_at:.3f} to {before.over_at:.3f}, epoch "
        f"{before.epoch}, and on {after.host.name} from {after.began_at:.3f}, epoch {after.epoch}"
    )


def _is_last_second(record: Record, before: StepRun, after: StepRun) -> bool:
    """Whether its worker died or gave it up so soon after the step that nobody knew of its end."""
    assert before.over_at is not None
    host = record.hosts[before.host]
    for killed_at in host.killed_at:
        since_s = killed_at - before.over_at
        if -_DIES_S <= since_s <= _LAST_SECOND_S and killed_at <= after.began_at:
            return True
    for asked_at, ended_at in host.stops:
        # What still runs then is cut off as by a kill.
        gives_up_at = asked_at + record.graceful_shutdown_s
        if gives_up_at - _LAST_SECOND_S <= before.over_at <= ended_at <= after.began_at:
            return True
    return False


def _has_lost_a_host(record: Record, row: RunRecord) -> bool:
    """Whether a host could not be reached for long enough while the episode was under way."""
    assert row.finished_at is not None
    start, end = row.created_at.timestamp(), row.finished_at.timestamp()
    for host in record.hosts.values():
        for down in _joined([*host.downs, *record.server_downs]):
            is_long = down.end - down.start >= 0.9 * record.host_lost_after_s
            if is_long and down.start <= end and start <= down.end:
                return True
    return False


def _joined(spans: Sequence[Span]) -> list[Span]:
    """The same without gaps that are too short to be noticed."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span.start <= found[-1].end + _RECONNECTS_S:
            found[-1] = Span(found[-1].start, max(found[-1].end, span.end))
        else:
            found.append(span)
    return found


def _told(record: Record) -> Iterator[str]:
    for result in record.told:
        row = record.rows.get(result.run_id)
        if row is None or result.model_copy(update={"still_up": row.still_up}) != row.result():
            yield f"{result.run_id}: a trainer was told {result!r}, and the row is {row!r}"
    missing = set(record.rows) - {result.run_id for result in record.told}
    yield from (f"{run_id}: no trainer was told how it ended" for run_id in sorted(missing))


def _is_close(reward: float | None, wanted: float | None) -> bool:
    if reward is None or wanted is None:
        return reward is wanted
    return math.isclose(reward, wanted)
