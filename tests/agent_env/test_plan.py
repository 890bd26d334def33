"""The planner, played to the end on random tasks as the workflow and its activities would."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.outcome import outcome
from agent_env.plan import Segment, drop, is_fatal, may_retry, next_retry, plan, stopped
from agent_env.results import SandboxRef, StepReport
from agent_env.status import RunStatus, StepStatus
from agent_env.task import Task, ancestors, descendants, edges

COMPLETED, FAILED = StepStatus.COMPLETED, StepStatus.FAILED
CANCELED, SKIPPED = StepStatus.CANCELED, StepStatus.SKIPPED


def task_of(*steps: dict[str, Any], **fields: Any) -> Task:
    return Task.of({"steps": [{"type": "x", **step} for step in steps], **fields}, where="t")


def report(step_id: str, status: StepStatus = COMPLETED, **fields: Any) -> StepReport:
    return StepReport(step_id=step_id, type="x", epoch=1, status=status, **fields)


def segment_ids(task: Task, *reports: StepReport, in_flight: tuple[str, ...] = ()) -> list[str]:
    segment = plan(task, reports, in_flight).segment
    return list(segment.ids) if segment else []


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """Tasks with random edges, waits, retries, tolerated steps and segment limits."""
    size = draw(st.integers(min_value=1, max_value=8))
    steps: list[dict[str, Any]] = []
    for number in range(size):
        earlier = [str(n) for n in range(number)]
        edges_given = st.lists(st.sampled_from(earlier), unique=True) if earlier else st.just([])
        step: dict[str, Any] = {
            "id": str(number),
            "type": draw(st.sampled_from(["x", "x", "x", "wait"])),
            "depends_on": draw(st.none() | edges_given),
            "fail_task_on_error": draw(st.booleans()),
        }
        if draw(st.booleans()):
            above = sorted(ancestors(task_of(*steps, step), step["id"]))
            step["retry_config"] = {
                "retry_from_step_id": draw(st.sampled_from([None, step["id"], *above])),
                "max_retries": draw(st.integers(min_value=0, max_value=2)),
            }
        steps.append(step)
    return task_of(*steps, segment_limit=draw(st.integers(min_value=1, max_value=4)))


class Play:
    """Plays a task: segments and waits are in flight together and end in any order."""

    def __init__(self, task: Task, chance: random.Random, *, failure_rate: float) -> None:
        self.task = task
        self.reports: tuple[StepReport, ...] = ()
        self.starts: Counter[str] = Counter()
        self.retries = 0
        self._allowed = sum(s.retry_config.max_retries for s in task.steps if s.retry_config)
        self._chance = chance
        self._failure_rate = failure_rate
        self._in_flight: list[tuple[str, ...]] = []
        self._segments: dict[tuple[str, ...], Segment] = {}

    def to_the_end(self) -> Play:
        """Play until nothing is under way, or a failure is fatal."""
        while True:
            self._start_ready()
            if not self._in_flight:
                break
            ids = self._in_flight.pop(self._chance.randrange(len(self._in_flight)))
            self.reports += self._ran(ids)
            if is_fatal(self.task, self.reports):
                break
            self._settle()
        return self

    def _start_ready(self) -> None:
        flying = [step_id for ids in self._in_flight for step_id in ids]
        ready = plan(self.task, self.reports, flying)
        launched: list[tuple[str, ...]] = [(step.id,) for step in ready.waits]
        if ready.segment is not None:
            assert len(ready.segment.ids) <= self.task.segment_limit
            launched.append(ready.segment.ids)
            self._segments[ready.segment.ids] = ready.segment
        assert bool(launched) is not ready.is_empty
        started = [step_id for ids in launched for step_id in ids]
        settled = {r.step_id for r in self.reports if not r.retried}
        assert not {*started} & {*flying, *settled}, "started twice"
        assert len(started) == len({*started})
        self._in_flight += launched

    def _ran(self, ids: tuple[str, ...]) -> tuple[StepReport, ...]:
        """Run a wait or a segment to its end: ready steps in any order, as their edges allow."""
        segment = self._segments.get(ids)
        if segment is None:  # a wait
            return (self._attempt(ids[0], {}),)
        found: dict[str, StepReport] = {}
        waiting = list(segment.steps)
        while waiting:
            ready = [step for step in waiting if {*step.after} <= found.keys()]
            assert ready, "a segment that can't go on"
            step = self._chance.choice(ready)
            waiting.remove(step)
            found[step.spec.id] = self._attempt(step.spec.id, found)
            if found[step.spec.id].status is FAILED:
                for other in [other for other in waiting if other.spec.id in step.stops]:
                    waiting.remove(other)
                    how = self._chance.choice([CANCELED, SKIPPED])
                    found[other.spec.id] = report(other.spec.id, how)
        return tuple(found[step_id] for step_id in ids)

    def _attempt(self, step_id: str, inside: dict[str, StepReport]) -> StepReport:
        standing = {r.step_id: r for r in self.reports if not r.retried} | inside
        for name in edges(self.task)[step_id]:
            assert name in standing, f"{step_id} started before {name}"
            tolerated = not self.task.step(name).fail_task_on_error
            ok = standing[name].status is COMPLETED
            assert ok or (standing[name].status is FAILED and tolerated)
        self.starts[step_id] += 1
        fails = self._chance.random() < self._failure_rate
        return report(step_id, FAILED if fails else COMPLETED)

    def _settle(self) -> None:
        while retry := next_retry(self.task, self.reports):
            for ids in [ids for ids in self._in_flight if retry.span & {*ids}]:
                self._in_flight.remove(ids)
                self.reports += tuple(report(step_id, CANCELED) for step_id in ids)
            self.reports, _ = drop(self.reports, retry.span | stopped(self.reports))
            self.retries += 1
            assert self.retries <= self._allowed, "retried without end"


@given(tasks(), st.randoms(use_true_random=False), st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0]))
def test_every_task_is_played_to_an_end_that_says_what_happened(
    task: Task, chance: random.Random, failure_rate: float
) -> None:
    play = Play(task, chance, failure_rate=failure_rate).to_the_end()

    standing = [r for r in play.reports if not r.retried]
    assert len({r.step_id for r in standing}) == len(standing)
    ended = outcome(task, play.reports)
    if is_fatal(task, play.reports):
        assert ended.status is RunStatus.FAILED
        return
    assert {r.step_id for r in standing} == {step.id for step in task.steps}
    assert {r.status for r in standing} <= {COMPLETED, FAILED}
    failed = any(r.status is FAILED for r in standing)
    assert ended.status is (RunStatus.FAILED if failed else RunStatus.COMPLETED)
    assert ended.error_type != "StepInterrupted"


@given(tasks(), st.randoms(use_true_random=False))
def test_without_failures_every_step_runs_exactly_once(task: Task, chance: random.Random) -> None:
    play = Play(task, chance, failure_rate=0).to_the_end()

    assert play.starts == {step.id: 1 for step in task.steps}
    assert [r.status for r in play.reports] == [COMPLETED] * len(task.steps)


@given(tasks())
def test_a_retry_drops_the_step_it_resumes_from_and_all_that_depends_on_it(task: Task) -> None:
    for step in task.steps:
        retry = next_retry(task, [report(step.id, FAILED)])

        if step.retry_config is None or step.retry_config.max_retries == 0:
            assert retry is None
        else:
            resume = step.retry_config.retry_from_step_id or step.id
            assert retry is not None
            assert retry.span == {resume, *descendants(task, resume)}
            assert step.id in retry.span


def test_steps_that_need_nothing_between_them_are_one_segment_with_the_edges_inside_it() -> None:
    task = task_of({"id": "a"}, {"id": "b"}, {"id": "c", "depends_on": ["a", "b"]})

    whole, rest = plan(task, []).segment, plan(task, [report("a")]).segment

    assert whole is not None
    assert rest is not None
    assert [s.after for s in whole.steps] == [(), ("a",), ("a", "b")]
    assert [(s.spec.id, s.after) for s in rest.steps] == [("b", ()), ("c", ("b",))]


def test_a_segment_holds_at_most_the_tasks_limit() -> None:
    steps: list[dict[str, Any]] = [{"id": name, "depends_on": []} for name in "abc"]
    task = task_of(*steps, segment_limit=2)

    assert segment_ids(task) == ["a", "b"]
    assert segment_ids(task, in_flight=("a", "b")) == ["c"]
    assert segment_ids(task, report("a"), report("b"), report("c")) == []


def test_a_wait_cuts_the_task_and_what_does_not_need_it_goes_on() -> None:
    task = task_of(
        {"id": "a"},
        {"id": "pause", "type": "wait", "depends_on": ["a"]},
        {"id": "free", "depends_on": []},
        {"id": "after", "depends_on": ["pause"]},
    )

    before = plan(task, [])
    between = plan(task, [report("a")], in_flight=["free"])

    assert (before.segment and before.segment.ids, before.waits) == (("a", "free"), ())
    assert (between.segment, [step.id for step in between.waits]) == (None, ["pause"])
    assert segment_ids(task, report("a"), in_flight=("free", "pause")) == []
    assert segment_ids(task, report("a"), report("pause"), in_flight=("free",)) == ["after"]
    assert plan(task, [], ["a", "free"]).is_empty


@pytest.mark.parametrize(
    ("failing", "stops"),
    [
        ({}, ("b", "c")),
        ({"fail_task_on_error": False}, ()),
        ({"retry_config": {}}, ("b",)),
        ({"retry_config": {"max_retries": 0}}, ("b", "c")),
        ({"retry_config": {"max_retries": 0}, "fail_task_on_error": False}, ()),
    ],
    ids=["fatal", "tolerated", "retried", "no retries left", "tolerated, no retries left"],
)
def test_a_failure_stops_what_its_kind_asks_for(
    failing: dict[str, Any], stops: tuple[str, ...]
) -> None:
    task = task_of(
        {"id": "a", **failing},
        {"id": "b", "depends_on": ["a"]},
        {"id": "c", "depends_on": []},
    )

    segment = plan(task, []).segment

    assert segment is not None
    assert segment.steps[0].stops == stops


def test_retries_are_counted_over_the_whole_episode() -> None:
    task = task_of({"id": "a", "retry_config": {"max_retries": 2}})
    step = task.steps[0]
    once = report("a", FAILED, retried=True)

    assert may_retry(step, [])
    assert may_retry(step, [once, report("a", CANCELED, retried=True)])
    assert not may_retry(step, [once, once])
    assert not is_fatal(task, [once, report("a", FAILED)])
    assert is_fatal(task, [once, once, report("a", FAILED)])
    assert next_retry(task, [once, once, report("a", FAILED)]) is None


def test_a_tolerated_failure_is_not_fatal() -> None:
    task = task_of({"id": "a", "fail_task_on_error": False}, {"id": "b"})

    assert not is_fatal(task, [report("a", FAILED)])
    assert segment_ids(task, report("a", FAILED)) == ["b"]
    assert is_fatal(task, [report("a", FAILED), report("b", FAILED)])


def test_a_retry_lists_the_sandboxes_that_its_span_deployed() -> None:
    box = SandboxRef(type="local", id="1", name="m", created_at=datetime.now(UTC))
    other, old = (box.model_copy(update={"id": name}) for name in ("2", "3"))
    reports = [
        report("a", FAILED, retried=True, sandboxes=(old,)),
        report("a", sandboxes=(box,)),
        report("b", sandboxes=(other,)),
        report("c", FAILED),
    ]

    kept, dropped = drop(reports, {"a", "c"})

    assert [(r.step_id, r.retried) for r in kept] == [*zip("aabc", (1, 1, 0, 1), strict=True)]
    assert dropped == (box,)


def test_a_step_outside_the_span_that_was_stopped_with_it_runs_again() -> None:
    task = task_of({"id": "a", "depends_on": [], "retry_config": {}}, {"id": "b", "depends_on": []})
    reports = [report("a", FAILED), report("b", CANCELED)]

    kept, _ = drop(reports, {"a"} | stopped(reports))

    assert segment_ids(task, *kept) == ["a", "b"]
    assert stopped(kept) == set()
