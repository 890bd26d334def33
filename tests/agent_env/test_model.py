from collections.abc import Mapping
from typing import Annotated

import pytest
from pydantic import Field, ValidationError, field_validator, model_validator

from agent_env._model import EdgeModel, Problems, WireModel, validated
from agent_env.errors import InvalidSpecError, Problem


class Wheel(EdgeModel):
    diameter_mm: int = 0
    spokes: int = 0


class Sail(EdgeModel):
    area: float = 0
    color: str = ""


class Cart(EdgeModel):
    name: str
    wheels: tuple[Wheel, ...] = ()
    spare: Annotated[Wheel | None, Field(description="kept inside")] = None
    by_name: Mapping[str, Annotated[Wheel, Field()]] = {}
    drive: Wheel | Sail | None = None

    @field_validator("name")
    @classmethod
    def _not_a_boat(cls, value: str) -> str:
        if value == "boat":
            raise ValueError("a boat is no cart; name a cart")
        return value

    @model_validator(mode="after")
    def _is_stable(self) -> "Cart":
        if len(self.wheels) > 4:
            raise Problems([Problem("wheels", "are too many"), Problem("", "falls over")])
        return self


def problems_of(data: object, where: str = "cart.json") -> list[str]:
    with pytest.raises(InvalidSpecError) as caught:
        validated(Cart, data, where=where)
    return [str(problem) for problem in caught.value.problems]


def test_a_good_value_is_read() -> None:
    cart = validated(Cart, {"name": "c", "wheels": [{"spokes": "8"}]})

    assert cart == Cart(name="c", wheels=(Wheel(spokes=8),))


@pytest.mark.parametrize(
    ("data", "place", "cure"),
    [
        (
            {"nam": 1},
            "nam",
            "'nam': did you mean 'name'? Known: by_name, drive, name, spare, wheels",
        ),
        (
            {"wheels": [{}, {"spoke": 1}]},
            "wheels[1].spoke",
            "'spoke': did you mean 'spokes'? Known: diameter_mm, spokes",
        ),
        ({"spare": {"zzz": 1}}, "spare.zzz", "'zzz'; known: diameter_mm, spokes"),
        (
            {"by_name": {"left": {"diameter": 1}}},
            "by_name.left.diameter",
            "'diameter': did you mean 'diameter_mm'? Known: diameter_mm, spokes",
        ),
        (
            {"drive": {"colour": 1}},
            "drive.Sail.colour",
            "'colour': did you mean 'color'? Known: area, color",
        ),
    ],
)
def test_an_unknown_key_is_answered_with_the_keys_of_its_own_model(
    data: dict[str, object], place: str, cure: str
) -> None:
    assert f"cart.json: {place}: unknown key {cure}" in problems_of({"name": "c", **data})


def test_every_problem_is_said_at_once_with_its_place() -> None:
    assert problems_of({"spare": {"spokes": "many"}}) == [
        "cart.json: name: is required; add it",
        "cart.json: spare.spokes: input should be a valid integer, "
        "unable to parse string as an integer",
    ]


def test_a_validator_is_quoted_without_the_library_around_it() -> None:
    assert problems_of({"name": "boat"}) == ["cart.json: name: a boat is no cart; name a cart"]


def test_a_validator_may_name_several_places() -> None:
    assert problems_of({"name": "c", "wheels": [Wheel()] * 5}) == [
        "cart.json: wheels: are too many",
        "cart.json: falls over",
    ]


def test_a_place_needs_no_file() -> None:
    assert problems_of({"name": "c", "spare": 3}, where="")[0].startswith("spare: input should be")
    assert problems_of(3, where="")[0].startswith("input should be")


def test_what_is_said_is_bounded() -> None:
    assert all(len(text) < 700 for text in problems_of({"name": "c", "k" * 100_000: 1}, where=""))


def test_a_request_refuses_what_a_payload_of_a_newer_peer_may_hold() -> None:
    class Payload(WireModel):
        run_id: str

    assert Payload.model_validate({"run_id": "r", "newer": 1}) == Payload(run_id="r")
    with pytest.raises(ValidationError):
        Wheel.model_validate({"newer": 1})


@pytest.mark.parametrize("number", ["nan", "inf", float("nan"), float("-inf")])
def test_a_request_holds_no_number_that_is_not_finite(number: object) -> None:
    with pytest.raises(InvalidSpecError, match="area: input should be a finite number"):
        validated(Sail, {"area": number})
