"""What programs promise, whatever the environment does: errors as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import agym
from agym.testing import ScriptedEnv


class Exhausted(ScriptedEnv):
    """Draws from an iterator that has ended, except in resets with a seed."""

    def method(self) -> Any:
        return next(iter(()))

    attribute = property(method)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        if seed is None:
            self.method()
        return super().reset(seed=seed, options=options)


CALLS: dict[str, Callable[[agym.Envs], object]] = {
    "reset": lambda envs: envs.reset(),
    "autoreset": lambda envs: [envs.step([0]) for _ in range(4)],
    "call": lambda envs: envs.call("method"),
    "attribute": lambda envs: envs.get_attr("attribute"),
    "attribute by call": lambda envs: envs.call("attribute"),
}


@pytest.mark.parametrize("backend", ["serial", "thread"])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("call", CALLS)
def test_a_stop_iteration_is_reported_as_it_is(backend: Any, autoreset: str, call: str) -> None:
    """Python turns one into a RuntimeError where it leaves a generator."""
    with agym.make(Exhausted, 1, backend=backend, autoreset=autoreset) as envs:
        envs.reset(seed=0)
        with pytest.raises(agym.EnvError, match="StopIteration") as caught:
            CALLS[call](envs)
    assert isinstance(caught.value.exception, StopIteration)
