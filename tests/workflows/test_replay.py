"""Recorded histories replay against the workflows of today.

A failure here means that episodes under way would break at the next deploy: guard the change with
``workflow.patched``. New shapes are recorded by ``python -m tests.workflows.record_histories``;
a history that has landed is never written again.
"""

from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from agent_env.plugin import EpisodePlugin
from workflows.registry import WORKFLOWS

HISTORIES = sorted((Path(__file__).parents[1] / "histories").glob("*.json"))


def test_every_shape_of_episode_has_a_recorded_history() -> None:
    shapes = {path.stem.split("@")[0] for path in HISTORIES}

    assert shapes == {
        "canceled-as-it-ended",
        "canceled-before-the-first-task",
        "canceled-in-a-step",
        "canceled-while-queued",
        "completed",
        "deadline",
        "failed",
        "ended-before-it-began",
        "group-canceled",
        "group-canceled-host-by-host",
        "group-completed",
        "group-continued",
        "group-opened-again",
        "group-past-its-deadline",
        "group-with-a-member-replaced",
        "group-with-enough-scored",
        "reconciled-by-hand",
        "refused",
        "retried",
        "stopped-in-a-step",
        "succeeded",
        "turn-canceled",
        "turn-goes-on",
        "turn-is-handed-on",
        "turn-played",
        "turn-timed-out",
        "waits-beside-steps",
    }


def recorded(path: Path) -> WorkflowHistory:
    return WorkflowHistory.from_json(path.stem, path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(path: Path) -> None:
    history = recorded(path)

    await Replayer(workflows=WORKFLOWS, plugins=[EpisodePlugin(sandboxed=True)]).replay_workflow(
        history
    )
