import asyncio
import time
from typing import ClassVar

import psutil
import pytest

from agent_env.errors import InvalidSpecError
from agent_env.status import StepStatus
from agent_env.steps.python import Python
from agent_env.testing.step_contract import StepContract
from tests.agent_env.steps.real_host import PATIENCE_S, RealHost

CODE = """
import asyncio, os, subprocess, sys, threading, time

import numpy as np

def given(**args): return args
async def later(x): await asyncio.sleep(0.001); return x + 1
def noisy():
    print("{broken"); os.write(1, b"not json"); sys.stderr.write("oops")
    subprocess.run(["echo", "{"], check=True)
    return "clean"
def numbers(): return {"one": np.float32(0.5), "many": np.arange(3)}
def where(): return [os.getcwd(), os.listdir()]
def tells(progress): progress({"half": 1}); progress(threading.Lock()); return "told"
def leaves_a_thread(): threading.Thread(target=time.sleep, args=(600,)).start(); return "back"
def returns_much(size): return "x" * size
def returns_a_lock(): return threading.Lock()
def returns_nan(): return float("nan")
def returns_huge(): return 10 ** 400
def returns_true(): return True
def prints_much(): print("x" * 20_000_000); return 1
def blocks():
    subprocess.Popen(["setsid", "sleep", "600"])
    time.sleep(60)

class UnpicklableError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.lock = threading.Lock()

def raises_unpicklable(): raise UnpicklableError("this", "that")
def raises_group(): raise ExceptionGroup("several", [KeyError("first"), ValueError("second")])
def raises_interrupt(): raise KeyboardInterrupt("stop")
def exits(): sys.exit(0)
def crashes(): import faulthandler; faulthandler._sigsegv()
def leaves(): os._exit(0)
def raises_surrogate(): raise ValueError("half \\ud800")
class Player:
    @staticmethod
    def play(): return "played"
"""


@pytest.fixture
def code(host: RealHost) -> RealHost:
    host.artifact("code", {"play.py": CODE, "lib/helper.py": "def helps(): return 'helped'\n"})
    return host


class TestPython(StepContract):
    step = Python
    good_params: ClassVar = {"function": "os.path:join", "args": {"a": "x"}, "score": False}
    bad_params: ClassVar = {"function": "os.path.join"}


async def test_a_function_gets_its_arguments_and_gives_its_output(code: RealHost) -> None:
    report = await code.play_one(
        type="python", function="play:given", artifact_id="code", args={"a": [1, None], "b": "日本"}
    )

    assert report.output == {"a": [1, None], "b": "日本"}
    assert (report.status, report.score) == (StepStatus.COMPLETED, None)


@pytest.mark.parametrize(
    ("function", "args", "output"),
    [
        ("play:later", {"x": 1}, 2),
        ("play:noisy", {}, "clean"),
        ("play:numbers", {}, {"one": 0.5, "many": [0, 1, 2]}),
        ("play.py:Player.play", {}, "played"),
        ("lib/helper.py:helps", {}, "helped"),
        ("play:leaves_a_thread", {}, "back"),
        ("play:prints_much", {}, 1),
        ("posixpath:join", {"a": "x"}, "x"),
    ],
)
async def test_functions_of_all_kinds_work(
    code: RealHost, function: str, args: dict[str, object], output: object
) -> None:
    step = {"id": "it", "type": "python", "function": function, "artifact_id": "code"}

    reports = await code.play({**step, "args": args})  # type: ignore[dict-item] # JSON by hand

    assert (reports["it"].error, reports["it"].output) == (None, output)


async def test_folders_inside_the_artifact_can_be_imported_from(code: RealHost) -> None:
    report = await code.play_one(
        type="python", function="helper:helps", artifact_id="code", pythonpath=["lib"]
    )

    assert report.output == "helped"


async def test_a_function_runs_in_a_folder_that_is_gone_afterwards(code: RealHost) -> None:
    report = await code.play_one(type="python", function="play:where", artifact_id="code")

    assert isinstance(report.output, list)
    assert report.output[1] == ["artifact"]
    assert str(report.output[0]).startswith(str(code.folder))
    assert code.work_left() == []


async def test_progress_is_shown_whatever_it_is(code: RealHost) -> None:
    report = await code.play_one(type="python", function="play:tells", artifact_id="code")

    details = [word.detail for word in code.words if word.detail]
    assert details[0] == {"it": {"half": 1}}
    assert "lock" in str(details[1])
    assert report.output == "told"


@pytest.mark.parametrize(
    ("function", "kind", "message"),
    [
        ("raises_unpicklable", "UnpicklableError", "this and that (play.py:"),
        ("raises_group", "KeyError", "'first' (and 1 more in the same group)"),
        ("raises_interrupt", "KeyboardInterrupt", "stop (play.py:"),
        ("exits", "SystemExit", "0 (play.py:"),
        ("crashes", "StepFailed", "its process was killed by SIGSEGV before the function returned"),
        ("leaves", "StepFailed", "its process exited with 0 before the function returned"),
        ("raises_surrogate", "ValueError", r"half \ud800"),
        ("returns_a_lock", "StepFailed", "its output is not JSON: lock is not JSON"),
        ("returns_nan", "StepFailed", "its output is not JSON"),
        ("none", "StepFailed", "unknown function 'none'"),
        ("noisi", "StepFailed", "did you mean 'noisy'?"),
    ],
)
async def test_whatever_ends_a_function_fails_its_step_by_type_and_root_message(
    code: RealHost, function: str, kind: str, message: str
) -> None:
    report = await code.play_one(type="python", function=f"play:{function}", artifact_id="code")

    assert (report.status, report.error_type) == (StepStatus.FAILED, kind)
    assert message in str(report.error)


async def test_a_missing_module_is_told_from_what_a_module_misses(host: RealHost) -> None:
    host.artifact("code", {"needy.py": "import not_installed_here\ndef f(): pass\n"})

    missing = await host.play_one(type="python", function="needyy:f", artifact_id="code")
    needy = await host.play_one(type="python", function="needy:f", artifact_id="code")

    assert missing.error_type == "StepFailed"
    assert str(missing.error).startswith("there is no module 'needyy'; install it")
    assert needy.error_type == "ModuleNotFoundError"
    assert "not_installed_here" in str(needy.error)


@pytest.mark.parametrize("size", [70_000, 5_000_000])
async def test_a_large_result_is_refused_with_the_limit_and_the_cure(
    code: RealHost, size: int
) -> None:
    report = await code.play_one(
        type="python", function="play:returns_much", artifact_id="code", args={"size": size}
    )

    assert report.error_type == "OutputTooLarge"
    assert "65,536" in str(report.error)
    assert "artifact store" in str(report.error)


@pytest.mark.parametrize("value", [0.5, -0.5, 1, None])
async def test_a_scoring_function_gives_the_score(code: RealHost, value: float | None) -> None:
    code.artifact("scorer", {"scorer.py": f"def score(): return {value}\n"})

    report = await code.play_one(
        type="python", function="scorer:score", artifact_id="scorer", score=True
    )

    assert (report.error, report.score) == (None, value)


async def test_true_scores_one(code: RealHost) -> None:
    report = await code.play_one(
        type="python", function="play:returns_true", artifact_id="code", score=True
    )

    assert report.score == 1.0


@pytest.mark.parametrize(
    "value",
    ["float('nan')", "float('inf')", "'0.5'", "1e309", "10 ** 400", "10 ** 5000", "object()"],
)
async def test_what_is_no_finite_number_is_an_invalid_score(code: RealHost, value: str) -> None:
    code.artifact("scorer", {"scorer.py": f"def score(): return {value}\n"})

    report = await code.play_one(
        type="python", function="scorer:score", artifact_id="scorer", score=True
    )

    assert (report.status, report.error_type) == (StepStatus.FAILED, "InvalidScore")


async def test_canceling_kills_a_blocking_function_with_all_it_started(code: RealHost) -> None:
    playing = asyncio.create_task(
        code.play_one(type="python", function="play:blocks", artifact_id="code")
    )
    deadline = time.monotonic() + PATIENCE_S
    while "sleep" not in {process.name() for process in at_work(code)}:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
    begun = time.monotonic()

    code.interrupt.set()
    report = await playing

    assert report.status is StepStatus.CANCELED
    assert time.monotonic() - begun < 2
    assert at_work(code) == []


def at_work(host: RealHost) -> list[psutil.Process]:
    """Processes that run in the folders of the host's steps."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.cwd().startswith(str(host.folder / "work")):
                found.append(process)
        except psutil.Error:
            continue
    return found


async def test_a_function_that_takes_too_long_is_timed_out(code: RealHost) -> None:
    report = await code.play_one(
        type="python", function="play:blocks", artifact_id="code", timeout_seconds=0.8
    )

    assert report.error_type == "StepTimedOut"
    assert at_work(code) == []


@pytest.mark.parametrize("params", [{"function": "play.py:f"}, {"cwd": "there"}])
async def test_a_relative_path_without_an_artifact_is_refused_before_the_run(
    host: RealHost, params: dict[str, str]
) -> None:
    with pytest.raises(InvalidSpecError, match="is relative"):
        await host.play({"id": "it", "type": "python", "function": "m:f", **params})
