"""Cuts what is too long to be shown. Pure."""

from __future__ import annotations

from typing import Any, cast

from agent_env.errors import bounded

MOST_CHARS = 100_000
"""Longest text that a page shows; the whole is in the download."""


def cut_texts(value: Any, limit: int = MOST_CHARS) -> tuple[Any, bool]:
    """The same JSON with every longer text cut in its middle, and whether one was."""
    if isinstance(value, str):
        return bounded(value, limit), len(value) > limit
    if isinstance(value, list):
        parts = [cut_texts(item, limit) for item in cast("list[Any]", value)]
        return [part for part, _ in parts], any(is_cut for _, is_cut in parts)
    if isinstance(value, dict):
        found = {k: cut_texts(v, limit) for k, v in cast("dict[str, Any]", value).items()}
        cut = {key: part for key, (part, _) in found.items()}
        return cut, any(is_cut for _, is_cut in found.values())
    return value, False
