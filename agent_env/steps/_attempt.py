"""One attempt of one step: whatever the step's code does, a report comes of it."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from agent_env._model import validated
from agent_env.errors import (
    StepFailedError,
    StepTimedOutError,
    bounded,
    error_text,
    error_type,
    root_cause,
)
from agent_env.results import StepReport
from agent_env.scores import checked_score
from agent_env.seeds import seeded
from agent_env.status import StepStatus
from agent_env.steps._output import checked_output, encodable
from agent_env.steps.base import Params, Step, StepContext, StepResult
from agent_env.steps.catalog import Steps
from agent_env.task import StepSpec


class Escaped(Exception):
    """Carries what escaped from foreign code, whatever it is, through asyncio."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        super().__init__(error_type(error))


@contextmanager
def boundary() -> Generator[None]:
    """Raise ``Escaped`` for whatever escapes from foreign code, but let a cancellation through."""
    try:
        yield
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        # asyncio passes KeyboardInterrupt and SystemExit on, out of the event loop: a step that
        # calls sys.exit() would end the worker. A signal to the process itself never arrives here,
        # since the event loop handles those.
        raise Escaped(error) from None


class ForeignTasks:
    """Tasks of foreign code, held until they end: also those that nobody waits for any more."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def add(self, task: asyncio.Task[Any]) -> None:
        """Hold it. Its error, if it has one that nobody asks for, is no news."""
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


class _Stopped(Exception):
    """The attempt was stopped from outside."""


@dataclass
class Attempt:
    """Runs a step once. Not to be run twice."""

    spec: StepSpec
    ctx: StepContext
    steps: Steps
    tasks: ForeignTasks
    grace: timedelta
    """How long a step may take to end once it is canceled; then it is left behind."""
    now: Callable[[], datetime]
    _stop: asyncio.Future[None] = field(init=False)

    def __post_init__(self) -> None:
        self._stop = asyncio.get_running_loop().create_future()

    def stop(self) -> None:
        """Cancel the step. Its report then says CANCELED, unless it had ended before."""
        if not self._stop.done():
            self._stop.set_result(None)

    async def run(self) -> StepReport:
        """Run the step to its end, its timeout or its stop. Raises nothing."""
        started_at = self.now()
        try:
            result = await self._result()
            end = {"status": StepStatus.COMPLETED, "output": result.output, "score": result.score}
        except _Stopped:
            end = {"status": StepStatus.CANCELED}
        except Escaped as escaped:
            end = failure(escaped.error)
        return StepReport.model_validate(
            {
                "step_id": self.spec.id,
                "type": self.spec.type,
                "epoch": self.ctx.epoch,
                "started_at": started_at,
                "finished_at": self.now(),
                "sandboxes": tuple(self.ctx.deployed),
                **end,
            }
        )

    async def _result(self) -> StepResult:
        with boundary():
            step = self.steps.open(self.spec.type)
            params = validated(step.params, seeded(self.spec, self.ctx.seed).params)
            limit_s = self._limit_s(step, params)
        if self._stop.done():
            raise _Stopped
        work = asyncio.create_task(self._work(step, params), name=f"step {self.spec.id}")
        self.tasks.add(work)
        await asyncio.wait((work, self._stop), timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if work.cancelled():
            raise Escaped(StepFailedError("it raised CancelledError, but nobody canceled it"))
        if work.done():
            return work.result()
        was_stopped = self._stop.done()
        work.cancel()
        await asyncio.wait((work,), timeout=self.grace.total_seconds())
        if was_stopped:
            raise _Stopped
        raise Escaped(
            StepTimedOutError(f"took longer than {limit_s:g} s; allow more with timeout_seconds")
        )

    def _limit_s(self, step: Step[Any], params: Params) -> float | None:
        if self.spec.timeout_seconds is not None:
            return self.spec.timeout_seconds
        limit = step.timeout(params)
        return None if limit is None else limit.total_seconds()

    async def _work(self, step: Step[Any], params: Params) -> StepResult:
        with boundary():
            result = cast(object, await step.run(params, self.ctx))
            if not isinstance(result, StepResult):
                raise StepFailedError(
                    f"type {self.spec.type!r} returned {type(result).__name__}, not a StepResult"
                )
            score = None if result.score is None else checked_score(result.score)
            return StepResult(checked_output(result.output), score)


def failure(error: BaseException) -> dict[str, Any]:
    """The fields of a report that say how a step failed."""
    return {
        "status": StepStatus.FAILED,
        "error_type": encodable(bounded(error_type(root_cause(error)), 200)),
        "error": bounded(encodable(error_text(error))),
    }
