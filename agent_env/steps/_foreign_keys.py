"""Parameters that agentenv-framework has and that mean nothing here."""

from collections.abc import Mapping
from typing import cast

from agent_env._model import Problems
from agent_env.errors import Problem


def without(data: object, cures: Mapping[str, str]) -> object:
    """The parameters without those that are null or empty; for use before validation.

    Args:
        data: A step's parameters.
        cures: Each name that is not supported, and what to do instead.

    Raises:
        Problems: one has a value, so that leaving it out would change what the step does.
    """
    if not isinstance(data, Mapping):
        return data
    given = cast("Mapping[str, object]", data)
    found = [name for name in cures if given.get(name) not in (None, "", [], {})]
    if found:
        raise Problems(Problem(name, f"is not supported; {cures[name]}") for name in found)
    return {name: value for name, value in given.items() if name not in cures}
