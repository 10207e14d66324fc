"""PoolHost: a VectorEnv that returns results as they are done, ``batch_size`` at a time (EnvPool).

The worker's thread only sends steps and resets; a second thread receives. Sending thus never waits
for operations in flight, and a whole step consists of one that was sent to each environment::

    worker's thread --- send, reset ---> VectorEnv - recv ---> receiver's thread --> completions
          '---- a token for each batch in flight ----------------------^

This is thread-safe because the VectorEnv's two ends are two queues, each with one thread at it: the
receiver calls only ``recv``; meanwhile, the worker's thread only sends. ``recv`` is only called for
a batch that was sent, so it always returns. A lock guards the state that both threads share. It is
never held while the VectorEnv is called.

A replacement of an environment is reset when its next step is requested. The reset counts towards
the batch, and the row says that the episode was truncated. The step after that resets again, and
returns that observation.
"""

from __future__ import annotations

import queue
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, cast

import numpy as np

from agym.errors import UsageError
from agym.hosts.episode import Phase
from agym.hosts.vector.batch import STEP, Columns, check_columns, check_result
from agym.hosts.vector.calls import options_of_all
from agym.hosts.vector.construction import unsupported_pool
from agym.hosts.vector.host import VectorHost
from agym.protocol.infos.vector import split_info
from agym.protocol.messages.completions import Completion, Description, Payload
from agym.protocol.messages.failures import Failure
from agym.protocol.messages.operations import Operation, Recreate, Reset, Step
from agym.protocol.metrics.gauges import clock
from agym.protocol.typing import Array

# State of an environment.
IDLE, STEPS, RESETS, CUT = range(4)

# Takes completions, or what ended the receiver's thread.
Report = Callable[[Sequence[Completion] | BaseException], None]


class PoolHost(VectorHost):
    """Runs one vector environment that may return results of a part of its environments."""

    _receiver: threading.Thread | None = None

    def __init__(self, *args: Any, **keywords: Any) -> None:
        # Guards all state below. Reentrant, since guarded methods call each other.
        self._lock = threading.Condition(threading.RLock())
        super().__init__(*args, **keywords)

    def _forget(self) -> None:
        super()._forget()
        self._tokens: queue.SimpleQueue[bool] = queue.SimpleQueue()
        # Batches in flight, and operations in flight beyond these.
        self._batches = self._rest = 0
        self._doing = np.zeros(self._count, np.int8)
        # Number of each environment's operation, its plane, and when it began.
        self._number, self._plane, self._since = np.zeros((3, self._count), np.int64)
        # Why the program is unusable; reported to the next operation.
        self._broken: Failure | None = None

    def _make(self) -> Description:
        description = super()._make()
        if self.traits.batch_size:
            reason = unsupported_pool(self._env, self._autoreset, self.traits)
            if reason is not None:
                raise UsageError(reason)
        return description

    def close(self) -> list[Failure]:
        """Receive what is in flight, then close the program."""
        self._stop()
        return super().close()

    def _recreate(self, operation: Operation) -> None:
        self._stop()
        super()._recreate(operation)

    _handlers: ClassVar = {**VectorHost._handlers, Recreate: _recreate}

    # ---------------------------------------------------------------- the worker's thread

    def serve(self, operation: Operation, report: Report) -> None:
        """Run or begin an operation. Either thread passes the completions to ``report``."""
        if self._env is None or not self.traits.batch_size:
            report([self.run(operation)])
        elif operation.message.writes_rows:
            try:
                self._check(operation)
            except self._catch as error:  # the program is not affected
                failure = self._failed(error, operation.message.name, self.first, self.stop)
                report([Completion(*operation.span, Payload(problems=[failure]))])
                return
            try:
                self._send(operation, report)
            except self._catch as error:
                self._fail_pending(error, report)
        else:
            with self._lock:  # never call a VectorEnv while it steps
                self._lock.wait_for(lambda: not self._batches)
            report([self.run(operation)])

    def _send(self, operation: Operation, report: Report) -> None:
        ids = np.arange(operation.start, operation.stop) - self.first
        with self._lock:
            self._mark_begun(operation, ids)
            doing = self._doing[ids]
        if self._broken is not None:
            self._fail_pending(None, report)
            return
        step = operation.message
        while self._injected_faults and isinstance(step, Step):
            self._injected_faults.pop().trigger()
        begun, stepped = ids[doing != STEPS], ids[doing == STEPS]
        if len(begun) == self._count:
            self._env.async_reset()
        elif len(begun):
            self._env._reset(begun.astype(np.int32))
        if len(stepped):
            chosen = slice(operation.start - self.first, operation.stop - self.first)
            actions = self._batch(step.values, chosen, stepped - ids[0])
            self._env.send(actions, stepped.astype(np.int32))
        with self._lock:
            batches, self._rest = divmod(self._rest + len(ids), self.traits.batch_size)
            self._batches += batches
        if self._receiver is None:
            self._receiver = threading.Thread(
                target=self._receive, args=(self._env, self._tokens, report),
                name=f"agym-{self.first}-receiver", daemon=True,
            )  # fmt: skip
            self._receiver.start()
        for _ in range(batches):
            self._tokens.put(True)

    def _mark_begun(self, operation: Operation, ids: Array) -> None:
        """Record that environments are about to begin an operation."""
        if self._doing.any():
            self._meter.end(0, timed=False)
        message = cast(Step | Reset, operation.message)
        steps = isinstance(message, Step)
        start, stop = (operation.start, operation.stop) if steps else (self.first, self.first)
        self._meter.begin(start, stop, whole=False)
        if steps:
            cut = self._phases[ids] == Phase.CUT
            self._doing[ids] = np.select([cut, self._due[ids]], [CUT, RESETS], STEPS)
        else:
            self._doing[ids], self._phases[ids] = RESETS, Phase.RUNNING
            for i in ids.tolist():
                self._cut.pop(i, None)
        self._number[ids], self._plane[ids] = operation.number, message.plane
        self._since[ids] = clock()

    def _check(self, operation: Operation) -> None:
        """Refuse a reset with options, and warn of seeds; recreate a broken one first."""
        reset = operation.message
        if isinstance(reset, Reset):
            if self._broken is not None:  # it may still run anything
                self._stop()
                with suppress(self._catch):
                    self._env.close()
                self._make()
                self._forget()
            for episode in self._episodes:
                episode.reseed = None
            name = type(self._env).__name__
            if options_of_all(reset.options, operation.start, operation.stop):
                raise ValueError(f"{name} takes no options in async_reset")
            if any(seed is not None for seed in reset.seeds or ()):
                warnings.warn(
                    f"{name} takes no seeds in async_reset, so they are ignored: pass seed= to"
                    " agym.make, which gives it to the constructor",
                    stacklevel=2,
                )

    def _stop(self) -> None:
        """Stop the receiver, after it has received everything in flight."""
        if self._receiver is not None:
            self._tokens.put(False)
            self._receiver.join()
            self._receiver = None

    # ---------------------------------------------------------------- the receiver's thread

    def _receive(self, env: Any, tokens: queue.SimpleQueue[bool], report: Report) -> None:
        """Run the receiver's thread, and report what ends it early."""
        try:
            while tokens.get():
                self._receive_batch(env, report)
                self._count_received(1)
        except BaseException as error:
            report(error)
            self._count_received(self._batches)  # the worker's thread may be waiting for them

    def _receive_batch(self, env: Any, report: Report) -> None:
        try:
            result = env.recv()
            with self._lock:
                completions = [] if self._broken is not None else self._take(result)
            report(completions)  # together, so that recv of as many gets one batch
        except self._catch as error:
            self._fail_pending(error, report)

    def _count_received(self, batches: int) -> None:
        with self._lock:
            self._batches -= batches
            self._lock.notify_all()

    def _take(self, result: Any) -> list[Completion]:
        """Write the rows of a batch."""
        check_result(result, STEP, "recv")
        ids, size = np.asarray(result[4].get("env_id")), self.traits.batch_size
        known = ids.shape == (size,) and np.isin(ids, np.flatnonzero(self._doing)).all()
        if not known or len(np.unique(ids)) < size:
            raise ValueError(
                f"recv gave info['env_id']={ids}, where {size} environments are expected that"
                " were sent"
            )
        columns = Columns(self._layout, result[0], (size,), "recv")
        scalars = check_columns(result, size, "recv")
        infos = split_info(result[4], size)
        order = np.argsort(ids)
        ids = ids[order]
        began = self._doing[ids] != STEPS
        cut = {int(i): self._cut.pop(i) for i in ids[self._doing[ids] == CUT].tolist()}
        payload = Payload()
        with self._guard:
            for plane in np.unique(self._plane[ids]).tolist():
                rows = self._rows.plane(plane, self.first, self.stop)
                here = self._plane[ids] == plane
                to, given, zero = ids[here], order[here], ids[here & began]
                for block, column in zip(rows.observations, columns.fixed, strict=True):
                    block[to] = column[given]
                targets = (rows.rewards, rows.terminated, rows.truncated)
                for target, scalar in zip(targets, scalars, strict=True):
                    target[to] = scalar[given]
                    target[zero] = 0
                for i in set(cut).intersection(to.tolist()):
                    self._put_one(rows.observations, i, cut[i], payload.objects)
                    rows.truncated[i] = True
        for i, k in zip(ids.tolist(), order.tolist(), strict=True):
            if self._layout.objects:
                payload.objects.setdefault(self.first + i, columns.objects(k))
            if i not in cut and infos and not self._filter.active:
                payload.infos[self.first + i] = self._with_our_id(infos[k])
        self._end(ids, began, (scalars[1] | scalars[2])[order], [*cut])
        return [
            Completion(number, start, stop, payload.take(range(start, stop)))
            for number, start, stop in self._runs(ids)
        ]

    def _end(self, ids: Array, began: Array, over: Array, cut: list[int]) -> None:
        """Update the state of environments that have completed an operation."""
        new = np.zeros(self._count, bool)
        new[ids] = began | self._over[ids]
        new[cut] = False
        self._count_episodes(new)
        self._over[ids] = ended = over & ~began
        ended = ended | np.isin(ids, cut)
        self._phases[ids] = self._rule.table[self._phases[ids], ended.astype(np.int8)]
        now = clock()
        for i in ids[self._doing[ids] == STEPS].tolist():
            self._meter.timed(self.first + i, now - int(self._since[i]))
        self._doing[ids] = IDLE
        self._meter.end(len(ids), timed=False)
        if self._doing.any():  # start timing the rest
            self._meter.begin(self.first, self.first, whole=False)

    def _runs(self, ids: Array) -> Iterator[tuple[int, int, int]]:
        """Yield spans of completions: adjacent environments with the same operation."""
        numbers = self._number[ids]
        cuts = np.flatnonzero((np.diff(ids) != 1) | (np.diff(numbers) != 0)) + 1
        for some in np.split(ids, cuts):
            start = self.first + int(some[0])
            yield int(self._number[some[0]]), start, start + len(some)

    # ---------------------------------------------------------------- either thread

    def _fail_pending(self, error: BaseException | None, report: Report) -> None:
        """Fail all operations in flight, after the program raised; all but the first as echoes."""
        with self._lock:
            under_way = np.flatnonzero(self._doing)
            if self._broken is None and error is not None:
                steps = (self._doing[under_way] == STEPS).any()
                name = "step" if steps else "reset"
                self._broken = self._failed(error, name, self.first, self.stop)
            completions = []
            for span in self._runs(under_way) if len(under_way) else ():
                assert self._broken is not None
                completions.append(Completion(*span, Payload(problems=[self._broken])))
                self._broken = replace(self._broken, echo=True)
            self._doing[:] = IDLE
        report(completions)
