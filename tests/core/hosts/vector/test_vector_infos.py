"""Infos of a vector environment reach the Gymnasium API as they are, and all others as dicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import agym
from agym.core.engine.hooks import Hook
from tests.support.envs.vector_envs import Tally
from tests.support.insides import engine_of

COUNT = 3


class Telling(Tally):
    """Tells whatever ``told`` makes of its steps, in arrays that it uses again."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP}  # noqa: RUF012
    told: Any = staticmethod(lambda steps: {})

    def step(self, actions: Any) -> Any:
        *result, _ = super().step(actions)
        return (*result, self.told(self.steps))


def telling(told: Any) -> type[Telling]:
    return type("Telling", (Telling,), {"told": staticmethod(told)})


def steps_of(cls: type, steps: int = 8, **options: Any) -> list[dict[str, Any]]:
    """Return the infos of some steps, all of them kept until the end."""
    envs = agym.make_vec(cls, COUNT, backend="vector", **options)
    envs.reset(seed=0)
    infos = [envs.step([1] * COUNT)[4] for _ in range(steps)]
    envs.close()
    return infos


def test_arrays_keep_their_dtypes_and_get_the_masks_that_they_lack() -> None:
    def told(steps: Any) -> Any:
        odd = steps % 2 == 1
        return {"a": steps.astype(np.float32), "b": steps, "_b": odd, "c": {"d": steps[:, None]}}

    for info in steps_of(telling(told)):
        assert info.keys() == {"a", "_a", "b", "_b", "c", "_c"}
        assert info["a"].dtype == np.float32
        assert info["_a"].all()
        assert info["_c"].all()
        assert (info["_b"] == (info["b"] % 2 == 1)).all()
        assert info["c"].keys() == {"d", "_d"}
        assert info["c"]["d"].shape == (COUNT, 1)


def test_later_steps_change_nothing_that_was_returned() -> None:
    """The program writes every step into the same array."""
    first, second, *_ = steps_of(telling(lambda steps: {"a": steps, "o": steps.astype(object)}))
    assert first["a"].tolist() == first["o"].tolist() == [1] * COUNT
    assert second["a"].tolist() == second["o"].tolist() == [2] * COUNT


def test_what_the_caller_writes_into_infos_is_in_no_snapshot() -> None:
    class Resumable(telling(lambda steps: {"a": steps})):  # type: ignore[misc]
        def get_state(self, index: int) -> Any:
            return int(self.steps[index])

        def set_state(self, index: int, state: Any) -> None:
            self.steps[index] = state

    envs = agym.make_vec(Resumable, COUNT, backend="vector")
    assert isinstance(envs, agym.AgymVectorEnv)
    envs.reset(seed=0)
    envs.step([1] * COUNT)[4]["a"][:] = 99
    _, infos = envs.runner.restore(envs.runner.snapshot())
    assert [info["a"] for info in infos] == [1] * COUNT
    envs.close()


@pytest.mark.parametrize(
    "told",
    [
        lambda steps: {"one": 5, "a": steps},
        lambda steps: {"cost": steps.astype(float), "a": steps},
        lambda steps: {"text": ["x"] * COUNT, "a": steps},
    ],
    ids=["one value for all", "a cost", "a list"],
)
def test_other_infos_are_batched_environment_by_environment(told: Any) -> None:
    for k, info in enumerate(steps_of(telling(told), 2), 1):
        assert info["a"].tolist() == [k] * COUNT
        for key in info.keys() - {"a"}:
            assert len(info[key]) == COUNT


def test_the_runner_and_hooks_have_a_dict_for_each_environment() -> None:
    seen: list[Any] = []

    class Seeing(Hook):
        def after_step(self, number: int | None, ids: Any, result: Any) -> None:
            seen.append([dict(info) for info in result.infos])

    cls = telling(lambda steps: {"a": steps, "cost": np.ones(COUNT)})
    infos = [{"a": k, "cost": 1.0} for k in range(1, 4)]
    with agym.make(cls, COUNT, backend="vector", autoreset="next_step") as envs:
        envs.reset(seed=0)
        engine_of(envs).hooks.add(Seeing())
        assert envs.step([1] * COUNT).infos == [infos[0]] * COUNT
        envs.send([1] * COUNT)
        assert envs.recv(COUNT).infos == [infos[1]] * COUNT
        assert seen == [[infos[0]] * COUNT, [infos[1]] * COUNT]
        envs.send([1] * COUNT)
        parts = envs.recv(1, max_envs=1), envs.recv(COUNT)
        assert [info for part in parts for info in part.infos] == [infos[2]] * COUNT
        assert envs.stats().cost == 3 * COUNT
