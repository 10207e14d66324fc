"""What ``output="torch"`` and ``output="jax"`` have in common, as a suite of both."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from gymnasium import spaces

import agym
from agym.core.protocol.space_layout import Layout
from agym.errors import UsageError
from agym.testing import World
from tests.support.drivers import APIS
from tests.support.envs.plain_envs import Echo, Nested, Tally
from tests.support.equality import same_values


class OutputSuite:
    """Tests of a library's arrays.

    Attributes:
        output: The library.
        array: The type of its arrays.
        process: The backend of worker processes.
    """

    output: ClassVar[Literal["torch", "jax"]]
    array: ClassVar[type]
    process: ClassVar[Any] = "process"

    def convert(self, array: Any) -> Any:
        """Return an array of the library with the values of a NumPy array."""
        raise NotImplementedError

    def world(self, backend: str, api: Any = "sync", output: str | None = None) -> World:
        workers = None if backend == "serial" else 2
        name = self.process if backend == "process" else backend
        options = {"output": output or self.output}
        return World(name, api, "same_step", workers=workers, options=options)

    @pytest.mark.parametrize("backend", ["serial", "process", "thread"])
    @pytest.mark.parametrize("api", APIS)
    def test_they_have_the_values_of_arrays(self, api: str, backend: str) -> None:
        """The values never change."""
        with (
            self.world(backend, api).open_envs(Nested, 3) as ours,
            self.world(backend, api, "array").open_envs(Nested, 3) as theirs,
        ):
            assert ours.observation_space == theirs.observation_space
            layout = Layout(ours.single_observation_space)
            pairs = [(ours.reset(seed=7), theirs.reset(seed=7))]
            ours.action_space.seed(1)
            for _ in range(20):
                actions = ours.action_space.sample()
                pairs.append((ours.step(actions), theirs.step(actions)))
            for results in pairs:
                assert same_values(*(result.infos for result in results))
                leaves = ([*layout.flatten(result[0]), *result[1:-1]] for result in results)
                for mine, other in zip(*leaves, strict=True):
                    assert isinstance(mine, self.array)
                    assert same_values(np.asarray(mine), np.asarray(self.convert(other)))

    @pytest.mark.parametrize("backend", ["serial", "process", "thread"])
    @pytest.mark.parametrize("api", APIS)
    def test_some_environments_one_and_a_group(self, api: str, backend: str) -> None:
        """Ids, actions and masks may be of the library; a handle returns Python's numbers."""
        numbers = self.convert(np.arange(4))
        with self.world(backend, api).open_envs(partial(Tally, 99), 4) as envs:
            envs.reset()
            for actions in (numbers, [*numbers]):
                assert envs.step(actions).observations[:, 2].tolist() == [0, 1, 2, 3]
            envs.send(numbers)
            for batch in envs.as_completed(min_envs=2, max_envs=2):
                assert isinstance(batch.env_ids, self.array)
                assert batch.env_ids.dtype == numbers.dtype
                assert batch.observations[:, 2].tolist() == batch.env_ids.tolist()
                envs.step(batch.env_ids[:1] + 4, env_ids=batch.env_ids[:1])
            some = envs.step(self.convert(np.array([5, 6])), env_ids=numbers[1::2])
            assert some.observations[:, 2].tolist() == [5, 6]
            observations, _ = envs.reset(options={"reset_mask": numbers > 2})
            assert observations[:, 0].tolist() == [1, 1, 1, 2]
            observation, *rest, _ = envs[1].step(self.convert(np.array(7)))
            assert observation[2] == 7
            assert [type(value) for value in rest] == [float, bool, bool]
            if api == "sync":
                assert isinstance(envs.split(2)[0].reset().observations, self.array)

    def test_leaves_without_a_fixed_size_stay_as_they_are(self) -> None:
        space = spaces.Dict({"text": spaces.Text(5), "box": spaces.Box(-1, 1, (2,))})
        value = {"text": "hello", "box": np.ones(2, np.float32)}
        with agym.make(partial(Echo, space, [value]), 2, output=self.output) as envs:
            observations, _ = envs.reset()
            assert observations["text"] == ("hello", "hello")
            assert isinstance(observations["box"], self.array)
            observation, _ = envs[0].reset()
            assert observation["text"] == "hello"
            assert observation["box"].shape == (2,)

    @pytest.mark.parametrize("api", APIS)
    def test_a_dtype_that_the_library_lacks_is_refused_when_made(self, api: str) -> None:
        space = spaces.Dict({"x": spaces.Box(0, 1, (2,), np.longdouble)})
        lacks = rf"output='{self.output}' has no dtype for observations\['x'\] of dtype float128"
        with (
            pytest.raises(UsageError, match=f"{lacks}.*'array'"),
            self.world("serial", api).open_envs(partial(Echo, space, [None]), 2),
        ):
            pass
