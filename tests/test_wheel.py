"""What the wheel holds, and what it installs."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from agent_env._version import __version__

ROOT = Path(__file__).parents[1]
METADATA = f"durable_episodes-{__version__}.dist-info"
PLACES = {"agent_env": "agent_env", "workflows": "agent_env/_app/workflows"} | {
    "activities": "agent_env/_app/activities"
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel in it, and our dependencies without our checkout."""
    venv = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", venv)
    python = venv / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel
    )
    (site_packages,) = (venv / "lib").glob("python*/site-packages")
    # What a .pth file names is searched; .pth files in there, our checkout's, are not read.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return venv / "bin"


def run(*command: str | Path) -> str:
    """Its output. Runs outside the checkout, where nothing can be imported by accident."""
    done = subprocess.run(
        command,
        cwd="/",
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def sources(folder: str) -> Iterator[Path]:
    """Files of a top-level folder that belong into the wheel."""
    for path in (ROOT / folder).rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(ROOT / folder)


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_adds_one_importable_name(wheel: Path) -> None:
    assert {name.split("/")[0] for name in names(wheel)} == {"agent_env", METADATA}


@pytest.mark.parametrize("folder", sorted(PLACES))
def test_every_file_of_the_three_folders_is_in_the_wheel(wheel: Path, folder: str) -> None:
    wanted = {f"{PLACES[folder]}/{path.as_posix()}" for path in sources(folder)}

    assert f"{PLACES[folder]}/__init__.py" in wanted
    assert wanted - names(wheel) == set()


def test_the_migrations_of_the_run_index_are_in_the_wheel(wheel: Path) -> None:
    migrations = {name for name in names(wheel) if "/runs/migrations/versions/" in name}

    assert any(name.endswith(".py") for name in migrations)


def test_episodes_is_the_only_command(wheel: Path) -> None:
    entry_points = ConfigParser()
    with zipfile.ZipFile(wheel) as archive:
        entry_points.read_string(archive.read(f"{METADATA}/entry_points.txt").decode())

    assert dict(entry_points["console_scripts"]) == {"episodes": "agent_env.cli:run_and_exit"}


def test_the_installed_package_is_imported_from_the_wheel(installed: Path) -> None:
    place = run(installed / "python", "-c", "import agent_env; print(agent_env.__file__)")

    assert place.startswith(str(installed.parent / "lib"))


@pytest.mark.parametrize("name", ["workflows", "activities", "tests"])
def test_an_installed_package_claims_no_other_name(installed: Path, name: str) -> None:
    code = f"import importlib.util as util; print(util.find_spec({name!r}))"

    assert run(installed / "python", "-c", code).strip() == "None"


def test_the_installed_command_explains_itself(installed: Path) -> None:
    assert "Usage: episodes" in run(installed / "episodes", "--help")
