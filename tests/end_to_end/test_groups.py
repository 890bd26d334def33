"""Groups on the real server: canceled all at once, longer than one history, found by their id."""

import time
from datetime import timedelta

from agent_env import ids
from agent_env.status import RunStatus, StepStatus
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.outside import nap, napping
from tests.end_to_end.stage import box, command, sandbox_folders, spec
from tests.end_to_end.who_dies import LONG

MANY = 60


async def test_a_group_that_is_canceled_is_dead_at_once_and_ends_with_the_reason(
    product: Product,
) -> None:
    line = nap()
    with product.worker(environ={"EPISODES_MAX_EPISODES": str(MANY)}):
        group = await product.trainer.start_group(napping(line), size=MANY)
        await product.until(
            lambda: all(
                row.current_step == "long" for row in product.index.members(group.run_group_id)
            ),
            timedelta(minutes=3),
        )

        await product.until(lambda: len(processes_with(line)) >= MANY, timedelta(minutes=1))

        asked = time.monotonic()
        await group.cancel("no more", by="ana")
        await product.until(lambda: processes_with(line) == [], LONG)
        dead_s = time.monotonic() - asked
        result = await group.result()
        ended_s = time.monotonic() - asked

    assert {(m.status, m.error) for m in result.members} == {(RunStatus.CANCELED, "no more")}
    assert dead_s < max(2.0, ended_s / 2), "the processes do not wait for the cancels"
    assert sandbox_folders(product) == []
    for row in product.index.members(group.run_group_id):
        steps = {step.step_id: step.status for step in product.index.steps(row.run_id)}
        assert steps == {"box": StepStatus.COMPLETED, "long": StepStatus.CANCELED}


async def test_a_member_is_played_again_while_its_group_runs_and_after_it_has_ended(
    product: Product,
) -> None:
    """S7."""
    line = nap()
    member = spec(box(), command("roll", f"[ <seed> = 0 ] || {line}; echo 1", score_from="stdout"))
    with product.worker():
        group = await product.trainer.start_group(member, size=2)
        await product.until(lambda: bool(processes_with(line)), LONG)
        first = ids.member_id(group.run_group_id, 0)
        await product.trainer.attach(first).result()

        again = await group.replace(0)
        assert (await again.result()).reward == 1.0
        await group.cancel("enough")
        await group.result()
        last = await group.replace("0")
        result = await group.result()

    assert result.members[0].run_id == last.run_id == f"{first}-r2"
    assert (result.figures.n, result.figures.n_scored, result.figures.canceled) == (2, 1, 1)
    assert processes_with(line) == []
