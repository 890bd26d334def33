"""What a janitor asks of many runs at once, and how what is gone is ticked off."""

from agent_env.results import SandboxRef
from agent_env.runs import RunIndex, RunPlace, StillUp, _leftovers
from agent_env.status import RunStatus
from tests.agent_env.runs.conftest import T0, finished, new_run, opened


def ref(name: str, type: str = "local") -> SandboxRef:
    return SandboxRef(type=type, id=f"id of {name}", name=name, created_at=T0)


def ended(index: RunIndex, run_id: str, *still_up: SandboxRef) -> None:
    opened(index, run_id)
    end = finished(new_run(run_id)).model_copy(update={"still_up": still_up})
    index.finish_run(end, at=T0)


def test_places_of_many_runs_are_answered_at_once(index: RunIndex) -> None:
    opened(index, "here")
    opened(index, "waits", room=0)
    ended(index, "日本/../<x>")

    found = index.places(["here", "waits", "日本/../<x>", "nobody"])

    assert found == {
        "here": RunPlace(RunStatus.RUNNING, "here", 1),
        "waits": RunPlace(RunStatus.QUEUED, None, 1),
        "日本/../<x>": RunPlace(RunStatus.COMPLETED, "here", 1),
    }
    assert index.places([]) == {}


def test_more_ids_than_a_statement_takes_are_asked_in_parts(index: RunIndex) -> None:
    opened(index, "last")
    ids = [f"nobody-{number}" for number in range(8 * _leftovers.MOST_IDS)]

    assert set(index.places([*ids, "last"])) == {"last"}


def test_runs_with_something_still_up_come_by_id_in_pages(index: RunIndex) -> None:
    for run_id in ("c", "a", "b"):
        ended(index, run_id, ref(run_id))
    ended(index, "clean")
    opened(index, "live")

    first = index.still_up(limit=2)

    assert first == (StillUp("a", "here", (ref("a"),)), StillUp("b", "here", (ref("b"),)))
    assert index.still_up(after="b") == (StillUp("c", "here", (ref("c"),)),)


def test_what_is_destroyed_is_taken_from_what_is_still_up(index: RunIndex) -> None:
    ended(index, "run-1", ref("one"), ref("two"), ref("one", "other"))
    before = index.get("run-1")

    assert index.record_destroyed("run-1", [ref("one"), ref("unheard of")])

    left = (ref("two"), ref("one", "other"))
    assert index.get("run-1") == before.model_copy(update={"still_up": left})


def test_recording_it_again_or_of_no_run_changes_nothing(index: RunIndex) -> None:
    ended(index, "run-1", ref("one"))
    assert index.record_destroyed("run-1", [ref("one")])

    assert not index.record_destroyed("run-1", [ref("one")])
    assert not index.record_destroyed("nobody", [ref("one")])
    assert index.still_up() == ()
