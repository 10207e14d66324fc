"""The registry of twins: vector environments that are equal to an environment in every bit."""

from __future__ import annotations

import pickle
from types import FunctionType
from typing import Any, NamedTuple

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

NO_TWIN = "has no twin"

# Attributes of environments and wrappers that are compared by other means, or have no effect.
IGNORED = ("env", "spec", "_np_random_seed", "_saved_kwargs", "_max_episode_steps", "t_start")

# By the entry point of the originals, that of the vector environment.
_twins: dict[str, str] = {}


class PartialStepError(Exception):
    """Some environments of a batch raised in a step, and the others were stepped.

    Attributes:
        failures: The exceptions, by the index of the environment.
    """

    def __init__(self, failures: dict[int, Exception]) -> None:
        self.failures = failures
        each = "; ".join(f"environment {i}: {error}" for i, error in failures.items())
        super().__init__(f"raised in step, so they must be reset: {each}")


def register_twin(original: str, twin: str) -> None:
    """Register a vector environment that plays the same games as an environment.

    Example:
        >>> import agym
        >>> agym.register_twin("my_package:Walk", "my_package:Walks")

    ``backend="auto"`` uses it for ids of that class, after a comparison with the originals: see
    :doc:`/tutorials/twins`.

    Args:
        original: The environment's class, ``"module:Class"``, as it is registered with Gymnasium.
        twin: The class of the vector environment, in the same form. It takes ``num_envs=``,
            ``autoreset_mode=``, ``max_episode_steps=``, ``render_mode=`` and the original's
            keywords.
    """
    _twins[original] = twin


def twin_of(spec: EnvSpec) -> tuple[Any, str]:
    """Return the class of an environment's twins; or ``None``, and why there is none."""
    entry_point = spec.entry_point
    if not isinstance(entry_point, str) or entry_point not in _twins:
        return None, f"{spec.id} {NO_TWIN}"
    try:
        return load_env_creator(_twins[entry_point]), ""
    except ImportError as error:
        return None, f"the twin of {spec.id} can't be used: {error}"


class Wrapping(NamedTuple):
    """A wrapper to put around an environment.

    Attributes:
        wrapper: Its class.
        keywords: The arguments of its constructor.
    """

    wrapper: type[Any]
    keywords: dict[str, Any]

    def around(self, env: Any) -> Any:
        """Return the wrapped environment."""
        return self.wrapper(env, **self.keywords)


def parts_of(env: Any) -> list[dict[str, bytes]]:
    """Return the attributes of an environment and of the wrappers around it, as bytes."""
    parts = []
    while env is not None:
        attributes = vars(env)
        parts.append({name: as_bytes(v) for name, v in attributes.items() if name not in IGNORED})
        env = attributes.get("env") if isinstance(env, gymnasium.Wrapper) else None
    return parts


def as_bytes(value: Any) -> bytes:
    """Return bytes that differ if a value does: pickled, or at least its type."""
    if isinstance(value, FunctionType):
        code = value.__code__
        return f"{code.co_filename}:{code.co_firstlineno} ".encode() + code.co_code
    if isinstance(value, gymnasium.Space):  # without its random numbers
        value = type(value), {**vars(value), "_np_random": None}
    try:
        return pickle.dumps(value)
    except Exception:
        return type(value).__qualname__.encode()
