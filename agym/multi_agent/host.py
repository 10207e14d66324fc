"""A PettingZoo environment as one environment of agym: what runs in the workers.

A host has Dict spaces over ``possible_agents``, so everything that agym does for one environment
holds for many agents. What each agent got from a step travels in the info, as one array::

    info["agents"]    rewards      one column per agent, in the order of possible_agents
                      terminated
                      truncated
                      valid        the three above are real: the agent was in the step
                      live         the agent must act next
    info["infos"]     the agents' infos that are not empty
    info["as_is"]     what the environment itself returned, if the action asked for it (handles)

The row of an absent agent keeps the agent's last observation, or zeros if it has none in this
episode.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import Space
from gymnasium.spaces import Dict, Discrete

from agym import UsageError
from agym.core.hosts.async_env import AnySpace
from agym.multi_agent.spaces import in_order, zeros

# Keys of an info.
AGENTS, INFOS = "agents", "infos"

# The keys of an action; the second is also a key of the info, and of the options of a reset.
ACTIONS, AS_IS = "actions", "as_is"

# The rows of ``info["agents"]``.
REWARDS, TERMINATED, TRUNCATED, VALID, LIVE = range(5)

Info = dict[str, Any]


class AsIs(NamedTuple):
    """What the environment returned, as the five dicts of a step; for turns, its attributes."""

    value: Any
    agents: list[Any]


class Host(gymnasium.Env[Any, Any]):
    """What hosts of both of PettingZoo's APIs have in common.

    Attributes:
        env: The PettingZoo environment.
    """

    def __init__(self, factory: Callable[..., Any], **env_kwargs: Any) -> None:
        self.env = env = factory(**env_kwargs)
        self._check()
        self.render_mode = getattr(env, "render_mode", None)
        agents = getattr(env, "possible_agents", None)
        self._as_is = agents is None  # whether to return everything as it is
        self._index = {agent: k for k, agent in enumerate(in_order(agents or ()))}
        action_spaces = {agent: env.action_space(agent) for agent in self._index}
        own = {"possible_agents": agents and [*agents], "action_spaces": action_spaces}
        self.metadata = {**(getattr(env, "metadata", None) or {}), **own}
        observation_spaces = {agent: env.observation_space(agent) for agent in self._index}
        self.observation_space = AnySpace() if self._as_is else Dict([*observation_spaces.items()])
        actions = AnySpace() if self._as_is else self._actions(action_spaces)
        self.action_space = Dict({ACTIONS: actions, AS_IS: Discrete(1)})  # samples are 0
        self._zeros = {agent: zeros(space) for agent, space in observation_spaces.items()}
        self._rows = self._zeros

    def _check(self) -> None:
        """Refuse an environment of another API."""
        raise NotImplementedError

    def _actions(self, action_spaces: dict[Any, Space[Any]]) -> Space[Any]:
        """Return the space of what the agents do in one step."""
        raise NotImplementedError

    def _reset(self, seed: int | None, options: Info | None) -> tuple[Any, bool]:
        """Reset the environment; return its result, and whether to return that as it is."""
        self._rows = {**self._zeros}
        options = {**(options or {})}
        as_is = bool(options.pop(AS_IS, False))
        return self.env.reset(seed=seed, options=options or None), as_is

    def _row(
        self,
        observations: Mapping[Any, Any],
        outcomes: Mapping[Any, Sequence[Any]],
        live: Sequence[Any],
        agents: Sequence[Any],
        infos: Mapping[Any, Any],
        as_is: AsIs | None,
    ) -> tuple[Any, float, bool, bool, Info]:
        """Return the row of agym's table.

        Args:
            observations: Of the agents that were observed.
            outcomes: Reward and flags of the agents that took part.
            live: The agents that must act next.
            agents: All agents of the environment; none if the episode is over.
            infos: Of the agents that took part.
            as_is: What handles return.
        """
        block = np.zeros((5, len(self._index)))
        for agent, (reward, terminated, truncated) in outcomes.items():
            if agent in self._index:
                # PettingZoo also permits rewards that are arrays of one element.
                number = reward.item() if isinstance(reward, np.ndarray) else reward
                block[:LIVE, self._index[agent]] = number, terminated, truncated, True
        for agent in live if self._index else ():
            block[LIVE, self._index[agent]] = True
        for agent, observation in observations.items():
            if agent in self._index and observation is not None:
                # Kept after the agent is gone, when the environment may write into it again.
                stays = block[LIVE, self._index[agent]]
                self._rows[agent] = observation if stays else deepcopy(observation)
        info: Info = {AGENTS: block}
        if any(infos.values()):
            info[INFOS] = {agent: each for agent, each in infos.items() if each}
        if as_is is not None:
            info[AS_IS] = deepcopy(as_is)  # the environment may write into its arrays again
        over = not agents
        truncated = over and bool(block[TRUNCATED].any())
        reward = float(block[REWARDS].sum())
        return {**self._rows}, reward, over and not truncated, truncated, info

    def render(self) -> Any:
        """Render the environment."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def state(self) -> Any:
        """Return the global state; a copy, because the environment may reuse the array."""
        return deepcopy(self.env.state())

    @property
    def unwrapped(self) -> Any:  # PettingZoo's innermost environment
        """The innermost environment."""
        return getattr(self.env, "unwrapped", self.env)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute where it is, else of the innermost environment, if ``force``."""
        # Wrappers of PettingZoo seem to have the attributes of what they wrap, or none of these.
        outer = name in getattr(self.env, "__dict__", ())
        if outer or force or hasattr(self.unwrapped, name):
            setattr(self.env if outer else self.unwrapped, name, value)
            return True
        return False

    def __getattr__(self, name: str) -> Any:
        """Look up other attributes in the environment."""
        if name.startswith("_") or name == "env":
            raise AttributeError(name)
        return getattr(self.env if hasattr(self.env, name) else self.unwrapped, name)


class ParallelHost(Host):
    """Hosts a ``ParallelEnv``: all live agents act in each step."""

    def _check(self) -> None:
        if hasattr(self.env, "agent_iter"):
            raise UsageError(
                f"the agents of {self.env} take turns (AECEnv): use agym.make_aec, or wrap it in"
                " pettingzoo.utils.aec_to_parallel"
            )
        if not callable(getattr(self.env, "action_space", None)):
            raise UsageError(f"{self.env} is not a ParallelEnv of PettingZoo: use agym.make")

    def _actions(self, action_spaces: dict[Any, Space[Any]]) -> Space[Any]:
        return Dict([*action_spaces.items()])

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset the environment."""
        result, as_is = self._reset(seed, options)
        observations, infos = result
        live = [*self.env.agents]
        wanted = AsIs((observations, {}, {}, {}, infos), live) if as_is or self._as_is else None
        row = self._row(observations, {}, live, live, infos, wanted)
        return row[0], row[4]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Step the agents that are live; ignore the actions of the others."""
        actions = action[ACTIONS]
        if not self._as_is:
            actions = {agent: actions[agent] for agent in self.env.agents}
        result = self.env.step(actions)
        observations, rewards, terminated, truncated, infos = result
        live = [*self.env.agents]
        outcomes = {
            agent: (
                rewards.get(agent, 0),
                terminated.get(agent, False),
                truncated.get(agent, False),
            )
            for agent in {**rewards, **terminated}
        }
        wanted = AsIs(result, live) if action[AS_IS] or self._as_is else None
        return self._row(observations, outcomes, live, live, infos, wanted)

    def now(self) -> AsIs:
        """Return the agents that handles have."""
        return AsIs(None, [*self.env.agents])


class AECHost(Host):
    """Hosts an ``AECEnv``: its agents take turns, and a step is the turn of one.

    The dead are stepped here, so that each step ends with an agent that can act.
    """

    def _check(self) -> None:
        if not hasattr(self.env, "agent_iter"):
            raise UsageError(
                f"{self.env} is not an AECEnv of PettingZoo: use agym.make_parallel for a"
                " ParallelEnv, agym.make for a gymnasium.Env"
            )

    def _actions(self, action_spaces: dict[Any, Space[Any]]) -> Space[Any]:
        """Return the agents' action space, or one that accepts all values if they differ."""
        first, *others = action_spaces.values()
        return first if all(other == first for other in others) else AnySpace()

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        """Reset the environment."""
        observation, _, _, _, info = self._turn(self._reset(seed, options)[1])
        info[AGENTS][:LIVE] = 0  # a reset has no rewards
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        """Let the agent whose turn it is act."""
        env = self.env
        agent = env.agent_selection
        dead = env.terminations[agent] or env.truncations[agent]
        env.step(None if dead else action[ACTIONS])
        return self._turn(bool(action[AS_IS]))

    def _turn(self, as_is: bool) -> tuple[Any, float, bool, bool, Info]:
        """Observe the next agent that can act; with ``as_is``, the next agent, dead or not."""
        env = self.env
        observations: dict[Any, Any] = {}
        outcomes: dict[Any, Any] = {}
        infos: dict[Any, Any] = {}
        live: list[Any] = []
        while env.agents and not live:
            agent = env.agent_selection
            observation, *outcome, infos[agent] = env.last()
            observations[agent], outcomes[agent] = observation, outcome
            if not any(outcome[1:]):
                live = [agent]
            elif as_is or self._as_is:
                break
            else:
                observations[agent] = deepcopy(observation)
                env.step(None)
        agents = [*env.agents]
        wanted = self.now(observations) if as_is or self._as_is else None
        return self._row(observations, outcomes, live, agents, infos, wanted)

    def now(self, observations: Mapping[Any, Any] | None = None) -> AsIs:
        """Return the attributes that handles have."""
        names = "rewards", "terminations", "truncations", "infos", "_cumulative_rewards"
        value: Info = {name: {**getattr(self.env, name)} for name in names}
        value |= {"agent_selection": self.env.agent_selection, "observations": observations or {}}
        return AsIs(value, [*self.env.agents])
