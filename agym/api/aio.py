"""The async API: every call is dispatched at once and returns an awaitable."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Self, TypeVar

from gymnasium import Space

from agym.api.base import BaseEnvs, T, is_own, suggest
from agym.api.handles import Handle
from agym.api.output import Output
from agym.api.waiting import AsyncWaiter, close_quickly
from agym.core.backends.port import Force
from agym.core.engine.batches.results import Batch, ResetResult, StepResult
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.engine import Engine
from agym.core.engine.life import NOT_OPEN
from agym.core.engine.snapshots import Snapshot
from agym.core.protocol.arguments import check_batch_size, parse_env_ids
from agym.core.protocol.messages.operations import Call, GetAttr, Message, Render, SetAttr, Step
from agym.core.protocol.typing import Action, Actions, Flags, Observation, Observations, Rewards
from agym.errors import AgymError, NothingSentError, UsageError, UsageTypeError

U = TypeVar("U")

# The ticket of steps that had finished when their dispatch returned.
ENDED = Ticket(0, Step(0), ())
ENDED.finish()

# How long an event loop in a daemon thread may take to stop when the interpreter shuts down.
LEAVE_SECONDS = 1.0


class Pending(Coroutine[Any, Any, T], Generic[T]):
    """The result of a dispatched call. Await it at once, later, several times, or never.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 2) as envs:
        ...         pending = envs.reset(seed=0)
        ...         observations, infos = await pending
        ...         return pending.done()
        >>> agym.run(main())
        True

    It is a coroutine, so ``asyncio.gather``, ``asyncio.wait_for`` and ``TaskGroup.create_task``
    accept it. Cancelling the await does not cancel the operation.
    """

    __slots__ = ("_awaits", "_envs", "_ticket", "_value", "_wrap")

    def __init__(
        self,
        envs: AsyncEnvs[Any, Any],
        ticket: Ticket,
        wrap: Callable[[Any], T] | None,
        value: Any = None,
    ) -> None:
        """Await ``ticket``; ``value`` is the result if the ticket is ``ENDED``."""
        self._envs = envs
        self._ticket = ticket
        self._wrap = wrap
        self._value = value
        # One generator per task, because several tasks may run this as a coroutine.
        self._awaits: dict[Any, Generator[Any, None, T]] | None = None

    def __await__(self) -> Generator[Any, None, T]:
        ticket, envs = self._ticket, self._envs
        waiter = envs._waiter
        if not ticket.done or waiter.hooks.all:
            yield from waiter.wait(ticket)
        elif time.perf_counter() > waiter.turn_at:
            yield from waiter.let_loop_turn()
        if envs._notices:
            envs._warn()
        if ticket.error is not None:
            raise ticket.error
        value: T = self._value if ticket is ENDED else ticket.value
        return value if self._wrap is None else self._wrap(value)

    if not TYPE_CHECKING:  # type checkers report these by themselves

        def __iter__(self) -> NoReturn:
            raise UsageTypeError(self._not_awaited())

        def __getitem__(self, _: Any) -> NoReturn:
            raise UsageTypeError(self._not_awaited())

        def __getattr__(self, name: str) -> NoReturn:
            why = "" if name.startswith("_") else f": {self._not_awaited()}"
            raise AttributeError(f"Pending has no attribute {name!r}{why}")

    def _not_awaited(self) -> str:
        name = self._ticket.message.name
        return f"the result of {name} was not awaited: write `await envs.{name}(...)`"

    def map(self, function: Callable[[T], U]) -> Pending[U]:
        """Return the same operation with another result, which the function makes from this one."""
        wrap = self._wrap

        def both(value: Any) -> U:
            return function(value if wrap is None else wrap(value))

        return Pending(self._envs, self._ticket, both, self._value)

    def done(self) -> bool:
        """Whether the operation has finished, with a result or an error."""
        return self._envs._waiter.ready(self._ticket)

    def send(self, value: Any) -> Any:
        """Continue as the coroutine of a task."""
        return self._run("send", value)

    def throw(self, *error: Any) -> Any:
        """Raise an error inside the coroutine of a task."""
        return self._run("throw", *error)

    def _run(self, method: str, *arguments: Any) -> Any:
        task = asyncio.current_task()
        awaits = self._awaits = self._awaits or {}
        steps = awaits.get(task)
        if steps is None:
            steps = awaits[task] = self.__await__()
        try:
            return getattr(steps, method)(*arguments)
        except BaseException:  # including StopIteration, which carries the result
            del awaits[task]
            raise

    def close(self) -> None:
        """Stop waiting; the operation goes on."""
        awaits, self._awaits = self._awaits or {}, None
        for steps in awaits.values():
            steps.close()


class AsyncEnvs(BaseEnvs[Observations, Actions, Rewards, Flags]):
    """A batch of environments for async code; made by :func:`agym.make_async`.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 2) as envs:
        ...         await envs.reset(seed=0)
        ...         pending = envs.step([0, 1])  # dispatched; now compute something else
        ...         observations, rewards, terminated, truncated, infos = await pending
        ...         return rewards
        >>> agym.run(main())
        array([1., 1.])

    Open them with ``async with agym.make_async(...) as envs:`` or
    ``envs = await agym.make_async(...)``. ``reset``, ``step``, ``render`` and ``call`` are plain
    methods, which check their arguments, dispatch the operation, and return an awaitable.
    Operations on one environment run in the order in which they were dispatched.

    ``AsyncEnvs[Observations, Actions]`` names the types of a batch; see :class:`agym.Envs`.
    """

    _waiter: AsyncWaiter

    def __init__(self, engine: Engine, output: Output) -> None:
        super().__init__(engine, output)
        self._waiter = AsyncWaiter(engine)
        self._opening: Ticket | None = None
        self._saved: list[Snapshot] | None = None  # restored when the environments are opened
        self._opening_lock, self._closing = asyncio.Lock(), asyncio.Lock()
        # The event loop that the environments belong to, and its thread.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.get_ident()

    def _check_loop_and_thread(self) -> None:
        """Refuse a caller that is not on the loop that the environments belong to.

        Raises:
            UsageError: Another loop runs, or this is another thread.
        """
        loop = asyncio._get_running_loop()
        if loop is self._loop is not None:
            return
        thread = threading.get_ident()
        if self._loop is None or self._loop.is_closed():
            if loop is not None:
                self._loop, self._thread = loop, thread
        elif loop is not None or thread != self._thread:
            caller = "another event loop" if loop is not None else "another thread"
            raise UsageError(
                f"{self!r} belongs to the event loop that it was opened on, and was used from"
                f" {caller}: make environments there, or submit the work to the first loop with"
                " asyncio.run_coroutine_threadsafe"
            )

    def __await__(self) -> Generator[Any, None, Self]:
        """Make the environments, without blocking the loop."""
        return self._open().__await__()

    async def _open(self) -> Self:
        self._check_loop_and_thread()
        if asyncio._get_running_loop() is None and self._opening is None:
            raise UsageError(
                "agym.make_async needs a running asyncio event loop, and there is none here (trio's"
                " doesn't work): use agym.run(main()) or asyncio.run(main()), or make the"
                " environments with agym.make, which needs no loop"
            )
        async with self._opening_lock:  # a second task waits for the first
            if self._opening is not None:
                self._opening.result()  # raises if the first task failed
                return self
            self._opening = self._life.open()
            try:
                await self._waiter.wait(self._opening)
                self._opening.result()
                self._describe()
                if self._saved is not None:
                    await self.restore(self._saved)
            except BaseException:
                with contextlib.suppress(AgymError):
                    await self.aclose()
                raise
        return self

    async def __aenter__(self) -> Self:
        return await self

    if not TYPE_CHECKING:  # type checkers report these by themselves

        def __enter__(self) -> NoReturn:
            raise UsageTypeError(
                "the environments of agym.make_async are opened with `async with` or `await`, not"
                " `with`: use one of these, or agym.make(...)"
            )

        def __exit__(self, *_: object) -> None:
            """Exist, since ``with`` looks it up before it calls ``__enter__``."""

    async def __aexit__(self, kind: object, error: BaseException | None, where: object) -> None:
        """Close; an error of the block takes precedence over errors of closing."""
        # After Ctrl-C, SystemExit or a cancelled task, the program is about to end.
        fast = error is not None and not isinstance(error, Exception)
        with contextlib.suppress(*() if error is None else (AgymError,)):
            await self._aclose(fast=fast)

    def _call(
        self, wrap: Callable[[Any], T], begin: Callable[..., Ticket], *arguments: Any
    ) -> Pending[T]:
        """Start an operation; awaiting it returns its result converted by ``wrap``."""
        self._check_loop_and_thread()
        return Pending(self, begin(*arguments), wrap)

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        *,
        env_ids: Sequence[int] | None = None,
        out: Any = None,
    ) -> Pending[ResetResult[Observations]]:
        """Reset all environments, or some of them; see :meth:`agym.Envs.reset`."""
        return self._call(self._format.reset, self._begin_reset, seed, options, env_ids, out)

    def step(
        self, actions: Actions, *, env_ids: Sequence[int] | None = None, out: Any = None
    ) -> Pending[StepResult[Observations, Rewards, Flags]]:
        """Step all environments, or some of them; see :meth:`agym.Envs.step`.

        Raises:
            UsageError: When called: wrong number, shape or dtype of actions; nothing was sent.
            BusyError: When called: an environment's last step is still in flight, or was sent and
                not received.
            ResetNeededError: When called: an environment was not reset, or raised.
        """
        engine, wrap = self._engine, self._format.step if self._format.converts else None
        if asyncio._get_running_loop() is not self._loop or self._loop is None:
            self._check_loop_and_thread()
        if env_ids is not None or self._ids is not None:
            env_ids = self._global(env_ids)
        elif engine.step_inline is not None and out is None:
            outcome = engine.step_inline(actions)
            if outcome is not None:
                if isinstance(outcome, Ticket):
                    return Pending(self, outcome, wrap)
                return Pending(self, ENDED, wrap, outcome)
        if out is not None:
            out = self._format.check_out(out)
        return Pending(self, engine.step(actions, env_ids, out), wrap)

    def send(self, actions: Actions, env_ids: Sequence[int] | None = None) -> None:
        """Start a step of all environments, or some of them; see :meth:`agym.Envs.send`."""
        self._check_loop_and_thread()
        self._engine.send(actions, self._global(env_ids), self._ready)

    async def recv(
        self, min_envs: int = 1, max_envs: int | None = None, timeout: float | None = None
    ) -> Batch[Observations, Rewards, Flags]:
        """Wait until some of the sent environments have finished; see :meth:`agym.Envs.recv`.

        A cancelled call loses no results: the next call returns them.
        """
        check_batch_size(min_envs, max_envs, timeout)
        end = None if timeout is None else time.monotonic() + timeout
        batch: Batch | None = None
        # During the wait, another task may receive the results that this one waited for: then
        # ``receive`` returns ``None``, and this task waits again.
        while batch is None:
            self._check_loop_and_thread()
            receiver = self._engine.expect(self._ready, min_envs, end)
            try:
                await self._waiter.wait(receiver)
                batch = self._engine.receive(receiver, max_envs)
            finally:
                self._engine.leave(receiver)
                self._warn()
        return self._batch_result(batch)

    async def as_completed(
        self, min_envs: int = 1, max_envs: int | None = None, timeout: float | None = None
    ) -> AsyncIterator[Batch[Observations, Rewards, Flags]]:
        """Yield batches until everything sent was received; see :meth:`recv`."""
        while self._ready.left or self._ready.errors:
            try:
                batch = await self.recv(min_envs, max_envs, timeout)
            except NothingSentError:
                return  # another task received the last results
            yield batch

    def snapshot(self, env_ids: Sequence[int] | None = None) -> Pending[list[Snapshot]]:
        """Return copies of the environments' states; see :meth:`agym.Envs.snapshot`.

        The state is copied after all operations that were dispatched earlier.
        """
        ids = parse_env_ids(self._global(env_ids), self._engine.num_envs)
        return self._call(partial(self._snapshots, ids), self._engine.snapshot, ids)

    def restore(
        self, snapshots: Snapshot | Sequence[Snapshot], env_ids: Sequence[int] | None = None
    ) -> Pending[ResetResult[Observations]]:
        """Continue environments from snapshots; see :meth:`agym.Envs.restore`."""
        return self._call(self._format.reset, self._begin_restore, snapshots, env_ids)

    async def save(self, path: str | os.PathLike[str]) -> None:
        """Save the whole run to a file; see :meth:`agym.Envs.save`."""
        self._check_saved()
        await asyncio.to_thread(self._recipe.save, path, await self.snapshot())

    def __getitem__(self, index: int) -> AsyncEnvHandle:
        return AsyncEnvHandle(self, self._index(index))

    def __iter__(self) -> Iterator[AsyncEnvHandle]:
        return (AsyncEnvHandle(self, i) for i in range(self.num_envs))

    def render(self, env_ids: Sequence[int] | None = None) -> Pending[list[Any]]:
        """Render all environments, or some of them; see :meth:`agym.Envs.render`.

        During that time, environments whose workers are not rendering can step.
        """
        return self._call(list, self._engine.ask, Render(), self._global(env_ids))

    def call(self, name: str, *args: Any, **kwargs: Any) -> Pending[list[Any]]:
        """Call a method of every environment, or read an attribute; return a list of results."""
        return self._call(list, self._engine.ask, Call(name, args, kwargs), self._ids)

    def get_attr(self, name: str) -> Pending[list[Any]]:
        """Read an attribute of every environment; see :meth:`agym.Envs.get_attr`."""
        return self._call(
            partial(self._attributes, name), self._engine.ask, GetAttr(name), self._ids
        )

    def set_attr(self, name: str, values: Any) -> Pending[None]:
        """Set an attribute of every environment; see :meth:`agym.Envs.set_attr`."""
        message = SetAttr(name, self._each(name, values))
        return self._call(lambda _: None, self._engine.ask, message, self._ids)

    def _assign(self, name: str, values: Any) -> None:
        # An assignment cannot be awaited, so its errors would be lost.
        raise AttributeError(
            f"{type(self).__name__} has no attribute {name!r}: `await envs.set_attr({name!r},"
            f" value)` sets it in every environment{suggest(self, name)}"
        )

    def _look_up(self, name: str) -> NoReturn:
        kind = type(self).__name__
        if name == "close":
            raise AttributeError(f"{kind} has no attribute 'close': use `await envs.aclose()`")
        if is_own(self, name):
            raise AttributeError(f"{kind} has no attribute {name!r} yet: {NOT_OPEN}")
        raise AttributeError(
            f"{kind} has no attribute {name!r}: `await envs.get_attr({name!r})` reads it in"
            f" every environment, and `await envs.call({name!r}, ...)` calls it"
            f"{suggest(self, name)}"
        )

    def restart(self, env_ids: Sequence[int] | None = None) -> Pending[list[int]]:
        """Replace environments; see :meth:`agym.Envs.restart`."""
        self._check_loop_and_thread()
        ticket = self._engine.restart(self._global(env_ids))
        return Pending(self, ticket, lambda _: list(ticket.ids))

    async def aclose(self) -> None:
        """Close all environments and stop all workers, by force if necessary. Idempotent."""
        await self._aclose()

    async def _aclose(self, *, fast: bool = False) -> None:
        self._check_loop_and_thread()
        error: BaseException | None = None
        async with self._closing:  # a second task waits for the first
            try:
                while self._pages:
                    await self._pages.pop().aclose()
                for ticket, seconds in self._life.closing(fast=fast):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(seconds):
                            await self._waiter.wait(ticket)
                    error = ticket.error
            except BaseException:
                self._backend.close(Force.KILL)
                raise
            finally:
                self._waiter.stop_watching()
                self._life.release()
        if error is not None:
            raise error

    def _leave(self) -> None:
        """Close at interpreter shutdown, after blocking a loop that runs in a daemon thread."""
        loop = self._loop
        # This runs in the main thread. A loop in a daemon thread uses the engine without a lock, so
        # it must not run any more.
        if loop is not None and loop.is_running():
            blocked = threading.Event()
            loop.call_soon_threadsafe(_block_loop, blocked)
            if not blocked.wait(LEAVE_SECONDS):
                return  # the loop is stepping an environment, or busy otherwise
        self._waiter.stop_watching()
        close_quickly(self._engine)


def _block_loop(blocked: threading.Event) -> None:
    """Block a loop forever."""
    blocked.set()
    threading.Event().wait()


class AsyncEnvHandle(Handle, Generic[Observation, Action]):
    """One environment of a batch; a coroutine can play it on its own.

    Example:
        >>> import agym, asyncio
        >>> async def play(env):
        ...     observation, info = await env.reset(seed=0)
        ...     observation, reward, *_ = await env.step(0)
        ...     return reward
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 2) as envs:
        ...         return await asyncio.gather(*[play(env) for env in envs])
        >>> agym.run(main())
        [1.0, 1.0]

    Its operations may be mixed with operations of the whole batch; they run in the order in which
    they were dispatched. ``async with envs[0] as env:`` closes this environment alone. For type
    annotations, see :class:`agym.EnvHandle`.
    """

    _envs: AsyncEnvs[Any, Any]
    observation_space: Space[Any]
    action_space: Space[Any]

    def _ask(self, message: Message) -> Pending[Any]:
        return self._envs._call(itemgetter(0), self._envs._engine.ask, message, [self._id])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> Pending[tuple[Observation, dict[str, Any]]]:
        """Reset the environment; return ``observation, info``."""
        return self._envs._call(self._one_reset, self._begin_reset, seed, options)

    def step(
        self, action: Action
    ) -> Pending[tuple[Observation, float, bool, bool, dict[str, Any]]]:
        """Step the environment; return ``observation, reward, terminated, truncated, info``.

        Raises:
            UsageError: When called: the action does not fit its space; nothing was sent.
            BusyError: When called: the last step is still in flight, or was sent and not received.
            ResetNeededError: When called: the environment was not reset, or raised.
        """
        return self._envs._call(self._one_step, self._envs._engine.step, [action], [self._id])

    def render(self) -> Pending[Any]:
        """Render the environment."""
        return self._ask(Render())

    def snapshot(self) -> Pending[Snapshot]:
        """Return a copy of the environment's state; see :meth:`agym.Envs.snapshot`."""
        envs = self._envs
        return envs._call(self._one_snapshot, envs._engine.snapshot, [self._id])

    def restore(self, snapshot: Snapshot) -> Pending[tuple[Observation, dict[str, Any]]]:
        """Continue from a snapshot; return ``observation, info``; see :meth:`agym.Envs.restore`."""
        return self._envs._call(self._one_reset, self._begin_restore, snapshot)

    async def branch(
        self, count: int | None = None, *, into: Sequence[int] | None = None
    ) -> list[Self]:
        """Put other environments into the state of this one; see :meth:`agym.EnvHandle.branch`."""
        envs = self._envs
        others = envs._others(self.index, count, into)
        begin = partial(envs._begin_restore, only_these=True)
        await envs._call(lambda _: None, begin, await self.snapshot(), others)
        return [type(self)(envs, i) for i in others]

    def call(self, name: str, *args: Any, **kwargs: Any) -> Pending[Any]:
        """Call a method, or read an attribute."""
        return self._ask(Call(self._path + name, args, kwargs))

    def get_attr(self, name: str) -> Pending[Any]:
        """Read an attribute, dots allowed.

        Raises:
            AttributeError: When awaited: the environment does not have it.
        """
        message = GetAttr(self._path + name)
        return self._envs._call(
            lambda values: self._found(name, values[0]), self._envs._engine.ask, message, [self._id]
        )

    def set_attr(self, name: str, value: Any) -> Pending[None]:
        """Set or add an attribute, dots allowed."""
        return self._ask(SetAttr(self._path + name, [value]))

    def close(self) -> Pending[None]:
        """Close this environment alone, after its dispatched operations. Idempotent."""
        return self._envs._call(lambda _: None, self._envs._engine.close_env, self._id)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        if not self.closed:
            await self.close()

    def _assign(self, name: str, value: Any) -> None:
        raise AttributeError(
            f"{type(self).__name__} has no attribute {name!r}: `await env.set_attr({name!r},"
            f" value)` sets it in the environment{suggest(self, name)}"
        )

    def _look_up(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{type(self).__name__} has no attribute {name!r}: `await env.get_attr({name!r})`"
            f" reads it in the environment, and `await env.call({name!r}, ...)` calls it"
        )
