"""The process that one function runs in: a script, started by ``agent_env.steps._functions``.

It reads an order from stdin and writes the function's result, or what it raised, to a file. It
imports little, since it is started for every step that runs a function.
"""

import asyncio
import importlib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


def main() -> NoReturn:
    """Run the order's function and end the process, whatever threads the function left."""
    # Whatever the function prints goes to stderr: stdout carries its progress.
    progress = os.dup(1)
    os.dup2(2, 1)
    order = json.load(sys.stdin)
    sys.path[:] = order["path"]
    text = _answer(order, progress)
    unfinished = Path(order["result"] + ".unfinished")
    unfinished.write_text(text, encoding="ascii")
    unfinished.replace(order["result"])
    sys.stdout.flush()
    os._exit(0)


def _answer(order: dict[str, Any], progress: int) -> str:
    from agent_env.errors import bounded, error_text, error_type, root_cause

    try:
        value = _called(order, progress)
    except BaseException as error:  # sys.exit() in a function is a failure like any other
        root = root_cause(error)
        message = f"{error_text(error)} {_place(root)}".strip()
        return json.dumps({"raised": {"kind": error_type(root), "message": message}})
    try:
        return json.dumps({"value": value}, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps({"unfit": bounded(str(error), 500)})


def _place(error: BaseException) -> str:
    """Where it was raised; nothing for our own errors, whose messages say it all."""
    from agent_env.errors import AgentEnvError

    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, AgentEnvError) or not frames or frames[-1].filename == __file__:
        return ""
    return f"({Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name})"


def _called(order: dict[str, Any], progress: int) -> object:
    function = _loaded(order["function"])
    arguments = dict(order["args"])
    for name, reference in order["callables"].items():
        arguments[name] = _loaded(reference)
    if "progress" not in arguments and _takes_progress(function):
        arguments["progress"] = _reporter(progress)
    found = function(**arguments)
    if inspect.isawaitable(found):
        return asyncio.run(_awaited(found))
    return found


async def _awaited(found: Any) -> object:
    return await found


def _loaded(reference: str) -> Callable[..., object]:
    """The callable at ``package.module:name`` or ``/path/to/file.py:name``."""
    from agent_env.errors import StepFailedError, unknown_name

    place, _, name = reference.rpartition(":")
    try:
        module = _file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if place != missing and not place.startswith(f"{missing}."):
            raise  # the module is there, and what it imports is not
        raise StepFailedError(
            f"there is no module {missing!r}; install it where the worker runs, or name the "
            "folder or artifact that has it"
        ) from None
    found: object = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [one for one, value in vars(module).items() if callable(value)]
            raise StepFailedError(f"{place} has {unknown_name('function', name, known)}")
        found = getattr(found, part)
    if not callable(found):
        raise StepFailedError(f"{reference} is {type(found).__name__}, no function")
    return found


def _file(path: Path) -> Any:
    from agent_env.errors import StepFailedError

    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise StepFailedError(f"there is no file {str(path)!r}")
    module = importlib.util.module_from_spec(spec)
    # Where pickle, dataclasses and multiprocessing look for it.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _takes_progress(function: Callable[..., object]) -> bool:
    try:
        return "progress" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function written in C may not say
        return False


def _reporter(progress: int) -> Callable[[object], None]:
    def report(detail: object) -> None:
        """Say how far it is. Cheap, any rate, from any thread; what JSON can't hold is shown."""
        line = json.dumps(detail, default=repr).encode() + b"\n"
        # Open while the process lives, and a line in one write: threads don't mix theirs up.
        os.write(progress, line)

    return report


def _plain(value: object) -> object:
    """Numbers and arrays of numpy and of tensor libraries as Python's own."""
    convert = getattr(value, "tolist", None)
    if callable(convert):
        return convert()
    raise TypeError(f"{type(value).__name__} is not JSON")


if __name__ == "__main__":
    main()
