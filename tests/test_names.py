"""Wire names are permanent: each is registered once, and takes and returns what clients use."""

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest
from temporalio import activity, workflow

from activities.finish import FinishActivities
from activities.groups import GroupActivities
from activities.reconcile import ReconcileActivities
from activities.records import RecordActivities
from activities.steps import StepActivities
from activities.turns import TurnActivities
from agent_env import names
from agent_env.outcome import Outcome
from agent_env.results import EpisodeResult, GroupResult
from agent_env.specs import EpisodeStart, GroupStart, Placement, Reconcile, Reconciled
from agent_env.turns import Recorded, TurnOffer
from workflows.registry import WORKFLOWS

ACTIVITY_NAMES = {
    "agent_env.open",
    "agent_env.begin",
    "agent_env.run_steps",
    "agent_env.interrupt",
    "agent_env.finish",
    "agent_env.open_group",
    "agent_env.cancel_group",
    "agent_env.group_members",
    "agent_env.list_member",
    "agent_env.group_state",
    "agent_env.ask_group",
    "agent_env.interrupt_group",
    "agent_env.cancel_runs",
    "agent_env.await_members",
    "agent_env.reconcile",
    "agent_env.repair",
    "agent_env.begin_turn",
    "agent_env.play_turn",
}


def defined(owner: type, definition: type) -> list[Any]:
    found = [
        getattr(method, "__temporal_activity_definition", None) for method in vars(owner).values()
    ]
    return [item for item in found if isinstance(item, definition)]


def test_every_activity_name_is_registered_once() -> None:
    owners = [
        RecordActivities,
        StepActivities,
        FinishActivities,
        GroupActivities,
        ReconcileActivities,
        TurnActivities,
    ]

    registered = [
        item.name
        for owner in owners
        for item in defined(owner, activity._Definition)  # pyright: ignore[reportPrivateUsage]
    ]

    assert sorted({*registered}) == sorted(ACTIVITY_NAMES)
    # Where it is handed over with a workflow task, `begin` only leaves itself to the queue.
    assert [name for name, times in Counter(registered).items() if times > 1] == ["agent_env.begin"]


@pytest.mark.parametrize(
    ("name", "takes", "returns"),
    [
        ("agent_env.Episode", EpisodeStart, EpisodeResult),
        ("agent_env.RolloutGroup", GroupStart, GroupResult),
        ("agent_env.Reconcile", Reconcile, Reconciled),
    ],
)
def test_a_workflow_takes_and_returns_what_clients_use(
    name: str, takes: type, returns: type
) -> None:
    definitions = {
        item.name: cls
        for cls in WORKFLOWS
        if (item := workflow._Definition.from_class(cls))  # pyright: ignore[reportPrivateUsage]
    }

    run: Callable[..., object] = getattr(definitions[name], "run")  # noqa: B009 - typed as type

    hints = get_type_hints(run)
    assert list(hints.values()) == [takes, returns]
    assert len(inspect.signature(run).parameters) == 2


@pytest.mark.parametrize(
    ("workflow_class", "update", "returns"),
    [
        (0, names.LISTED, Placement),
        (0, names.OUTCOME, Outcome),
        (0, names.NEXT_TURN, TurnOffer),
        (0, names.RECORD_TURN, Recorded),
        (0, names.END_TURN, type(None)),
        (1, names.LISTED, int),
    ],
)
def test_an_update_returns_what_clients_read(
    workflow_class: int, update: str, returns: type
) -> None:
    definition = workflow._Definition.must_from_class(  # pyright: ignore[reportPrivateUsage]
        WORKFLOWS[workflow_class]
    )

    assert get_type_hints(definition.updates[update].fn)["return"] is returns
