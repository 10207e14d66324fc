"""Checks the arguments that AgymVectorEnv shares with AsyncVectorEnv, with Gymnasium's messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from gymnasium import Space

from agym.api.options.options import BackendLike, parse_backend, with_workers
from agym.core.backends import options
from agym.core.backends.options import BackendSpec, check_start_method
from agym.core.protocol.arguments import is_integer
from agym.errors import UsageError, UsageTypeError

ObservationMode = str | tuple[Space[Any], Space[Any]]

# Options of agym that AgymVectorEnv does not have.
NOT_HERE = {
    "autoreset": "use `autoreset_mode`, as in Gymnasium",
    "num_envs": "env_fns has one function per environment",
    "output": "observations are arrays, as in Gymnasium",
}


def check_functions(env_fns: Any) -> list[Callable[[], Any]]:
    """Return the functions that make environments as a list.

    Raises:
        UsageTypeError: ``env_fns`` is not iterable, or a string such as an id.
        UsageError: It is empty.
    """
    if isinstance(env_fns, str) or not isinstance(env_fns, Iterable):
        raise UsageTypeError(
            f"env_fns must be a list of functions that make environments, not {env_fns!r}: for an"
            " id, use agym.make_vec or agym.sb3.make_vec_env"
        )
    functions = [*env_fns]
    if not functions:
        raise UsageError("env_fns is empty: pass one function per environment")
    return functions


def check_worker(worker: Callable[..., None] | None) -> None:
    """Refuse a worker function.

    Raises:
        UsageError: ``worker`` is not ``None``.
    """
    if worker is None:
        return
    parameters = inspect.signature(worker).parameters
    if len(parameters) != 8:
        raise UsageError(f"A custom `worker` must accept 8 arguments, not {[*parameters]}")
    raise UsageError(
        "worker= is Gymnasium's loop around one environment in its own process, but an agym worker"
        " runs several: leave it out, or use gymnasium.vector.AsyncVectorEnv"
    )


def check_mode(mode: ObservationMode) -> None:
    """Check the observation mode.

    Raises:
        TypeError: A tuple holds something other than spaces.
        UsageError: There is no such mode.
    """
    if isinstance(mode, tuple) and len(mode) == 2:
        if not all(isinstance(space, Space) for space in mode):
            raise TypeError(f"observation_mode={mode!r} must be a tuple of two spaces")
    elif mode not in ("same", "different"):
        raise UsageError(
            "Invalid `observation_mode`, expected: 'same' or 'different' or tuple of single and"
            f" batch observation space, actual got {mode}"
        )


def with_start_method(backend: BackendLike, option: str, method: Any) -> BackendSpec:
    """Parse ``backend``, and set the start method of its processes from another library's option.

    With a start method, ``backend="auto"`` means worker processes.

    Args:
        backend: The ``backend`` option.
        option: The other library's name for a start method.
        method: Its value; ``None`` for the backend's default.

    Raises:
        UsageError: The backend has no worker processes, or the method is unknown.
    """
    spec = parse_backend(backend)
    if method is None:
        return spec
    if isinstance(spec, options.Auto):
        spec = options.Process(workers=spec.workers)
    if not isinstance(spec, options.Process):
        raise UsageError(
            f"{option}={method!r} is for worker processes, and backend={spec.name!r} has none:"
            " leave it out"
        )
    check_start_method(option, method)
    if spec.start_method not in (None, method):
        raise UsageError(f"{option}={method!r} contradicts {spec!r}: pass the start method once")
    return replace(spec, start_method=method)


def with_max_concurrency(spec: BackendSpec, workers: int | None, limit: Any) -> BackendSpec:
    """Set the number of workers, and limit how many environments step at the same time.

    With a limit, ``backend="auto"`` means worker processes, as many as the limit.

    Raises:
        UsageError: A number is not a positive integer.
    """
    spec = with_workers(spec, workers)
    if limit is None:
        return spec
    if not is_integer(limit):
        raise UsageError(f"`max_concurrency` must be an integer or None, got {type(limit)}.")
    if limit < 1:
        raise UsageError(f"`max_concurrency` must be a positive or None, got {limit}.")
    if isinstance(spec, options.Auto):
        spec = options.Process(workers=spec.workers)
    if isinstance(spec, options.Process | options.Thread):
        return replace(spec, workers=min(int(limit), spec.workers or int(limit)))
    return replace(spec, max_concurrency=int(limit)) if isinstance(spec, options.LoopSpec) else spec
