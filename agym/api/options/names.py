"""Checks the names of options: other libraries' names for them, and misspelt ones.

All functions that take options or keywords for an environment check their names here. A keyword
that is no option goes to the environment, and environments with ``**kwargs`` accept anything:
``agym.make(MyEnv, n_envs=8)`` would make one environment. So a keyword that resembles an option
goes to an environment only if its constructor has a parameter of that name.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import VectorEnv

from agym.api.options.environments import EnvLike, find_spec
from agym.core.hosts.factories import innermost
from agym.errors import UsageTypeError

_PROCESS = "take backend=agym.backends.Process({}=...)"
_RAY = "take backend=agym.backends.Ray({}=...)"
_RECYCLE = "take backend=agym.backends.Process(recycle=agym.Recycle({}=...))"
_FAULTS = "take on_fault=agym.FaultPolicy({}=...)"

# Options of other libraries that people type most: agym's name for each, or what to do instead.
# Then options that agym had.
OTHERS = {
    "n_envs": "num_envs",
    "num_workers": "workers",
    "num_processes": "workers",
    "vec_env_cls": "backend",
    "vectorization_mode": "backend",
    "autoreset_mode": "autoreset",
    "batch_size": "recv(min_envs=...) gives the environments that are done first",
    "wrapper_class": "pass a factory that wraps: lambda: Wrapper(gymnasium.make(...))",
    "env_kwargs": "give the environment's options, and agym's, one by one as keywords",
    "shared_memory": "observations are in shared memory anyway: leave it out",
    "spares": "it is gone: wrap the environment as docs/howto/rate_limits.md does, to reset ahead",
    "fleet": "use rate_limit=, in calls per second",
    "hedge": (
        "agym makes no step twice. Use timeout= with on_fault= to replace an environment that"
        " hangs, or send and recv(min_envs=...) to go on without waiting for slow ones"
    ),
}

# Options that belong to an object: to a backend's options, or to ``FaultPolicy``.
NESTED = {
    **{name: _PROCESS.format(name) for name in ("start_method", "pin", "recycle")},
    **{
        name: _RAY.format(name)
        for name in ("resources", "placement", "runtime_env", "address", "workers_per_node")
    },
    "max_restarts": _FAULTS.format("'restart', max_restarts"),
    "restart_window": _FAULTS.format("'restart', restart_window"),
    "replay_limit": _FAULTS.format("'replay', replay_limit"),
    "retry": _FAULTS.format("'restart', retry"),
    "capsule_dir": _FAULTS.format("capsule_dir"),
    "replan": "running environments do not move to another backend: leave it out",
    "max_concurrency": "take backend=agym.backends.Asyncio(max_concurrency=...), or Process or Ray",
    "recycle_episodes": _RECYCLE.format("episodes"),
    "recycle_rss_mb": _RECYCLE.format("rss_mb"),
}

# Keywords of vector environments such as EnvPool's and ALE's (``backend="vector"``).
VECTOR_KEYWORDS = frozenset({"autoreset_mode", "batch_size", "num_threads"})

# The similarity at which a keyword is taken for a misspelt option rather than an environment's.
MIN_SIMILARITY = 0.91


def check_option_names(
    names: Iterable[str],
    options: Sequence[str],
    *,
    where: str = "agym",
    instead: Mapping[str, str] | None = None,
    env: EnvLike | None = None,
    is_vector: bool = False,
) -> None:
    """Refuse names that are no options here: another library's, or misspelt ones.

    Args:
        names: The names given.
        options: The names of the options.
        where: What takes the options, for the message.
        instead: Options of agym's that are not accepted here, and what to do instead.
        env: What takes all other keywords; ``None`` if nothing does.
        is_vector: Whether ``env`` is a vector environment, which may have workers of its own.

    Raises:
        UsageTypeError: A name is neither an option nor for the environment; it suggests one.
    """
    instead = {**NESTED, **(instead or {})}
    known = [name for name in options if name not in instead]
    for name in names:
        if name in known or (is_vector and name in VECTOR_KEYWORDS):
            continue
        ours, remedy = name, ""
        if name in OTHERS:
            ours = OTHERS[name]
            remedy = f"it is {ours}" if ours in options else ours
        elif name not in instead:
            cutoff = 0.7 if env is None else MIN_SIMILARITY
            alike = difflib.get_close_matches(name, [*options, *NESTED], 1, cutoff)
            if env is not None and not alike:
                continue
            ours = alike[0] if alike else name
            remedy = f"did you mean {ours!r}?" if alike else f"take {', '.join(known)}"
        if env is not None and name not in options and _names(env, name, is_vector=is_vector):
            continue
        remedy = ": ".join(part for part in (remedy, instead.get(ours)) if part)
        if env is not None and name not in options:
            remedy += (
                f". If it is for the environment, pass a factory: lambda: {_call(env)}{name}=...)"
            )
        raise UsageTypeError(f"{name} is no option of {where}: {remedy}")


def _call(env: Any) -> str:
    """Return how a factory calls an environment, up to its keywords."""
    name = getattr(env, "__name__", "")
    return f"{name}(" if name.isidentifier() else "gymnasium.make(..., "


def _names(env: Any, keyword: str, *, is_vector: bool) -> bool:
    """Whether a factory names a keyword, itself or in what it passes keywords on to."""
    env = innermost(env)
    if isinstance(env, list | tuple):
        return all(_names(factory, keyword, is_vector=is_vector) for factory in env)
    if isinstance(env, str | EnvSpec):
        spec = find_spec(env)
        entry: Any = spec.vector_entry_point if is_vector else spec.entry_point
        if keyword in spec.kwargs or entry is None:
            return keyword in spec.kwargs
        try:
            env = load_env_creator(entry) if isinstance(entry, str) else entry
        except Exception:
            return True  # the backend raises the error, and names the environment
    if isinstance(env, type):
        for base in env.__mro__:
            if "__init__" in vars(base):
                named, passes_on = _keywords(vars(base)["__init__"])
                if keyword in named or not passes_on:
                    return keyword in named
    return not isinstance(env, type | VectorEnv) and keyword in _keywords(env)[0]


def _keywords(function: Any) -> tuple[set[str], bool]:
    """Return a function's known keywords, and whether it takes any others."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set(), False
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    passes_on = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    return {one.name for one in parameters if one.kind in by_keyword}, passes_on
