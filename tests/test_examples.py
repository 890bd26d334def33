"""The examples do what their texts say. What a command line makes of them is tested elsewhere."""

import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from agent_env.status import StepStatus
from agent_env.task_files import load_task
from tests.agent_env.steps.real_host import RealHost

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def host(tmp_path: Path) -> RealHost:
    return RealHost(tmp_path / "state")


async def played(host: RealHost, example: str, seed: str = "0") -> float | None:
    task = load_task(EXAMPLES / example)
    for name, folder in task.artifacts.items():
        host.refs[name] = host.store.put(Path(folder))
    steps = [step.model_dump(mode="json") for step in task.steps]

    reports = await host.play(*steps, seed={"seed": seed})

    assert {report.status for report in reports.values()} == {StepStatus.COMPLETED}, reports
    assert await host.providers.destroy_owned("run/1") == []
    (score,) = [report.score for report in reports.values() if report.score is not None]
    return score


async def test_hello_is_greeted(host: RealHost) -> None:
    assert await played(host, "hello") == 1.0


async def test_cartpole_is_played_well_and_differently_by_seed(host: RealHost) -> None:
    rewards = [await played(host, "cartpole", seed) for seed in "0230"]

    assert rewards[0] == rewards[3]
    assert len(set(rewards)) == 3
    assert all(reward is not None and 20 <= reward <= 500 for reward in rewards)


def test_the_trainer_loop_plays_a_turn_with_tools(tmp_path: Path) -> None:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("EPISODES_", "TEMPORAL_"))}

    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "trainer_loop.py")],
        env={**kept, "EPISODES_STATE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "bash: 5050" in done.stdout
    assert done.stdout.endswith("COMPLETED: reward 1.0\n")
    assert len((EXAMPLES / "trainer_loop.py").read_text(encoding="utf-8").splitlines()) < 100


@pytest.mark.timeout(600)
def test_a_policy_that_learns_from_groups_gets_better(tmp_path: Path) -> None:
    """Each group has its own pole, so one group says little: the last ones beat the first."""
    said = subprocess.run(
        [sys.executable, str(EXAMPLES / "grpo_group.py"), "7"],
        env={
            **{key: os.environ[key] for key in os.environ if not key.startswith("TEMPORAL_")},
            "EPISODES_STATE_DIR": str(tmp_path / "state"),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    ).stdout

    means = [float(mean) for mean in re.findall(r"mean reward (\S+)", said)]
    assert len(means) == 7
    assert statistics.mean(means[-3:]) > 2 * means[0]
    assert len((EXAMPLES / "grpo_group.py").read_text(encoding="utf-8").splitlines()) < 100
