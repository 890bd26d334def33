"""Whatever happens to a run in whatever order, it ends legally and then never changes."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from agent_env.disagreements import Closed, ComparedRun, ending
from agent_env.errors import ConflictError, RunNotFoundError
from agent_env.results import StepReport
from agent_env.runs import Ended, RunIndex, RunRecord
from agent_env.status import (
    FINISHED,
    LIVE,
    RunStatus,
    StepStatus,
    may_be_overruled,
    may_move,
)
from tests.agent_env.runs.conftest import T0, finished, new_run, report, seconds

HOSTS = st.sampled_from(["here", "there"])
EPOCHS = st.integers(1, 4)
ROOMS = st.integers(0, 1)
WORKFLOWS = st.sampled_from(["first", "second"])
OUTSIDE = st.sampled_from(
    [
        Closed("TERMINATED", "wrong"),
        Closed("TIMED_OUT"),
        Closed("NOT_FOUND"),
        Closed("CANCELED", "enough"),
        Closed("FAILED", "boom", "ValueError"),
    ]
)
"""What Temporal may say of a workflow that did not write its row."""
SAID = (
    "status",
    "error_type",
    "error",
    "cancel_requested_at",
    "cancel_requested_by",
    "cancel_requested_reason",
)
"""What may change of a run that has ended, if its end is overruled."""
OVERRULING = st.sampled_from([Closed("TERMINATED", "wrong"), Closed("TIMED_OUT")])
"""What it may say of one that was ended between the row's end and its own."""


class Life(RuleBasedStateMachine):
    """One run, and all that workers, trainers and a lost host may do to it."""

    lives = 0

    def __init__(self, index: RunIndex) -> None:
        super().__init__()
        Life.lives += 1
        self.index = index
        self.run_id = f"run-{Life.lives}"
        self.workflow: str | None = None
        self.row: RunRecord | None = None
        self.steps: tuple[StepReport, ...] = ()
        self.looked: ComparedRun | None = None
        self.overruled: Closed | None = None
        """How its workflow was ended from outside, once it was: that never changes."""
        self.clock = 0

    def now(self) -> Any:
        self.clock += 1
        return T0 + seconds(self.clock)

    @rule(host=HOSTS, room=ROOMS, workflow=WORKFLOWS)
    def open(self, host: str, room: int, workflow: str) -> None:
        self.workflow = self.workflow or workflow
        run = new_run(self.run_id, workflow_run_id=workflow)
        try:
            # Every life has its own hosts, so that it has its own room.
            self.index.open_run(run, host=f"{host}-{self.run_id}", room=room, at=self.now())
        except ConflictError:
            assert workflow != self.workflow
        else:
            assert workflow == self.workflow

    @rule(host=HOSTS, room=ROOMS, epoch=EPOCHS)
    def begin(self, host: str, room: int, epoch: int) -> None:
        try:
            row = self.index.begin_run(
                self.run_id, host=f"{host}-{self.run_id}", room=room, epoch=epoch, at=self.now()
            )
        except RunNotFoundError:
            assert self.row is None
        else:
            assert row is not None or room == 0

    @rule(epoch=EPOCHS)
    def requeue(self, epoch: int) -> None:
        moved = self.index.requeue_run(self.run_id, epoch=epoch)

        row = self.row
        assert moved == (row is not None and not row.status.is_finished and row.epoch < epoch)

    @rule(epoch=EPOCHS, status=st.sampled_from(StepStatus))
    def step(self, epoch: int, status: StepStatus) -> None:
        done = [report(f"s{epoch}", epoch=epoch, status=status)]
        self.index.record_steps(self.run_id, done, epoch=epoch, steps_done=1, current_step=None)

    @rule(by=st.sampled_from(["ada", "bob"]))
    def cancel(self, by: str) -> None:
        try:
            answer = self.index.request_cancel(self.run_id, by=by, reason=by, at=self.now())
        except RunNotFoundError:
            assert self.row is None
        else:
            assert answer.run == self.index.get(self.run_id)

    @precondition(lambda self: self.workflow is not None)
    @rule(status=st.sampled_from(FINISHED), epoch=EPOCHS, reward=st.none() | st.floats(0, 1))
    def finish(self, status: RunStatus, epoch: int, reward: float | None) -> None:
        run = new_run(self.run_id, workflow_run_id=self.workflow)
        end = finished(run, status, epoch=epoch, reward=reward, reports=(report(epoch=epoch),))
        before = self.row

        row, moved = self.index.finish_run(end, at=self.now())

        assert moved == (before is None or not before.status.is_finished)
        assert row.status == (status if before is None or moved else before.status)

    @rule(host=HOSTS | st.none())
    def list_again(self, host: str | None) -> None:
        run = new_run(self.run_id, workflow_run_id=self.workflow)
        place = host and f"{host}-{self.run_id}"

        listed = self.index.restore_run(run, host=place, at=self.now())

        assert listed == (self.row is None)

    @rule()
    def look(self) -> None:
        """The reconciler reads the row; what it does about it may come at any time, or never."""
        live = [run for status in LIVE for run in self.index.live_runs("default", status)]
        self.looked = next((run for run in live if run.run_id == self.run_id), None)

        row = self.row
        assert (self.looked is not None) == (row is not None and not row.status.is_finished)

    @precondition(lambda self: self.looked is not None)
    @rule(closed=OUTSIDE)
    def repair(self, closed: Closed) -> None:
        """Its workflow is over, as it was looked at; a repair that was cut off is done again."""
        looked, before = self.looked, self.row
        assert looked is not None
        assert before is not None
        end = Ended(
            run_id=looked.run_id, workflow_run_id=looked.workflow_run_id, outcome=ending(closed)
        )

        row, moved = self.index.end_run(end, at=self.now())

        is_same = before.workflow_run_id == looked.workflow_run_id
        assert moved == (is_same and not before.status.is_finished)
        assert row.status == (end.outcome.status if moved else before.status)
        assert self.index.end_run(end, at=self.now()) == (row, False)

    @precondition(lambda self: self.row is not None and self.row.status.is_finished)
    @rule(closed=OVERRULING)
    def overrule(self, closed: Closed) -> None:
        """Its workflow was ended from outside before it could close as its row says."""
        before = self.row
        assert before is not None
        how = self.overruled = self.overruled or closed
        end = Ended(
            run_id=self.run_id,
            workflow_run_id=before.workflow_run_id,
            outcome=ending(how),
            overrules=True,
        )

        row, moved = self.index.end_run(end, at=self.now())

        assert row.status is end.outcome.status
        assert moved == (before.status is not row.status)
        assert self.index.end_run(end, at=self.now()) == (row, False)

    def teardown(self) -> None:
        """However it went on: one more look and repair, and the run has ended."""
        self.look()
        if self.looked is not None:
            self.repair(Closed("TERMINATED", "at last"))
            self.every_move_is_legal()
        assert self.row is None or self.row.status.is_finished

    @invariant()
    def every_move_is_legal(self) -> None:
        before, steps = self.row, self.steps
        try:
            self.row = now = self.index.get(self.run_id)
        except RunNotFoundError:
            assert before is None
            return
        self.steps = self.index.steps(self.run_id)
        assert (now.status is RunStatus.RUNNING) <= (now.host is not None)
        assert (now.finished_at is not None) == now.status.is_finished
        if before is None:
            return
        assert now.status is before.status or self.may_be(before.status, now.status)
        assert now.epoch >= before.epoch
        assert before.started_at in (None, now.started_at)
        assert before.cancel_requested_by in (None, now.cancel_requested_by)
        if before.status.is_finished:
            assert self.steps == steps
            assert now == before or now.status is not before.status
            said = {name: getattr(now, name) for name in SAID}
            assert now == before.model_copy(update=said)

    def may_be(self, before: RunStatus, now: RunStatus) -> bool:
        if self.overruled is not None and may_be_overruled(before, now):
            return now is ending(self.overruled).status
        return may_move(before, now)


def test_a_run_ends_legally_whatever_happens_to_it(index: RunIndex) -> None:
    class LifeHere(Life):
        def __init__(self) -> None:
            super().__init__(index)

    run_state_machine_as_test(LifeHere, settings=settings(max_examples=60, stateful_step_count=25))
