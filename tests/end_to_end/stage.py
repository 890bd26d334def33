"""Steps and tasks that the tests of the whole product play."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from agent_env.episode import EpisodeSpec
from agent_env.results import EpisodeResult, StepReport
from agent_env.runs import RunRecord
from agent_env.task import Task
from tests.end_to_end.conftest import Product

FUNCTIONS = Path(__file__).with_name("functions.py")


def box(**more: JsonValue) -> JsonValue:
    return {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", **more}


def command(step_id: str, line: str, **more: JsonValue) -> JsonValue:
    return {"id": step_id, "type": "run_code", "command": line, **more}


def python(step_id: str, function: str, **more: JsonValue) -> JsonValue:
    """A step that calls a function of ``functions.py``."""
    return {"id": step_id, "type": "python", "function": f"{FUNCTIONS}:{function}", **more}


def spec(
    *steps: JsonValue, task_id: str = "case", seed: Mapping[str, str] | None = None
) -> EpisodeSpec:
    return EpisodeSpec.from_task(Task.of({"id": task_id, "steps": list(steps)}), seed=seed)


class Played:
    """An episode that has ended: what its caller was told, and what the index says."""

    def __init__(self, result: EpisodeResult, row: RunRecord, steps: Sequence[StepReport]) -> None:
        self.result = result
        self.row = row
        self.steps = {step.step_id: step for step in steps}


async def play(
    product: Product, *steps: JsonValue, seed: Mapping[str, str] | None = None
) -> Played:
    """Play one episode to its end."""
    episode = await product.trainer.start(spec(*steps, seed=seed))
    result = await episode.result()
    return Played(result, await episode.record(), product.index.steps(episode.run_id))


def sandbox_folders(product: Product) -> list[Path]:
    return [path for path in (product.state_dir / "sandboxes").glob("*/*") if path.is_dir()]
