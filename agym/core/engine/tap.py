"""The tap: a plug-in's interface to open environments.

The live page, recordings, TensorBoard, traces and chaos use no other part of the engine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from agym.core.engine.calls.collector import Collector
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.hooks import Hook
from agym.core.engine.life import Life
from agym.core.engine.stats import Stats
from agym.core.hosts.episode import name_of
from agym.core.hosts.fault_injection import InjectedFault
from agym.core.protocol.arguments import Ids
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import InjectFault, Message, Render
from agym.core.protocol.metrics.gauges import Gauges
from agym.core.protocol.typing import Array


class Rendered(NamedTuple):
    """The result of :meth:`Tap.render`.

    Attributes:
        pictures: The rendered picture of each environment, by id.
        failed: The environments whose ``render`` raised or was late.
        error: The error of the whole render; other environments may still have pictures.
    """

    pictures: dict[int, Any]
    failed: Ids
    error: BaseException | None


class Tap:
    """A plug-in's interface to open environments: ``envs.tap``.

    Example:
        >>> import agym
        >>> class CountSteps(agym.Hook):
        ...     steps = 0
        ...     def before_step(self, ids):
        ...         self.steps += len(ids)
        >>> with agym.make("CartPole-v1", 2) as envs:
        ...     hook = CountSteps()
        ...     envs.tap.add_hook(hook)
        ...     observations, infos = envs.reset(seed=0)
        ...     result = envs.step([0, 1])
        >>> hook.steps
        2

    A group of ``split`` has the tap of the whole set, and all ids are those of the whole set. The
    tap outlives the environments: :attr:`closed` tells when they are closed.

    Attributes:
        num_envs: Number of environments.
        autoreset: What follows an episode's end: ``"next_step"``, ``"same_step"`` or
            ``"disabled"``.
        inline: Whether the environments run in the caller's thread, inside its calls.
        timeout: Deadline of one operation in seconds, or ``None``.
        timeout_ends: What a missed deadline can end: one ``"env"``, its whole ``"worker"``, or
            ``None`` if the backend cannot end a step.
        pages: The live page, if there is one; it is closed before the environments.
    """

    def __init__(
        self,
        ask: Callable[[Message, Ids], Ticket],
        collector: Collector,
        life: Life,
        waiter: Any,
        pages: list[Any],
    ) -> None:
        """Keep the parts of an engine whose environments are open.

        Args:
            ask: Dispatches a message, as the engine does.
            collector: Knows the other parts.
            life: Opens and closes the environments.
            waiter: The waiter of the API.
            pages: See ``Attributes``.
        """
        self._ask = ask
        self._collector = collector
        self._life = life
        self._waiter = waiter
        backend = collector.backend
        self.num_envs = len(backend.options.factories)
        self.autoreset = name_of(backend.options.autoreset)
        self.inline = backend.inline is not None
        self.timeout = collector.dispatcher.deadlines.timeout
        self.timeout_ends = collector.recovery.timeout_ends
        self.pages = pages

    # ---------------------------------------------------------------- hooks

    @property
    def hooks(self) -> tuple[Hook, ...]:
        """The hooks, in the order of calls."""
        return self._collector.hooks.all

    def add_hook(self, hook: Hook, *, first: bool = False) -> None:
        """Add a hook at the end, or as the first. Idempotent."""
        self._collector.hooks.add(hook, first=first)

    def remove_hook(self, hook: Hook) -> None:
        """Remove a hook. Idempotent."""
        self._collector.hooks.remove(hook)

    # ---------------------------------------------------------------- what is known

    @property
    def gauges(self) -> Gauges:
        """The counters that workers keep in shared memory: steps, times, spans of traces.

        They stay readable until the environments are closed; a reference keeps the memory alive.
        """
        return self._collector.rows.gauges

    @property
    def closed(self) -> bool:
        """Whether the environments are closed."""
        return self._life.closed

    @property
    def lost(self) -> Ids:
        """The environments that are gone until ``envs.restart`` replaces them."""
        return tuple(sorted(self._collector.status.lost))

    def usable(self, ids: Ids) -> Ids:
        """Return the environments among ``ids`` that are alive, open and reset."""
        return () if self._life.closed else self._collector.status.usable(ids)

    def is_busy(self, env_id: int) -> bool:
        """Whether an environment has a step or reset under way, or is being replaced."""
        replaced = env_id in self._collector.recovery.recovering
        return replaced or self._collector.dispatcher.queues.owner(env_id) is not None

    def worker_of(self, env_id: int) -> int:
        """Return the index of the worker that runs an environment."""
        return self._collector.backend.worker_of(env_id)

    def steps(self) -> Array:
        """Return the number of steps so far of each environment. Callable from any thread."""
        last = self._life.last_stats
        if last is not None:
            return np.array([env.steps for env in last.envs])
        return self.gauges.totals(self._collector.backend.ranges)

    def unstepped(self) -> Ids:
        """Return the environments that have not stepped yet: their first episode is to come."""
        return () if self._life.restored else tuple(np.flatnonzero(self.steps() == 0).tolist())

    def stats(self) -> Stats:
        """Read the statistics; unlike ``envs.stats()`` callable from any thread."""
        return self._life.read_stats()

    # ---------------------------------------------------------------- what can be done

    def render(self, ids: Ids, then: Callable[[Rendered], None]) -> Ticket:
        """Start to render some environments for an observer; the caller's next step comes after it.

        The time of the render does not count towards the caller's deadlines.

        Args:
            ids: Environments that are usable.
            then: Called with the result, in the caller's thread.

        Returns:
            A ticket for :meth:`wait`; it is ``done`` once ``then`` was called.

        Raises:
            AgymError: An environment is not usable.
        """
        with self._waiter.lock:
            ticket = self._ask(Render(), ids)
            self._collector.dispatcher.suspend_during(ticket)
            if ticket.done:
                then(_rendered(ticket))
            else:
                ticket.on_done(lambda: then(_rendered(ticket)))
        return ticket

    def wait(self, ticket: Ticket) -> Any:
        """Wait until a ticket is done; async code awaits this."""
        return self._waiter.waiting(ticket)

    def inject_fault(self, env_id: int, kind: str, seconds: float = 0.0) -> None:
        """Make the next step of an environment fail; call this in ``before_step``.

        Args:
            env_id: An environment that is not busy.
            kind: ``"kill"``, ``"segfault"`` or ``"exit"`` for its worker; ``"hang"``,
                ``"delay"`` or ``"error"`` for its step.
            seconds: Duration of a hang or delay.
        """
        fault = InjectFault([InjectedFault(kind, seconds)])
        self._collector.dispatcher.start_internal(fault, (env_id,))


def _rendered(ticket: Ticket) -> Rendered:
    """Read a render that is done; where some environments raised, the others have pictures."""
    payload = ticket.payload
    values = {} if payload is None else payload.values
    failed: list[int] = []
    if ticket.error is not None:
        for problem in [] if payload is None else payload.problems:
            if isinstance(problem, Failure):  # a lost environment gets a replacement
                failed += problem.env_ids
        if ticket.expired:
            failed += ticket.late()
    return Rendered({i: values[i] for i in ticket.ids if i in values}, tuple(failed), ticket.error)


timelines: list[Any] = []  # the running ones, each an ``agym.Trace``


@contextmanager
def mark(name: str) -> Iterator[None]:
    """Show the block in timelines under a name; see :func:`agym.trace`.

    Example:
        >>> import agym
        >>> with agym.mark("backward"):
        ...     pass
    """
    started = time.perf_counter()
    try:
        yield
    finally:
        ended = time.perf_counter()
        for timeline in tuple(timelines):
            timeline.add_block(name, started, ended)
