"""The check of twins: vector environments that play the games of single environments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
from gymnasium.vector import AutoresetMode, VectorEnv

from agym.core.planning.twin_check import difference


def check_twin(
    make_original: Callable[[], gymnasium.Env[Any, Any]],
    make_twin: Callable[[int, AutoresetMode], VectorEnv[Any, Any, Any]],
    steps: int = 10_000,
    num_envs: int = 8,
) -> None:
    """Check that a twin is equal to its originals in every bit.

    Example:
        >>> import gymnasium
        >>> from agym.testing import check_twin
        >>> check_twin(
        ...     lambda: gymnasium.make("CliffWalking-v1", max_episode_steps=20),
        ...     lambda num_envs, mode: gymnasium.vector.SyncVectorEnv(
        ...         [lambda: gymnasium.make("CliffWalking-v1", max_episode_steps=20)] * num_envs,
        ...         autoreset_mode=mode,
        ...     ),
        ...     steps=30,
        ... )

    The twin and Gymnasium's ``SyncVectorEnv`` over the originals get the same seeds and random
    actions, in each of the three autoreset modes, with resets of some environments in between. All
    results are compared, except for the times ``"t"`` of episode statistics.

    Args:
        make_original: Makes an environment. Give it a small limit of steps, so that episodes are
            truncated during the check.
        make_twin: Makes the twin of a number of environments with an autoreset mode.
        steps: Number of steps of each environment, a third of them in each mode.
        num_envs: Number of environments.

    Raises:
        AssertionError: They differ; the message names the first difference.
    """
    found = difference(make_original, make_twin, steps, num_envs)
    assert not found, found
