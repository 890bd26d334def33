"""Plays one episode of a Gymnasium environment. Runs in the child, loaded by its path."""

import contextlib
import difflib
import importlib
import random
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

from agent_env.errors import StepFailedError, bounded

_PROGRESS_INTERVAL_S = 0.5
_FACTORY = "make_"
_REGISTER = "register it in a module and write module:id"
_RANDOM: Any = object()


def play(
    env_id: str,
    env_kwargs: dict[str, Any],
    seed: int | None,
    max_steps: int,
    progress: Callable[[object], None],
    policy: Callable[..., Any] | None = None,
    constant: Any = _RANDOM,
) -> dict[str, Any]:
    """Play until the environment ends the episode, or for ``max_steps``.

    Args:
        env_id: What Gymnasium calls it.
        env_kwargs: For its constructor.
        seed: Of everything that is random; None differs each time.
        max_steps: Most steps.
        progress: Told how far it is, at most twice a second.
        policy: Called with an observation, returns an action; or, if its name starts with
            ``make_``, called with the environment and the seed, returns such a function.
        constant: The action of every step, where there is no policy; left out, they are random.

    Returns:
        Sum of the rewards, steps played, and how it ended.
    """
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed % 2**32)
    env = _made(env_id, env_kwargs)
    with contextlib.closing(env):
        space: Any = env.action_space
        space.seed(seed)
        act = _acting(env, seed, policy, constant)
        observation, _ = env.reset(seed=seed)
        total, length, terminated, truncated = 0.0, 0, False, False
        told = time.monotonic()
        while length < max_steps and not (terminated or truncated):
            action = _checked(act(observation), space)
            observation, reward, terminated, truncated, _ = env.step(action)
            total += float(reward)
            length += 1
            if time.monotonic() - told >= _PROGRESS_INTERVAL_S:
                progress({"steps": length, "return": total})
                told = time.monotonic()
    return {
        "return": total,
        "length": length,
        "terminated": bool(terminated),
        "truncated": bool(truncated) or not terminated,
    }


def _made(env_id: str, env_kwargs: dict[str, Any]) -> Any:
    module, _, name = env_id.rpartition(":")
    if module:
        importlib.import_module(module)
    try:
        return gymnasium.make(name, **env_kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv):
        near = difflib.get_close_matches(name, gymnasium.registry, 3)
        hint = f"did you mean {' or '.join(map(repr, near))}" if near else _REGISTER
        raise StepFailedError(
            f"there is no environment {bounded(repr(name), 100)}; {hint}"
        ) from None


def _acting(
    env: Any, seed: int | None, policy: Callable[..., Any] | None, constant: Any
) -> Callable[[Any], Any]:
    if policy is None:
        return lambda _: env.action_space.sample() if constant is _RANDOM else constant
    if not getattr(policy, "__name__", "").startswith(_FACTORY):
        return policy
    made = policy(env, seed)
    if not callable(made):
        raise StepFailedError(
            f"the policy factory returned {type(made).__name__}; return a function that is called "
            "with an observation and returns an action"
        )
    return made


def _checked(action: Any, space: Any) -> Any:
    """The action as the space's own kind of array, if it is one of the space's."""
    shown = bounded(str(action), 200)
    if _is_array(action, space):
        with contextlib.suppress(TypeError, ValueError):
            action = np.asarray(action, dtype=space.dtype)
    if not space.contains(action):
        raise StepFailedError(f"action {shown} is not in {space}")
    return action


def _is_array(action: object, space: object) -> bool:
    """Whether it must become an array: a list, or anything for a box, whose type is strict."""
    is_box = isinstance(space, gymnasium.spaces.Box)
    return is_box or (isinstance(action, list) and getattr(space, "dtype", None) is not None)
