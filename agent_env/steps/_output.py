"""What a step's code hands back, as JSON that every process on the way can carry."""

import json
import re
import reprlib
from typing import cast

from pydantic import JsonValue

from agent_env.errors import OutputTooLargeError, StepFailedError, bounded
from agent_env.steps.base import MAX_OUTPUT_BYTES

_MAX_DEPTH = 100
"""Deepest nesting of an output. JSON parsers on the way stop at 200, envelopes included."""
_MAX_DETAIL_BYTES = 2048
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def checked_output(value: object, *, max_bytes: int = MAX_OUTPUT_BYTES) -> JsonValue:
    """The value as plain JSON data. Halves of surrogate pairs are escaped, since UTF-8 has none.

    Raises:
        StepFailedError: JSON can't hold it: a foreign object, NaN, an infinity, a cycle.
        OutputTooLargeError: it is over the limit.
    """
    try:
        text = encodable(json.dumps(value, allow_nan=False, ensure_ascii=False), r"\\u")
        data = cast(JsonValue, json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise StepFailedError(
            f"its output is not JSON: {bounded(str(error), 500)}; return finite numbers, strings, "
            "booleans, None, lists and dicts"
        ) from None
    size = len(text.encode())
    if size > max_bytes:
        raise OutputTooLargeError(
            f"its output is {size:,} bytes as JSON, over the limit of {max_bytes:,}; "
            "put it into the artifact store or a sandbox's file, and return where it is"
        )
    if _is_deep(data):
        raise StepFailedError(
            f"its output is nested deeper than {_MAX_DEPTH} levels; make it flatter"
        )
    return data


def output_bytes(output: JsonValue) -> int:
    """How large an output is as JSON, in bytes; none at all is 0."""
    return 0 if output is None else len(json.dumps(output, ensure_ascii=False).encode())


def brief_detail(value: object) -> JsonValue:
    """A step's word on its progress; cut to a short text when it is large or not JSON."""
    try:
        return checked_output(value, max_bytes=_MAX_DETAIL_BYTES)
    except (StepFailedError, OutputTooLargeError):
        return encodable(bounded(reprlib.repr(value), 200))


def encodable(text: str, escape: str = r"\u") -> str:
    """The text with halves of surrogate pairs escaped: UTF-8 can't hold them."""
    return _LONE_SURROGATE.sub(lambda found: f"{escape}{ord(found[0]):04x}", text)


def _is_deep(data: JsonValue) -> bool:
    level = [data]
    for _ in range(_MAX_DEPTH):
        lists = (part for value in level if isinstance(value, list) for part in value)
        dicts = (part for value in level if isinstance(value, dict) for part in value.values())
        level = [*lists, *dicts]
        if not level:
            return False
    return True
