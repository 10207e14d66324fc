r"""GEM's environments (the package ``gem-llm``) in agym, and agym's environments in GEM.

Example:
    >>> import agym
    >>> game = agym.adapters.gem.factory("game:GuessTheNumber-v0-easy", max_number=4)
    >>> with agym.make(game, 2) as envs:
    ...     observations, infos = envs.reset(seed=0)
    ...     len(envs.step(["\\boxed{3}", "three"]).observations)
    2
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import gymnasium
import numpy as np

from agym import make
from agym.agents.adapters.common import (
    OwnRandom,
    Seat,
    Step,
    check_env_options,
    check_new_id,
    find_spec,
)
from agym.api.options.environments import EnvLike
from agym.core._system.extras import require
from agym.core.hosts.async_env import AnySpace
from agym.core.protocol.typing import Array, Options, Result, Start
from agym.errors import UsageError, UsageTypeError

gem: Any = require("gem", "gem")
registration: Any = require("gem.envs.registration", "gem")
vector: Any = require("gem.vector.vector_env", "gem")
multiagent: Any = require("gem.multiagent.multi_agent_env", "gem")

AUTORESET = {
    vector.AutoresetMode.NEXT_STEP: "next_step",
    vector.AutoresetMode.SAME_STEP: "same_step",
}


def factory(
    env_id: str,
    *,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    own_random: bool = True,
    **env_kwargs: Any,
) -> Callable[[], GemEnv]:
    """Return a factory of a GEM environment, for :func:`agym.make` and the functions like it.

    Example:
        >>> import agym
        >>> async def main():
        ...     game = agym.adapters.gem.factory("game:GuessTheNumber-v0-easy", max_turns=5)
        ...     async with agym.make_async(game, 64) as envs:
        ...         observations, infos = await envs.reset(seed=0)
        ...         return observations[63]
        >>> "guess" in agym.run(main())
        True

    Observations and actions are text. Both flags are GEM's: an episode may end ``terminated`` and
    ``truncated``.

    Args:
        env_id: An id in GEM's registry.
        wrappers: Functions that wrap the environment, the innermost first, as in ``gem.make_vec``.
        own_random: GEM's games draw from the random generators of the whole process. By default,
            each environment has separate states of them, so that an episode depends only on its
            seed; then only one environment of a process steps at a time. Pass ``False`` for
            environments that wait, for a search or a sandbox, with ``backend="thread"``.
        **env_kwargs: For the environment, as in ``gem.make``.

    Returns:
        A factory. It can be pickled if ``wrappers`` can.

    Raises:
        UsageError: There is no such id.
    """
    spec = find_spec(env_id, registration.ENV_REGISTRY, "GEM")
    if not isinstance(wrappers, Sequence) or not all(map(callable, wrappers)):
        raise UsageTypeError(f"wrappers={wrappers!r} must be a list of functions")
    return partial(GemEnv, spec, wrappers, own_random, env_kwargs)


class GemEnv(gymnasium.Env[str, str]):
    """A GEM environment with Gymnasium's API; made by :func:`factory`.

    Attributes:
        gem_env: GEM's object, with its wrappers.
    """

    def __init__(
        self,
        spec: Any,
        wrappers: Sequence[Callable[[Any], Any]],
        own_random: bool,
        env_kwargs: Mapping[str, Any],
    ) -> None:
        self.observation_space = AnySpace()
        self.action_space = AnySpace()
        self._random = OwnRandom() if own_random else nullcontext()
        # A worker process may not have the ids that the caller's script registered.
        registration.ENV_REGISTRY.setdefault(spec.id, spec)
        with self._random:
            self.gem_env = gem.make(spec.id, **env_kwargs)
            for wrapper in wrappers:
                self.gem_env = wrapper(self.gem_env)
        if isinstance(self.gem_env.unwrapped, multiagent.MultiAgentEnv):
            raise UsageError(f"{spec.id} has several agents, which agym's API doesn't support")

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> Start:
        super().reset(seed=seed)
        with self._random:
            observation, info = self.gem_env.reset(seed=seed)
        return observation, info

    def step(self, action: str) -> Result:
        with self._random:
            observation, reward, terminated, truncated, info = self.gem_env.step(action)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def sample_random_action(self) -> str:
        """Return a random action: ``envs.call("sample_random_action")``."""
        with self._random:
            action: str = self.gem_env.sample_random_action()
        return action

    def close(self) -> None:
        close = getattr(self.gem_env, "close", None)
        if close is not None:
            close()


class Env(gem.Env):
    """An agym environment with GEM's API.

    Example:
        >>> import agym
        >>> env = agym.adapters.gem.Env("CartPole-v1", parse=int)
        >>> observation, info = env.reset(seed=0)
        >>> observation, reward, terminated, truncated, info = env.step("1")
        >>> reward, terminated, truncated
        (1.0, False, False)
        >>> env.close()

    Args:
        env: As for :func:`agym.make`: an id, a class or a factory, also of a coroutine environment.
        parse: Turns a text into an action.
        seed: Seed of the first reset, if this has none; ``gem.make_vec`` passes it.
        **options: Options of :func:`agym.make_async`, and keyword arguments for the environment.
    """

    def __init__(
        self,
        env: EnvLike,
        parse: Callable[[str], Any] | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self._spawn = partial(type(self), env, parse, seed)
        self._options = options
        self._seat = Seat(env, options, parse)
        self._seed = seed

    def reset(self, seed: int | None = None) -> Start:
        """Start an episode."""
        if seed is None:
            seed, self._seed = self._seed, None
        return self._seat.reset(seed)

    def step(self, action: str) -> Step:
        """Return ``observation, reward, terminated, truncated, info``."""
        return self._seat.step(action)

    def spawn(self, same_state: bool = False, **options: Any) -> Env:
        """Return another environment like this one.

        Raises:
            UsageError: ``same_state`` is true: use :meth:`agym.Envs.snapshot` for that.
        """
        if same_state:
            raise UsageError(
                "spawn(same_state=True) doesn't copy an agym environment: use snapshot() and"
                " restore()"
            )
        return self._spawn(**{**self._options, **options})

    def close(self) -> None:
        """Close the environment; this also happens when it is not referenced any more."""
        self._seat.close()


def register(
    env_id: str, env: EnvLike, *, parse: Callable[[str], Any] | None = None, **options: Any
) -> None:
    """Register an agym environment with GEM, for ``gem.make`` and ``gem.make_vec``.

    Example:
        >>> import agym, gem
        >>> agym.adapters.gem.register("agym:CartPole-v1", "CartPole-v1", parse=int)
        >>> env = gem.make("agym:CartPole-v1")
        >>> env.reset(seed=0)[0].shape
        (4,)
        >>> env.close()

    The arguments are those of :class:`Env`.

    Raises:
        UsageError: The id is in use.
    """
    check_new_id("env_id", env_id, registration.ENV_REGISTRY, "GEM")
    check_env_options(options, parse, num_envs="pass it to gem.make_vec")
    gem.register(env_id, partial(Env, env, parse), **options)


class VectorEnv(vector.VectorEnv):
    """Many agym environments with the API of GEM's vector environments.

    Example:
        >>> import agym
        >>> envs = agym.adapters.gem.VectorEnv("CartPole-v1", 8, parse=int)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations, rewards, terminated, truncated, infos = envs.step({2: "0", 5: "1"})
        >>> rewards
        array([1., 1.])
        >>> envs.close()

    They run on agym's backends; all environments of a call step at the same time. With same-step
    autoreset, which is GEM's default, ``info["final_obs"]`` is the last observation of the episode
    that ended.

    Args:
        env: As for :func:`agym.make`.
        num_envs: Number of environments.
        parse: Turns a text into an action.
        autoreset_mode: GEM's ``AutoresetMode``, or its value, such as ``"NextStep"``.
        **options: Options of :func:`agym.make`, and keyword arguments for the environments.
    """

    def __init__(
        self,
        env: EnvLike,
        num_envs: int,
        *,
        parse: Callable[[str], Any] | None = None,
        autoreset_mode: Any = vector.AutoresetMode.SAME_STEP,
        **options: Any,
    ) -> None:
        # GEM's constructor is not called: it would make all environments in this process.
        check_env_options(options, parse)
        try:
            self.autoreset_mode = vector.AutoresetMode(autoreset_mode)
        except ValueError:
            known = ", ".join(repr(mode.value) for mode in AUTORESET)
            raise UsageError(f"autoreset_mode={autoreset_mode!r} must be one of {known}") from None
        options = {"output": "list", "autoreset": AUTORESET[self.autoreset_mode], **options}
        self._envs = make(env, num_envs, **options)
        self._parse = parse
        self.num_envs = num_envs
        self.env_ids = [str(env)] * num_envs
        self.envs = list(self._envs)

    def reset(
        self, seed: int | Sequence[int] | None = None
    ) -> tuple[Sequence[Any], list[dict[str, Any]]]:
        """Reset all environments; environment ``i`` gets ``seed + i``, or ``seed[i]``."""
        return self._envs.reset(seed=seed)

    def step(
        self, actions: Sequence[str] | Mapping[int, str]
    ) -> tuple[Sequence[Any], Array, Array, Array, list[dict[str, Any]]]:
        """Step all environments, or those in a dict; results are in the order of the actions."""
        by_id = isinstance(actions, Mapping)
        action_of = dict(actions) if isinstance(actions, Mapping) else dict(enumerate(actions))
        ids = sorted(action_of)
        texts = [action_of[i] for i in ids]
        actions = texts if self._parse is None else [self._parse(text) for text in texts]
        result = self._envs.step(actions, env_ids=ids if by_id else None)
        order = [ids.index(i) for i in action_of]
        rewards, terminated, truncated = (np.asarray(part)[order] for part in result[1:4])
        observations = [result.observations[k] for k in order]
        return observations, rewards, terminated, truncated, [result.infos[k] for k in order]

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
