"""A pytest plugin: the vector tests of AgileRL and SuperSuit, over agym; see .ci/pettingzoo_suite.

Adapters with the interfaces of the two libraries stand in the places of their classes and
functions. What can't hold there is deselected, and says why.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

import pytest
from gymnasium.vector.utils import batch_space
from pettingzoo.utils import BaseParallelWrapper

import agym
from agym.multi_agent.flat import FlatEnvs

INSIDES = "looks at AgileRL's own pipes, states or shared memory"
CALLS = "AgileRL's calls in two halves: agym has an async API instead"

LEFT_OUT = {
    # AgileRL
    "test_create_async_pz_vector_env": INSIDES,
    "test_get_observations_no_copy": INSIDES,
    "test_env_order_preserved": INSIDES,
    "test_async_vector_subenv_init_error": "a constructor's error is raised at once",
    "test_reset_async_exception": CALLS,
    "test_reset_wait_exception": CALLS,
    "test_step_async_exception": CALLS,
    "test_call_async_exception": CALLS,
    "test_call_exception_worker": "wants AgileRL's words",
    "test_set_attr_exception": INSIDES,
    "test_close_extras_warning": CALLS,
    "test_close_extras_terminate": CALLS,
    "test_close_extras_join_timeout_terminates_stuck_process": INSIDES,
    "test_poll_pipe_envs": INSIDES,
    "test_poll_pipe_envs_ready": INSIDES,
    "test_assert_is_running": INSIDES,
    "test_step_wait_exception": CALLS,
    "test_step_wait_timeout_async_pz_vector_env": CALLS,
    "test_call_wait_exception": CALLS,
    "test_call_wait_timeout_async_pz_vector_env": CALLS,
    "TestAsyncPettingZooVecEnvAddInfo": INSIDES,
    "TestAsyncWorker": INSIDES,
    "TestObservations": INSIDES,
    "TestPettingZooVecEnvReset": "of an abstract class of AgileRL",
    "TestPettingZooVecEnvStep": "of an abstract class of AgileRL",
    "TestPettingZooVecEnvRender": "of an abstract class of AgileRL",
    "TestPettingZooVecEnvClose": "of an abstract class of AgileRL",
    "TestPettingZooVecEnvCloseExtras": "of an abstract class of AgileRL",
    "TestPettingZooVecEnvUnwrapped": "of an abstract class of AgileRL",
    "TestAsyncPettingZooVecEnvDel": INSIDES,
    "TestWriteToSharedMemory": INSIDES,
    "TestGetPlaceholderValue": INSIDES,
    # SuperSuit
    "test_env_black_death_assertion": "agym's rows accept agents that die, and mark them",
    "test_env_is_wrapped_true": "of environments of one agent",
    "test_env_is_wrapped_false": "of environments of one agent",
    "test_env_is_wrapped_cpu": "is skipped by SuperSuit",
    "test_multi_threaded_concatenate": "is skipped by SuperSuit",
    "test_vec_env_normalize_obs": "puts a wrapper of one environment around many",
}


def of_environment(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """Call a function, and raise the environment's own exception, as the libraries do."""
    try:
        return function(*arguments, **keywords)
    except agym.AgymErrorGroup as group:
        _raise(group.exceptions[0])
    except agym.EnvError as error:
        _raise(error)


def _raise(error: Any) -> NoReturn:
    raise error.exception from error


class AsyncPettingZooVecEnv:
    """AgileRL's class, over agym."""

    backend: Any = "serial"

    def __init__(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        self.envs = agym.make_parallel([*env_fns], backend=self.backend)
        self.num_envs = self.envs.num_envs
        self.agents = self.possible_agents = self.envs.possible_agents
        self.render_mode = self.envs.runner.render_mode

    def single_observation_space(self, agent: Any) -> Any:
        return self.envs.observation_spaces[agent]

    def single_action_space(self, agent: Any) -> Any:
        return self.envs.action_spaces[agent]

    def observation_space(self, agent: Any) -> Any:
        return batch_space(self.single_observation_space(agent), self.num_envs)

    def action_space(self, agent: Any) -> Any:
        return batch_space(self.single_action_space(agent), self.num_envs)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, Any]:
        observations, infos = of_environment(self.envs.reset, seed, options)
        return observations, {agent: [info.get(agent) for info in infos] for agent in self.agents}

    def step(self, actions: Any) -> Any:
        return tuple(of_environment(self.envs.step, actions))

    def render(self) -> tuple[Any, ...]:
        return tuple(self.envs.render())

    def call(self, name: str, *arguments: Any) -> tuple[Any, ...]:
        return tuple(self.envs.runner.call(name, *arguments))

    get_attr = call

    def set_attr(self, name: str, values: Any) -> None:
        self.envs.runner.set_attr(name, values)

    def close(self, **keywords: Any) -> None:
        self.envs.close()


class BlackDeath(BaseParallelWrapper[Any, Any, Any]):
    """Says that agents may die, which agym does not need to be told."""


class Rows(FlatEnvs):
    """SuperSuit's vector of agents: its infos are a list."""

    def __init__(self, env: Any, count: int = 1) -> None:
        self.par_env = env
        make = partial(deepcopy, env)
        envs = agym.make_parallel(make, count, backend=AsyncPettingZooVecEnv.backend)
        try:
            super().__init__(envs)
        except agym.UsageError as error:
            envs.close()
            raise AssertionError(error) from error
        # SuperSuit's spaces are those of one agent.
        self.observation_space, self.action_space = (
            self.single_observation_space,
            self.single_action_space,
        )

    def reset(self, **arguments: Any) -> Any:
        observations, _, infos = self._rows.reset(arguments.get("seed"), arguments.get("options"))
        return observations, infos

    def step(self, actions: Any) -> Any:
        step = self._rows.step(actions)
        for row, observation in step.final_obs.items():
            step.infos[row]["terminal_observation"] = observation
        return *step[:4], step.infos

    def env_is_wrapped(self, wrapper: Any) -> list[bool]:
        return [False] * self.num_envs


def concat(rows: Rows, count: int, num_cpus: int = 0, base_class: str = "gymnasium") -> Any:
    """SuperSuit's ``concat_vec_envs_v1``: some copies of a vector of agents."""
    if base_class == "stable_baselines3":
        return rows.envs.flat_sb3(dead="zeros")
    return Rows(rows.par_env, count)


def _knights(module: Any, *, spawn_rate: int, **keywords: Any) -> Any:
    """Make the environment's present version, which has no ``spawn_rate``."""
    return module.parallel_env(**keywords)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--agym", choices=["serial", "thread", "process"], default="serial")


def pytest_configure(config: pytest.Config) -> None:
    backend = config.getoption("--agym")
    fork = agym.backends.Process(workers=2, start_method="fork")
    AsyncPettingZooVecEnv.backend = fork if backend == "process" else backend
    if find_spec("agilerl") is not None:
        from agilerl.vector import pz_async_vec_env

        pz_async_vec_env.AsyncPettingZooVecEnv = AsyncPettingZooVecEnv
    butterfly: Any = import_module("pettingzoo.butterfly")
    with suppress(ImportError):  # SuperSuit's tests import a version that is gone
        module = import_module("pettingzoo.butterfly.knights_archers_zombies_v11")
        older: Any = ModuleType("knights_archers_zombies_v10")
        older.parallel_env = partial(_knights, module)
        butterfly.knights_archers_zombies_v10 = older
    if find_spec("supersuit") is not None:
        import supersuit

        supersuit.pettingzoo_env_to_vec_env_v1 = Rows
        supersuit.concat_vec_envs_v1 = concat
        supersuit.black_death_v3 = BlackDeath


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    def is_out(item: pytest.Item) -> bool:
        kind = getattr(getattr(item, "cls", None), "__name__", "")
        return bool({item.name.split("[")[0], kind} & LEFT_OUT.keys())

    out = [item for item in items if is_out(item)]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
