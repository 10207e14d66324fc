"""SkyRL-Gym's environments in agym, and agym's environments in SkyRL-Gym.

Example:
    >>> import agym
    >>> tasks = [{
    ...     "prompt": [{"role": "user", "content": "What is 6 times 7?"}],
    ...     "reward_spec": {"ground_truth": "42"},
    ... }]
    >>> with agym.make(agym.adapters.skyrl_gym.factory("gsm8k", tasks), 2) as envs:
    ...     observations, infos = envs.reset(seed=0)
    ...     envs.step(["#### 42", "#### 41"]).rewards
    [1.0, 0.0]
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import gymnasium

from agym.agents.adapters.common import (
    Seat,
    as_chat,
    check_env_options,
    check_new_id,
    find_spec,
    is_chat,
    task_index,
)
from agym.api.options.environments import EnvLike
from agym.core._system.extras import require
from agym.core.hosts.async_env import AnySpace
from agym.core.protocol.typing import Options, Result, Start
from agym.errors import UsageError, UsageTypeError

skyrl_gym: Any = require("skyrl_gym", "skyrl-gym")
registration: Any = require("skyrl_gym.envs.registration", "skyrl-gym")
base: Any = require("skyrl_gym.envs.base_text_env", "skyrl-gym")

Chat = list[dict[str, Any]]


def factory(
    env_id: str, tasks: Sequence[Mapping[str, Any]], *, env_config: Any = None, **env_kwargs: Any
) -> Callable[[], SkyRLEnv]:
    """Return a factory of a SkyRL-Gym environment, for :func:`agym.make` and the functions like it.

    Example:
        >>> import agym
        >>> tasks = [
        ...     {"prompt": [{"role": "user", "content": f"What is {n} times 7?"}], "max_turns": 2,
        ...      "reward_spec": {"ground_truth": str(n * 7)}}
        ...     for n in range(9)
        ... ]
        >>> async def main():
        ...     env = agym.adapters.skyrl_gym.factory("gsm8k_multi_turn", tasks)
        ...     async with agym.make_async(env, 64) as envs:
        ...         await envs.reset(options={"task": 6})
        ...         return await envs.step(["#### 42"] * 64)
        >>> float(agym.run(main()).rewards.sum())
        64.0

    In SkyRL-Gym, an environment is one episode of one task. So each ``reset`` makes a new one, for
    a task that the seed determines, or for ``options={"task": 6}``. Observations are chats:
    ``reset`` returns the prompt, and ``step`` the messages that follow the action, which is the
    model's text. SkyRL-Gym does not distinguish a limit of turns from other ends: all are
    ``terminated``. The last info has the environment's ``metrics``.

    Args:
        env_id: An id in SkyRL-Gym's registry.
        tasks: Rows of a dataset: each has a ``prompt``, which is a chat, and the environment's
            ``extras``.
        env_config: The environment's configuration, if it has one.
        **env_kwargs: Other keyword arguments for the environment.

    Raises:
        UsageError: There is no such id, or a task has no prompt.
    """
    spec = find_spec(env_id, registration.registry, "SkyRL-Gym")
    if isinstance(tasks, str | Mapping) or not hasattr(tasks, "__getitem__"):
        raise UsageTypeError(f"tasks={tasks!r} must be a sequence of rows, each with a prompt")
    if not len(tasks):
        raise UsageError("tasks is empty: pass at least one row with a prompt")
    for i, task in enumerate(tasks):
        if not isinstance(task, Mapping) or not is_chat(task.get("prompt")):
            raise UsageError(f"tasks[{i}] needs a 'prompt', a list of chat messages")
    env_kwargs = {"env_config": env_config, **env_kwargs}
    return partial(SkyRLEnv, spec, tasks, env_kwargs)


class SkyRLEnv(gymnasium.Env[Chat, str]):
    """Plays a new SkyRL-Gym environment in each episode; made by :func:`factory`."""

    def __init__(
        self, spec: Any, tasks: Sequence[Mapping[str, Any]], env_kwargs: Mapping[str, Any]
    ) -> None:
        self.observation_space = AnySpace()
        self.action_space = AnySpace()
        self._spec = spec
        self._tasks = tasks
        self._env_kwargs = env_kwargs
        self._env: Any = None

    def reset(self, *, seed: int | None = None, options: Options | None = None) -> Start:
        super().reset(seed=seed)
        task = task_index(options, len(self._tasks))
        if task is None:
            task = int(self.np_random.integers(len(self._tasks)))
        # A copy, because environments change their arguments.
        row = copy.deepcopy(dict(self._tasks[task]))
        prompt = row.pop("prompt")
        self.close()
        self._env = skyrl_gym.make(self._spec, extras=row, **self._env_kwargs)
        observation, metadata = self._env.init(prompt)
        return observation, {**(metadata or {}), "task": task}

    def step(self, action: str) -> Result:
        output = self._env.step(action)
        info = dict(output["metadata"] or {})
        if output.get("postprocessed_action") is not None:
            info["postprocessed_action"] = output["postprocessed_action"]
        done = bool(output["done"])
        if done:
            info["metrics"] = self._env.get_metrics()
        return output["observations"], float(output["reward"]), done, False, info

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
            self._env = None


class Env(base.BaseTextEnv):
    """An agym environment with SkyRL-Gym's API; made by :func:`register` and ``skyrl_gym.make``.

    A row of SkyRL's dataset may have a ``seed`` and ``options``, for the environment's reset, and
    ``max_turns``, after which the episode is truncated. A step's ``metadata`` has the environment's
    info, ``terminated`` and ``truncated``. The last step of an episode returns no observations; its
    ``metadata`` has the last observation as ``final_observation``.
    """

    def __init__(
        self,
        env: EnvLike,
        parse: Callable[[str], Any] | None,
        options: Mapping[str, Any],
        env_config: Any = None,
        extras: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self._extras = dict(extras or {})
        self.max_turns = self._extras.get("max_turns")
        self._seat = Seat(env, {**options, **dict(env_config or {})}, parse)
        self._end = {"terminated": False, "truncated": False}

    def init(self, prompt: Chat) -> tuple[Chat, dict[str, Any]]:
        """Start the episode; return the prompt, followed by the first observation."""
        self.turns = 0
        seed, options = self._extras.get("seed"), self._extras.get("options")
        observation, info = self._seat.reset(seed, options)
        return [*prompt, *as_chat(observation)], info

    def step(self, action: str) -> Any:
        """Step the environment; return SkyRL-Gym's ``BaseTextEnvStepOutput``."""
        self.turns += 1
        observation, reward, terminated, truncated, info = self._seat.step(action)
        late = self.max_turns is not None and self.turns >= self.max_turns
        truncated = truncated or (late and not terminated)
        self._end = {"terminated": terminated, "truncated": truncated}
        done = terminated or truncated
        metadata = {**info, **self._end}
        if done:
            metadata["final_observation"] = observation
        return base.BaseTextEnvStepOutput(
            observations=[] if done else as_chat(observation),
            reward=reward,
            done=done,
            metadata=metadata,
        )

    def get_metrics(self) -> dict[str, Any]:
        """Return the number of turns, and how the episode ended."""
        return {"turns": self.turns, **{name: float(value) for name, value in self._end.items()}}

    def close(self) -> None:
        """Close the environment."""
        self._seat.close()


def register(
    env_id: str, env: EnvLike, *, parse: Callable[[str], Any] | None = None, **options: Any
) -> None:
    """Register an agym environment with SkyRL-Gym, for ``skyrl_gym.make``.

    Example:
        >>> import agym, skyrl_gym
        >>> agym.adapters.skyrl_gym.register("agym-cartpole", "CartPole-v1", parse=int)
        >>> env = skyrl_gym.make("agym-cartpole", extras={"seed": 0, "max_turns": 2})
        >>> chat, info = env.init([{"role": "user", "content": "Balance the pole: 0 or 1."}])
        >>> output = env.step("1")
        >>> len(chat), output["reward"], output["done"]
        (2, 1.0, False)
        >>> env.close()

    Args:
        env_id: The id.
        env: As for :func:`agym.make`: an id, a class or a factory, also of a coroutine environment.
        parse: Turns a text into an action.
        **options: Options of :func:`agym.make_async`, and keyword arguments for the environment;
            the ``env_config`` of ``skyrl_gym.make`` overrides them.

    Raises:
        UsageError: The id is in use.
    """
    check_new_id("env_id", env_id, registration.registry, "SkyRL-Gym")
    check_env_options(options, parse)
    registration.register(env_id, partial(Env, env, parse, options))
