"""Wrappers of single environments, computed for all rows of a twin with the same bits.

A layer stands for one wrapper around each environment. It keeps a row per environment of what the
wrapper keeps, such as the running mean of ``NormalizeObservation``.
"""

from __future__ import annotations

import dis
import sys
import time
from types import FunctionType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from agym.core.protocol.typing import Array


class Stepped(NamedTuple):
    """Rows of environments that were stepped.

    Attributes:
        ids: Their ids, or a slice, which is faster.
        observations: Their observations.
        rewards: Their rewards.
        terminated: Whether their episodes ended.
        over: Whether their episodes ended or were truncated.
    """

    ids: Array | slice
    observations: Any
    rewards: Array
    terminated: Array
    over: Array


class Layer:
    """The wrappers of one class around all environments.

    Attributes:
        wrapper: One of them, for its parameters.
        key: Its key in the infos of an episode's end, if it adds to them.
        columns: What the wrappers keep: arrays with a row per environment.
    """

    key: ClassVar[str] = ""

    def __init__(self, wrapper: Any, num_envs: int) -> None:
        self.wrapper = wrapper
        self.columns: list[Array] = []

    @classmethod
    def reason_unsupported(cls, wrapper: Any) -> str:
        """Return why a wrapper cannot be computed for all rows; ``""`` if it can."""
        return ""

    def actions(self, actions: Array) -> Array:
        """Return the actions of the environments below."""
        return actions

    def observe(self, ids: Array | slice, observations: Any) -> Any:
        """Return the observations of environments that were stepped or reset."""
        return observations

    def reward(self, rows: Stepped) -> Array:
        """Return the rewards of a step."""
        return rows.rewards

    def begun(self, ids: Array | slice, observations: Any) -> Any:
        """Return the observations of environments that were reset."""
        return self.observe(ids, observations)

    def stepped(self, rows: Stepped) -> Stepped:
        """Return the results of a step."""
        observations = self.observe(rows.ids, rows.observations)
        return rows._replace(observations=observations, rewards=self.reward(rows))

    def episodes(self, ended: Array) -> dict[str, Array]:
        """Return infos about the episodes of environments that ended."""
        return {}


class Actions(Layer):
    """``ClipAction`` and ``RescaleAction``, whose functions work on batches, too."""

    def actions(self, actions: Array) -> Array:
        return np.asarray(self.wrapper.func(actions))


class Observations(Layer):
    """``FlattenObservation`` and ``TransformObservation``, whose functions take one observation."""

    @classmethod
    def reason_unsupported(cls, wrapper: Any) -> str:
        return function_reason(wrapper) if type(wrapper).__name__.startswith("Transform") else ""

    def observe(self, ids: Array | slice, observations: Any) -> Any:
        parts = zip(*observations, strict=True) if isinstance(observations, tuple) else observations
        return np.stack([self.wrapper.func(observation) for observation in parts])


class Rewards(Layer):
    """``TransformReward``."""

    @classmethod
    def reason_unsupported(cls, wrapper: Any) -> str:
        return function_reason(wrapper)

    def reward(self, rows: Stepped) -> Array:
        return np.array([self.wrapper.func(each) for each in rows.rewards])


# The functions of NumPy that a function of the caller's may call, and the instructions that it may
# have, so that its result depends on its argument alone.
PURE = {"abs", "clip", "maximum", "minimum", "sign", "tanh"}
INSTRUCTIONS = {
    "RESUME", "CACHE", "PUSH_NULL", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "LOAD_FAST",
    "LOAD_FAST_BORROW", "LOAD_CONST", "LOAD_SMALL_INT", "PRECALL", "CALL", "RETURN_VALUE", "NOP",
}  # fmt: skip


def function_reason(wrapper: Any) -> str:
    """Return why the function of a wrapper may depend on more than its argument."""
    func = wrapper.func
    if isinstance(func, FunctionType) and func.__code__.co_argcount == 1:
        instructions = [*dis.get_instructions(func)]
        names = {*func.__code__.co_names}
        modules = {name for name in names if func.__globals__.get(name) is np}
        loads = [each.opname.startswith("LOAD_FAST") for each in instructions]
        plain = {each.opname for each in instructions} <= INSTRUCTIONS and sum(loads) == 1
        if plain and names - modules <= PURE:
            return ""
    return f"has a function that may do more than call NumPy's {', '.join(sorted(PURE))}"


class Moments:
    """Running means and variances, one per environment: Gymnasium's ``RunningMeanStd``.

    Attributes:
        mean: The means.
        var: The variances.
        count: The number of values.
    """

    def __init__(
        self, num_envs: int, shape: tuple[int, ...], dtype: Any, first: Any = 1e-4
    ) -> None:
        """Begin without values; ``first`` is the variance times the count of the beginning."""
        self._first = first
        self.mean = np.zeros((num_envs, *shape), dtype)
        self.var = np.ones((num_envs, *shape), dtype)
        self.count = np.full((num_envs, *[1] * len(shape)), 1e-4)

    def update(self, ids: Array | slice, values: Array) -> None:
        """Add a value for each of some environments, whose own variance is 0."""
        mean, var = self.mean[ids], self.var[ids]
        # Gymnasium's counts are Python's floats, which take the precision of the values.
        count, total = (c.astype(mean.dtype) for c in (self.count[ids], self.count[ids] + 1))
        delta = values - mean
        self.mean[ids] = mean + delta * 1 / total
        scaled = np.where(self.count[ids] < 1, self._first, var * count).astype(mean.dtype)
        self.var[ids] = (scaled + np.square(delta) * count * 1 / total) / total
        self.count[ids] += 1

    @property
    def columns(self) -> list[Array]:
        return [self.mean, self.var, self.count]


class NormalizedObservations(Layer):
    """``NormalizeObservation``."""

    def __init__(self, wrapper: Any, num_envs: int) -> None:
        super().__init__(wrapper, num_envs)
        space = wrapper.env.observation_space
        dtype = np.result_type(space.dtype, np.float32)
        # Gymnasium's variances are in single precision before the first value.
        self.moments = Moments(num_envs, space.shape, dtype, np.float32(1e-4))
        self.columns = self.moments.columns

    def observe(self, ids: Array | slice, observations: Any) -> Any:
        self.moments.update(ids, observations)
        var = self.moments.var[ids] + self.wrapper.epsilon
        return np.float32((observations - self.moments.mean[ids]) / np.sqrt(var))


class NormalizedRewards(Layer):
    """``NormalizeReward``."""

    def __init__(self, wrapper: Any, num_envs: int) -> None:
        super().__init__(wrapper, num_envs)
        self.moments, self.discounted = Moments(num_envs, (), float), np.zeros(num_envs)
        self.columns = [*self.moments.columns, self.discounted]

    def reward(self, rows: Stepped) -> Array:
        kept = self.discounted[rows.ids] * self.wrapper.gamma * (1 - rows.terminated)
        self.discounted[rows.ids] = kept + rows.rewards
        self.moments.update(rows.ids, self.discounted[rows.ids])
        var = self.moments.var[rows.ids] + self.wrapper.epsilon
        return np.asarray(rows.rewards / np.sqrt(var))


class Statistics(Layer):
    """``RecordEpisodeStatistics``."""

    def __init__(self, wrapper: Any, num_envs: int) -> None:
        super().__init__(wrapper, num_envs)
        self.key = getattr(wrapper, "_stats_key", "episode")  # type: ignore[misc]
        self.returns, self.lengths = np.zeros(num_envs), np.zeros(num_envs, np.int64)
        self.started = np.full(num_envs, time.perf_counter())
        self.columns = [self.returns, self.lengths, self.started]

    def begun(self, ids: Array | slice, observations: Any) -> Any:
        self.returns[ids], self.lengths[ids] = 0.0, 0
        self.started[ids] = time.perf_counter()
        return observations

    def reward(self, rows: Stepped) -> Array:
        self.returns[rows.ids] += rows.rewards
        self.lengths[rows.ids] += 1
        return rows.rewards

    def episodes(self, ended: Array) -> dict[str, Array]:
        took = np.round(time.perf_counter() - self.started[ended], 6)
        return {"r": self.returns[ended], "l": self.lengths[ended], "t": took}


class Monitored(Statistics):
    """Stable-Baselines3's ``Monitor``, which adds an episode's rewards at its end."""

    def __init__(self, wrapper: Any, num_envs: int) -> None:
        super().__init__(wrapper, num_envs)
        self.lost = np.zeros(num_envs)
        self.started[:] += wrapper.t_start - time.time()
        self.columns = [self.returns, self.lengths, self.lost]

    @classmethod
    def reason_unsupported(cls, wrapper: Any) -> str:
        plain = wrapper.results_writer is None and wrapper.allow_early_resets
        plain = plain and not (wrapper.reset_keywords or wrapper.info_keywords)
        return "" if plain else "writes a file, refuses early resets or has keywords"

    def begun(self, ids: Array | slice, observations: Any) -> Any:
        self.returns[ids], self.lengths[ids], self.lost[ids] = 0.0, 0, 0.0
        return observations

    def reward(self, rows: Stepped) -> Array:
        before, values = self.returns[rows.ids].copy(), rows.rewards
        super().reward(rows)
        if sys.version_info >= (3, 12):  # `sum` compensates rounding errors, as Neumaier does
            after, larger = self.returns[rows.ids], np.abs(before) >= np.abs(values)
            first, second = np.where(larger, (before, values), (values, before))
            self.lost[rows.ids] += (first - after) + second
        return values

    def episodes(self, ended: Array) -> dict[str, Array]:
        infos, sums = super().episodes(ended), self.returns[ended] + self.lost[ended]
        return {**infos, "r": np.array([round(each, 6) for each in sums.tolist()])}


# By the package and the class of a wrapper.
LAYERS: dict[tuple[str, str], type[Layer]] = {
    ("gymnasium", "ClipAction"): Actions,
    ("gymnasium", "RescaleAction"): Actions,
    ("gymnasium", "FlattenObservation"): Observations,
    ("gymnasium", "TransformObservation"): Observations,
    ("gymnasium", "TransformReward"): Rewards,
    ("gymnasium", "NormalizeObservation"): NormalizedObservations,
    ("gymnasium", "NormalizeReward"): NormalizedRewards,
    ("gymnasium", "RecordEpisodeStatistics"): Statistics,
    ("stable_baselines3", "Monitor"): Monitored,
}


def layer_of(wrapper: Any, num_envs: int) -> Layer:
    """Return the layer of a wrapper."""
    return LAYERS[name_of(wrapper)](wrapper, num_envs)


def reason_unsupported(wrapper: Any) -> str:
    """Return why there is no layer for a wrapper; ``""`` if there is one."""
    layer = LAYERS.get(name_of(wrapper))
    return (
        "is not among the wrappers of twins" if layer is None else layer.reason_unsupported(wrapper)
    )


def name_of(wrapper: Any) -> tuple[str, str]:
    """Return the package and the class of a wrapper."""
    return type(wrapper).__module__.partition(".")[0], type(wrapper).__qualname__
