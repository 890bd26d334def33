import subprocess
import sys
from pathlib import Path

import pytest

from agent_env._layout import conflicts, use_worker_code

ROOT = Path(__file__).parents[2]


def install(site: Path, distribution: str, package: str) -> None:
    """What an installer leaves behind in ``site``: a package and its distribution's metadata."""
    (site / package).mkdir(parents=True)
    (site / package / "__init__.py").write_text("", encoding="utf-8")
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "RECORD").write_text(f"{package}/__init__.py,,\n", encoding="utf-8")


def test_this_checkout_is_in_nobodys_way() -> None:
    assert conflicts() == []


@pytest.mark.parametrize("package", ["workflows", "activities", "agent_env"])
def test_a_distribution_with_the_same_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    install(tmp_path, "llama-index-workflows", package)
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType] -- pytest leaves it untyped

    (said,) = conflicts()

    assert said.startswith(
        f"the distribution 'llama-index-workflows' provides the package {package!r} too"
    )
    assert "virtual environment of its own" in said


@pytest.mark.parametrize("spelling", ["durable-episodes", "Durable_Episodes"])
def test_our_own_distribution_is_no_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    install(tmp_path, spelling, "agent_env")
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType] -- pytest leaves it untyped

    assert conflicts() == []


def test_a_folder_that_hides_ours_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "workflows").mkdir()
    (tmp_path / "workflows/__init__.py").write_text("", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)  # pyright: ignore[reportUnknownMemberType] -- pytest leaves it untyped

    (said,) = conflicts()

    assert said.startswith(f"the folder {tmp_path / 'workflows'} hides {ROOT / 'workflows'}")


def test_a_checkout_needs_no_change_of_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))

    use_worker_code()

    assert sys.path == before


def test_an_installed_worker_finds_its_bundled_code_first(tmp_path: Path) -> None:
    """As a wheel lays it out; another ``workflows`` in the working directory stays unseen."""
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    for folder in (
        site / "agent_env/_app/workflows",
        site / "agent_env/_app/activities",
        elsewhere / "workflows",
    ):
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("", encoding="utf-8")
    (site / "agent_env/__init__.py").write_text("", encoding="utf-8")
    source = (ROOT / "agent_env/_layout.py").read_text(encoding="utf-8")
    (site / "agent_env/_layout.py").write_text(source, encoding="utf-8")
    code = (
        "import sys; sys.path[:0] = ['', sys.argv[1]]\n"
        "from agent_env._layout import conflicts, use_worker_code\n"
        "assert conflicts() == []\n"
        "use_worker_code(); use_worker_code()\n"
        "import workflows; assert sys.path.count(sys.path[0]) == 1\n"
        "sys.stdout.write(workflows.__file__)"
    )

    found = subprocess.run(
        [sys.executable, "-I", "-c", code, str(site)],
        cwd=elsewhere,
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout == str(site / "agent_env/_app/workflows/__init__.py")
