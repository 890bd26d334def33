import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.errors import InvalidSpecError
from agent_env.task import MAX_TASK_BYTES, StepSpec, Task, ancestors, descendants, edges

DIAMOND: list[dict[str, Any]] = [
    {"id": "a", "type": "x", "depends_on": []},
    {"id": "b", "type": "x", "depends_on": ["a"]},
    {"id": "c", "type": "x", "depends_on": [{"task_step_id": "a"}]},
    {"id": "d", "type": "x"},
]


def refused(data: object) -> str:
    with pytest.raises(InvalidSpecError) as caught:
        Task.of(data, where="t.json")
    return str(caught.value)


def steps(**changes: Any) -> list[dict[str, Any]]:
    """Two steps, the second changed."""
    return [{"id": "a", "type": "x"}, {"id": "b", "type": "x", **changes}]


def test_a_plain_list_of_steps_is_a_task() -> None:
    task = Task.of(DIAMOND, where="tasks/hello.json")

    assert task.id == "tasks/hello.json"
    assert [step.id for step in task.steps] == ["a", "b", "c", "d"]
    assert task.reward is None


def test_an_id_of_its_own_comes_before_the_files() -> None:
    assert Task.of({"id": "mine", "steps": DIAMOND}, where="f.json").id == "mine"
    assert Task.of({"id": "mine", "steps": DIAMOND}).id == "mine"


@pytest.mark.parametrize(("given_version", "version"), [(3, "3"), ("2026-01", "2026-01")])
def test_a_version_is_text_or_a_whole_number(given_version: object, version: str) -> None:
    assert Task.of({"version": given_version, "steps": DIAMOND}, where="t").version == version


def test_keys_beside_the_fields_are_parameters_of_the_type() -> None:
    spec = StepSpec.model_validate({"id": "a", "type": "x", "command": ["ls"], "env": {"A": None}})

    assert spec.params == {"command": ["ls"], "env": {"A": None}}


def test_a_task_survives_the_wire() -> None:
    task = Task.of(
        {"steps": steps(command="é\0", retry_config={"retry_from_step_id": "a"}), "reward": "b"},
        where="t",
    )

    assert Task.model_validate_json(task.model_dump_json()) == task


def test_edges_are_those_given_or_all_earlier_steps() -> None:
    task = Task.of(DIAMOND, where="t")

    assert edges(task) == {"a": (), "b": ("a",), "c": ("a",), "d": ("a", "b", "c")}


def test_ancestors_and_descendants_are_transitive() -> None:
    task = Task.of(DIAMOND, where="t")

    assert ancestors(task, "d") == {"a", "b", "c"}
    assert ancestors(task, "a") == set()
    assert descendants(task, "a") == {"b", "c", "d"}
    assert descendants(task, "d") == set()


@given(st.lists(st.integers(min_value=0, max_value=2**6 - 1), min_size=1, max_size=6))
def test_a_step_is_the_ancestor_of_its_descendants(masks: list[int]) -> None:
    task = Task.of(
        [
            {
                "id": str(number),
                "type": "x",
                "depends_on": [str(n) for n in range(number) if mask & 1 << n],
            }
            for number, mask in enumerate(masks)
        ],
        where="t",
    )

    for above in task.steps:
        for below in task.steps:
            is_above = above.id in ancestors(task, below.id)
            assert (below.id in descendants(task, above.id)) is is_above


def test_a_step_is_found_by_its_id() -> None:
    task = Task.of(DIAMOND, where="t")

    assert task.step("c") is task.steps[2]
    with pytest.raises(KeyError, match="zzz"):
        task.step("zzz")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "t.json: steps: a task has at least one step"),
        ("text", "t.json: input should be a valid dictionary"),
        ({}, "t.json: steps: is required; add it"),
        ({"step": []}, "unknown key 'step': did you mean 'steps'?"),
        ([{"type": "x"}], "t.json: steps[0].id: is required; add it"),
        ([{"id": "a", "type": ""}], "t.json: steps[0].type:"),
        ([{"id": "", "type": "x"}], "t.json: steps[0].id: an id must not be empty"),
        ([{"id": "a\n", "type": "x"}], "control characters"),
        (steps(id="a"), "steps[1] 'a': steps[0] has this id already"),
        (steps(depends_on=["b"]), "steps[1] 'b': depends_on: a step can't depend on itself"),
        (steps(depends_on=["zzz"]), "depends_on: there is no step 'zzz'; the steps are ['a', 'b']"),
        (steps(depends_on=["a", "a"]), "steps[1] 'b': depends_on: names a step twice"),
        (steps(depends_on=[{"task_step_id": "a", "more": 1}]), "steps[1].depends_on[0]:"),
        (steps(depends_on="a"), "steps[1].depends_on: input should be"),
        (steps(timeout_seconds=0), "steps[1].timeout_seconds: input should be greater than 0"),
        (steps(timeout_seconds=math.inf), "steps[1].timeout_seconds: input should be a finite"),
        (steps(retry_config={"max_retries": -1}), "steps[1].retry_config.max_retries:"),
        (
            steps(retry_config={"max_retry": 1}),
            "steps[1].retry_config.max_retry: unknown key 'max_retry': did you mean "
            "'max_retries'? Known: max_retries, retry_from_step_id",
        ),
        (
            steps(depends_on=[], retry_config={"retry_from_step_id": "a"}),
            "retry_config.retry_from_step_id: 'a' is not this step or one it depends on",
        ),
        (steps(retry_config={"retry_from_step_id": "zzz"}), "'zzz' is not this step"),
        ({"steps": DIAMOND, "reward": "zzz"}, "t.json: reward: there is no step 'zzz'"),
        ({"steps": DIAMOND, "segment_limit": 0}, "t.json: segment_limit:"),
        ({"steps": DIAMOND, "deadline_seconds": -1}, "t.json: deadline_seconds:"),
        (steps(prompt=math.nan), "finite number"),
        (steps(prompt=[{"x": -math.inf}]), "finite number"),
        (steps(prompt="\ud800"), "t.json: holds text that is not valid Unicode"),
        (steps(prompt="x" * MAX_TASK_BYTES), "put large content into an artifact"),
    ],
    ids=lambda value: value[:60] if isinstance(value, str) else "",
)
def test_a_wrong_task_is_refused_with_place_and_cure(data: object, says: str) -> None:
    assert says in refused(data)


def test_a_step_that_comes_later_is_named_as_such() -> None:
    said = refused([{"id": "a", "type": "x", "depends_on": ["b"]}, {"id": "b", "type": "x"}])

    assert (
        said == "t.json: steps[0] 'a': depends_on: 'b' comes later in the list; put it before 'a'"
    )


def test_a_cycle_is_refused() -> None:
    said = refused(
        [
            {"id": "a", "type": "x", "depends_on": ["b"]},
            {"id": "b", "type": "x", "depends_on": ["a"]},
        ]
    )

    assert "'b' comes later" in said


def test_every_problem_is_a_line_of_its_own() -> None:
    said = refused(
        [
            {"id": "a", "type": "x", "depends_on": ["zzz"]},
            {"id": "b", "type": "x", "depends_on": ["b"]},
        ]
    )

    assert [line.partition(": depends_on")[0] for line in said.splitlines()] == [
        "t.json: steps[0] 'a'",
        "t.json: steps[1] 'b'",
    ]


@pytest.mark.parametrize("task_id", ["a/b c", "日本", "x" * 200, "..", "<script>"])
def test_ids_of_tasks_are_kept_as_they_are(task_id: str) -> None:
    assert Task.of({"id": task_id, "steps": DIAMOND}).id == task_id


@pytest.mark.parametrize("field", ["id", "steps", "reward"])
def test_a_task_can_not_be_changed(field: str) -> None:
    task = Task.of(DIAMOND, where="t")

    with pytest.raises(ValueError, match="frozen"):
        setattr(task, field, None)


def test_tasks_do_not_share_their_artifacts() -> None:
    first, second = (Task.of(DIAMOND, where=name) for name in "ab")

    assert isinstance(first.artifacts, Mapping)
    assert first.artifacts is not second.artifacts
