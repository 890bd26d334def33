"""Agents that tamper with what scores them, and a sandbox that is removed under a step."""

import random
import shutil
from pathlib import Path

import pytest
from pydantic import JsonValue

from agent_env.episode import EpisodeSpec
from agent_env.status import RunStatus, StepStatus
from agent_env.task import Task
from tests.end_to_end.conftest import Product, WorkerProcess, processes_with
from tests.end_to_end.stage import box, command, play, python, sandbox_folders, spec

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("worker")]

VERIFIER = """\
import pathlib
right = pathlib.Path("/app/answer").read_text() == "42"
pathlib.Path("reward.txt").write_text("1" if right else "0")
"""
HOSTILE = """\
import os
with open("reward.txt", "w") as reward:
    reward.write("0.5")
os._exit(0)
"""
PLACES = {
    "the script": ("/app/verifier", "/app/verifier/verify.py"),
    "a folder in place of the script": ("/app/verifier", "/app/verifier/verify.py/__main__.py"),
    "beside the script": ("/app/verifier", "/app/verifier/pathlib.py"),
    "beside the script, out of reach": ("/verifier", "/verifier/pathlib.py"),
    "Python's own folder of the user": (
        "/verifier",
        "$(python3 -m site --user-site)/usercustomize.py",
    ),
}
"""Where the verifier is loaded to, and where it, or its Python, could take up what is there."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("answer", "reward"), [("41", 0.0), ("42", 1.0)])
async def test_what_the_agent_left_has_no_effect_on_the_score(
    shared: Product, tmp_path: Path, place: str, answer: str, reward: float
) -> None:
    """P5."""
    folder, left = PLACES[place]
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "verify.py").write_text(VERIFIER)
    agent = (
        f'printf {answer} > /app/answer; place="{left}"; mkdir -p "$(dirname "$place")"\n'
        f"cat > \"$place\" <<'END'\n{HOSTILE}END\n"
    )
    load: JsonValue = {
        "id": "load",
        "type": "load_artifact",
        "artifact_id": "tests",
        "destination_path": folder,
        "replace": folder.startswith("/app"),
    }
    verify = command("verify", "python3 verify.py", cwd=folder, score_from="./reward.txt")
    steps: list[JsonValue] = [box(), command("agent", agent, allow_failure=True), load, verify]
    artifacts: JsonValue = {"tests": str(tmp_path / "tests")}
    task = Task.of({"id": "case", "steps": steps, "artifacts": artifacts})

    episode = await shared.trainer.start(EpisodeSpec.from_task(task))
    result = await episode.result()

    assert result.error is None
    assert (result.status, result.reward) == (RunStatus.COMPLETED, reward)


@pytest.mark.parametrize("verifier", ["true", "exit 3"])
async def test_a_reward_that_the_agent_wrote_itself_is_none(shared: Product, verifier: str) -> None:
    """P5, and S8: what wrote no reward is unscored, not 0."""
    played = await play(
        shared,
        box(),
        command("agent", "mkdir logs && echo 1 > logs/reward.txt"),
        command("verify", verifier, score_from="logs/reward.txt", allow_failure=True),
    )

    assert played.result.status is RunStatus.COMPLETED
    assert played.result.reward is played.row.reward is played.steps["verify"].score is None


async def test_a_sandbox_that_is_removed_under_a_step_fails_the_episode_as_lost(
    shared: Product, worker: WorkerProcess
) -> None:
    """P6."""
    nap = f"sleep 600.{random.randrange(10**6, 10**7)}"
    episode = await shared.trainer.start(spec(box(), command("nap", nap)))
    await shared.until(lambda: bool(processes_with(nap)))
    (folder,) = sandbox_folders(shared)

    shutil.rmtree(folder)
    result = await episode.result()

    row = await episode.record()
    assert result.status is row.status is RunStatus.FAILED
    assert row.error_type == "SandboxLost"
    assert row.error is not None
    assert row.error.startswith("step 'nap': the local sandbox 'box' is gone")
    assert shared.index.steps(episode.run_id)[-1].status is StepStatus.FAILED
    assert row.still_up == ()
    assert processes_with(nap) == []
    assert sandbox_folders(shared) == []
    after = await play(shared, python("good", "returns_true"))
    assert after.result.status is RunStatus.COMPLETED
    assert worker.is_alive
