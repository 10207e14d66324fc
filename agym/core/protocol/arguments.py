"""Argument checks shared by many calls: environment ids, numbers, tensors, results of factories."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, TypeGuard

import numpy as np
from gymnasium import Space

from agym.errors import UsageError

Ids = range | tuple[int, ...]


def parse_env_ids(env_ids: Sequence[int] | None, num_envs: int, *, least: int = 0) -> Ids:
    """Return the ids of environments in ascending order; all of them for ``None``.

    At least ``least`` must be named: a loop may step no environments, but a video needs one.

    Raises:
        UsageError: Not integers, out of range, repeated, or too few.
    """
    if env_ids is None:
        return range(num_envs)
    try:
        ids = tuple(sorted(int(i) for i in env_ids))
        flags = any(isinstance(i, bool | np.bool_) for i in env_ids)
        exact = not flags and ids == tuple(sorted(env_ids))
    except (TypeError, ValueError, OverflowError):
        exact = False
    if not exact:
        raise UsageError(f"env_ids must be a sequence of integers, not {env_ids!r}")
    out_of_range = len(ids) > 0 and (ids[0] < 0 or ids[-1] >= num_envs)
    if out_of_range or len(ids) < least or len(set(ids)) < len(ids):
        raise UsageError(
            f"env_ids={list(env_ids)} must name some of the environments 0 to {num_envs - 1},"
            " each at most once"
        )
    return range(num_envs) if len(ids) == num_envs else ids


def runs(ids: Ids) -> Iterator[range]:
    """Split ascending ids into contiguous ranges."""
    if isinstance(ids, range):
        yield ids
        return
    if not ids:
        return
    start = previous = ids[0]
    for i in ids[1:]:
        if i != previous + 1:
            yield range(start, previous + 1)
            start = i
        previous = i
    yield range(start, previous + 1)


def check_batch_size(least: Any, most: Any, timeout: Any) -> None:
    """Check the arguments of ``recv``.

    Raises:
        UsageError: Not positive integers, ``max_envs`` below ``min_envs``, or a negative timeout.
    """
    check_count("min_envs", least)
    if most is not None and check_count("max_envs", most) < least:
        raise UsageError(f"max_envs={most} is less than min_envs={least}")
    if timeout is not None and not (is_number(timeout) and timeout >= 0):
        raise UsageError(f"timeout={timeout!r} must be a number of seconds of at least 0, or None")


def check_choice(name: str, value: Any, choices: Sequence[str], other: str = "") -> None:
    """Check a string that must be one of several.

    Args:
        name: The argument.
        value: Its value.
        choices: The permitted values.
        other: Other permitted arguments, for the message.

    Raises:
        UsageError: The value is not permitted.
    """
    if isinstance(value, str) and value in choices:
        return
    similar = get_close_matches(value.lower(), choices, 1) if isinstance(value, str) else ()
    remedy = f"did you mean {similar[0]!r}? " if similar else ""
    raise UsageError(f"{name}={value!r} is unknown: {remedy}use one of {', '.join(choices)}{other}")


def is_number(value: Any) -> bool:
    """Whether a value is a real number, Python's or NumPy's, and not a flag."""
    number = isinstance(value, int | float | np.integer | np.floating)
    return number and not isinstance(value, bool)


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether a value is an integer, Python's or NumPy's, and not a flag."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_seconds(name: str, value: Any, unit: str = "seconds", other: str = "") -> None:
    """Check a duration, or another quantity with a unit.

    Args:
        name: The argument.
        value: Its value.
        unit: The unit, for the message.
        other: Other permitted arguments, for the message.

    Raises:
        UsageError: The value is not a positive, finite number.
    """
    if not is_number(value) or not 0 < value < float("inf"):
        raise UsageError(f"{name}={value!r} must be a positive number of {unit}{other}")


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Check a count and convert it to an integer.

    Raises:
        UsageError: The value is not an integer, or below ``least``.
    """
    if not is_integer(value) or value < least:
        what = "a positive integer" if least else "an integer of at least 0"
        raise UsageError(f"{name}={value!r} must be {what}")
    return int(value)


def check_flag(name: str, value: Any) -> None:
    """Check a boolean option.

    Raises:
        UsageError: The value is not a bool.
    """
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name}={value!r} must be True or False")


def check_made(env: Any) -> None:
    """Check that a factory returned an environment.

    Raises:
        UsageError: The factory returned ``None``, a coroutine, a class, an object without
            ``reset``, or a PettingZoo environment.
    """
    if env is None:
        raise UsageError(
            "its factory returned None instead of an environment: is a `return` missing?"
        )
    if inspect.iscoroutine(env):
        env.close()
        raise UsageError(
            "its factory is `async def`: pass a plain function that returns the environment. A"
            " coroutine environment can await its setup in its first reset"
        )
    if isinstance(env, type):
        name = env.__name__
        raise UsageError(f"its factory returned the class {name}: let it return {name}()")
    if not callable(getattr(env, "reset", None)):
        raise UsageError(
            f"its factory returned {type(env).__name__}, which is not a gymnasium.Env: return an"
            " object with reset and step"
        )
    space = getattr(env, "observation_space", None)
    if not isinstance(space, Space) and (callable(space) or hasattr(env, "possible_agents")):
        function = "make_aec" if hasattr(env, "last") else "make_parallel"
        raise UsageError(
            f"its factory returned {type(env).__name__}, which has PettingZoo's API for many"
            f" agents: use agym.{function}"
        )


def as_array(value: Any) -> Any:
    """Convert a tensor of any library to an array; other values are returned unchanged.

    Torch converts tensors on a GPU or with a gradient only if forced. The values alone matter here,
    so they are copied.
    """
    if type(value) is np.ndarray or not hasattr(value, "__dlpack__"):
        return value
    return value.numpy(force=True) if hasattr(value, "detach") else np.asarray(value)


def arrays_in(value: Any) -> Any:
    """Convert all tensors in nested dicts, lists and tuples to arrays."""
    if isinstance(value, dict):
        return {key: arrays_in(part) for key, part in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(arrays_in, value))
    return as_array(value)
