"""A training loop is killed: what it started goes on, and another process gets the results."""

import asyncio
import json
from pathlib import Path

from pydantic import JsonValue

from agent_env import ids
from agent_env.status import RunStatus
from tests.end_to_end.conftest import ROOT, Product, on_both, processes_with
from tests.end_to_end.stage import box
from tests.end_to_end.who_dies import LONG, Process, Steps, assert_ended, nap, worker

pytestmark = on_both

LOOP = Path(__file__).with_name("training_loop.py")
GROUP = "grp-killed"
RUNS = ["run-killed", *(ids.member_id(GROUP, index) for index in range(3))]


def loop(product: Product, how: str, task: JsonValue) -> Process:
    return Process(
        *(str(LOOP), how, RUNS[0], GROUP, json.dumps(task)),
        env={
            "PYTHONPATH": str(ROOT),
            **product.environ(),
        },
    )


async def test_what_a_killed_trainer_started_goes_on_and_is_found_by_its_ids(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(4), Steps(tmp_path)
    task: JsonValue = {
        "id": "durable",
        "steps": [box(), steps.quick("once"), steps.nap("nap", sleep)],
    }
    with worker(product):
        first = loop(product, "start", task)
        try:
            await product.until(lambda: len(processes_with(f"sleep {sleep}")) == len(RUNS), LONG)
        finally:
            await asyncio.to_thread(first.kill)
        live = [product.index.get(run_id).status for run_id in RUNS]
        second = loop(product, "attach", task)
        ended = json.loads(await asyncio.to_thread(second.output))

        for run_id in RUNS:
            await assert_ended(product, run_id, RunStatus.COMPLETED, nap=sleep)

    assert live == [RunStatus.RUNNING] * len(RUNS)
    assert [status for _, status in ended] == [RunStatus.COMPLETED] * 7
    # The episode, the members as they ended, the members in order.
    assert (ended[0][0], [run_id for run_id, _ in ended[4:]]) == (RUNS[0], RUNS[1:])
    assert sorted(run_id for run_id, _ in ended[1:4]) == RUNS[1:]
    assert (steps.times("once"), steps.times("nap")) == (len(RUNS), len(RUNS))
