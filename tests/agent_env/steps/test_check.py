from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import JsonValue

from agent_env.errors import InvalidSpecError
from agent_env.steps import Params, Scoring, Step, StepContext, StepResult, Steps
from agent_env.task import MAX_TASK_BYTES, Task
from agent_env.testing.steps import step_of, succeeds


class NeedsParams(Params):
    count: int = 1
    """A number."""
    artifact: str | None = None
    sandbox: str | None = None
    any_sandbox: bool = False
    problem: str | None = None


class Needs(Step[NeedsParams]):
    """Needs what its parameters name."""

    type = "needs"

    async def run(self, params: NeedsParams, ctx: StepContext) -> StepResult:
        return StepResult()

    def artifacts(self, params: NeedsParams) -> tuple[str, ...]:
        return (params.artifact,) if params.artifact else ()

    def sandboxes(self, params: NeedsParams) -> tuple[str | None, ...]:
        return (params.sandbox,) if params.sandbox or params.any_sandbox else ()

    def problems(self, params: NeedsParams) -> tuple[str, ...]:
        return (params.problem,) if params.problem else ()


class Broken(Needs):
    """Has a bug in what it says of itself."""

    def scoring(self, params: NeedsParams) -> Scoring:
        raise ZeroDivisionError("oh")


TYPES: Mapping[str, type[Step[Any]]] = {
    "needs": Needs,
    "broken": Broken,
    "box": step_of(succeeds(), deploys=("box",)),
    "boxes": step_of(succeeds(), deploys=("left", "right")),
    "verify": step_of(succeeds(), scoring=Scoring(records=True)),
    "named": step_of(succeeds(), scoring=Scoring(records=True, verifier_id="quality")),
    "combine": step_of(succeeds(), scoring=Scoring(records=True, consumes=("quality", "other"))),
}


def task(*steps: Mapping[str, JsonValue], **fields: JsonValue) -> Task:
    numbered = [{"id": f"s{number}", **step} for number, step in enumerate(steps)]
    return Task.of({"id": "t", "steps": numbered, **fields})


def problems(checked: Task, seed: Mapping[str, str] | None = None) -> list[str]:
    """Every problem that a check finds, as a line each."""
    with pytest.raises(InvalidSpecError) as caught:
        Steps(TYPES).check(checked, seed)
    return [str(problem) for problem in caught.value.problems]


def test_every_problem_is_said_at_once_with_its_place() -> None:
    wrong = task(
        {"type": "ned"},
        {"type": "needs", "count": "many", "cuont": 2},
        {"type": "needs", "artifact": "tset", "id": "load"},
        {"type": "needs", "artifact": "test"},
        {"type": "needs", "problem": "package x is missing; install it"},
        {"type": "broken"},
        artifacts={"test": "/somewhere"},
    )

    assert [found.partition("; known")[0] for found in problems(wrong)] == [
        "steps[0] 's0': type: unknown step type 'ned': did you mean 'needs'? Known: "
        + ", ".join(Steps(TYPES).known),
        "steps[1] 's1': count: input should be a valid integer, unable to parse string as an "
        "integer",
        "steps[1] 's1': cuont: unknown key 'cuont': did you mean 'count'? Known: any_sandbox, "
        "artifact, count, problem, sandbox",
        "steps[4] 's4': package x is missing; install it",
        "steps[5] 's5': type 'broken' can't check it: ZeroDivisionError: oh",
        "steps[2] 'load': unknown artifact 'tset': did you mean 'test'? Known: test; "
        "add it to the task's artifacts",
    ]


def test_a_number_may_come_from_a_seed_that_a_group_will_give() -> None:
    numbered = task({"type": "needs", "count": "<seed>"})

    assert Steps(TYPES).check(numbered) == numbered
    assert Steps(TYPES).check(numbered, {"size": "3"}) == numbered


def test_parameters_are_checked_with_the_seed_filled_in() -> None:
    numbered = task({"type": "needs", "count": "<count>"})

    assert Steps(TYPES).check(numbered, {"count": "3"}) == numbered
    assert len(problems(numbered, {"count": "three"})) == 1


def test_a_sandbox_that_a_step_before_deploys_can_be_used() -> None:
    good = task({"type": "boxes"}, {"type": "needs"}, {"type": "needs", "sandbox": "left"})

    assert Steps(TYPES).check(good) == good


def test_a_sandbox_that_nobody_deploys_is_refused_with_the_nearest_name() -> None:
    wrong = task({"type": "box"}, {"type": "needs", "sandbox": "bxo"})

    assert problems(wrong) == [
        "steps[1] 's1': unknown sandbox 'bxo': did you mean 'box'? Known: box"
    ]


def test_a_sandbox_of_a_step_that_is_not_waited_for_is_refused() -> None:
    wrong = task({"type": "box"}, {"type": "needs", "sandbox": "box", "depends_on": []})

    assert problems(wrong) == [
        "steps[1] 's1': sandbox 'box' comes from step 's0', which this one does not wait for; "
        "put that step before it, and into depends_on"
    ]


def test_without_a_name_there_must_be_one_sandbox() -> None:
    need: Mapping[str, JsonValue] = {"type": "needs", "any_sandbox": True}

    assert Steps(TYPES).check(task({"type": "box"}, need))
    assert problems(task(need)) == [
        "steps[0] 's0': needs a sandbox, and no step before it deploys one; "
        "add a deploy_sandbox step"
    ]
    assert problems(task({"type": "boxes"}, need)) == [
        "steps[1] 's1': names no sandbox, and there are several; name one of 'left', 'right'"
    ]


def test_what_an_invalid_step_would_deploy_is_not_missed() -> None:
    wrong = task({"type": "bxo"}, {"type": "needs", "sandbox": "box"})

    (only,) = problems(wrong)
    assert only.startswith("steps[0] 's0': type: unknown step type 'bxo'")


def test_a_verifier_that_no_step_before_records_is_refused() -> None:
    wrong = task({"type": "named"}, {"type": "combine"}, {"type": "verify", "id": "other"})

    assert problems(wrong)[0] == (
        "steps[1] 's1': verifier 'other' comes from step 'other', which this one does not wait "
        "for; put that step before it, and into depends_on"
    )


def test_the_only_step_that_scores_is_the_reward() -> None:
    checked = Steps(TYPES).check(task({"type": "box"}, {"type": "named", "id": "v"}))

    assert checked.reward == "v"


def test_a_task_without_a_score_has_no_reward() -> None:
    assert Steps(TYPES).check(task({"type": "box"})).reward is None


def test_scores_that_an_aggregate_combines_are_no_candidates_for_the_reward() -> None:
    checked = Steps(TYPES).check(
        task({"type": "named"}, {"type": "verify", "id": "other"}, {"type": "combine", "id": "all"})
    )

    assert checked.reward == "all"


def test_two_scores_and_no_name_are_refused_with_the_candidates() -> None:
    two = ({"type": "verify"}, {"type": "verify"})

    assert problems(task(*two)) == ["reward: 2 steps score, name one as the reward: 's0', 's1'"]
    assert Steps(TYPES).check(task(*two, reward="s1")).reward == "s1"


def test_a_reward_that_records_no_score_is_refused() -> None:
    wrong = task({"type": "box"}, {"type": "verify"}, reward="s0")

    assert problems(wrong) == ["reward: step 's0' records no score; these do: 's1'"]


def test_a_task_that_grew_over_the_limit_is_refused() -> None:
    grown = task({"type": "box"}).model_copy(update={"version": "x" * MAX_TASK_BYTES})

    (only,) = problems(grown)
    assert only.startswith("task 't': is 1,048,")
    assert only.endswith("over the limit of 1,048,576; put large content into an artifact")


def test_an_invalid_step_that_might_combine_scores_makes_them_no_candidates() -> None:
    wrong = task({"type": "named"}, {"type": "verify"}, {"type": "cmbine"})

    (only,) = problems(wrong)
    assert "did you mean 'combine'?" in only
