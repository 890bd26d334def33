"""What ``python`` steps of the tests call. Runs in processes of its own."""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path


def first_come(folder: str, served: int, else_command: list[str]) -> int:
    """The number of the caller among the first that come; all others run a command."""
    for number in range(served):
        with contextlib.suppress(FileExistsError):
            Path(folder, str(number)).touch(exist_ok=False)
            return number
    return subprocess.run(else_command, check=True).returncode


class UnpicklableError(Exception):
    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")
        self.lock = threading.Lock()


def raises_megabytes() -> None:
    raise ValueError("first words " + "x" * 5_000_000 + " last words")


def raises_nul() -> None:
    raise ValueError("nul \0 inside")


def raises_surrogate() -> None:
    raise ValueError("half \ud800 of a pair")


def raises_nothing_said() -> None:
    raise TimeoutError


def raises_unpicklable() -> None:
    raise UnpicklableError("this", "that")


def raises_group() -> None:
    raise ExceptionGroup("several", [KeyError("root"), ValueError("second")])


def raises_interrupt() -> None:
    raise KeyboardInterrupt("stop")


def exits() -> None:
    sys.exit(0)


def returns_megabytes() -> str:
    return "x" * 5_000_000


def prints_much() -> str:
    for _ in range(100):
        os.write(1, b"x" * 1_000_000)
    return "done"


def fails_once(mark: str) -> str:
    """Fail unless it was called before."""
    if not os.path.exists(mark):
        with open(mark, "w", encoding="utf-8"):
            raise OSError("not yet")
    return "done"


def returns_nan() -> float:
    return float("nan")


def returns_infinity() -> float:
    return float("inf")


def returns_text() -> str:
    return "0.5"


def returns_huge() -> int:
    return 10**309


def returns_true() -> bool:
    return True


def returns_negative() -> float:
    return -0.5


def returns_none() -> None:
    """Unscored."""


def scores_or_dies(seed: str) -> float:
    """Die for the first three seeds, as if a machine did; else score the seed."""
    if int(seed) < 3:
        os._exit(1)
    return float(seed)
