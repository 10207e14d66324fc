"""Checks the names of options, and refuses other libraries' names and misspelt ones.

Every function with options or keywords for an environment checks their names here. A keyword that
is not an option is passed to the environment, and environments with ``**kwargs`` accept anything:
``agym.make(MyEnv, n_envs=8)`` would make one environment. So a keyword that resembles an option is
passed to an environment only if its constructor has a parameter of that name.
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

_PROCESS = "use backend=agym.backends.Process({}=...)"
_RAY = "use backend=agym.backends.Ray({}=...)"
_RECYCLE = "use backend=agym.backends.Process(recycle=agym.Recycle({}=...))"
_FAULTS = "use on_fault=agym.FaultPolicy({}=...)"

# The most common options of other libraries: agym's name for each, or what to do instead. Then
# options of earlier versions of agym.
OTHERS = {
    "n_envs": "num_envs",
    "num_workers": "workers",
    "num_processes": "workers",
    "vec_env_cls": "backend",
    "vectorization_mode": "backend",
    "autoreset_mode": "autoreset",
    "batch_size": "use recv(min_envs=...), which returns the environments that finish first",
    "wrapper_class": "pass a factory that wraps: lambda: Wrapper(gymnasium.make(...))",
    "env_kwargs": "pass the environment's options, and agym's, one by one as keywords",
    "shared_memory": "leave it out, since observations are always in shared memory",
    "spares": "to prepare resets, wrap the environment as docs/howto/rate_limits.md does",
    "fleet": "use rate_limit=, in calls per second",
    "hedge": (
        "agym runs each step once. Use timeout= with on_fault= to replace an environment that"
        " hangs, or send and recv(min_envs=...) to continue without waiting for slow ones"
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
    "replan": "leave it out, since running environments don't move to another backend",
    "max_concurrency": "use backend=agym.backends.Asyncio(max_concurrency=...), or Process or Ray",
    "recycle_episodes": _RECYCLE.format("episodes"),
    "recycle_rss_mb": _RECYCLE.format("rss_mb"),
}

# Keywords of vector environments such as EnvPool's and ALE's (``backend="vector"``).
VECTOR_KEYWORDS = frozenset({"autoreset_mode", "batch_size", "num_threads"})

# A keyword that is at least as similar to an option is treated as a misspelt option.
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
    """Refuse names that are not options: another library's, or misspelt ones.

    Args:
        names: The names of the caller's keywords.
        options: The names of the options.
        where: The function or class with these options, for the message.
        instead: Options of agym that are not accepted here, and what to do instead.
        env: The environment that gets all other keywords; ``None`` if there is none.
        is_vector: Whether ``env`` is a vector environment, which may have its own workers.

    Raises:
        UsageTypeError: A name is neither an option nor for the environment; it suggests one.
    """
    instead = {**NESTED, **(instead or {})}
    known = [name for name in options if name not in instead]
    for name in names:
        if name in known or (is_vector and name in VECTOR_KEYWORDS):
            continue
        option, remedy = name, ""
        if name in OTHERS:
            option = OTHERS[name]
            if option not in options:
                remedy = option
            elif option not in instead:
                remedy = f"use `{option}`"
        elif name not in instead:
            cutoff = 0.7 if env is None else MIN_SIMILARITY
            similar = difflib.get_close_matches(name, [*options, *NESTED], 1, cutoff)
            if env is not None and not similar:
                continue
            option = similar[0] if similar else name
            remedy = f"did you mean `{option}`?" if similar else f"use {', '.join(known)}"
        if env is not None and name not in options and _names(env, name, is_vector=is_vector):
            continue
        if detail := instead.get(option):
            remedy = f"{remedy} If so, {detail}" if remedy else detail
        if env is not None and name not in options:
            remedy += (
                f"{'' if remedy.endswith('?') else '.'} If it is for the environment, pass a"
                f" factory: lambda: {_call(env)}{name}=...)"
            )
        raise UsageTypeError(f"`{name}` isn't an {where} option; {remedy}")


def _call(env: Any) -> str:
    """Return the start of a call that makes an environment, up to its keywords."""
    name = getattr(env, "__name__", "")
    return f"{name}(" if name.isidentifier() else "gymnasium.make(..., "


def _names(env: Any, keyword: str, *, is_vector: bool) -> bool:
    """Whether a factory has a parameter ``keyword``, or passes it on to a base that has it."""
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
            return True  # the backend will raise the error, with the environment's name
    if isinstance(env, type):
        for base in env.__mro__:
            if "__init__" in vars(base):
                named, passes_on = _keywords(vars(base)["__init__"])
                if keyword in named or not passes_on:
                    return keyword in named
    return not isinstance(env, type | VectorEnv) and keyword in _keywords(env)[0]


def _keywords(function: Any) -> tuple[set[str], bool]:
    """Return a function's known keywords, and whether it accepts any others."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set(), False
    by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    passes_on = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)
    return {p.name for p in parameters if p.kind in by_keyword}, passes_on
