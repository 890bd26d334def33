"""How numbers and lengths of time read to a person, on every screen alike. Pure."""

from agent_env.scores import GroupFigures

NONE = "–"
"""What stands for a value that there is not."""


def number(value: float | None) -> str:
    """A reward or a figure; a dash for none."""
    if value is None:
        return NONE
    is_plain = value == 0 or 0.001 <= abs(value) < 1_000_000
    return f"{value:.3f}" if is_plain else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """How long something took; a dash for nothing."""
    if seconds is None:
        return NONE
    if round(seconds, 2) < 10:
        return f"{seconds:.2f} s"
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} m {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} m"
    return f"{whole // 86_400} d {whole % 86_400 // 3600:02d} h"


def mean_and_std(figures: GroupFigures) -> str:
    """For example ``0.812 ± 0.101 (5 scored of 8)``."""
    scored = f"({figures.n_scored} scored of {figures.n})"
    if figures.mean is None:
        return f"{NONE} {scored}"
    spread = "" if figures.std is None else f" ± {number(figures.std)}"
    return f"{number(figures.mean)}{spread} {scored}"
