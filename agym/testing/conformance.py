"""The conformance suite: what every backend must do, agym's own and third-party ones.

Subclass :class:`BackendConformance` in a test module and name the backend::

    class TestMyBackend(BackendConformance):
        backend = MyBackend

The oracle is the serial backend: for any spaces, the same seeds and actions must give the same
batches, bit by bit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import Space, spaces

from agym.api.make import make, make_async
from agym.api.options.options import Autoreset, BackendLike
from agym.core._system.extras import install_command
from agym.envs.probes import FaultyEnv, RandomEnv
from agym.errors import (
    BusyError,
    ClosedError,
    EnvError,
    MissingExtraError,
    ResetNeededError,
    UsageError,
)

try:
    import pytest
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import strategies as st
except ImportError as error:
    raise MissingExtraError(f"agym.testing needs: {install_command('test')}") from error

MODES = ("next_step", "same_step", "disabled")


def boxes() -> st.SearchStrategy[Space[Any]]:
    """Boxes of up to three dimensions and of the usual dtypes, bounded and not."""
    shapes = st.lists(st.integers(1, 4), max_size=3).map(tuple)

    def box(shape: tuple[int, ...], dtype: Any, bounded: bool) -> Space[Any]:
        if np.issubdtype(dtype, np.floating) and not bounded:
            return spaces.Box(-np.inf, np.inf, shape, dtype)
        return spaces.Box(0, 100, shape, dtype)

    dtypes = st.sampled_from([np.float32, np.float64, np.uint8, np.int64, np.int16])
    return st.builds(box, shapes, dtypes, st.booleans())


def simple_spaces() -> st.SearchStrategy[Space[Any]]:
    """Spaces that do not nest, with and without a fixed size."""
    counts = st.integers(1, 5)
    return st.one_of(
        boxes(),
        st.builds(lambda n, start: spaces.Discrete(n, start=start), counts, st.integers(-5, 5)),
        st.builds(spaces.MultiBinary, counts),
        st.builds(spaces.MultiDiscrete, st.lists(counts, min_size=1, max_size=3)),
        st.builds(spaces.Text, st.integers(1, 8)),
        st.just(spaces.Sequence(spaces.Box(0, 1, (2,)))),
        st.just(spaces.OneOf([spaces.Discrete(3), spaces.Box(0, 1, (2,))])),
    )


def any_spaces() -> st.SearchStrategy[Space[Any]]:
    """Spaces, nested up to three levels."""

    def nest(children: st.SearchStrategy[Space[Any]]) -> st.SearchStrategy[Space[Any]]:
        some = st.lists(children, min_size=1, max_size=3)
        named = some.map(lambda parts: spaces.Dict({f"key{i}": p for i, p in enumerate(parts)}))
        return st.one_of(some.map(spaces.Tuple), named)

    return st.recursive(simple_spaces(), nest, max_leaves=5)


def assert_same(ours: Any, theirs: Any) -> None:
    """Compare two results to the last bit: values, dtypes, nesting."""
    assert type(ours) is type(theirs)
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            assert_same(value, theirs[key])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    elif isinstance(ours, np.ndarray):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    else:
        assert ours == theirs or (ours != ours and theirs != theirs)


class AsCoroutine:
    """An ordinary environment as a coroutine environment. It blocks its loop: only for tests."""

    def __init__(self, factory: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        self._env = factory()

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment, a turn of the loop later."""
        await asyncio.sleep(0)
        return self._env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment, a turn of the loop later."""
        await asyncio.sleep(0)
        return self._env.step(action)

    async def render(self) -> Any:
        return self._env.render()

    async def close(self) -> None:
        self._env.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class BackendConformance:
    """The suite. Each test makes its environments on the subclass's backend.

    Attributes:
        backend: The backend.
        workers: Its number of workers.
        options: Other options of :func:`agym.make`, such as ``{"timeout": 60.0}``.
        coroutines: Whether the backend runs coroutine environments.
    """

    backend: ClassVar[BackendLike]
    workers: ClassVar[int] = 2
    options: ClassVar[Mapping[str, Any]] = {}
    coroutines: ClassVar[bool] = False

    # Examples of spaces per test and mode; fewer for backends that start slowly.
    examples: ClassVar[int] = 10

    def _make(self, env: Any, num_envs: int | None = None, **options: Any) -> Any:
        env = self._env(env)
        return make(env, num_envs, **{**self._backend_options(), **options})

    def _make_async(self, env: Any, num_envs: int | None = None, **options: Any) -> Any:
        env = self._env(env)
        return make_async(env, num_envs, **{**self._backend_options(), **options})

    def _env(self, env: Any) -> Any:
        """Convert environments to the kind that the backend takes."""
        if not self.coroutines:
            return env
        if isinstance(env, list):
            return [partial(AsCoroutine, factory) for factory in env]
        return partial(AsCoroutine, partial(gymnasium.make, env) if isinstance(env, str) else env)

    def _backend_options(self) -> dict[str, Any]:
        # From the class: a function must not become a method.
        return {"backend": type(self).backend, "workers": self.workers, **self.options}

    @pytest.mark.parametrize("mode", MODES)
    def test_batches_equal_those_of_serial(self, mode: Autoreset) -> None:
        """The same seeds and actions give the same batches, for any spaces."""

        @settings(
            max_examples=self.examples,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        )
        @given(any_spaces(), any_spaces(), st.integers(1, 5), st.integers(0, 1000))
        def compare(
            observation_space: Space[Any], action_space: Space[Any], num_envs: int, seed: int
        ) -> None:
            env = partial(RandomEnv, observation_space, action_space)
            with (
                self._make(env, num_envs, autoreset=mode) as ours,
                make(env, num_envs, backend="serial", autoreset=mode) as theirs,
            ):
                assert_same(ours.reset(seed=seed), theirs.reset(seed=seed))
                ours.action_space.seed(seed)
                for _ in range(15):
                    actions = ours.action_space.sample()
                    assert_same(ours.step(actions), theirs.step(actions))
                assert ours.render() == theirs.render()
                some = list(range(0, num_envs, 2))
                options = {"difficulty": seed}
                assert_same(
                    ours.reset(seed=seed, options=options, env_ids=some),
                    theirs.reset(seed=seed, options=options, env_ids=some),
                )

        compare()

    @pytest.mark.parametrize("mode", MODES)
    def test_async_api_equals_sync_api(self, mode: Autoreset) -> None:
        """Both APIs return the same arrays."""

        async def rounds(seed: int) -> list[Any]:
            async with self._make_async("CartPole-v1", 5, autoreset=mode) as envs:
                envs.action_space.seed(seed)
                reset = await envs.reset(seed=seed)
                steps = [await envs.step(envs.action_space.sample()) for _ in range(60)]
                return [reset, *steps]

        with self._make("CartPole-v1", 5, autoreset=mode, output="array") as envs:
            envs.action_space.seed(3)
            reset = envs.reset(seed=3)
            steps = [envs.step(envs.action_space.sample()) for _ in range(60)]
        assert_same(asyncio.run(rounds(3)), [reset, *steps])

    @pytest.mark.parametrize("mode", MODES)
    def test_sent_steps_are_received_once(self, mode: Autoreset) -> None:
        """In batches of any environments, each row equals that of serial's plain step."""
        env = partial(RandomEnv, spaces.Dict(a=spaces.Box(0, 1, (2,)), b=spaces.Text(4)))
        env = partial(env, spaces.Discrete(3))
        with (
            self._make(env, 5, autoreset=mode) as ours,
            make(env, 5, backend="serial", autoreset=mode) as theirs,
        ):
            ours.reset(seed=3)
            theirs.reset(seed=3)
            for k in range(30):
                actions = [(k + i) % 3 for i in range(5)]
                wanted = theirs.step(actions)
                ours.send(actions)
                received = []
                for batch in ours.as_completed(min_envs=2, max_envs=3):
                    for row, i in enumerate(batch.env_ids):
                        got = [column[row] for column in batch[1:]]
                        assert_same(got, [column[i] for column in wanted])
                    received += batch.env_ids
                assert sorted(received) == [0, 1, 2, 3, 4]

    def test_an_environment_that_raises_is_received_as_an_error(self) -> None:
        """The error is received once, and the other environments as usual."""
        faulty: list[Callable[[], gymnasium.Env[Any, Any]]] = [FaultyEnv] * 4
        faulty[2] = partial(FaultyEnv, fail_in="step")
        for workers in (1, 4):
            with self._make(faulty, workers=workers) as envs:
                envs.reset()
                envs.send([0, 0, 0, 0])
                received: list[int] = []
                errors: list[int] = []
                while len(received) < 3 or not errors:
                    try:
                        received += envs.recv().env_ids
                    except EnvError as error:
                        errors.append(error.env_id)
                assert sorted(received) == [0, 1, 3]
                assert errors == [2]
                with pytest.raises(UsageError):
                    envs.recv()

    def test_operations_of_one_environment_keep_their_order(self) -> None:
        """Step, render, reset and render again, all dispatched before any is awaited."""

        async def main() -> None:
            env = partial(RandomEnv, spaces.Discrete(3), spaces.Discrete(2))
            async with self._make_async(env, 4, autoreset="disabled") as envs:
                await envs.reset(seed=0)
                pending: Sequence[Any] = [
                    envs.step(envs.action_space.sample()),
                    envs.render(),
                    envs.reset(seed=1),
                    envs.render(),
                ]
                results = [await one for one in pending]
                assert results[1] == ["step 1"] * 4
                assert results[3] == ["step 0"] * 4

        asyncio.run(main())

    def test_attributes_and_methods(self) -> None:
        """Values are returned as lists, methods are called, assignments stay."""
        with self._make("CartPole-v1", 3) as envs:
            envs.reset(seed=0)
            assert envs.unwrapped.gravity == [9.8] * 3
            envs.set_attr("gravity", [1.0, 2.0, 3.0])
            assert envs.get_attr("gravity") == [1.0, 2.0, 3.0]
            assert len(envs.call("get_wrapper_attr", "length")) == 3
            with pytest.raises(AttributeError):
                envs.get_attr("no_such_thing")

    @pytest.mark.parametrize("operation", ["reset", "step", "render"])
    def test_an_environment_that_raises_spoils_no_other(self, operation: str) -> None:
        """The error names the environment; all go on after a reset of it."""
        faulty: list[Callable[[], gymnasium.Env[Any, Any]]] = [FaultyEnv] * 4
        faulty[2] = partial(FaultyEnv, fail_in=operation)
        with self._make(faulty) as envs:

            def go() -> None:
                envs.reset()
                envs.step([0, 0, 0, 0])
                envs.render()

            with pytest.raises(EnvError) as caught:
                go()
            assert (caught.value.env_id, caught.value.operation) == (2, operation)
            envs.set_attr("fail_in", None)
            if operation != "render":
                with pytest.raises(ResetNeededError, match="environment 2"):
                    envs.step([0, 0, 0, 0])
            envs.reset(env_ids=[2])
            envs.step([0, 0, 0, 0])
            steps = 1 if operation == "reset" else 2
            assert envs.get_attr("steps") == [steps, steps, 1, steps]

    def test_a_constructor_that_raises(self) -> None:
        """The error names the environment."""
        with pytest.raises(EnvError) as caught:
            self._make([FaultyEnv, partial(FaultyEnv, fail_in="make"), FaultyEnv])
        assert (caught.value.env_id, caught.value.operation) == (1, "make")

    def test_bad_actions_are_refused_before_anything_is_sent(self) -> None:
        with self._make(FaultyEnv, 3) as envs:
            with pytest.raises(ResetNeededError):
                envs.step([0, 0, 0])
            envs.reset()
            for actions in ([0, 0], [0, 0, 0, 0], [0.5, 0.5, 0.5], [[0], [0], [0]], 0, "abc"):
                with pytest.raises(UsageError):
                    envs.step(actions)
            assert envs.get_attr("steps") == [0, 0, 0]

    def test_two_steps_in_flight_are_refused(self) -> None:
        """The second raises unless the first has ended; neither is lost or doubled."""

        async def main() -> None:
            async with self._make_async(FaultyEnv, 3) as envs:
                await envs.reset()
                taken = 0
                for _ in range(20):
                    first = envs.step([0, 0, 0])
                    taken += 1
                    try:
                        await envs.step([0, 0, 0])
                        taken += 1
                    except BusyError:
                        pass
                    await first
                assert await envs.get_attr("steps") == [taken] * 3

        asyncio.run(main())

    def test_a_sent_step_excludes_others_until_it_is_received(self) -> None:
        """Even if it has ended; resets, renders and calls run after it."""

        async def main() -> None:
            async with self._make_async(FaultyEnv, 3, autoreset="disabled") as envs:
                await envs.reset()
                for ended in (False, True):
                    envs.send([0, 0], [2, 0])
                    if ended:
                        await envs.render()
                    for dispatch in (
                        partial(envs.step, [0, 0, 0]),
                        partial(envs.step, [0], env_ids=[2]),
                        partial(envs[0].step, 0),
                        partial(envs.send, [0, 0], [0, 1]),
                    ):
                        with pytest.raises(BusyError, match=r"environment [02].*recv"):
                            dispatch()
                    await envs.reset(env_ids=[0])
                    with pytest.raises(BusyError, match="environment 0"):
                        envs.step([0, 0, 0])
                    await envs.step([0], env_ids=[1])
                    batch = await envs.recv(min_envs=2)
                    assert sorted(batch.env_ids.tolist()) == [0, 2]
                    await envs.step([0, 0, 0])
                assert await envs.get_attr("steps") == [1, 4, 4]

        asyncio.run(main())

    def test_calls_that_name_no_environment_do_nothing(self) -> None:
        """They return what there is, in the usual form."""
        with self._make("CartPole-v1", 3, output="array") as envs:
            reset = envs.reset(seed=0)
            assert_same(envs.reset(env_ids=[]), reset._replace(infos=[{}, {}, {}]))
            some = envs.step([1], env_ids=[0])
            step = envs.step([], env_ids=[])
            for none, one in zip(step[:4], some[:4], strict=True):
                assert (none.shape, none.dtype) == ((0, *one.shape[1:]), one.dtype)
            assert step.infos == envs.render(env_ids=[]) == envs.restart(env_ids=[]) == []
            envs.send([], [])
            with pytest.raises(UsageError):
                envs.step([1], env_ids=[])
            with pytest.raises(UsageError):
                envs.reset(seed=[1], env_ids=[])
            with pytest.raises(UsageError):
                envs.recv()

    def test_close_is_final_and_idempotent(self) -> None:
        """Also while operations are in flight."""

        async def main() -> None:
            envs = await self._make_async("CartPole-v1", 4)
            envs.reset(seed=0)
            await envs.aclose()
            await envs.aclose()
            with pytest.raises(ClosedError):
                envs.reset()

        asyncio.run(main())
