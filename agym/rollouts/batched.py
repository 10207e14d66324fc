"""A batched policy: many coroutines ask for actions, and one call answers a batch of them.

::

    await policy(observation) --> Requests --(full, all waiting, or time)--> function(stacked)
    answer <------------------------ split, in the order of the requests <---------- output

All code here runs on the event loop of the callers; only a plain function runs in a thread. So
there are no locks: tasks switch only at an ``await``, and threads report by
``call_soon_threadsafe``.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter as clock
from typing import Any, NamedTuple, Self

from agym.core.protocol.arguments import check_count, is_number
from agym.errors import ClosedError, UsageError, UsageTypeError
from agym.rollouts.calling import (
    FunctionThreads,
    answering,
    copy_of_error,
    is_coroutine_function,
    marked,
    marked_await,
)
from agym.rollouts.policy_stats import Counts, PolicyStats
from agym.rollouts.requests import Gathered, Request, Requests
from agym.rollouts.stacking import kind_of

# How many seconds closing waits for a function that is still running.
CLOSE_SECONDS = 5.0

# The policies of this process, for the live page.
_policies: weakref.WeakKeyDictionary[BatchedPolicy, None] = weakref.WeakKeyDictionary()


def open_policies() -> list[BatchedPolicy]:
    """Return the policies of this process that are not closed. Callable from any thread."""
    # ``keyrefs`` is an atomic copy: other threads may add policies during the loop.
    policies = [policy for ref in _policies.keyrefs() if (policy := ref()) is not None]
    return [policy for policy in policies if not policy.closed]


class Answer(NamedTuple):
    """An action of a batched policy, with the version of the weights and the batch size.

    Example:
        >>> import agym
        >>> async def main():
        ...     async with agym.batched(lambda observations: observations * 2) as policy:
        ...         return await policy.ask(21)
        >>> answer = agym.run(main())
        >>> int(answer.value), answer.version, answer.batch_size
        (42, 0, 1)

    Attributes:
        value: The action, as ``await policy(observation)`` returns it: one row of the output.
        version: How often the weights had been updated when the call started.
        batch_size: Number of observations in the batch.
        waited: Seconds between the request and the start of the call.
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
    """Make a policy that many coroutines share; it answers their requests in batches.

    Example:
        >>> import agym, numpy as np
        >>> def act(observations):  # of all waiting environments: (n, 4)
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

    The function is called when a batch is full, when its first request has waited for ``max_wait``,
    or when every task that uses the policy is waiting. A task uses the policy from its first
    request until the task ends.

    Args:
        function: The policy. Its argument is the stacked observations: arrays, tensors and numbers
            become one array with a new first axis; dicts and tuples are stacked part by part; text
            and all other objects become a list. Observations that cannot be stacked together, such
            as arrays of different shapes, go into separate batches. The function returns a row per
            observation, in the same order: an array, a tensor, a list, or a dict or tuple of these.
            A plain function runs in a thread, a coroutine function on the event loop.
        max_batch: Maximum number of observations in a call.
        max_wait: Maximum number of seconds for which a request waits for others. With 0, a batch
            has the requests of one turn of the event loop.
        workers: Maximum number of calls at the same time. With more than one, the function must be
            safe to call concurrently.
        update: The function that :meth:`BatchedPolicy.update` calls with new weights, by default
            the ``load_state_dict`` of ``function``, or of the object that it is a method of.
        name: Name of the policy in timelines and errors, by default the function's.

    Returns:
        The policy; close it with ``async with`` or ``aclose``.

    Raises:
        UsageError: An argument is invalid.
    """
    if not callable(function):
        raise UsageTypeError(f"function={function!r} must be a function of stacked observations")
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

    The policy belongs to the event loop on which it is first called. If the function raises, every
    caller in that batch gets a copy of the error; later batches are not affected. If a caller is
    cancelled, its request is removed, or its answer is dropped.

    Attributes:
        name: Name of the policy in timelines and errors.
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
        self._bind(None)
        _policies[self] = None

    def _bind(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Belong to an event loop, and forget the requests of an earlier, closed loop."""
        self._loop = loop
        self._requests = Requests(*self._limits, self._soon)
        self._updates: deque[tuple[Any, asyncio.Future[int]]] = deque()
        self._turn: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        # Either calls of the function run, or one update.
        self._running = 0
        self._updating = False
        # The tasks of coroutine functions, and the futures of requests whose call is running.
        self._tasks: set[asyncio.Future[Any]] = set()
        self._under_way: set[asyncio.Future[Any]] = set()

    async def __call__(self, observation: Any) -> Any:
        """Return the action for an observation; see :func:`agym.batched`.

        Raises:
            UsageError: The policy belongs to another event loop, is called by its own function, or
                its function did not return a row per observation.
            ClosedError: The policy was closed.
            Exception: The function raised it.
        """
        return (await self.ask(observation)).value

    async def ask(self, observation: Any) -> Answer:
        """Return the action with the version of the weights; see :class:`agym.Answer`."""
        loop = self._check_loop()
        if asyncio.current_task() in self._tasks:
            raise UsageError(
                f"policy {self.name} is called by its own function, and would wait for itself:"
                " call the function instead"
            )
        kind = kind_of(observation)
        future: asyncio.Future[Answer] = loop.create_future()
        requests = self._requests
        full = requests.add(kind, Request(observation, future, clock()), asyncio.current_task())
        # A full batch gains nothing by waiting. Otherwise, let the other ready tasks ask first.
        if full:
            self._go()
        else:
            self._soon()
        try:
            return await future
        finally:  # also if this task was cancelled: the request must not go into a batch
            requests.remove(kind, future)

    async def update(self, weights: Any) -> int:
        """Set new weights between two calls; during the update, batches wait.

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
            The new version. Answers with this version, or a higher one, were computed with these or
            newer weights.

        Raises:
            UsageError: The policy has no function that sets weights.
            Exception: ``update`` raised it; the version does not change.
        """
        loop = self._check_loop()
        if self._update is None:
            raise UsageError(
                f"policy {self.name} has no load_state_dict: pass agym.batched(...,"
                " update=function_of_weights)"
            )
        future: asyncio.Future[int] = loop.create_future()
        self._updates.append((weights, future))
        self._soon()
        return await future

    def stats(self) -> PolicyStats:
        """Return statistics such as batch sizes; see :class:`agym.PolicyStats`."""
        return self._counts.read(self._requests.unanswered, self.version)

    async def aclose(self) -> None:
        """Close the policy: waiting callers get a :class:`~agym.ClosedError` at once. Idempotent.

        Waits up to five seconds for calls that are still running.
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

    async def __aexit__(self, *_: object) -> None:
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
                    f"policy {self.name} belongs to the event loop on which it was first called:"
                    " call it there with asyncio.run_coroutine_threadsafe, or make another policy"
                )
            self._bind(loop)
        return loop

    def _soon(self) -> None:
        """Look for a batch once all tasks that are ready now have run, since they may ask, too."""
        if self._turn is None and self._loop is not None:
            self._turn = self._loop.call_soon(self._go)

    def _go(self) -> None:
        """Start an update, if no call is running; otherwise as many batches as are due.

        It runs after every event that may make a batch due, and checks all conditions each time. So
        it may cancel a pending timer or turn.
        """
        for handle in (self._turn, self._timer):
            if handle is not None:
                handle.cancel()
        self._turn = self._timer = None
        if self.closed or self._loop is None:
            return
        while self._running < self._workers and not self._updating:
            if self._updates:
                # An update runs alone, and before waiting batches: the last call to finish comes
                # back here.
                if self._running:
                    return
                self._start_update(*self._updates.popleft())
            else:
                batch = self._requests.take(clock())
                if batch is None:
                    deadline = self._requests.deadline
                    if deadline is not None:
                        seconds = max(0.0, deadline - clock())
                        self._timer = self._loop.call_later(seconds, self._go)
                    return
                self._start_call(batch)

    def _start_call(self, batch: Gathered) -> None:
        assert self._loop is not None
        requests, version, started = batch.requests, self.version, clock()
        self._running += 1
        self._counts.started(batch, started)
        self._under_way.update(request.future for request in requests)

        def done(values: Any, error: BaseException | None) -> None:
            self._running -= 1
            self._counts.finished(len(requests), clock() - started, failed=error is not None)
            for k, (_, future, asked) in enumerate(requests):
                self._under_way.discard(future)
                if future.done():
                    continue  # its caller was cancelled, or the policy was closed
                if error is not None:
                    future.set_exception(copy_of_error(error))
                else:
                    future.set_result(Answer(values[k], version, len(requests), started - asked))
            # Not at once: the tasks that were just answered may ask again.
            self._soon()

        self._run(
            self._answer,
            [request.observation for request in requests],
            f"{self.name} ×{len(requests)}",
            done,
        )

    def _start_update(self, weights: Any, future: asyncio.Future[int]) -> None:
        assert self._update is not None
        if future.done():
            return  # its caller was cancelled, so these weights are not set
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
                    future.set_exception(copy_of_error(error))
            self._soon()

        self._run(self._update, weights, f"{self.name}: update", done)

    def _run(
        self,
        function: Callable[[Any], Any],
        argument: Any,
        label: str,
        done: Callable[[Any, BaseException | None], None],
    ) -> None:
        """Call a function in a thread or in a task; then call ``done`` on the loop."""
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
            return  # the tasks that waited ended with the loop
        self._go()  # ``closed`` is set: this only cancels the timer and the turn
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
