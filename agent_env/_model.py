"""The two kinds of frozen models, strict at the edges and tolerant on the wire, and reading one."""

from collections.abc import Iterable, Iterator, Sequence
from types import UnionType
from typing import Annotated, Any, TypeGuard, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from agent_env.errors import InvalidSpecError, Problem, bounded, unknown_name

_Model = TypeVar("_Model", bound=BaseModel)


class EdgeModel(BaseModel):
    """Read from a person or a file: an unknown key is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class WireModel(BaseModel):
    """Sent between our own processes: an unknown key is a newer peer's, and is ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Problems(ValueError):
    """Raised by a model's validator that found several things wrong, each with its own place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def validated(model: type[_Model], data: object, *, where: str = "") -> _Model:
    """Read a model from data, and say everything that is wrong with it.

    Raises:
        InvalidSpecError: one problem for each field, prefixed with ``where``.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidSpecError(_problems(model, error, where)) from None


def _problems(model: type[BaseModel], error: ValidationError, where: str) -> Iterator[Problem]:
    for found in error.errors(include_url=False):
        place = _joined(where, bounded(_field(found["loc"]), 200))
        cause = found.get("ctx", {}).get("error")
        if isinstance(cause, Problems):
            for problem in cause.problems:
                yield Problem(_joined(place, problem.where), bounded(problem.what, 500))
        elif found["type"] == "extra_forbidden":
            *path, key = found["loc"]
            yield Problem(place, bounded(unknown_name("key", str(key), _keys(model, path)), 500))
        else:
            yield Problem(place, bounded(_cure(found["type"], found["msg"]), 500))


def _joined(*parts: str) -> str:
    return ": ".join(part for part in parts if part)


def _field(loc: Sequence[int | str]) -> str:
    field = ""
    for part in loc:
        field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else part
    return field


def _cure(kind: str, message: str) -> str:
    if kind == "missing":
        return "is required; add it"
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:] if message.startswith("Input should") else message


def _keys(model: type[BaseModel], path: Sequence[int | str]) -> list[str]:
    """The keys of the model that a path leads to from ``model``."""
    here: list[Any] = [model]
    for part in path:
        here = [inner for annotation in here for inner in _inside(annotation, part)]
    return [key for found in here if _is_model(found) for key in found.model_fields]


def _inside(annotation: Any, part: int | str) -> list[Any]:
    """Where one part of a path leads: into a field, an item, or the member of a union it names."""
    if not _is_model(annotation):
        return [option for item in get_args(annotation) for option in _options(item)]
    if part in annotation.model_fields:
        return _options(annotation.model_fields[part].annotation)
    return [annotation] if annotation.__name__ == part else []


def _options(annotation: Any) -> list[Any]:
    """The members of a union; any other annotation alone, without what ``Annotated`` adds."""
    if get_origin(annotation) is Annotated:
        return _options(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [option for member in get_args(annotation) for option in _options(member)]
    return [annotation]


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)
