"""The kinds of episodes that a soak plays, and what each must end as."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from agent_env.status import RunStatus
from agent_env.steps._rollout import play
from agent_env.task import Task
from tests.end_to_end.stage import box, command
from tests.soak import ledger as _ledger

COMPLETED, FAILED = RunStatus.COMPLETED, RunStatus.FAILED
CART_POLE = "CartPole-v1"


class Steps:
    """Steps that note each of their runs in a ledger.

    Args:
        ledger: The file.
        marker: Digits that end every duration of a ``sleep``: what is left of it can be found.
    """

    def __init__(self, ledger: Path, marker: str) -> None:
        self._ledger = ledger
        self.marker = marker

    def step(
        self,
        step_id: str,
        *,
        seconds: float = 0,
        fails: str = "never",
        score: bool = False,
        **more: JsonValue,
    ) -> JsonValue:
        """One that sleeps, then fails, or scores the episode's seed."""
        args: JsonValue = {
            "ledger": str(self._ledger),
            "run": "<run>",
            "step": step_id,
            "nap": self.nap(seconds) if seconds else "",
            "fails": fails,
            "score": "<seed>" if score else "",
        }
        function = f"{_ledger.__file__}:plays"
        return {
            "id": step_id,
            "type": "python",
            "function": function,
            "args": args,
            "score": score,
            **more,
        }

    def nap(self, seconds: float) -> str:
        """Seconds as no other test sleeps them."""
        return f"{seconds:.1f}{self.marker}"


@dataclass(frozen=True)
class End:
    """How an episode must end that nobody cancels or terminates."""

    status: RunStatus
    error_type: str | None = None
    reward: Callable[[int], float | None] = field(default=lambda seed: seed / 1000)
    """Of its seed."""


@dataclass(frozen=True)
class Kind:
    """One kind of episode."""

    name: str
    steps: Callable[[Steps], Sequence[JsonValue]]
    end: End | None
    """None if it never ends by itself."""
    share: int
    """How many of a hundred episodes are of this kind."""
    deadline_s: float | None = None
    """Longest it may take, in seconds."""
    retries: int = 0
    """How often it goes back to an earlier step."""
    never: tuple[str, ...] = ()
    """Steps that must not run."""

    def task(self, steps: Steps) -> Task:
        """Its task."""
        return Task.of(
            {
                "id": self.name,
                "steps": list(self.steps(steps)),
                "deadline_seconds": self.deadline_s,
            }
        )


def _unscored(_seed: int) -> None:
    return None


def _return_of(seed: int) -> float:
    """What Gymnasium itself says of the game that the step plays."""
    played = play(CART_POLE, {}, seed, 500, lambda _: None, constant=0)
    return float(played["return"])


def _short(steps: Steps) -> list[JsonValue]:
    return [steps.step("only", score=True)]


def _long(steps: Steps) -> list[JsonValue]:
    naps = [steps.step(f"nap {number}", seconds=1 + number / 2) for number in range(4)]
    return [*naps, steps.step("scores", score=True)]


def _wide(steps: Steps) -> list[JsonValue]:
    beside = [steps.step(f"beside {n}", seconds=1 + n / 2, depends_on=[]) for n in range(3)]
    return [*beside, steps.step("scores", score=True)]


def _sandbox(steps: Steps) -> list[JsonValue]:
    leaves = f"setsid sleep {steps.nap(600)} >/dev/null 2>&1 & sleep {steps.nap(1)}; echo 7 >it"
    return [
        box(),
        steps.step("before"),
        command("works", leaves),
        steps.step("after"),
        command("verifies", "cat it", score_from="stdout"),
    ]


def _failing(steps: Steps) -> list[JsonValue]:
    return [steps.step("before"), steps.step("fails", fails="always"), steps.step("never")]


def _tolerated(steps: Steps) -> list[JsonValue]:
    return [
        steps.step("fails", seconds=0.5, fails="always", fail_task_on_error=False),
        steps.step("scores", score=True),
    ]


def _deadline(steps: Steps) -> list[JsonValue]:
    return [steps.step("before"), steps.step("hangs", seconds=600), steps.step("never")]


def _endless(steps: Steps) -> list[JsonValue]:
    return [box(), steps.step("before"), steps.step("hangs", seconds=600), steps.step("never")]


def _retried(steps: Steps) -> list[JsonValue]:
    return [
        steps.step("before", seconds=0.5),
        box(),
        command("works", "echo 7 >it"),
        steps.step(
            "fails once",
            fails="once",
            retry_config={"retry_from_step_id": "box", "max_retries": 1},
        ),
        steps.step("scores", score=True),
    ]


def _exhausted(steps: Steps) -> list[JsonValue]:
    return [
        steps.step("before"),
        steps.step("fails", seconds=0.3, fails="always", retry_config={"max_retries": 2}),
        steps.step("never"),
    ]


def _gymnasium(steps: Steps) -> list[JsonValue]:
    return [
        steps.step("before"),
        {
            "id": "plays",
            "type": "gymnasium",
            "env_id": CART_POLE,
            "seed": "<seed>",
            "policy": {"constant": 0},
            "max_steps": 500,
        },
    ]


def _waits(steps: Steps) -> list[JsonValue]:
    return [
        steps.step("before"),
        {"id": "wait", "type": "wait", "seconds": 3},
        steps.step("scores", score=True),
    ]


KINDS = (
    Kind("short", _short, End(COMPLETED), share=20),
    Kind("long", _long, End(COMPLETED), share=12),
    Kind("wide", _wide, End(COMPLETED), share=8),
    Kind("sandbox", _sandbox, End(COMPLETED, reward=lambda _: 7.0), share=14),
    Kind("gymnasium", _gymnasium, End(COMPLETED, reward=_return_of), share=8),
    Kind("waits", _waits, End(COMPLETED), share=8),
    Kind("retried", _retried, End(COMPLETED), share=8, retries=1),
    Kind(
        *("exhausted", _exhausted, End(FAILED, "ValueError", _unscored)),
        share=4,
        retries=2,
        never=("never",),
    ),
    Kind("failing", _failing, End(FAILED, "ValueError", _unscored), share=5, never=("never",)),
    Kind("tolerated", _tolerated, End(FAILED, "ValueError"), share=5),
    Kind(
        *("deadline", _deadline, End(FAILED, "DeadlineExceeded", _unscored)),
        share=4,
        deadline_s=5,
        never=("never",),
    ),
    Kind("endless", _endless, None, share=4, never=("never",)),
)
