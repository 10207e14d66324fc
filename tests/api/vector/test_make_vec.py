"""``agym.make_vec``, and Gymnasium's own ``make_vec`` by a registered id."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import agym
from agym.testing.random_env import RandomEnv
from benchmarks.soak.probes import ChaoticEnv, CounterEnv
from tests.support.backends import FORK
from tests.support.envs.plain_envs import Tally


@pytest.fixture
def registry() -> Iterator[None]:
    """Leave Gymnasium's registry as it was."""
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def test_options_and_keywords_of_the_environment() -> None:
    options: Any = {"backend": FORK, "workers": 2, "autoreset": "same_step"}
    with closing(agym.make_vec("Pendulum-v1", 3, g=3.7, **options)) as envs:
        assert envs.get_attr("g") == (3.7, 3.7, 3.7)
        assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
        assert envs.spec is not None
        assert envs.spec.id == "Pendulum-v1"
        assert len(envs.stats().workers) == 2
    with closing(agym.make_vec(Tally, 2)) as envs:
        assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_bad_options() -> None:
    with pytest.raises(agym.UsageError, match="leave output= out"):
        agym.make_vec("CartPole-v1", 2, output="list")
    with pytest.raises(agym.UsageError, match="did you mean `workers`"):
        agym.make_vec("CartPole-v1", 2, worker=2)
    with pytest.raises(agym.UsageError, match="cannot be found"):
        agym.make_vec("NoSuchEnv-v1", 2)
    for name in ("autoreset_mode", "vectorization_mode", "wrapper_class"):
        with pytest.raises(agym.UsageTypeError, match=f"`{name}` isn't an agym option"):
            agym.make_vec("CartPole-v1", 2, **{name: None})


@pytest.mark.usefixtures("registry")
def test_gymnasium_makes_it_by_id() -> None:
    """Keywords reach the environments and agym in the same way."""
    make = partial(agym.make_vec, "Pendulum-v1", backend=FORK, workers=2)
    gymnasium.register("Fast-v1", vector_entry_point=make)
    theirs = gymnasium.make_vec("Pendulum-v1", 3, vectorization_mode="sync")
    with closing(gymnasium.make_vec("Fast-v1", 3)) as envs, closing(theirs):
        assert isinstance(envs, agym.AgymVectorEnv)
        assert np.array_equal(envs.reset(seed=5)[0], theirs.reset(seed=5)[0])
    with closing(gymnasium.make_vec("Fast-v1", 2, g=1.6, backend="thread")) as envs:
        assert isinstance(envs, agym.AgymVectorEnv)
        assert (envs.get_attr("g"), envs.backend) == ((1.6, 1.6), "thread")


SHIPPED = {
    "random": lambda: RandomEnv(spaces.Box(-1, 1, (3,), np.float32), spaces.Discrete(2)),
    "counter": CounterEnv,
    "chaotic": ChaoticEnv,
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_environments_pass_gymnasiums_checker(name: str) -> None:
    check_env(SHIPPED[name](), skip_render_check=True)
