import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from agent_env.errors import InvalidSpecError
from agent_env.seeds import MAX_WAIT_S, seeded, wait_seconds
from agent_env.task import StepSpec


def step(**params: JsonValue) -> StepSpec:
    return StepSpec.model_validate({"id": "a", "type": "prompt", **params})


def test_only_declared_keys_are_replaced() -> None:
    prompt = "{key} <p> <key> <other> < key> <KEY> <key"

    filled = seeded(step(prompt=prompt), {"key": "42"})

    assert filled.params == {"prompt": "{key} <p> 42 <other> < key> <KEY> <key"}


def test_a_value_that_was_put_in_is_not_looked_at_again() -> None:
    filled = seeded(step(prompt="<a><b>"), {"a": "<b>", "b": "<a>\\1\\g<0>"})

    assert filled.params == {"prompt": "<b><a>\\1\\g<0>"}


def test_ids_types_keys_and_fields_are_left_alone() -> None:
    spec = StepSpec.model_validate(
        {
            "id": "<key>",
            "type": "<key>",
            "depends_on": ["<key>x"],
            "retry_config": {"retry_from_step_id": "<key>", "max_retries": 2},
            "timeout_seconds": 3,
            "fail_task_on_error": False,
            "rerun": False,
            "<key>": {"<key>": ["<key>", 1, None, True, 0.5]},
        }
    )

    filled = seeded(spec, {"key": "42"})

    assert filled.params == {"<key>": {"<key>": ["42", 1, None, True, 0.5]}}
    assert filled.model_dump(exclude={"<key>"}) == spec.model_dump(exclude={"<key>"})


def test_without_a_seed_nothing_changes() -> None:
    spec = step(prompt="<key>")

    assert seeded(spec, {}) is spec


def test_a_key_with_signs_of_a_pattern_is_taken_by_its_letters() -> None:
    assert seeded(step(p="<a.*> <abc>"), {"a.*": "1"}).params == {"p": "1 <abc>"}


@given(
    st.lists(st.sampled_from(["<a>", "<ab>", "<", ">", "a", "<b>"]), max_size=8),
    st.dictionaries(st.sampled_from(["a", "ab"]), st.text("ab<>", max_size=6)),
)
def test_each_place_is_replaced_once_and_the_rest_is_kept(
    parts: list[str], seed: dict[str, str]
) -> None:
    # Joined with a sign of its own, so that parts do not form new places.
    filled = seeded(step(prompt="|".join(parts)), seed)

    expected = (
        seed.get(part.strip("<>"), part) if part in {"<a>", "<ab>"} else part for part in parts
    )
    assert filled.params == {"prompt": "|".join(expected)}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(0, 0.0), (1.5, 1.5), ("2", 2.0), ("<s>", 7.0), (MAX_WAIT_S, float(MAX_WAIT_S))],
)
def test_a_wait_is_a_number_of_seconds(value: JsonValue, seconds: float) -> None:
    assert wait_seconds(step(seconds=value), {"s": "7"}) == seconds


@pytest.mark.parametrize(
    "value",
    [-1, "nan", "inf", "1e999", "soon", None, True, [1], 10**400, MAX_WAIT_S + 1, "<unset>"],
    ids=lambda value: str(value)[:10],
)
def test_a_wait_without_an_end_is_refused(value: JsonValue) -> None:
    with pytest.raises(InvalidSpecError, match=r"step 'a': seconds: must be a number from 0"):
        wait_seconds(step(seconds=value), {"s": "7"})


def test_a_wait_needs_its_seconds() -> None:
    with pytest.raises(InvalidSpecError, match="not None"):
        wait_seconds(step(), {})
