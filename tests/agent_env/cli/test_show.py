"""agent_env/cli/show.py."""

from collections.abc import Callable
from datetime import timedelta

from agent_env.cli.show import temporal_url
from agent_env.outcome import Outcome
from agent_env.results import SandboxRef
from agent_env.runs import Finished, RunIndex
from agent_env.status import RunStatus, StepStatus
from tests.agent_env.cli.stage import COMPLETED, FAILED, T0, Cli, Said, end, group, new_run, report


def test_everything_about_a_run_is_shown(index: RunIndex, say: Callable[..., Said]) -> None:
    end(
        index,
        new_run("run-a"),
        FAILED,
        report("a", score=0.5),
        report("b", status=StepStatus.FAILED, error_type="StepFailed", error="once", retried=True),
        report("b", epoch=2, status=StepStatus.FAILED, error_type="StepFailed", error="exit 3"),
        report("c", epoch=2, status=StepStatus.SKIPPED, started_at=None, finished_at=None),
    )

    said = say("show", "run-a", "--time-format", "iso")

    lines = [line.split() for line in said.out.splitlines()]
    assert said.code == 0
    assert lines[0] == ["✕", "FAILED", "run-a"]
    assert lines[1] == ["StepFailed:", "step", "'b':", "exit", "code", "3"]
    assert ["task", "cartpole", "v1"] in lines
    assert ["listed", "2026-01-31T09:30:00Z"] in lines
    assert ["took", "2.00", "s"] in lines
    assert ["seed", "seed=7"] in lines
    assert ["tags", "who=ana"] in lines
    assert ["workflow", "run-a", "in", "namespace", "default"] in lines
    assert lines[-6:] == [
        ["✓", "COMPLETED", "a", "run_code", "1", "of", "1", "0.500", "1.50", "s"],
        ["✕", "FAILED", "b", "run_code", "1", "of", "2", "–", "1.50", "s"],
        ["StepFailed:", "once", "(retried)"],
        ["✕", "FAILED", "b", "run_code", "2", "of", "2", "–", "1.50", "s"],
        ["StepFailed:", "exit", "3"],
        ["◌", "SKIPPED", "c", "run_code", "1", "of", "1", "–", "–"],
    ]


def test_json_has_the_row_its_steps_and_its_workflow(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    end(index, new_run("run-a"), COMPLETED, report("a"))

    data = say("show", "run-a", "--json").json

    assert (data["run_id"], data["status"], data["reward"]) == ("run-a", "COMPLETED", 1.0)
    assert (data["workflow_id"], data["temporal_url"]) == ("run-a", None)
    assert [step["step_id"] for step in data["steps"]] == ["a"]


def test_what_is_still_up_is_named_with_what_becomes_of_it(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    run = new_run("run-a")
    ref = SandboxRef(type="local", id="ab/cd", name="box", created_at=T0)
    index.finish_run(
        Finished(run=run, epoch=1, outcome=Outcome(status=RunStatus.COMPLETED), still_up=(ref,)),
        at=T0,
    )

    said = say("show", "run-a")
    shown, (listed,) = say("show", "run-a", "--json").json, say("list", "--json").json["items"]

    (line,) = [line for line in said.out.splitlines() if line.startswith("still up")]
    assert "local sandbox 'box' (ab/cd): could not be destroyed yet; workers keep trying" in line
    assert shown["still_up"] == listed["still_up"] == [ref.model_dump(mode="json")]

    index.record_destroyed("run-a", [ref])
    assert "still up" not in say("show", "run-a").out


def test_a_live_run_names_the_command_that_cancels_it(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    index.open_run(new_run("run-a"), host="here", room=1, at=T0)
    index.request_cancel("run-a", by="ana", reason="too slow", at=T0 + timedelta(seconds=1))

    said = say("show", "run-a", "--time-format", "iso")

    assert said.out.startswith("● RUNNING, canceling  run-a\n")
    assert "asked for by ana, 2026-01-31T09:30:01Z: too slow" in said.out
    assert said.err.rstrip().endswith("cancel run-a")


def test_an_unknown_run_is_not_found(say: Callable[..., Said]) -> None:
    said = say("show", "run-x", "--json")

    assert said.code == 3
    assert said.json["error"]["kind"] == "not_found"
    assert said.json["error"]["run_id"] == "run-x"


def test_the_id_of_a_group_is_answered_with_the_command_for_groups(
    index: RunIndex, say: Callable[..., Said]
) -> None:
    group(index, "grp-1", COMPLETED)

    said = say("show", "grp-1")

    assert said.code == 3
    assert "is a group, not a run; try `episodes groups show`" in said.err


def test_the_link_to_temporal_is_quoted(server: Cli, index: RunIndex) -> None:
    end(index, new_run("a/b c"), COMPLETED)

    url = temporal_url(server.state_dir, index.get("a/b c"))

    assert url is not None
    assert url.endswith("/namespaces/default/workflows/a%2Fb%20c/w-a%2Fb%20c")
