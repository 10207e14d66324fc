"""Make batches of environments with many agents."""

from __future__ import annotations

from functools import partial
from typing import Any

from agym import UsageError, make, make_async
from agym.api.options.options import AutoresetLike
from agym.core.planning.sampling import TrustedFactory
from agym.multi_agent.aec import AECEnvs, AsyncAECEnvs
from agym.multi_agent.find import Api, find
from agym.multi_agent.host import AECHost, ParallelHost
from agym.multi_agent.parallel import AsyncParallelEnvs, ParallelEnvs
from agym.multi_agent.spaces import AgentGroups

HOSTS: dict[Api, Any] = {"parallel": ParallelHost, "aec": AECHost}

# The families of environments of PettingZoo itself.
PETTINGZOO = ("atari", "butterfly", "classic", "mpe2", "sisl")

# Options of ``agym.make`` that describe results which these functions do not return.
REFUSED = ("output", "infos", "episode_stats")


def make_parallel(
    env: Any,
    num_envs: int | None = None,
    *,
    autoreset: AutoresetLike = "same_step",
    agent_groups: AgentGroups | None = None,
    **options: Any,
) -> ParallelEnvs:
    """Make a batch of PettingZoo environments whose agents act at the same time.

    Example:
        >>> import agym
        >>> with agym.make_parallel("mpe2/simple_tag_v3", 3, backend="serial", num_good=2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     envs.agent_groups["agent"]
        ['agent_0', 'agent_1']

    An episode ends when no agent is left.

    Args:
        env: An id, such as ``"butterfly/pistonball-v6"`` or ``"mpe2/simple_tag_v3"`` (the module
            ``mpe2.simple_tag_v3``); a ``ParallelEnv`` class or a function that makes one; a module
            with ``parallel_env``; or a list of functions.
        num_envs: Number of environments, 1 by default; not needed for a list.
        autoreset: What follows an episode's end: ``"same_step"`` (the environment is reset at once,
            and the result has ``final_obs``), ``"next_step"`` or ``"disabled"``.
        agent_groups: Agents to be stacked, by the name of the group; by default those with equal
            spaces whose names differ in a number: ``{"piston": ["piston_0", "piston_1", ...]}``.
        **options: The options of :func:`agym.make` (``backend``, ``workers``, ``copy``,
            ``timeout``, ``on_fault``, ``rate_limit``), and keywords for the environment.

    Returns:
        The environments, constructed and ready for ``reset``.

    Raises:
        UsageError: An argument is invalid.
        MissingExtraError: PettingZoo is not installed.
        EnvError: A constructor raised.
    """
    runner = _make(make, "parallel", env, num_envs, autoreset, options)
    return ParallelEnvs(runner, agent_groups)


def make_parallel_async(
    env: Any,
    num_envs: int | None = None,
    *,
    autoreset: AutoresetLike = "same_step",
    agent_groups: AgentGroups | None = None,
    **options: Any,
) -> AsyncParallelEnvs:
    """Make a batch of PettingZoo environments whose agents act together, for async code.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_parallel_async("mpe2/simple_spread_v3", 3) as envs:
        ...         observations, infos = await envs.reset(seed=0)
        ...         return observations["agent_2"].shape
        >>> agym.run(main())
        (3, 18)

    The arguments are those of :func:`make_parallel`.

    Returns:
        The environments, to be opened by ``async with`` or ``await``.

    Raises:
        UsageError: An argument is invalid.
        MissingExtraError: PettingZoo is not installed.
    """
    runner = _make(make_async, "parallel", env, num_envs, autoreset, options)
    return AsyncParallelEnvs(runner, agent_groups)


def make_aec(
    env: Any,
    num_envs: int | None = None,
    *,
    autoreset: AutoresetLike = "same_step",
    **options: Any,
) -> AECEnvs:
    """Make a batch of PettingZoo environments whose agents take turns.

    Example:
        >>> import agym
        >>> with agym.make_aec("classic/tictactoe-v3", 4) as envs:
        ...     batch = envs.reset(seed=0)
        ...     envs.send([0, 1, 2, 3], batch.env_ids)
        ...     batch = envs.recv(min_envs=2)  # the first two or more
        >>> set(batch.agents)
        {'player_2'}

    The arguments are those of :func:`make_parallel`; ``env`` makes an ``AECEnv``.

    Returns:
        The environments, constructed and ready for ``reset``.

    Raises:
        UsageError: An argument is invalid.
        MissingExtraError: PettingZoo is not installed.
        EnvError: A constructor raised.
    """
    return AECEnvs(_make(make, "aec", env, num_envs, autoreset, options))


def make_aec_async(
    env: Any,
    num_envs: int | None = None,
    *,
    autoreset: AutoresetLike = "same_step",
    **options: Any,
) -> AsyncAECEnvs:
    """Make a batch of PettingZoo environments whose agents take turns, for async code.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_aec_async("classic/tictactoe-v3", 4) as envs:
        ...         batch = await envs.reset(seed=0)
        ...         batch = await envs.step([0, 1, 2, 3])
        ...         return set(batch.agents)
        >>> agym.run(main())
        {'player_2'}

    The arguments are those of :func:`make_aec`.

    Returns:
        The environments, to be opened by ``async with`` or ``await``.

    Raises:
        UsageError: An argument is invalid.
        MissingExtraError: PettingZoo is not installed.
    """
    return AsyncAECEnvs(_make(make_async, "aec", env, num_envs, autoreset, options))


def _make(
    function: Any, api: Api, env: Any, num_envs: int | None, autoreset: Any, options: dict[str, Any]
) -> Any:
    """Make the environments as hosts, each of which is one environment to agym."""
    for name in REFUSED:
        if name in options:
            raise UsageError(
                f"results of many agents are arrays, with all infos: leave {name}= out"
            )
    if isinstance(env, list | tuple):
        host: Any = [partial(HOSTS[api], find(each, api)) for each in env]
    else:
        host = partial(HOSTS[api], find(env, api))
        # Parallel environments of PettingZoo may be measured. Random turns may be illegal moves,
        # about which PettingZoo writes warnings.
        if api == "parallel" and isinstance(env, str) and env.split("/")[0] in PETTINGZOO:
            host = TrustedFactory(host, env)
    return function(host, num_envs, autoreset=autoreset, output="array", **options)
