"""A soak that went wrong is told so: each thing that must hold, broken once."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent_env.runs import RunRecord
from agent_env.status import RunStatus
from tests.end_to_end.who_dies import Process
from tests.soak.kinds import KINDS
from tests.soak.ledger import StepRun
from tests.soak.machines import Machine, Span
from tests.soak.plan import CANCELED_BY, Order
from tests.soak.verdict import Record, faults

HERE = Path("here")
DAY = datetime(2026, 1, 31, tzinfo=UTC)
NOON = DAY.timestamp() + 12 * 3600
KIND = {kind.name: kind for kind in KINDS}


def never_started() -> Process:
    raise AssertionError


def row(status: RunStatus = RunStatus.COMPLETED, **fields: object) -> RunRecord:
    empty = dict.fromkeys(RunRecord.model_fields)
    known: dict[str, object] = {
        "run_id": "run",
        "instance_id": "run",
        "runner": "episode",
        "task_id": "short",
        "task_version": "1",
        "status": status,
        "created_at": DAY,
        "finished_at": DAY.replace(hour=13),
        "reward": 0.005,
        "scores": {},
        "steps_total": 1,
        "steps_done": 1,
        "epoch": 1,
        "still_up": (),
        "seed": {},
        "tags": {},
        "namespace": "default",
    }
    return RunRecord.model_validate({**empty, **known, **fields})


def ran(began_s: float, over_s: float | None, step_id: str = "only", epoch: int = 1) -> StepRun:
    over_at = None if over_s is None else NOON + over_s
    return StepRun("run", step_id, HERE, epoch, NOON + began_s, over_at)


def record(kind: str = "short", found: RunRecord | None = None, *steps: StepRun) -> Record:
    """Of one episode, as it must be unless told otherwise."""
    found = found or row()
    host = Machine("here", never_started, lambda _: True)
    host.killed_at.append(NOON + 10)
    return Record(
        orders=[Order("run", KIND[kind], seeds=(5,))],
        rows={"run": found},
        terminated=(),
        canceled_at={},
        told=[found.result()],
        steps=steps or [ran(0, 1)],
        hosts={HERE: host},
        server_downs=(),
        host_lost_after_s=8,
        graceful_shutdown_s=2,
    )


def canceled(reason: str, **more: object) -> RunRecord:
    fields = {"error_type": "Canceled", "error": reason, "reward": None, **more}
    return row(RunStatus.CANCELED, **fields)


CANCELED = replace(record(), orders=[Order("run", KIND["short"], (5,), cancel_after_s=1.0)])
REASON = CANCELED.orders[0].reason


@pytest.mark.parametrize(
    "sound",
    [
        record(),
        record("short", None, ran(0, 9.5), ran(12, 13)),
        record("short", None, ran(0, None), ran(12, 13)),
        record("exhausted", row(RunStatus.FAILED, error_type="ValueError", reward=None)),
        replace(record("short", canceled("terminated: soak: terminated")), terminated={"run"}),
        replace(CANCELED, rows={"run": canceled(REASON, cancel_requested_by=CANCELED_BY)}, told=()),
    ],
)
def test_what_may_be_is_no_fault(sound: Record) -> None:
    assert [fault for fault in faults(sound) if "no trainer" not in fault] == []


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (lambda: replace(record(), rows={}, told=()), "has no row"),
        (lambda: record("short", row(RunStatus.RUNNING)), "has not ended"),
        (lambda: record("short", row(reward=0.0)), "reward 0.0"),
        (lambda: record("failing", row()), "ended with None"),
        (lambda: record("short", canceled("terminated: soak: terminated")), "ended with Canceled"),
        (lambda: replace(CANCELED, rows={"run": canceled("")}), "ended with Canceled"),
        (lambda: record("short", row(RunStatus.FAILED, error_type="HostLost")), "HostLost"),
        (lambda: record("short", None, ran(0, 8.5), ran(12, 13)), "had ended and ran again"),
        (lambda: record("short", None, ran(0, 2), ran(1, 3)), "ran twice at a time"),
        (lambda: record("short", None, ran(0, 1), ran(12, 13, epoch=2)), "no host lost"),
        (lambda: record("failing", row(), ran(0, 1, "never")), "step 'never' ran"),
        (lambda: replace(CANCELED, canceled_at={"run": NOON - 20}), "after it was canceled"),
        (lambda: replace(record(), told=()), "no trainer was told"),
        (lambda: replace(record(), told=[row(reward=None).result()]), "a trainer was told"),
    ],
)
def test_what_must_not_be_is_a_fault(broken: Callable[[], Record], fault: str) -> None:
    assert [found for found in faults(broken()) if fault in found] != []


@pytest.mark.parametrize(("over_s", "is_fault"), [(20.5, True), (22.5, False), (24.5, True)])
def test_a_host_that_was_asked_to_stop_cuts_off_what_runs_when_its_time_is_over(
    over_s: float, is_fault: bool
) -> None:
    stopped = record("short", None, ran(0, over_s), ran(30, 31))
    stopped.hosts[HERE].stops.append(Span(NOON + 20, NOON + 24))

    assert bool([*faults(stopped)]) is is_fault


def test_a_host_that_was_away_for_long_explains_a_later_epoch() -> None:
    away = record("short", None, ran(0, 1), ran(30, 31, epoch=2))
    away.hosts[HERE].downs.append(Span(NOON + 10, NOON + 19))

    assert [*faults(away)] == []
