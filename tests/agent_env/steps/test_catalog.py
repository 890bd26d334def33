import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from agent_env.errors import UnknownTypeError
from agent_env.steps import Steps
from agent_env.testing.steps import step_of, succeeds

Install = Callable[[str, str], None]


class Needs(step_of(succeeds())):
    """A step type that is given."""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution that provides one step type."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    def installed(entry: str, code: str) -> None:
        module = entry.partition("=")[2].partition(":")[0].strip()
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[durable_episodes.steps]\n{entry}\n")

    return installed


PLUGIN = """
from agent_env.testing.steps import step_of, succeeds
Plugged = step_of(succeeds("plugged"))
"""


def test_an_unknown_type_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownTypeError) as caught:
        Steps({"shell": Needs}).open("shel")

    message = str(caught.value)
    assert message.startswith("unknown step type 'shel': did you mean 'shell'? Known: ")
    assert "run_code" in message


@pytest.mark.parametrize("name", ["", "../x", "base", "catalog", "os"])
def test_what_is_no_step_type_is_not_imported(name: str) -> None:
    with pytest.raises(UnknownTypeError):
        Steps().open(name)


def test_a_plugin_is_found_by_its_entry_point(install: Install) -> None:
    install("plugged = plugged_steps:Plugged", PLUGIN)
    steps = Steps()

    found = steps.open("plugged")

    assert found is steps.open("plugged")
    assert type(found).__name__ == "FakeStep"
    assert "plugged" in steps.known


def test_a_type_that_is_given_wins_over_a_plugin(install: Install) -> None:
    install("plugged = other_plugged_steps:Plugged", PLUGIN)

    found = Steps({"plugged": Needs}).open("plugged")

    assert isinstance(found, Needs)


def test_a_type_that_is_given_wins_over_a_built_in_one() -> None:
    assert isinstance(Steps({"run_code": Needs}).open("run_code"), Needs)


def test_a_built_in_type_wins_over_a_plugin(install: Install) -> None:
    install("run_code = robber_steps:Plugged", PLUGIN)

    found = Steps().open("run_code")

    assert type(found).__module__ == "agent_env.steps.run_code"


def test_every_built_in_type_opens() -> None:
    steps = Steps()

    assert {steps.open(name).type for name in steps.known} >= {
        "aggregate_verifiers",
        "deploy_sandbox",
        "gymnasium",
        "load_artifact",
        "python",
        "run_code",
        "verify_sandbox",
        "wait",
    }


def test_opening_a_type_imports_no_other() -> None:
    code = (
        "import sys; from agent_env.steps import Steps; Steps().open('wait'); print(*sys.modules)"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    imported = set(done.stdout.split())
    others = {f"agent_env.steps.{name}" for name in Steps().known} - {"agent_env.steps.wait"}
    assert "agent_env.steps.wait" in imported
    assert imported & others == set()


def test_a_plugin_that_cannot_be_imported_is_named_with_its_error(install: Install) -> None:
    install("sick = sick_steps:Sick", "import no_such_module_anywhere")

    with pytest.raises(UnknownTypeError, match=r"'sick' of 'sick_steps' can't be loaded: Module"):
        Steps().open("sick")


def test_a_plugin_that_is_no_step_is_refused(install: Install) -> None:
    install("odd = odd_steps:Odd", "class Odd: ...")

    with pytest.raises(UnknownTypeError, match=r"odd_steps:Odd must name a subclass of"):
        Steps().open("odd")
