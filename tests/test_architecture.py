"""The import arrows hold: what may import what."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PURE = {
    "_messages",
    "_model",
    "disagreements",
    "errors",
    "group_specs",
    "ids",
    "names",
    "outcome",
    "plan",
    "results",
    "scores",
    "seeds",
    "specs",
    "status",
    "task",
    "turn_rules",
    "turns",
}
PURE_MAY_IMPORT = {"pydantic", "agent_env", "__future__"}
FOLDERS = ("agent_env", "workflows", "activities")


def imported_modules(path: Path) -> set[str]:
    """Dotted names of the modules that a file imports, lazily or not."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            assert node.module is not None
            found.add(node.module)
            # ``from agent_env import names`` imports a module too.
            if node.module in FOLDERS:
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imported(path: Path) -> set[str]:
    """Top-level names that a file imports, lazily or not."""
    return {module.partition(".")[0] for module in imported_modules(path)}


def files(*places: str) -> list[Path]:
    """The Python files in folders and the single files that are named."""
    found: list[Path] = []
    for place in places:
        path = ROOT / place
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    assert found, places
    return found


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_modules_import_only_pydantic_and_each_other(name: str) -> None:
    path = ROOT / "agent_env" / f"{name}.py"

    outside = imported(path) - set(sys.stdlib_module_names)
    ours = {module for module in imported_modules(path) if module.startswith("agent_env.")}

    assert outside <= PURE_MAY_IMPORT
    assert {module.partition(".")[2] for module in ours} <= PURE


@pytest.mark.parametrize("name", sorted(PURE))
def test_pure_modules_read_no_clock_no_environment_and_no_chance(name: str) -> None:
    assert not imported(ROOT / "agent_env" / f"{name}.py") & {
        "os",
        "random",
        "secrets",
        "socket",
        "subprocess",
        "time",
        "uuid",
    }


def test_the_effects_know_nothing_of_temporal() -> None:
    effects = files(
        "agent_env/runs",
        "agent_env/sandboxes",
        "agent_env/steps",
        "agent_env/tools",
        "agent_env/turn_runner.py",
        "agent_env/artifacts.py",
        "agent_env/config.py",
        "agent_env/task_files.py",
    )

    assert [name_of(path) for path in effects if "temporalio" in imported(path)] == []


def test_only_the_worker_imports_workflows_and_activities() -> None:
    importers = [
        name_of(path) for path in files("agent_env") if imported(path) & {"workflows", "activities"}
    ]

    assert importers == ["agent_env/worker.py"]


def test_only_the_command_line_imports_the_explorer() -> None:
    """It needs an extra, which a worker and a trainer do without."""
    importers = {
        path.relative_to(ROOT).parts[1]
        for path in files(*FOLDERS)
        if any(module.startswith("agent_env.explorer") for module in imported_modules(path))
    }

    assert importers == {"cli", "explorer"}


def test_activities_import_no_workflows() -> None:
    offenders = [name_of(path) for path in files("activities") if "workflows" in imported(path)]

    assert offenders == []


def test_workflows_import_only_the_pure_row_and_activities() -> None:
    allowed = {"temporalio", "agent_env", "activities", "workflows"} | set(sys.stdlib_module_names)

    for path in files("workflows"):
        ours = {module for module in imported_modules(path) if module.startswith("agent_env.")}

        assert imported(path) <= allowed, name_of(path)
        assert {module.partition(".")[2] for module in ours} <= PURE, name_of(path)


def test_nothing_prints() -> None:
    """A worker's standard output belongs to its user."""
    printers = [
        f"{name_of(path)}:{node.lineno}"
        for path in files(*FOLDERS)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "pprint"}
    ]

    assert printers == []


def test_no_package_hides_in_the_tests() -> None:
    """An ``__init__.py`` there would be imported in place of the code under test."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []
