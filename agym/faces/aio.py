"""The async face: every call is dispatched now and gives an awaitable."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from agym.core.engine import Engine
from agym.core.results import ResetResult, StepResult
from agym.core.ticket import Ticket
from agym.errors import AgymError
from agym.executors.base import Executor
from agym.faces.base import Face, Output
from agym.faces.waiting import AsyncWaiter

T = TypeVar("T")


class Pending(Coroutine[Any, Any, T], Generic[T]):
    """The result of a call that is under way: await it at once, later, or never.

    It is a coroutine to asyncio, so ``gather``, ``wait_for`` and ``TaskGroup.create_task`` take
    it. Cancelling the await does not cancel the operation. It may be awaited more than once.
    """

    __slots__ = ("_awaits", "_ticket", "_waiter", "_wrap")

    def __init__(self, waiter: AsyncWaiter, ticket: Ticket, wrap: Callable[[Any], T]) -> None:
        """Wait for a ticket and give its result in the caller's form."""
        self._waiter = waiter
        self._ticket = ticket
        self._wrap = wrap
        # As a coroutine it may run in several tasks, one after the other or at the same time.
        self._awaits: dict[Any, Generator[Any, None, T]] = {}

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the result."""
        yield from self._waiter.wait(self._ticket)
        return self._wrap(self._ticket.result())

    def done(self) -> bool:
        """Whether the result, or the error, is there."""
        return self._waiter.ready(self._ticket)

    def send(self, value: Any) -> Any:
        """Run on as the coroutine of a task."""
        return self._run("send", value)

    def throw(self, *error: Any) -> Any:
        """Raise inside the await of a task."""
        return self._run("throw", *error)

    def _run(self, method: str, *arguments: Any) -> Any:
        task = asyncio.current_task()
        steps = self._awaits.get(task)
        if steps is None:
            steps = self._awaits[task] = self.__await__()
        try:
            return getattr(steps, method)(*arguments)
        except BaseException:  # also StopIteration, which carries the result
            del self._awaits[task]
            raise

    def close(self) -> None:
        """Give up; the operation goes on."""
        for steps in self._awaits.values():
            steps.close()
        self._awaits.clear()


class AsyncEnvs(Face):
    """Many environments for async code; made by :func:`agym.make_async`.

    Open them with ``async with agym.make_async(...) as envs:`` or
    ``envs = await agym.make_async(...)``. ``reset``, ``step``, ``render`` and ``call`` are plain
    methods: they check their arguments, send the work off, and return an awaitable. Operations
    on one environment run in the order in which they were dispatched.
    """

    def __init__(self, engine: Engine, executor: Executor, output: Output) -> None:
        """Make nothing yet."""
        super().__init__(engine, executor, output)
        self._waiter = AsyncWaiter(engine, executor)
        self._opening: Ticket | None = None

    def __await__(self) -> Generator[Any, None, Self]:
        """Make the environments, without blocking the loop."""
        if self._opening is None:
            self._opening = self._engine.open()
            try:
                yield from self._waiter.wait(self._opening)
                self._opening.result()
                self._describe()
            except BaseException:
                with contextlib.suppress(AgymError, ExceptionGroup):
                    yield from self.aclose().__await__()
                raise
        return self

    async def __aenter__(self) -> Self:
        """Make the environments."""
        return await self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        """Close them; what that raises does not hide an error of the block."""
        with contextlib.suppress(*() if error is None else (AgymError, ExceptionGroup)):
            await self.aclose()

    def _pending(self, ticket: Ticket, wrap: Callable[[Any], T]) -> Pending[T]:
        return Pending(self._waiter, ticket, wrap)

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        *,
        env_ids: Sequence[int] | None = None,
    ) -> Pending[ResetResult]:
        """Reset every environment, or some of them; see :meth:`agym.Envs.reset`."""
        return self._pending(self._engine.reset(seed, options, env_ids), self._reset_result)

    def step(self, actions: Any, *, env_ids: Sequence[int] | None = None) -> Pending[StepResult]:
        """Step every environment, or some of them; see :meth:`agym.Envs.step`.

        Raises:
            UsageError: At once: wrong number, shape or dtype of actions; nothing was sent.
            BusyError: At once: an environment's last step is still in flight.
            ResetNeededError: At once: an environment was not reset, or raised.
        """
        return self._pending(self._engine.step(actions, env_ids), self._step_result)

    def render(self, env_ids: Sequence[int] | None = None) -> Pending[list[Any]]:
        """Render every environment, or some of them; a frame each, in the order of their ids."""
        return self._pending(self._engine.ask("render", env_ids=env_ids), list)

    def call(self, name: str, *args: Any, **kwargs: Any) -> Pending[list[Any]]:
        """Call a method of every environment, or read an attribute; an answer each."""
        return self._pending(self._engine.ask("call", (name, args, kwargs)), list)

    def get_attr(self, name: str) -> Pending[list[Any]]:
        """Read an attribute of every environment; see :meth:`agym.Envs.get_attr`."""
        ticket = self._engine.ask("get_attr", name)
        return self._pending(ticket, lambda values: self._attributes(name, values))

    def set_attr(self, name: str, values: Any) -> Pending[None]:
        """Set an attribute of every environment; see :meth:`agym.Envs.set_attr`."""
        ticket = self._engine.ask("set_attr", name, self._each(name, values))
        return self._pending(ticket, lambda _: None)

    async def aclose(self) -> None:
        """Close all environments and end all workers, by force if need be. Twice is once."""
        error: BaseException | None = None
        try:
            for ticket, seconds in self._engine.closing():
                await self._waiter.wait_at_most(ticket, seconds)
                error = ticket.error
        except BaseException:
            self._executor.kill()
            raise
        finally:
            self._waiter.forget()
            self._executor.release()
            self._engine.release()
        if error is not None:
            raise error
