"""Records a history of each shape of episode, for the replay test. Run by hand, once a release:

    python -m tests.workflows.record_histories

Shapes that have a history of this version already are left alone: what has landed stays as it is.
"""

import asyncio
import contextlib
import json
import tempfile
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

from pydantic import JsonValue
from temporalio.client import WorkflowFailureError
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from agent_env import names, specs
from agent_env._version import __version__
from agent_env.config import Settings
from agent_env.episode import Episode
from agent_env.errors import AgentEnvError
from agent_env.plugin import EpisodePlugin
from agent_env.sandboxes import Providers
from agent_env.specs import Reconcile
from agent_env.steps import Steps
from agent_env.turn import Turn
from agent_env.worker import open_services, serving
from tests.workflows.conftest import TEST_SERVER, EpisodeHarness, GatedProvider, Script, scripted
from tests.workflows.ended_member import ended_member
from tests.workflows.looks import Looks, findings, reconciling, repair
from workflows import _members

HISTORIES = Path(__file__).parents[1] / "histories"

Shape = Callable[[EpisodeHarness, Script], Awaitable[str]]


async def completed(h: EpisodeHarness, script: Script) -> str:
    result = await h.play({"id": "a", "deploys": "box"}, {"id": "b", "score": 1.0})
    return result.run_id


async def succeeded(h: EpisodeHarness, script: Script) -> str:
    """Ended by its last segment; what was recorded as `completed` had a `finish`."""
    return await completed(h, script)


async def failed(h: EpisodeHarness, script: Script) -> str:
    script.fails["b"] = 1
    return (await h.play({"id": "a"}, {"id": "b"}, {"id": "c"})).run_id


async def retried(h: EpisodeHarness, script: Script) -> str:
    script.fails["b"] = 1
    retry: JsonValue = {"retry_from_step_id": "a", "max_retries": 1}
    return (await h.play({"id": "a", "deploys": "box"}, {"id": "b", "retry_config": retry})).run_id


async def waits_beside_steps(h: EpisodeHarness, script: Script) -> str:
    result = await h.play_for(
        timedelta(hours=1),
        {"id": "w", "type": "wait", "seconds": 60},
        {"id": "a", "depends_on": []},
        {"id": "b", "depends_on": ["w", "a"]},
    )
    return result.run_id


async def deadline(h: EpisodeHarness, script: Script) -> str:
    script.hold("a")
    return (await h.play({"id": "a", "deploys": "box"}, deadline_seconds=1)).run_id


async def refused(h: EpisodeHarness, script: Script) -> str:
    spec = h.spec({"id": "a"})
    done = await (await h.trainer.start(spec, run_id="refused")).result()
    await h.client.get_workflow_handle(done.run_id).result()
    # The row of another workflow has the id: the index refuses, as on another cluster.
    h.sql("UPDATE runs SET run_id = 'taken' WHERE run_id = 'refused'")
    try:
        await h.trainer.start(spec, run_id="taken")
    except AgentEnvError:
        return "taken"
    raise AssertionError("the index took a run id twice")


async def canceled_in_a_step(h: EpisodeHarness, script: Script) -> str:
    script.hold("b")
    episode = await h.trainer.start(h.spec({"id": "a", "deploys": "box"}, {"id": "b"}))
    await h.until(lambda: "b" in script.ran)
    return (await h.canceled(episode)).run_id


async def stopped_in_a_step(h: EpisodeHarness, script: Script) -> str:
    """What was recorded as `canceled-in-a-step` did not look for what had ended meanwhile."""
    return await canceled_in_a_step(h, script)


async def canceled_as_it_ended(h: EpisodeHarness, script: Script) -> str:
    """The cancel and the end of the last segment come with one workflow task."""
    h.provider.destroy_gate = asyncio.Event()
    end = script.hold("a")
    episode = await h.trainer.start(h.spec({"id": "a", "deploys": "box"}))
    await h.until(lambda: "a" in script.ran)
    await h.cancel_as_it_ends(episode.run_id, end)
    await h.until(lambda: h.provider.destroying > 1)
    h.provider.destroy_gate.set()
    return (await episode.result()).run_id


async def canceled_while_queued(h: EpisodeHarness, script: Script) -> str:
    go = script.hold("a")
    full = [await h.trainer.start(h.spec({"id": "a"})) for _ in range(4)]
    queued = await h.trainer.start(h.spec({"id": "q"}))
    await h.canceled(queued)
    go.set()
    for episode in full:
        await episode.result()
    return queued.run_id


async def canceled_before_the_first_task(h: EpisodeHarness, script: Script) -> str:
    raise NotImplementedError("played without a worker, see main")


async def reconciled_by_hand(h: EpisodeHarness, script: Script) -> str:
    raise NotImplementedError("played with scripted looks, see main")


async def group_completed(h: EpisodeHarness, script: Script) -> str:
    group = await h.trainer.start_group(h.spec({"id": "a", "score": 1.0}), size=3, max_parallel=2)
    await group.result()
    return group.run_group_id


async def group_canceled(h: EpisodeHarness, script: Script) -> str:
    script.hold("a")
    group = await h.trainer.start_group(h.spec({"id": "a"}), size=3, max_parallel=2)
    await h.until(lambda: len(script.ran) == 2)
    await group.cancel("enough", by="tester")
    await group.result()
    return group.run_group_id


async def _asked(h: EpisodeHarness, **more: JsonValue) -> tuple[Episode, Turn]:
    """An episode at its turn."""
    ask: dict[str, JsonValue] = {"id": "ask", "type": "prompt_agent", "prompt": "do it"}
    episode = await h.trainer.start(h.spec({"id": "a", "deploys": "box"}, {**ask, **more}))
    turn = await episode.next_turn()
    assert turn is not None
    return episode, turn


async def _wrote(turn: Turn, number: int) -> None:
    """Have a model call a tool."""
    arguments = {"path": "note", "content": str(number)}
    function: dict[str, JsonValue] = {"name": "write_file", "arguments": json.dumps(arguments)}
    call: JsonValue = {"id": f"call-{number}", "type": "function", "function": function}
    async with turn.tools() as tools:
        await turn.record_model_call({"content": None, "tool_calls": [call]}, model="m")
        await tools.call("write_file", arguments)


async def turn_played(h: EpisodeHarness, script: Script) -> str:
    episode, turn = await _asked(h)
    await _wrote(turn, 0)
    await turn.record_model_call("done")
    await turn.end("done")
    return (await episode.result()).run_id


async def turn_timed_out(h: EpisodeHarness, script: Script) -> str:
    episode, _ = await _asked(h, timeout_seconds=60)
    await h.env.sleep(timedelta(seconds=61))
    return (await h.trainer.attach(episode.run_id).result()).run_id


async def turn_canceled(h: EpisodeHarness, script: Script) -> str:
    episode, _ = await _asked(h)
    await episode.abandon("enough")
    return episode.run_id


async def turn_goes_on(h: EpisodeHarness, script: Script) -> str:
    """The last of the executions that an episode needed; the first is recorded beside it."""
    episode, turn = await _asked(h)
    first = (await h.client.get_workflow_handle(episode.run_id).describe()).run_id
    for number in range(3):
        await _wrote(turn, number)
    await turn.end("done")
    await episode.result()
    save("turn-is-handed-on", await history(h, episode.run_id, first))
    return episode.run_id


async def group_canceled_host_by_host(h: EpisodeHarness, script: Script) -> str:
    script.hold("a")
    group = await h.trainer.start_group(h.spec({"id": "a"}), size=9)
    await h.until(lambda: len(script.ran) == 4)
    await group.cancel("enough", by="tester")
    await group.result()
    return group.run_group_id


async def group_with_enough_scored(h: EpisodeHarness, script: Script) -> str:
    script.hold("grp-0001")
    spec = h.spec({"id": "a", "score": 1.0})
    group = await h.trainer.start_group(spec, size=2, surplus=3, run_group_id="grp", max_parallel=2)
    await group.result()
    return group.run_group_id


async def group_past_its_deadline(h: EpisodeHarness, script: Script) -> str:
    script.hold("a")
    group = await h.trainer.start_group(h.spec({"id": "a"}), size=2, deadline=timedelta(seconds=1))
    await group.result()
    return group.run_group_id


async def group_with_a_member_replaced(h: EpisodeHarness, script: Script) -> str:
    go = script.hold("grp-0001")
    group = await h.trainer.start_group(h.spec({"id": "a"}), size=2, run_group_id="grp")
    await h.until(lambda: "grp-0001" in script.runs)
    await group.replace(1)
    go.set()
    await group.result()
    return group.run_group_id


async def group_opened_again(h: EpisodeHarness, script: Script) -> str:
    group = await h.trainer.start_group(h.spec({"id": "a"}), size=2)
    await group.result()
    await group.replace(1)
    await group.result()
    return group.run_group_id


async def group_continued(h: EpisodeHarness, script: Script) -> str:
    usual, _members.MOST_EVENTS = _members.MOST_EVENTS, 60
    try:
        slow = script.hold("grp-0000")
        group = await h.trainer.start_group(h.spec({"id": "a"}), size=24, run_group_id="grp")
        await h.until(
            lambda: h.index.group("grp").figures.completed == 23, within=timedelta(minutes=2)
        )
        slow.set()
        await group.result()
        return group.run_group_id
    finally:
        _members.MOST_EVENTS = usual


async def ended_before_it_began(h: EpisodeHarness, script: Script) -> str:
    start = ended_member(h)
    handle = await h.client.start_workflow(
        names.EPISODE, start, id=start.run_id, task_queue=names.TASK_QUEUE
    )
    with contextlib.suppress(WorkflowFailureError):
        await handle.result()
    return start.run_id


SHAPES: list[Shape] = [
    turn_played,
    turn_timed_out,
    turn_canceled,
    turn_goes_on,
    completed,
    succeeded,
    failed,
    retried,
    waits_beside_steps,
    deadline,
    refused,
    canceled_in_a_step,
    stopped_in_a_step,
    canceled_as_it_ended,
    canceled_while_queued,
    canceled_before_the_first_task,
    group_completed,
    group_canceled,
    group_canceled_host_by_host,
    group_with_enough_scored,
    group_past_its_deadline,
    group_with_a_member_replaced,
    group_opened_again,
    group_continued,
    ended_before_it_began,
    reconciled_by_hand,
]


async def canceled_early(h: EpisodeHarness) -> str:
    """Start and cancel while no worker is up, then serve."""
    starting = asyncio.create_task(h.trainer.start(h.spec({"id": "a"}), run_id="early"))
    while True:
        try:
            await h.client.get_workflow_handle("early").cancel(reason="changed my mind")
            break
        except RPCError:
            await asyncio.sleep(0.01)
    async with serving(h.client, h.services):
        return (await (await starting).result()).run_id


async def reconciled(h: EpisodeHarness) -> str:
    """One repair on its host, one whose host is lost, one that fails, and a group."""
    found = findings(repair("a"), repair("lost", host="gone"), groups=("g",), more=True)
    looks = Looks([found, findings(repair("broken"), repair("b", host=None))], broken={"broken"})
    async with reconciling(h.client, looks):
        await h.client.execute_workflow(
            names.RECONCILER, Reconcile(once=True), id="by-hand", task_queue=names.TASK_QUEUE
        )
    return "by-hand"


def scrubbed(value: JsonValue) -> JsonValue:
    """A history without what only tells of the machine that recorded it."""
    if isinstance(value, dict):
        return {
            key: scrubbed(part)
            for key, part in value.items()
            if key not in ("stackTrace", "identity")
        }
    return [scrubbed(part) for part in value] if isinstance(value, list) else value


async def record(shape: Shape) -> str:
    """Play one shape on a server of its own; its history as JSON."""
    script, provider = Script(), GatedProvider()
    specs.MAX_UPDATES = 3 if shape is turn_goes_on else 1_500  # what its worker records
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(state_dir=Path(folder), max_episodes=4, host="here", cancel_grace_s=1)
        async with (
            await WorkflowEnvironment.start_time_skipping(
                test_server_existing_path=str(TEST_SERVER), plugins=[EpisodePlugin(sandboxed=True)]
            ) as env,
            open_services(
                settings,
                providers=Providers(settings.state_dir, {"fake": provider}),
                steps=Steps({"script": scripted(script)}),
            ) as services,
        ):
            harness = EpisodeHarness(env, services, provider)
            if shape is canceled_before_the_first_task:
                workflow_id = await canceled_early(harness)
            elif shape is reconciled_by_hand:
                workflow_id = await reconciled(harness)
            else:
                async with serving(harness.client, services):
                    workflow_id = await shape(harness, script)
            return await history(harness, workflow_id)


async def history(h: EpisodeHarness, workflow_id: str, run_id: str | None = None) -> str:
    """The history of an execution, by default the last one, as JSON."""
    found = await h.client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
    return json.dumps(scrubbed(json.loads(found.to_json())), indent=1)


def save(name: str, text: str) -> None:
    """Write a history of this version, unless there is one."""
    path = HISTORIES / f"{name}@{__version__}.json"
    if not path.exists():
        path.write_text(text, encoding="utf-8")


async def main() -> None:
    """Record what is missing for this version."""
    for shape in SHAPES:
        path = HISTORIES / f"{shape.__name__.replace('_', '-')}@{__version__}.json"
        if not path.exists():
            save(path.stem.partition("@")[0], await record(shape))


if __name__ == "__main__":
    asyncio.run(main())
