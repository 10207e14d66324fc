"""Single environments of a batch, as PettingZoo's ``ParallelEnv`` and ``AECEnv``."""

from __future__ import annotations

from typing import Any, Self

from gymnasium import Space
from pettingzoo import AECEnv, ParallelEnv

from agym import EnvHandle, UsageError
from agym.multi_agent.base import SyncAgentEnvs
from agym.multi_agent.host import ACTIONS, AS_IS, AsIs
from agym.multi_agent.spaces import zeros

# What a handle itself has; other attributes are those of the environment.
OWN = frozenset(
    [
        "agents",
        "agent_selection",
        "terminations",
        "truncations",
        "rewards",
        "infos",
        "metadata",
        "possible_agents",
    ]
)


class AgentHandle:
    """What the handles of both APIs have in common."""

    _envs: SyncAgentEnvs
    _env: EnvHandle[Any, Any]
    agents: list[Any]
    _spaces: dict[Any, Any]
    _seen: int

    @classmethod
    def of(cls, envs: SyncAgentEnvs, index: int) -> Self:
        """Return the handle of an environment, always the same one."""
        env = envs.runner[index]
        if env.index not in envs._handles:
            self = envs._handles[env.index] = cls()
            self._envs, self._env, self.agents = envs, env, []
            self._seen, self._spaces = -1, {}
            self.metadata = dict(envs.runner.metadata)
            if envs.possible_agents is not None:
                self.possible_agents = [*envs.possible_agents]
        return envs._handles[env.index]  # type: ignore[no-any-return]

    def _reset(self, seed: int | None, options: dict[str, Any] | None) -> AsIs:
        _, info = self._env.reset(seed=seed, options={**(options or {}), AS_IS: True})
        self._spaces = {}  # another episode may give a name another space
        return self._result(info)

    def _look(self) -> Any:
        """Look at the environment, if the batch stepped or reset it since the handle did."""
        if self._seen == self._envs.batches:
            return None
        self._seen = self._envs.batches
        result = self._env.call("now")
        self.agents = [*result.agents]
        return result.value

    def _step(self, actions: Any) -> AsIs:
        *_, info = self._env.step({ACTIONS: actions, AS_IS: 1})
        return self._result(info.get("final_info", info))

    def _result(self, info: dict[str, Any]) -> AsIs:
        """Return what the environment returned; nothing if a fault ended the episode."""
        result: AsIs = info.get(AS_IS) or AsIs(None, [])
        self.agents = [*result.agents]
        self._seen = self._envs.batches
        return result

    def observation_space(self, agent: Any) -> Space[Any]:
        """Return the space of an agent's observations."""
        return self._space("observation_space", self._envs.observation_spaces, agent)

    def action_space(self, agent: Any) -> Space[Any]:
        """Return the space of an agent's actions."""
        return self._space("action_space", self._envs.action_spaces, agent)

    def _space(self, kind: str, known: dict[Any, Space[Any]], agent: Any) -> Space[Any]:
        if agent in known:
            return known[agent]
        if (kind, agent) not in self._spaces:
            self._spaces[kind, agent] = self._env.call(f"env.{kind}", agent)
        return self._spaces[kind, agent]  # type: ignore[no-any-return]

    def render(self) -> Any:
        """Render the environment."""
        return self._env.render()

    def state(self) -> Any:
        """Return the global state."""
        return self._env.call("state")

    def close(self) -> None:
        """Close this environment alone. Idempotent."""
        self._env.close()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in OWN:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        return self._env.get_attr(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the handle that it has, else of the environment."""
        if name.startswith("_") or name in OWN:
            super().__setattr__(name, value)
        else:
            self._env.set_attr(name, value)

    def __repr__(self) -> str:
        return f"{self._envs!r}[{self._env.index}]"


class ParallelHandle(AgentHandle, ParallelEnv[Any, Any, Any]):
    """One environment of :class:`agym.ParallelEnvs`, as a ``ParallelEnv`` of PettingZoo.

    Example:
        >>> import agym
        >>> with agym.make_parallel("mpe2/simple_spread_v3", 2) as envs:
        ...     env = envs[1]
        ...     observations, infos = env.reset(seed=0)
        ...     while env.agents:
        ...         actions = {agent: env.action_space(agent).sample() for agent in env.agents}
        ...         observations, rewards, terminations, truncations, infos = env.step(actions)
        >>> truncations["agent_0"]
        True

    ``agents`` are those after the handle's own last ``reset`` or ``step``. If you play environments
    by handles alone, make them with ``autoreset="disabled"``: otherwise agym resets them at the end
    of an episode, and you reset them again.
    """

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[Any, Any], dict[Any, Any]]:
        """Reset the environment; return ``observations, infos``."""
        observations, _, _, _, infos = self._reset(seed, options).value
        return observations, infos

    def step(self, actions: dict[Any, Any]) -> tuple[Any, Any, Any, Any, Any]:
        """Step the environment; return PettingZoo's five dicts, which are empty after its end.

        Raises:
            UsageError: A live agent has no action.
        """
        self._look()
        before = self.agents
        if not before:
            return {}, {}, {}, {}, {}
        if self._envs.possible_agents is not None:
            missing = [agent for agent in before if agent not in actions]
            if missing:
                raise UsageError(f"{missing[0]!r} is live, but has no action")
            spaces = self._envs.action_spaces
            actions = {
                agent: actions[agent] if agent in actions else zeros(space)
                for agent, space in spaces.items()
            }
        value = self._step(actions).value
        if value is None:  # a fault ended the episode
            ended = dict.fromkeys(before, True)
            none = dict.fromkeys(before, 0.0), dict.fromkeys(before, False)
            return {}, *none, ended, {agent: {} for agent in before}
        return value  # type: ignore[no-any-return]


class AECHandle(AgentHandle, AECEnv[Any, Any, Any]):
    """One environment of :class:`agym.AECEnvs`, as an ``AECEnv`` of PettingZoo.

    Example:
        >>> import agym
        >>> with agym.make_aec("classic/rps-v2", 1, max_cycles=2) as envs:
        ...     env = envs[0]
        ...     env.reset(seed=0)
        ...     for agent in env.agent_iter():
        ...         observation, reward, termination, truncation, info = env.last()
        ...         env.step(None if termination or truncation else 0)
        ...     env.agents
        []
    """

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Reset the environment."""
        self._assign(self._reset(seed, options).value)

    def step(self, action: Any) -> None:
        """Take the turn of ``agent_selection``; the action of a dead agent is ``None``.

        Raises:
            UsageError: An agent that is alive has no action, or a dead one has one.
        """
        if (now := self._look()) is not None:
            self._assign(now)
        agent = self.agent_selection
        dead = self.terminations[agent] or self.truncations[agent]
        if dead is not (action is None):
            remedy = "its action must be None" if dead else "pass an action"
            raise UsageError(f"{agent!r} is {'dead' if dead else 'alive'}: {remedy}")
        spaces: Any = self._env.action_space
        space = spaces[ACTIONS]
        self._assign(self._step(zeros(space) if action is None else action).value)

    def _assign(self, value: dict[str, Any] | None) -> None:
        names = "rewards", "terminations", "truncations", "infos", "_cumulative_rewards"
        for name in names:
            setattr(self, name, {} if value is None else value[name])
        self.agent_selection = None if value is None else value["agent_selection"]
        self._observations = {} if value is None else value["observations"]

    def observe(self, agent: Any) -> Any:
        """Return what an agent sees."""
        if agent in self._observations:
            return self._observations[agent]
        return self._env.call("observe", agent)
