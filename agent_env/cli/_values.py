"""Reads the values of options: durations, moments, pairs. Each is an option's ``type``."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import click

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}


def duration(value: str | timedelta) -> timedelta:
    """Seconds, or a number with a unit: ``90``, ``1.5h``, ``2d``.

    Raises:
        click.BadParameter: it is not one, or not over 0.
    """
    if isinstance(value, timedelta):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", value.strip())
    seconds = float(found[1]) * _UNITS[found[2]] if found else math.nan
    if not 0 < seconds <= timedelta(days=36_500).total_seconds():
        raise click.BadParameter(f"{value!r} is not a duration; write 90, 90s, 5m, 1.5h or 2d")
    return timedelta(seconds=seconds)


def moment(value: str | datetime) -> datetime:
    """A time, or how long ago it was: ``2026-01-31T09:30``, ``2h``.

    A time without a zone is this machine's.

    Raises:
        click.BadParameter: it is neither.
    """
    if isinstance(value, datetime):
        return value
    try:
        return datetime.now(UTC) - duration(value)
    except click.BadParameter:
        pass
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{value!r} is not a time; write 2h, 3d or 2026-01-31T09:30"
        ) from None


def pair(value: str | tuple[str, str]) -> tuple[str, str]:
    """``KEY=VALUE``.

    Raises:
        click.BadParameter: there is no key.
    """
    if isinstance(value, tuple):
        return value
    key, equals, rest = value.partition("=")
    if not key or not equals:
        raise click.BadParameter(f"{value!r} is not KEY=VALUE")
    return key, rest


def seed(value: str | tuple[str, str]) -> tuple[str, str]:
    """A pair; or a whole number, which is the value of ``seed``.

    Raises:
        click.BadParameter: it is neither.
    """
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value):
        return "seed", value
    try:
        return pair(value)
    except click.BadParameter:
        raise click.BadParameter(f"{value!r} is not a whole number or KEY=VALUE") from None


def mapping(pairs: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """The pairs of an option that may be repeated.

    Raises:
        click.BadParameter: a key is given twice.
    """
    found: dict[str, str] = {}
    for key, value in pairs:
        if key in found:
            raise click.BadParameter(f"{key!r} is given twice; give it once")
        found[key] = value
    return found
