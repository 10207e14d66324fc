"""``vectorize`` and ``register_rules`` make environments of a rule book."""

from __future__ import annotations

from typing import Any, overload

import gymnasium
from gymnasium.vector import AutoresetMode

from agym.core.protocol.arguments import check_count
from agym.errors import UsageError
from agym.rules.contract import RuleBook, find_rules
from agym.rules.env import RulesEnv, env_class, vector_env_class
from agym.rules.vector_env import RulesVectorEnv


@overload
def vectorize(rules: Any, num_envs: None = None, **options: Any) -> RulesEnv: ...


@overload
def vectorize(rules: Any, num_envs: int, **options: Any) -> RulesVectorEnv: ...


def vectorize(
    rules: Any,
    num_envs: int | None = None,
    *,
    engine: str | None = None,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    max_episode_steps: int | None = None,
    copy: bool = True,
    render_mode: str | None = None,
    **parameters: Any,
) -> RulesEnv | RulesVectorEnv:
    """Make an environment of many games from rules that are written for one game.

    Example:
        >>> import agym
        >>> import numpy as np
        >>> from gymnasium import spaces
        >>> class Walk:
        ...     state = np.dtype([("position", np.int64)])
        ...     observation_space = spaces.Box(-9, 9, (1,), np.float32)
        ...     action_space = spaces.Discrete(2)
        ...
        ...     def reset(state, rng):
        ...         state.position = rng.integers(-3, 4)
        ...
        ...     def step(state, action, rng):
        ...         state.position += 2 * action - 1
        ...         return 1.0, abs(state.position) > 8
        ...
        ...     def observe(state, out):
        ...         out[0] = state.position
        >>> envs = agym.vectorize(Walk, 1000, engine="python")
        >>> observations, infos = envs.reset(seed=0)
        >>> observations, rewards, *_ = envs.step(envs.action_space.sample())
        >>> float(rewards.sum())
        1000.0

    Args:
        rules: A class or a module of plain functions of one game, or its name: ``"module:Class"``
            or ``"module"``. The guide "Write a game, run a million" describes its parts.
        num_envs: Number of games; ``None`` for a ``gymnasium.Env`` of one game.
        engine: ``"python"`` (runs the rules as they are), ``"compiled"`` (numba, one core),
            ``"parallel"`` (numba, all cores) or ``"cuda"`` (numba, on a GPU). All engines play the
            same games; only ``"cuda"`` may differ in the last bits of floats. By default, many
            games are compiled if numba is installed, and one game runs in Python, so that a
            debugger can step into the rules.
        autoreset_mode: What follows the end of an episode: ``"next_step"``, ``"same_step"`` or
            ``"disabled"``, or the enum's members. One game has no autoreset.
        max_episode_steps: Steps after which an episode is truncated, -1 for no limit; by default
            the rules' value.
        copy: ``True`` for results in new arrays. ``False`` for arrays that the next step
            overwrites; with CUDA they stay on the device, for libraries that support
            ``__cuda_array_interface__``.
        render_mode: One of the rules' render modes, or ``None``.
        **parameters: Values of the rules' parameters: one value for all games, or an array with one
            per game.

    Returns:
        The environment.

    Raises:
        UsageError: The rules or an argument are invalid; if numba cannot compile the rules, the
            message has the line.
        MissingExtraError: The engine needs numba, which is not installed.
    """
    rules = find_rules(rules)
    limit = RuleBook.of(rules).max_episode_steps if max_episode_steps is None else max_episode_steps
    if num_envs is None:
        return env_class(rules)(engine or "python", limit, render_mode, **parameters)
    return vector_env_class(rules)(
        num_envs, engine, autoreset_mode, limit, copy, render_mode, **parameters
    )


def register_rules(env_id: str, rules: Any, **options: Any) -> None:
    """Register rules with Gymnasium, for one game and for many.

    Example:
        >>> import agym
        >>> agym.register_rules("my/Pong-v0", "agym.envs.games.pong:Pong", max_episode_steps=100)
        >>> with agym.make("my/Pong-v0", 2, autoreset="next_step") as envs:
        ...     observations, infos = envs.reset(seed=0)

    All APIs and backends of agym accept the id then. By default, they run several games as one
    vector environment.

    Args:
        env_id: The id, such as ``"my/Game-v0"``.
        rules: As for :func:`agym.vectorize`. Worker processes receive a class itself, and import a
            module by its name.
        **options: For ``gymnasium.register``: ``max_episode_steps`` and ``reward_threshold`` (by
            default the rules' values), ``kwargs`` (other defaults of parameters), and so on.

    Raises:
        UsageError: The rules are invalid.
    """
    if not isinstance(env_id, str):
        raise UsageError(f"env_id={env_id!r} must be a string, such as 'my/Game-v0'")
    rules = find_rules(rules)
    options.setdefault("max_episode_steps", RuleBook.of(rules).max_episode_steps)
    if options["max_episode_steps"] is not None:
        check_count("max_episode_steps", options["max_episode_steps"])
    options.setdefault("reward_threshold", getattr(rules, "reward_threshold", None))
    gymnasium.register(
        env_id, entry_point=env_class(rules), vector_entry_point=vector_env_class(rules), **options
    )
