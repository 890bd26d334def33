"""Cuts text to what fits into a step's output, whatever is in it. Pure."""

import json


def json_bytes(text: str) -> int:
    """What a text takes in JSON, in bytes, without its quotes."""
    return len(json.dumps(text, ensure_ascii=False).encode(errors="replace")) - 2


def head(text: str, max_bytes: int) -> str:
    """The start of a text that takes at most ``max_bytes`` in JSON; ends with a mark if cut."""
    if json_bytes(text) <= max_bytes:
        return text
    mark = " …"
    return text[: _fitting(text, max_bytes - json_bytes(mark))] + mark


def tail(text: str, max_bytes: int) -> tuple[str, int]:
    """The end of a text that takes at most ``max_bytes`` in JSON, and how many bytes were cut."""
    if json_bytes(text) <= max_bytes:
        return text, 0
    kept = text[len(text) - _fitting(text[::-1], max_bytes) :]
    return kept, len(text.encode(errors="replace")) - len(kept.encode(errors="replace"))


def _fitting(text: str, max_bytes: int) -> int:
    """How many of its first characters take at most ``max_bytes``."""
    low, high = 0, min(len(text), max_bytes)
    while low < high:
        middle = (low + high + 1) // 2
        if json_bytes(text[:middle]) <= max_bytes:
            low = middle
        else:
            high = middle - 1
    return max(0, low)
