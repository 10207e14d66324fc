"""A batch of environments with many agents as a ``VecEnv`` of Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

from agym import UsageError
from agym.multi_agent.flat import FlatRows


class FlatVecEnv(VecEnv):
    """A ``VecEnv`` over agents; made by :meth:`agym.ParallelEnvs.flat_sb3`.

    Attributes:
        envs: The environments below.
        runner: The :class:`agym.Envs` below these.
    """

    def __init__(self, envs: Any, dead: str | None) -> None:
        if dead not in (None, "zeros"):
            raise UsageError(f"dead={dead!r} must be None or 'zeros'")
        if envs.runner.metadata["autoreset_mode"].name != "SAME_STEP":
            raise UsageError(
                "Stable-Baselines3 resets in the same step: pass autoreset='same_step' to"
                " agym.make_parallel"
            )
        self.envs, self.runner, self._dead = envs, envs.runner, dead
        self._rows = rows = FlatRows(envs)
        self._actions: Any = None
        super().__init__(rows.count, rows.observation_space, rows.action_space)
        self.metadata = envs.runner.metadata

    def reset(self) -> Any:
        """Reset all environments; environment ``i`` gets the seed of its first row."""
        seeds, options = self._seeds[:: self._rows.width], self._options[:: self._rows.width]
        if any(option != options[0] for option in options):
            raise UsageError("set_options() needs the same options for all environments")
        observations, live, self.reset_infos = self._rows.reset(seeds, options[0] or None)
        self._reset_seeds()
        self._reset_options()
        self._check(live)
        return observations

    def step_async(self, actions: Any) -> None:
        """Keep the actions for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Step all environments."""
        step = self._rows.step(self._actions)
        self._check(step.live)
        for row, observation in step.final_obs.items():
            if step.over[row]:
                self.reset_infos[row], step.infos[row] = step.infos[row], step.final_infos[row]
            step.infos[row]["terminal_observation"] = observation
        for info, terminated, truncated in zip(
            step.infos, step.terminated, step.truncated, strict=True
        ):
            info["TimeLimit.truncated"] = bool(truncated and not terminated)
        dones = step.terminated | step.truncated
        return step.observations, step.rewards.astype(np.float32), dones, step.infos

    def _check(self, live: Any) -> None:
        """Refuse an agent that is absent while its episode goes on.

        Raises:
            UsageError: There is one, and rows of zeros were not asked for.
        """
        if self._dead is None and not live.all():
            env_id, agent = divmod(int(np.flatnonzero(~live)[0]), self._rows.width)
            raise UsageError(
                f"agent {self._rows.agents[agent]!r} of environment {env_id} is dead or absent, and"
                " Stable-Baselines3 would learn from its rows: pass dead='zeros' to flat_sb3 to let"
                " it, or train with agym.make_parallel, whose results say which rows are valid"
            )

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return an attribute of the environment of each row."""
        if attr_name == "render_mode":  # asked for by the base class
            return [self.runner.render_mode for _ in self._get_indices(indices)]
        return self._of_rows(lambda env: env.get_attr(attr_name), indices)

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the environment of each row."""
        self._of_rows(lambda env: env.set_attr(attr_name, value), indices)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method once in the environment of each row; return its result for each row."""
        return self._of_rows(
            lambda env: env.call(method_name, *method_args, **method_kwargs), indices
        )

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return ``False``: Gymnasium's wrappers are around single agents."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> list[Any]:
        """Return a picture of each environment."""
        return list(self.envs.render())

    def _of_rows(self, function: Callable[[Any], Any], indices: Any) -> list[Any]:
        """Call a function with the handle of each environment once; return a result per row."""
        ids = [row // self._rows.width for row in self._get_indices(indices)]
        results = {i: function(self.runner[i]) for i in dict.fromkeys(ids)}
        return [results[i] for i in ids]
