"""Where the worker's code is: beside this package in a checkout, inside it in a wheel."""

import re
import sys
from importlib.machinery import PathFinder
from importlib.metadata import packages_distributions
from pathlib import Path

_DISTRIBUTION = "durable-episodes"
_PACKAGES = ("workflows", "activities", "agent_env")
_BUNDLED = Path(__file__).parent / "_app"


def use_worker_code() -> None:
    """Make ``workflows`` and ``activities`` importable in this process. Worker only."""
    if _BUNDLED.is_dir() and str(_BUNDLED) not in sys.path:
        sys.path.insert(0, str(_BUNDLED))


def conflicts() -> list[str]:
    """Who else provides what a worker imports: a sentence each, with the cure.

    Installers let two distributions write the same files and say nothing, so a worker asks before
    it imports them.
    """
    found: list[str] = []
    installed = packages_distributions()
    for package in _PACKAGES:
        others = {name for name in installed.get(package, ()) if _normal(name) != _DISTRIBUTION}
        found += [
            f"the distribution {name!r} provides the package {package!r} too; install "
            f"{_DISTRIBUTION} into a virtual environment of its own"
            for name in sorted(others)
        ]
    return found or _shadows()


def _shadows() -> list[str]:
    """Folders of no distribution that Python finds before those of this checkout."""
    if _BUNDLED.is_dir():
        return []  # the bundled ones come first
    root = Path(__file__).resolve().parents[1]
    found: list[str] = []
    for package in ("workflows", "activities"):
        spec = PathFinder.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        folder = Path(spec.origin).resolve().parent
        if folder != root / package:
            found.append(f"the folder {folder} hides {root / package}; start from another folder")
    return found


def _normal(distribution: str) -> str:
    return re.sub("[-_.]+", "-", distribution).lower()
