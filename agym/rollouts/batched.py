"""A batched policy: many coroutines ask, one function answers all of them at once.

::

    await policy(observation) --> Requests --(full, all waiting, or time)--> function(stacked)
    answer <------------------------ split, in the order of the requests <---------- output

Everything here runs on the event loop of the askers; only a plain function runs in a thread.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter as clock
from types import TracebackType
from typing import Any, NamedTuple, Self

from agym.core.protocol.arguments import check_count, is_number
from agym.errors import ClosedError, UsageError, UsageTypeError
from agym.rollouts.calling import (
    FunctionThreads,
    answering,
    is_coroutine_function,
    marked,
    marked_await,
    own_copy,
)
from agym.rollouts.policy_stats import Counts, PolicyStats
from agym.rollouts.requests import Gathered, Request, Requests
from agym.rollouts.stacking import kind_of

# How long closing waits for a function that is still running.
CLOSE_SECONDS = 5.0

# The policies of this process, for the live page.
_policies: weakref.WeakKeyDictionary[BatchedPolicy, None] = weakref.WeakKeyDictionary()


def open_policies() -> list[BatchedPolicy]:
    """Return the policies of this process that are not closed. Callable from any thread."""
    # ``keyrefs`` is one atomic copy: other threads may make policies meanwhile.
    found = [policy for ref in _policies.keyrefs() if (policy := ref()) is not None]
    return [policy for policy in found if not policy.closed]


class Answer(NamedTuple):
    """An answer of a batched policy, and how it came about.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.batched(lambda observations: observations * 2) as policy:
        ...         return await policy.ask(21)
        >>> answer = agym.run(main())
        >>> int(answer.value), answer.version, answer.batch_size
        (42, 0, 1)

    Attributes:
        value: What ``await policy(observation)`` gives: the asker's row of the output.
        version: How often the weights had been updated when the batch went.
        batch_size: How many observations were in the batch.
        waited: Seconds from the request until the batch went.
    """

    value: Any
    version: int
    batch_size: int
    waited: float


def batched(
    function: Callable[[Any], Any],
    max_batch: int = 64,
    max_wait: float = 0.002,
    workers: int = 1,
    *,
    update: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> BatchedPolicy:
    """Let many coroutines share one policy: their requests are answered by one call at a time.

    Example:
        >>> import agym, numpy as np
        >>> def act(observations):  # of all environments that wait: (n, 4)
        ...     return np.where(observations[:, 2] > 0, 1, 0)
        >>> async def play(env, policy):
        ...     observation, info = await env.reset(seed=0)
        ...     length, over = 0, False
        ...     while not over:
        ...         action = await policy(observation)
        ...         observation, _, terminated, truncated, _ = await env.step(action)
        ...         length, over = length + 1, terminated or truncated
        ...     return length
        >>> async def main():
        ...     async with agym.make_async("CartPole-v1", 8) as envs, agym.batched(act) as policy:
        ...         return await asyncio.gather(*(play(env, policy) for env in envs))
        >>> import asyncio
        >>> len(agym.run(main()))
        8

    A batch goes when it is full, when its first request has waited for ``max_wait``, or when
    nobody is left who could ask: a task counts from its first request until it ends.

    Args:
        function: The policy. It gets the observations of the askers stacked: arrays, tensors and
            numbers as one array with a new first axis; dicts and tuples of these part by part;
            text and all other objects as a list. What cannot be stacked, such as arrays of another
            shape, goes in a batch of its own. The function returns a row for each, in the same
            order: an array, a tensor, a list, or a dict or tuple of these. A plain function runs in
            a thread, a coroutine function on the event loop.
        max_batch: Most observations of a call.
        max_wait: Most seconds for which a request waits for others. With 0 a batch has only those
            that asked before the event loop came back to it.
        workers: Most calls at the same time. A function must be safe for that.
        update: What :meth:`BatchedPolicy.update` calls with new weights, by default the
            ``load_state_dict`` of the function, or of the object whose method it is.
        name: Its name in timelines and errors, by default the function's.

    Returns:
        The policy, to be closed by ``async with`` or ``aclose``.

    Raises:
        UsageError: An argument is invalid.
    """
    if not callable(function):
        raise UsageTypeError(
            f"function={function!r} must be a function from stacked observations to their actions"
        )
    if not is_number(max_wait) or not 0 <= max_wait < float("inf"):
        raise UsageError(f"max_wait={max_wait!r} must be a number of seconds, 0 or more")
    if name is not None and not isinstance(name, str):
        raise UsageTypeError(f"name={name!r} must be a string")
    if update is not None and not callable(update):
        raise UsageTypeError(f"update={update!r} must be a function of the new weights")
    return BatchedPolicy(
        function,
        check_count("max_batch", max_batch),
        float(max_wait),
        check_count("workers", workers),
        _default_update(function) if update is None else update,
        name or str(getattr(function, "__name__", type(function).__name__)),
    )


class BatchedPolicy:
    """A policy that many coroutines share; made by :func:`agym.batched`.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.batched(lambda texts: [text.upper() for text in texts]) as policy:
        ...         return await policy("hello")
        >>> agym.run(main())
        'HELLO'

    It belongs to the event loop on which it is first asked. An error of the function reaches each
    asker of that batch, with a traceback of its own; the next batch goes on as if nothing had
    happened. An asker that is cancelled leaves, and its answer is dropped.

    Attributes:
        name: Its name in timelines and errors.
        version: How often the weights were updated.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        max_batch: int,
        max_wait: float,
        workers: int,
        update: Callable[[Any], Any] | None,
        name: str,
    ) -> None:
        self.name = name
        self.version = 0
        self.closed = False
        self._answer = answering(function, name)
        self._update = update
        self._limits = max_batch, max_wait
        self._workers = workers
        self._threads = FunctionThreads(f"agym-{name}", workers)
        self._counts = Counts()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._requests = Requests(*self._limits, self._soon)
        self._bind(None)
        _policies[self] = None

    def _bind(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Belong to an event loop; what another left behind went with it."""
        self._loop = loop
        self._requests = Requests(*self._limits, self._soon)
        self._updates: deque[tuple[Any, asyncio.Future[int]]] = deque()
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        # What runs: calls of the function, or one update alone.
        self._running = 0
        self._updating = False
        # Coroutines that run, and futures whose answers are under way.
        self._tasks: set[asyncio.Future[Any]] = set()
        self._under_way: set[asyncio.Future[Any]] = set()

    async def __call__(self, observation: Any) -> Any:
        """Return the action for an observation; see :func:`agym.batched`.

        Raises:
            UsageError: The policy belongs to another event loop, is asked by its own function, or
                its function returned something else than an answer for each observation.
            ClosedError: The policy was closed.
            Exception: What the function raised.
        """
        return (await self.ask(observation)).value

    async def ask(self, observation: Any) -> Answer:
        """Return the action with the version of the weights; see :class:`agym.Answer`."""
        loop = self._check_loop()
        if asyncio.current_task() in self._tasks:
            raise UsageError(
                f"policy {self.name} is asked by its own function, which would wait for itself:"
                " call the function instead"
            )
        kind = kind_of(observation)
        future: asyncio.Future[Answer] = loop.create_future()
        requests = self._requests
        full = requests.add(kind, Request(observation, future, clock()), asyncio.current_task())
        if full:
            self._go()
        else:
            self._soon()
        try:
            return await future
        finally:
            requests.remove(kind, future)

    async def update(self, weights: Any) -> int:
        """Set new weights between two calls; batches wait meanwhile.

        Example:
            >>> import agym
            >>> class Constant:
            ...     action = 0
            ...     def __call__(self, observations):
            ...         return [self.action] * len(observations)
            ...     def load_state_dict(self, weights):
            ...         self.action = weights
            >>> async def main():
            ...     async with agym.batched(Constant()) as policy:
            ...         version = await policy.update(7)
            ...         return version, await policy(0.5)
            >>> agym.run(main())
            (1, 7)

        Returns:
            The new version. Answers with this version or a higher one come from these weights, or
            from newer ones.

        Raises:
            UsageError: Nothing says how to set them.
            Exception: What ``update`` raised; the version stays as it was.
        """
        loop = self._check_loop()
        if self._update is None:
            raise UsageError(
                f"policy {self.name} has no load_state_dict: give agym.batched(...,"
                " update=function_of_weights)"
            )
        future: asyncio.Future[int] = loop.create_future()
        self._updates.append((weights, future))
        self._soon()
        return await future

    def stats(self) -> PolicyStats:
        """Return the sizes of batches, waits and calls per second; see the class."""
        return self._counts.read(self._requests.unanswered, self.version)

    async def aclose(self) -> None:
        """End: each asker that still waits gets a :class:`~agym.ClosedError` at once. Idempotent.

        A call that is still running is waited for, but at most for five seconds.
        """
        if not self.closed:
            if self._loop is not None and not self._loop.is_closed():
                self._check_loop()
            self._close()
            self._threads.stop()
        calls = self._tasks - {asyncio.current_task()}
        if calls:
            await asyncio.wait(calls, timeout=CLOSE_SECONDS)
        await asyncio.to_thread(self._threads.join, CLOSE_SECONDS)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{'closed ' * self.closed}policy {self.name}>"

    # ---------------------------------------------------------------- on the loop

    def _check_loop(self) -> asyncio.AbstractEventLoop:
        if self.closed:
            raise ClosedError(f"policy {self.name} is closed")
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            if self._loop is not None and not self._loop.is_closed():
                raise UsageError(
                    f"policy {self.name} belongs to the event loop on which it was first asked:"
                    " call it there by asyncio.run_coroutine_threadsafe, or make another"
                )
            self._bind(loop)
        return loop

    def _soon(self) -> None:
        """Look for a batch when all tasks that are ready now have run, and may have asked."""
        if self._turn is None and self._loop is not None:
            self._turn = self._loop.call_soon(self._go)

    def _go(self) -> None:
        """Start what is due: an update once nothing runs, or as many batches as may run."""
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()
        self._turn = self._timer = None
        if self.closed or self._loop is None:
            return
        while self._running < self._workers and not self._updating:
            if self._updates:
                if self._running:
                    return
                self._begin_update(*self._updates.popleft())
            else:
                batch = self._requests.take(clock())
                if batch is None:
                    deadline = self._requests.deadline
                    if deadline is not None:
                        left = max(0.0, deadline - clock())
                        self._timer = self._loop.call_later(left, self._go)
                    return
                self._begin(batch)

    def _begin(self, batch: Gathered) -> None:
        assert self._loop is not None
        requests, version, begun = batch.requests, self.version, clock()
        self._running += 1
        self._counts.gone(batch, begun)
        self._under_way.update(request.future for request in requests)

        def done(values: Any, error: BaseException | None) -> None:
            self._running -= 1
            self._counts.ended(len(requests), clock() - begun, failed=error is not None)
            for k, (_, future, asked) in enumerate(requests):
                self._under_way.discard(future)
                if future.done():
                    continue  # its asker was cancelled
                if error is not None:
                    future.set_exception(own_copy(error))
                else:
                    future.set_result(Answer(values[k], version, len(requests), begun - asked))
            # Not at once: those who were answered now may be about to ask.
            self._soon()

        self._run(
            self._answer,
            [request.observation for request in requests],
            f"{self.name} ×{len(requests)}",
            done,
        )

    def _begin_update(self, weights: Any, future: asyncio.Future[int]) -> None:
        assert self._update is not None
        if future.done():
            return  # its caller was cancelled
        self._updating = True
        self._under_way.add(future)

        def done(_: Any, error: BaseException | None) -> None:
            self._updating = False
            self._under_way.discard(future)
            self.version += error is None
            if not future.done():
                if error is None:
                    future.set_result(self.version)
                else:
                    future.set_exception(own_copy(error))
            self._soon()

        self._run(self._update, weights, f"{self.name}: update", done)

    def _run(
        self,
        function: Callable[[Any], Any],
        argument: Any,
        label: str,
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Call a function in a thread, or a coroutine function in a task."""
        assert self._loop is not None
        if not is_coroutine_function(function):
            self._threads.submit(partial(marked, function, argument, label), self._loop, done)
            return

        def ended(task: asyncio.Future[Any]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                done(None, asyncio.CancelledError())
            else:
                error = task.exception()
                done(task.result() if error is None else None, error)

        task = self._loop.create_task(marked_await(function, argument, label))
        self._tasks.add(task)
        task.add_done_callback(ended)

    def _close(self) -> None:
        self.closed = True
        if self._loop is None or self._loop.is_closed():
            return  # who waited on it has ended with it
        self._go()  # cancels what was about to go
        updates = [future for _, future in self._updates]
        for future in (*self._under_way, *updates, *self._requests.futures):
            if not future.done():
                future.set_exception(ClosedError(f"policy {self.name} was closed"))
        for task in self._tasks - {asyncio.current_task()}:
            task.cancel()


def _default_update(function: Callable[[Any], Any]) -> Callable[[Any], Any] | None:
    owner = getattr(function, "__self__", function)
    update: Callable[[Any], Any] | None = getattr(owner, "load_state_dict", None)
    return update
