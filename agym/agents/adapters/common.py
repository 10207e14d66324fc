"""Code that the adapters share: environments for synchronous libraries, random states, text.

::

    a library's thread     step(action) ........... result
                              |                       ^
    one loop for all          +-> agym.make_async ----+     many environments wait here at once
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeVar

import numpy as np

from agym import AsyncEnvs, make_async
from agym.api.options.environments import EnvLike
from agym.api.run import LoopThread
from agym.core.protocol.arguments import is_integer
from agym.core.protocol.typing import Options, Start
from agym.errors import ClosedError, UsageError, UsageTypeError

T = TypeVar("T")


class Step(NamedTuple):
    """The result of a step of one environment."""

    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Seat:
    """An agym environment for a library that calls ``reset`` and ``step`` and blocks.

    The environments of all seats run on one event loop in a separate thread, which starts with the
    first seat and ends with the last. So thousands of coroutine environments need one thread.

    Args:
        env: As for :func:`agym.make_async`.
        options: Options of agym, and keyword arguments for the environment.
        parse: Turns the model's text into an action; by default, the text is the action.
    """

    def __init__(
        self, env: EnvLike, options: Mapping[str, Any], parse: Callable[[str], Any] | None = None
    ) -> None:
        check_env_options(options, parse)
        self._parse = parse
        self._over = False
        self._thread = _shared.enter()
        try:
            self._envs, self._turn = _wait(self._thread, _open(env, options))
        except BaseException:
            _shared.leave()
            raise
        # Most of these libraries never close an environment.
        self._end = weakref.finalize(self, _close_later, self._envs, self._thread)

    @property
    def closed(self) -> bool:
        """Whether the environment is closed."""
        return not self._end.alive

    def reset(self, seed: int | None = None, options: Options | None = None) -> Start:
        """Start an episode, and wait for the first observation."""
        return _wait(self._open_thread(), self._reset(seed, options))

    def step(self, action: Any) -> Step:
        """Step the environment, and wait for the result."""
        return _wait(self._open_thread(), self._step(action))

    async def step_async(self, action: Any) -> Step:
        """Step the environment, from any event loop."""
        return await asyncio.wrap_future(self._open_thread().submit(self._step(action)))

    def close(self) -> None:
        """Close the environment. Idempotent."""
        if self._end.detach() is not None:
            try:
                _wait(self._thread, self._envs.aclose())
            finally:
                _shared.leave()

    def _open_thread(self) -> LoopThread:
        if self.closed:
            raise ClosedError("the environment is closed")
        return self._thread

    async def _reset(self, seed: int | None, options: Options | None) -> Start:
        async with self._turn:
            start = await self._envs[0].reset(seed=seed, options=options)
            self._over = False
        return start

    async def _step(self, action: Any) -> Step:
        if self._parse is not None:
            action = self._parse(action)
        # A library may start several steps at once: the lock runs them one after the other.
        async with self._turn:
            if self._over:
                raise UsageError("the episode is over: reset the environment")
            step = Step(*await self._envs[0].step(action))
            self._over = step.terminated or step.truncated
        return step


async def _open(env: EnvLike, options: Mapping[str, Any]) -> tuple[AsyncEnvs, asyncio.Lock]:
    envs = make_async(env, 1, **{"autoreset": "disabled", "output": "list", **options})
    return await envs, asyncio.Lock()


def _wait(thread: LoopThread, work: Coroutine[Any, Any, T]) -> T:
    if thread.is_current:
        work.close()
        raise UsageError(
            "an environment that itself steps environments through an adapter would wait for"
            " itself: use backend='thread' for the outer one"
        )
    return thread.submit(work).result()


def _close_later(envs: AsyncEnvs, thread: LoopThread) -> None:
    """Close an environment that is not referenced any more; a finalizer must not block."""
    if thread.is_alive:
        thread.submit(envs.aclose()).add_done_callback(lambda _: _shared.leave())


class _SharedThread:
    """A thread with an event loop, which runs as long as it has users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._pid = 0
        self._thread: LoopThread | None = None

    def enter(self) -> LoopThread:
        with self._lock:
            if self._thread is None or self._pid != os.getpid():  # threads do not survive a fork
                self._users, self._pid = 0, os.getpid()
                self._thread = LoopThread("agym-adapters")
            self._users += 1
            return self._thread

    def leave(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._thread is None:
                return
            thread, self._thread = self._thread, None
        thread.close()


_shared = _SharedThread()


class OwnRandom:
    """A separate state of Python's and NumPy's global random generators for an environment.

    Text games draw from the generators of the whole process. Environments that take turns would
    affect each other's draws, and forked workers would all draw the same numbers. With this around
    each call, an episode depends only on its seed::

        with own_random:
            env.step(action)

    Only one environment of a process can be inside such a block at a time.
    """

    def __init__(self) -> None:
        self._state: tuple[Any, Any] = (
            random.Random().getstate(),
            np.random.RandomState().get_state(),
        )
        self._outer: tuple[Any, Any] | None = None

    def __enter__(self) -> None:
        _drawing.acquire()
        self._outer = _get_state()
        _set_state(self._state)

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        self._state = _get_state()
        if self._outer is not None:
            _set_state(self._outer)
        self._outer = None
        _drawing.release()


_drawing = threading.Lock()


def _get_state() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()  # noqa: NPY002 -- the games use this generator


def _set_state(state: tuple[Any, Any]) -> None:
    random.setstate(state[0])
    np.random.set_state(state[1])  # noqa: NPY002


def check_env_options(
    options: Mapping[str, Any],
    parse: Any = None,
    *,
    num_envs: str = "the library makes the environments one by one",
) -> None:
    """Check the arguments that agym's environments have in every library.

    Args:
        options: For :func:`agym.make`; the adapter sets the number of environments.
        parse: Turns text into actions.
        num_envs: Why ``num_envs`` is not an option, for the message.

    Raises:
        UsageTypeError: ``parse`` is not callable, or ``num_envs`` is among the options.
    """
    check_function("parse", parse, "takes the model's text and returns an action, such as int")
    if "num_envs" in options:
        raise UsageTypeError(f"num_envs={options['num_envs']!r} isn't an option here: {num_envs}")


def check_function(name: str, value: Any, task: str) -> None:
    """Check an argument that must be a function or ``None``; ``task`` is for the message.

    Raises:
        UsageTypeError: It is something else.
    """
    if value is not None and not callable(value):
        raise UsageTypeError(f"{name}={value!r} must be a function that {task}, or None")


def check_new_id(name: str, value: Any, known: Iterable[str], library: str) -> None:
    """Check an id to register.

    Raises:
        UsageError: The id is in use.
        UsageTypeError: It is not a string.
    """
    if not isinstance(value, str):
        raise UsageTypeError(f"{name}={value!r} must be a string")
    if value in known:
        raise UsageError(f"{name}={value!r} is already registered with {library}: use another id")


def find_spec(env_id: Any, registry: Mapping[str, Any], library: str) -> Any:
    """Return the entry of a library's registry.

    Raises:
        UsageError: There is no such id.
        UsageTypeError: The id is not a string.
    """
    if not isinstance(env_id, str):
        raise UsageTypeError(f"env_id={env_id!r} must be a string, an id in {library}'s registry")
    if env_id in registry:
        return registry[env_id]
    if close := get_close_matches(env_id, registry, n=3):
        hint = f": did you mean {' or '.join(map(repr, close))}?"
    else:
        hint = f"; some of its {len(registry)} ids are {', '.join(sorted(registry)[:10])}"
    raise UsageError(f"env_id={env_id!r} is not registered with {library}{hint}")


def task_index(options: Mapping[str, Any] | None, num_tasks: int) -> int | None:
    """Return the index of ``options={"task": 3}`` of a reset, ``None`` without a task.

    Raises:
        UsageError: There is no such task.
    """
    index = (options or {}).get("task")
    if index is None:
        return None
    if not is_integer(index) or not 0 <= index < num_tasks:
        raise UsageError(f"options['task']={index!r} must be an integer from 0 to {num_tasks - 1}")
    return int(index)


def as_text(observation: Any) -> str:
    """Return an observation as text: a string, a chat's contents, or ``str(observation)``."""
    if isinstance(observation, str):
        return observation
    if is_chat(observation):
        return "\n".join(str(message["content"]) for message in observation)
    return str(observation)


def as_chat(observation: Any) -> list[dict[str, Any]]:
    """Return an observation as messages of a chat: itself, or one message of the user."""
    if is_chat(observation):
        return list(observation)
    return [{"role": "user", "content": as_text(observation)}]


def is_chat(observation: Any) -> bool:
    """Whether an observation is a list of messages, each with a role and a content."""
    return isinstance(observation, list) and all(
        isinstance(message, Mapping) and "role" in message and "content" in message
        for message in observation
    )
