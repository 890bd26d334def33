import json
from typing import Any

import pytest
from pydantic import JsonValue

from agent_env.errors import OutputTooLargeError, StepFailedError
from agent_env.results import StepReport
from agent_env.specs import StepsDone
from agent_env.status import StepStatus
from agent_env.steps._output import brief_detail, checked_output, output_bytes


def nested(depth: int) -> JsonValue:
    value: JsonValue = []
    for _ in range(depth - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (None, None),
        ({"a": [1, 2.5, True, None, "ü"]}, {"a": [1, 2.5, True, None, "ü"]}),
        ((1, 2), [1, 2]),
        ({1: "one"}, {"1": "one"}),
        ("half \ud83d of a pair", r"half \ud83d of a pair"),
        ("nul \0", "nul \0"),
        (10**400, 10**400),
    ],
)
def test_an_output_is_kept_as_json_keeps_it(value: object, kept: JsonValue) -> None:
    assert checked_output(value) == kept


@pytest.mark.parametrize(
    "value",
    [float("nan"), [float("inf")], {"x": {"y": float("-inf")}}, object(), b"x", {1}, {(1, 2): 3}],
)
def test_what_json_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(StepFailedError, match=r"its output is not JSON: .*; return finite"):
        checked_output(value)


def test_a_cycle_is_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)

    with pytest.raises(StepFailedError, match="not JSON"):
        checked_output(cycle)


@pytest.mark.parametrize("depth", [101, 150, 5_000])
def test_nesting_that_a_parser_on_the_way_would_refuse_is_refused(depth: int) -> None:
    with pytest.raises(StepFailedError, match=r"nested deeper than 100|not JSON"):
        checked_output(nested(depth))


def test_the_deepest_output_travels() -> None:
    report = StepReport(
        step_id="a",
        type="a",
        epoch=1,
        status=StepStatus.COMPLETED,
        output=checked_output(nested(100)),
    )
    done = StepsDone(reports=(report,))

    assert StepsDone.model_validate_json(done.model_dump_json()) == done


def test_the_limit_counts_bytes_not_characters() -> None:
    assert checked_output("ü" * 49, max_bytes=100) == "ü" * 49
    with pytest.raises(OutputTooLargeError, match="is 102 bytes as JSON, over the limit of 100"):
        checked_output("ü" * 50, max_bytes=100)


@pytest.mark.parametrize("value", [{"a": ["ü", 1]}, "text", 0, False])
def test_the_size_of_an_output_is_that_of_its_json(value: JsonValue) -> None:
    assert output_bytes(value) == len(json.dumps(value, ensure_ascii=False).encode())


def test_no_output_has_no_size() -> None:
    assert output_bytes(None) == 0


def test_a_detail_that_json_can_hold_is_kept() -> None:
    assert brief_detail({"steps": 3, "return": -1.5}) == {"steps": 3, "return": -1.5}


@pytest.mark.parametrize("value", ["x" * 10_000, {"x": float("nan")}, object(), nested(5_000)])
def test_any_other_detail_becomes_a_short_text(value: object) -> None:
    word = brief_detail(value)

    assert isinstance(word, str)
    assert len(word) <= 200
