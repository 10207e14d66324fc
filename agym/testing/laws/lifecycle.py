"""Making and closing."""

from __future__ import annotations

import tempfile

import pytest

from agym.errors import AgymErrorGroup, ClosedError, EnvError
from agym.testing.laws.law import law
from agym.testing.scripted import Script
from agym.testing.worlds import World


@law("single")
def closing_closes_each_environment(world: World) -> None:
    """Each is closed once, also after an error or with steps in flight; closing is idempotent."""
    with world.open(3) as envs:
        envs.reset()
        envs.send([0, 0, 0])
        envs.close()
        envs.close()
        assert envs.script.closed() == [0, 1, 2]


@law()
def calls_after_closing_are_refused(world: World) -> None:
    """Each call raises the same error, which says that the environments are closed."""
    with world.open(2) as envs:
        envs.reset()
        envs.close()
        for call in (envs.reset, envs.render, lambda: envs.step([0, 0])):
            with pytest.raises(ClosedError):
                call()


@law("single")
def an_environment_that_raises_in_close_is_reported(world: World) -> None:
    """The other environments are closed."""
    with world.open(3) as envs:
        envs.script.set(1, "close", "raise")
        with pytest.raises(EnvError) as caught:
            envs.close()
        assert (caught.value.env_id, caught.value.operation) == (1, "close")
        assert envs.script.closed() == [0, 2]


@law("single")
def a_constructor_that_raises_is_reported(world: World) -> None:
    """The error names the environments; no worker stays alive."""
    with tempfile.TemporaryDirectory() as folder:
        script = Script(folder)
        for i in (1, 2):
            script.set(i, "make", "raise")
        factories = script.factories(4, coroutines=world.kind == "coroutine")
        with pytest.raises((EnvError, AgymErrorGroup)) as caught, world.open_envs(factories):
            pass
        assert getattr(caught.value, "env_ids", ()) in ((1,), (1, 2))
