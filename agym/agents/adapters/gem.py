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
from agym.core.protocol.typing import Array
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
    """Return a factory of one of GEM's environments, for :func:`agym.make` and its kin.

    Example:
        >>> import agym
        >>> async def main():
        ...     game = agym.adapters.gem.factory("game:GuessTheNumber-v0-easy", max_turns=5)
        ...     async with agym.make_async(game, 64) as envs:
        ...         observations, infos = await envs.reset(seed=0)
        ...         return observations[63]
        >>> "guess" in agym.run(main())
        True

    Observations and actions are text. An end that GEM calls ``truncated`` is that, also where it is
    ``terminated`` too.

    Args:
        env_id: An id of GEM's registry.
        wrappers: Functions that wrap the environment, the innermost first, as those of
            ``gem.make_vec``.
        own_random: GEM's games draw from the random generators of the whole process. By default
            each environment has states of them of its own, so that an episode depends on its seed
            alone; one environment of a process steps at a time then. Pass ``False`` for
            environments that wait, for a search or a sandbox, on ``backend="thread"``.
        **env_kwargs: For the environment, as in ``gem.make``.

    Returns:
        A factory that can be pickled if ``wrappers`` can.

    Raises:
        UsageError: No such id.
    """
    spec = find_spec(env_id, registration.ENV_REGISTRY, "GEM")
    if not isinstance(wrappers, Sequence) or not all(map(callable, wrappers)):
        raise UsageTypeError(f"wrappers={wrappers!r} must be a list of functions")
    return partial(GemEnv, spec, wrappers, own_random, env_kwargs)


class GemEnv(gymnasium.Env[str, str]):
    """One of GEM's environments, with Gymnasium's API; made by :func:`factory`.

    Attributes:
        gem_env: GEM's own object, with its wrappers.
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
        # A worker process may lack what the caller's script registered.
        registration.ENV_REGISTRY.setdefault(spec.id, spec)
        with self._random:
            self.gem_env = gem.make(spec.id, **env_kwargs)
            for wrapper in wrappers:
                self.gem_env = wrapper(self.gem_env)
        if isinstance(self.gem_env.unwrapped, multiagent.MultiAgentEnv):
            raise UsageError(f"{spec.id} has several agents, which agym's API has no place for")

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        with self._random:
            observation, info = self.gem_env.reset(seed=seed)
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        with self._random:
            observation, reward, terminated, truncated, info = self.gem_env.step(action)
        return observation, float(reward), bool(terminated), bool(truncated), info

    def sample_random_action(self) -> str:
        """Return a random action, by ``envs.call("sample_random_action")``."""
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
        env: What :func:`agym.make` takes: an id, a class, a factory; coroutine environments too.
        parse: Turns a text into an action.
        seed: Seed of the first reset, if that gets none; ``gem.make_vec`` passes one.
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

    def reset(self, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        if seed is None:
            seed, self._seed = self._seed, None
        return self._seat.reset(seed)

    def step(self, action: str) -> Step:
        """Return ``observation, reward, terminated, truncated, info``."""
        return self._seat.step(action)

    def spawn(self, same_state: bool = False, **options: Any) -> Env:
        """Return another environment like this one.

        Raises:
            UsageError: ``same_state``: take :meth:`agym.Envs.snapshot` for that.
        """
        if same_state:
            raise UsageError("an environment of agym is copied by snapshot() and restore()")
        return self._spawn(**{**self._options, **options})

    def close(self) -> None:
        """Close the environment; also done when nobody holds it any more."""
        self._seat.close()


def register(
    env_id: str, env: EnvLike, *, parse: Callable[[str], Any] | None = None, **options: Any
) -> None:
    """Register an agym environment with GEM, whose ``make`` and ``make_vec`` then know it.

    Example:
        >>> import agym, gem
        >>> agym.adapters.gem.register("agym:CartPole-v1", "CartPole-v1", parse=int)
        >>> env = gem.make("agym:CartPole-v1")
        >>> env.reset(seed=0)[0].shape
        (4,)
        >>> env.close()

    The arguments are those of :class:`Env`.

    Raises:
        UsageError: The id is taken.
    """
    check_new_id("env_id", env_id, registration.ENV_REGISTRY, "GEM")
    check_env_options(options, parse, num_envs="pass it to gem.make_vec")
    gem.register(env_id, partial(Env, env, parse), **options)


class VectorEnv(vector.VectorEnv):
    """Many agym environments with GEM's API of a vector environment.

    Example:
        >>> import agym
        >>> envs = agym.adapters.gem.VectorEnv("CartPole-v1", 8, parse=int)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations, rewards, terminated, truncated, infos = envs.step({2: "0", 5: "1"})
        >>> rewards
        array([1., 1.])
        >>> envs.close()

    They step on agym's backends, all that a call names at once. With GEM's same-step autoreset,
    which is its default, ``info["final_obs"]`` has the last observation of the episode that ended.

    Args:
        env: What :func:`agym.make` takes.
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
        # GEM's own constructor would make an environment for each; agym makes them where they run.
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
        """Reset all; environment ``i`` gets ``seed + i``, or ``seed[i]``."""
        return self._envs.reset(seed=seed)

    def step(
        self, actions: Sequence[str] | Mapping[int, str]
    ) -> tuple[Sequence[Any], Array, Array, Array, list[dict[str, Any]]]:
        """Step all, or those that a dict names; results are in the order of the actions."""
        some = isinstance(actions, Mapping)
        given = dict(actions) if isinstance(actions, Mapping) else dict(enumerate(actions))
        ids = sorted(given)
        texts = [given[i] for i in ids]
        actions = texts if self._parse is None else [self._parse(text) for text in texts]
        result = self._envs.step(actions, env_ids=ids if some else None)
        order = [ids.index(i) for i in given]
        rewards, terminated, truncated = (np.asarray(part)[order] for part in result[1:4])
        observations = [result.observations[k] for k in order]
        return observations, rewards, terminated, truncated, [result.infos[k] for k in order]

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
