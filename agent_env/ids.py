"""Identifiers: lower-case, sortable, safe in a URL and in a shell. Pure.

The random part is an argument, so that a workflow can make one deterministically.
"""

import re
from datetime import datetime

MAX_ID_CHARS = 200
"""Longest id of a run, a group, a task or a step, in characters."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def _suffix(random_bits: int) -> str:
    """Six letters of 30 random bits."""
    return "".join(_ALPHABET[(random_bits >> shift) & 31] for shift in range(25, -1, -5))


def run_id(now: datetime, random_bits: int) -> str:
    """For example ``run-20260131-093005-k3f9q2``."""
    return f"run-{now:%Y%m%d-%H%M%S}-{_suffix(random_bits)}"


def group_id(now: datetime, random_bits: int) -> str:
    """For example ``grp-20260131-093005-k3f9q2``."""
    return f"grp-{now:%Y%m%d-%H%M%S}-{_suffix(random_bits)}"


MAX_GROUP_ID_CHARS = MAX_ID_CHARS - len("-9999")
"""Longest id of a group: its members' ids are longer."""


def member_id(run_group_id: str, index: int) -> str:
    """The run id of a group's member: ``<group>-<index>``, padded so that ids sort by index."""
    return f"{run_group_id}-{index:04d}"


def rerun_id(run_group_id: str, index: int, times: int) -> str:
    """The run id of a member that was replaced so many times: ``<group>-<index>-r<times>``."""
    return f"{member_id(run_group_id, index)}-r{times}"


def host_id(node: str, random_bits: int) -> str:
    """For example ``myhost-k3f9q2``, of a machine's name; what a name can't keep is left out."""
    name = re.sub("[^a-z0-9]+", "-", node.partition(".")[0].lower()).strip("-")
    return f"{name[:40] or 'host'}-{_suffix(random_bits)}"


def id_problem(value: str) -> str | None:
    """What is wrong with an id, or None. Slashes, spaces and any script's letters are fine."""
    if not value.strip():
        return "an id must not be empty"
    if len(value) > MAX_ID_CHARS:
        return f"an id has at most {MAX_ID_CHARS} characters; this one has {len(value)}"
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in value):
        return f"an id must not contain control characters: {value!r}"
    if any(0xD800 <= ord(char) <= 0xDFFF for char in value):
        return f"an id must be valid Unicode: {value!r}"
    return None
