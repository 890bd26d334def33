"""Workers that die between knowing how an episode ended and writing it down."""

import asyncio
from pathlib import Path

import pytest

from agent_env.results import EpisodeResult
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product
from tests.end_to_end.launched import launched
from tests.end_to_end.launcher import HELD
from tests.end_to_end.stage import box, command, sandbox_folders, spec

ENDS = {
    "completes": (RunStatus.COMPLETED, "echo 0.5"),
    "fails": (RunStatus.FAILED, "exit 3"),
    "is canceled": (RunStatus.CANCELED, "sleep 600"),
}


async def test_a_worker_that_dies_before_it_wrote_the_end_changes_no_end(
    product: Product, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """L14."""
    gate = tmp_path_factory.mktemp("gate")
    with launched(product, "--gate", str(gate)) as worker:
        episodes = {
            name: await product.trainer.start(
                spec(
                    box(sandbox_name=f"{HELD} {name}"),
                    command("score", line, score_from="stdout"),
                )
            )
            for name, (_, line) in ENDS.items()
        }
        canceled = episodes["is canceled"]
        await product.until(lambda: product.index.get(canceled.run_id).current_step == "score")
        await canceled.cancel("enough", by="ana")
        known = {name: await one.result(teardown=False) for name, one in episodes.items()}
        await product.until(lambda: all(_is_held(gate, name) for name in ENDS))
        rows = {name: await one.record() for name, one in episodes.items()}
        worker.kill()
        worker.wait(timeout=10)

    late = {name: await one.cancel("too late", by="bob") for name, one in episodes.items()}
    with product.worker():
        results = await asyncio.gather(*(one.result() for one in episodes.values()))

    assert {row.status for row in rows.values()} == {RunStatus.RUNNING}
    assert not any(answer.run.status.is_finished for answer in late.values())
    for (name, (status, _)), result in zip(ENDS.items(), results, strict=True):
        row = await episodes[name].record()
        assert known[name].status is result.status is row.status is status
        assert _facts(known[name]) == _facts(result) == _facts(row.result())
        assert row.still_up == ()
    assert results[0].reward == 0.5
    assert results[2].error == "enough"
    assert sandbox_folders(product) == []


def _is_held(gate: Path, name: str) -> bool:
    return (gate / f"{HELD} {name}").exists()


def _facts(result: EpisodeResult) -> tuple[object, ...]:
    return (result.error_type, result.error, result.reward, dict(result.scores))
