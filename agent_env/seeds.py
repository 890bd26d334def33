"""Replaces ``<key>`` in a step's parameters from the episode's seed. Pure."""

import math
import re
import reprlib
from collections.abc import Mapping

from pydantic import JsonValue

from agent_env.errors import InvalidSpecError
from agent_env.task import StepSpec

MAX_WAIT_S = 366 * 24 * 3600
"""Longest that a ``wait`` step waits, in seconds."""


def seeded(step: StepSpec, seed: Mapping[str, str]) -> StepSpec:
    """The step with its parameters' string leaves filled in.

    Only keys of ``seed`` are replaced, once, in one pass: never in an id, a type or a key, and
    never inside a value that was put in.
    """
    if not seed:
        return step
    pattern = re.compile("|".join(re.escape(f"<{key}>") for key in sorted(seed, key=len)[::-1]))

    def filled(value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return pattern.sub(lambda found: seed[found[0][1:-1]], value)
        if isinstance(value, list):
            return [filled(part) for part in value]
        if isinstance(value, dict):
            return {key: filled(part) for key, part in value.items()}
        return value

    fields = step.model_dump(exclude=set(step.params))
    return StepSpec.model_validate({**fields, **{k: filled(v) for k, v in step.params.items()}})


def wait_seconds(step: StepSpec, seed: Mapping[str, str]) -> float:
    """How long a ``wait`` step waits: its parameter ``seconds``, from the seed if it says so.

    Raises:
        InvalidSpecError: it is not a number from 0 to ``MAX_WAIT_S``.
    """
    value = seeded(step, seed).params.get("seconds")
    try:
        seconds = float(value) if isinstance(value, int | float | str) else math.nan
    except (ValueError, OverflowError):
        seconds = math.nan
    if isinstance(value, bool) or not 0 <= seconds <= MAX_WAIT_S:
        raise InvalidSpecError.of(
            f"step {step.id!r}: seconds",
            f"must be a number from 0 to {MAX_WAIT_S:,}, not {reprlib.repr(value)}",
        )
    return seconds
