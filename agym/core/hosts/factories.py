"""Factories of environments, and the kind of environment that they make."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

# Makes a ``gymnasium.Env`` or an ``agym.AsyncEnv``.
Factory = Callable[[], Any]
Factories = Sequence[Factory]

# Messages of asyncio, sniffio and anyio for a missing event loop.
NO_LOOP = (
    "no running event loop",
    "not in async context",
    "Not currently running on any asynchronous event loop",
)


def is_coroutine_env(env: Any) -> bool:
    """Return whether an environment, or its class, has an ``async def step``."""
    return inspect.iscoroutinefunction(getattr(env, "step", None))


def innermost(factory: Any) -> Any:
    """Unwrap ``partial`` objects."""
    while isinstance(factory, partial):
        factory = factory.func
    return factory


def describe_first(factories: Sequence[Factory]) -> tuple[bool, list[Factory]]:
    """Make the first environment without an event loop, to find out the kind of all of them.

    A constructor that requires a running loop is assumed to belong to a coroutine environment, and
    is called again on the loop when the other environments are made.

    Returns:
        Whether they are coroutine environments; and the factories, the first of which now returns
        the environment that was made, or raises the exception of its constructor.
    """
    first, *others = factories
    if is_coroutine_env(innermost(first)):
        return True, [*factories]
    with warnings.catch_warnings():
        # From coroutines that a constructor created but could not run without a loop.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        try:
            env = first()
        except BaseException as error:
            if needs_loop(error):
                on_loop = partial(_make_on_loop, first, error.with_traceback(None))
                return True, [OneShotFactory(on_loop, first), *others]
            return False, [partial(reraise, error), *others]
    return is_coroutine_env(env), [OneShotFactory(lambda: env, first), *others]


def needs_loop(error: BaseException) -> bool:
    """Return whether an exception was raised because no event loop runs."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in NO_LOOP)


def _make_on_loop(factory: Factory, error: BaseException) -> Any:
    """Make a coroutine environment; raise the earlier error if it is a plain one."""
    env = factory()
    if not is_coroutine_env(env):
        raise error
    return env


class LooseSpaceFactory:
    """A factory whose environments may differ in the bounds of their observations."""

    loose_spaces = True

    def __init__(self, factory: Factory) -> None:
        self.wrapped = factory

    def __call__(self) -> Any:
        return self.wrapped()


class OneShotFactory:
    """A factory that returns an existing environment once, and makes new ones afterwards.

    Attributes:
        first: Returns the existing one; empty afterwards.
        wrapped: Makes the new ones.
    """

    def __init__(self, first: Factory, factory: Factory) -> None:
        """Call ``first`` once, whether it returns or raises, then ``factory``."""
        self.first = [first]
        self.wrapped = factory
        self.loose_spaces = getattr(factory, "loose_spaces", False)

    def __call__(self) -> Any:
        return self.first.pop()() if self.first else self.wrapped()


def released(factory: Factory) -> Factory:
    """Close the existing environment of a factory, and return the factory of new ones.

    A coroutine environment is not closed, because that needs an event loop.
    """
    while isinstance(factory, OneShotFactory):
        if factory.first:
            with contextlib.suppress(Exception):
                env = factory.first.pop()()
                if not is_coroutine_env(env):
                    env.close()
        factory = factory.wrapped
    return factory


def plain_factory(factory: Factory) -> Factory:
    """Return the factory of new environments, of one that returns an existing one once."""
    while isinstance(factory, OneShotFactory):
        factory = factory.wrapped
    return factory


def reraise(error: BaseException) -> Any:
    """Raise the exception of a constructor."""
    raise error
