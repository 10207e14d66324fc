"""Making and closing."""

from __future__ import annotations

import tempfile
from functools import partial

import pytest

from agym.errors import AgymErrorGroup, ClosedError, EnvError
from agym.testing.laws.law import law, rows
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
        calls = [envs.reset, envs.render, lambda: envs.step([0, 0])]
        if "single" in world.has:
            envs.send([0, 0])
            calls += [partial(envs.call, "add", 1), partial(envs.get_attr, "value")]
            calls += [partial(call, env_ids=[]) for call in (envs.reset, envs.render, envs.restart)]
            calls += [partial(envs.set_attr, "value", 1), envs[0].reset, partial(envs[0].step, 0)]
            calls += [envs.recv, lambda: envs.send([0, 0])]
        envs.close()
        for call in calls:
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
        errors = getattr(caught.value, "exceptions", [caught.value])
        assert [(error.env_id, error.operation) for error in errors] in (
            [(1, "make")],
            [(1, "make"), (2, "make")],
        )


@law("single")
def one_environment_can_be_closed(world: World) -> None:
    """It finishes what was sent before; later uses of it raise, and the others go on."""
    with world.open(3, length=9) as envs:
        envs.reset()
        envs.send([1, 2, 3])
        assert envs[1].close() is envs[1].close() is None
        assert sorted(rows(envs.recv(min_envs=3))) == [[i, 1, 1 + i] for i in range(3)]
        for use in (
            envs[1].reset,
            envs[1].render,
            partial(envs[1].step, 0),
            envs.reset,
            envs.render,
            partial(envs.step, [0, 0, 0]),
            partial(envs.send, [0], [1]),
        ):
            with pytest.raises(ClosedError, match="environment 1"):
                use()
        assert envs.step([4, 5], env_ids=[0, 2]).observations[:, 2].tolist() == [2, 2]
        assert envs.reset(env_ids=[0]).observations[0, 1] == 2
        envs.send([6], [2])
        assert rows(envs.recv()) == [[2, 3, 6]]
        assert envs.script.closed() == [1]


@law("single")
def a_handle_that_raises_in_close_is_reported_once(world: World) -> None:
    """Closing all environments afterwards does not raise again."""
    with world.open(3) as envs:
        envs.script.set(1, "close", "raise")
        with pytest.raises(EnvError, match="environment 1") as caught:
            envs[1].close()
        assert (caught.value.env_id, caught.value.operation) == (1, "close")
