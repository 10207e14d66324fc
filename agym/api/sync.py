"""The sync API: batches of environments without an event loop, also inside a running one."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn, Self

import gymnasium

from agym.api.base import BaseEnvs, EnvProxy, T, has_own, suggest
from agym.api.handles import Handle
from agym.api.output import Output
from agym.api.waiting import SyncWaiter, close_quickly
from agym.core._system.defer_signals import Uninterrupted
from agym.core.engine.batches.results import Batch, ResetResult, StepResult
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.engine import Engine
from agym.core.engine.snapshots import Snapshot
from agym.core.protocol.arguments import check_batch_size, parse_env_ids
from agym.core.protocol.attributes import Placeholder, has_attribute
from agym.core.protocol.infos.vector_infos import VectorInfos
from agym.core.protocol.messages.failures import name_ids
from agym.core.protocol.messages.operations import Call, GetAttr, Message, Render, SetAttr
from agym.core.protocol.typing import (
    Actions,
    EnvAction,
    EnvObservation,
    Flags,
    Observations,
    Rewards,
)
from agym.errors import AgymError, NothingSentError, UsageTypeError

# How long a daemon thread may keep the engine's lock when the interpreter shuts down.
LEAVE_SECONDS = 1.0


class Envs(BaseEnvs[Observations, Actions, Rewards, Flags]):
    """A batch of environments with Gym's ``reset`` and ``step``; made by :func:`agym.make`.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     observations, rewards, terminated, truncated, infos = envs.step([0, 1])
        ...     rewards, envs.gravity
        ([1.0, 1.0], [9.8, 9.8])

    Other attributes and methods are looked up in every environment: ``envs.gravity`` is a list of
    values, and ``envs.some_method(1)`` a list of results. ``envs.gravity = 1.6`` sets the attribute
    in every environment; a list or tuple has one value for each. ``envs[i]`` and
    ``for env in envs`` are single environments, see :class:`agym.EnvHandle`.

    For type checkers, ``Envs[Observations, Actions]`` names the types of a batch of observations
    and of actions, such as ``Envs[np.ndarray, np.ndarray]``; ``Envs`` alone accepts any.
    """

    def __init__(self, engine: Engine, output: Output) -> None:
        super().__init__(engine, output)
        self._waiter = SyncWaiter(engine)
        self._closing = threading.RLock()
        try:
            self._call(lambda _: self._describe(), self._life.open)
        except BaseException:
            with contextlib.suppress(AgymError):
                self.close()
            raise

    def _call(self, wrap: Callable[[Any], T], begin: Callable[..., Ticket], *arguments: Any) -> T:
        """Start an operation, wait for its result, and return it converted by ``wrap``."""
        with Uninterrupted():
            # Other threads may dispatch between the two: the lock is for the dispatch alone, and
            # the ticket identifies this thread's operation.
            with self._waiter.lock:
                ticket = begin(*arguments)
            self._waiter.wait(ticket)
        if self._notices:
            self._warn()
        return wrap(ticket.result())

    def _step(self, actions: Any, env_ids: Sequence[int] | None = None, out: Any = None) -> Any:
        """Step the environments, and return arrays."""
        result = None
        engine, waiter, inline = self._engine, self._waiter, self._engine.step_inline
        if self._backend.runs_in_caller:
            engine.refuse_in_place(env_ids)
        if inline is not None and env_ids is None and out is None:
            # The environments step in this thread. Outside of ``Uninterrupted``, Ctrl-C reaches
            # them; other threads wait for the lock.
            with waiter.lock:
                result = inline(actions)
            if isinstance(result, Ticket) and not result.done:
                self._wait(result)
        if result is None:
            with Uninterrupted():
                with waiter.lock:
                    result = engine.step(actions, env_ids, out)
                waiter.wait(result)
        if self._notices:
            self._warn()
        if not isinstance(result, Ticket):
            return result
        if result.error is not None:
            raise result.error
        return result.value

    def _begin(self, begin: Callable[..., T], *arguments: Any) -> T:
        """Start an operation for a later :meth:`_wait`."""
        with Uninterrupted(), self._waiter.lock:
            return begin(*arguments)

    def _wait_for_late(self) -> None:
        """Wait for an operation whose caller stopped waiting, and drop its result."""
        late = self._waiter.late
        if late is not None and not late.done:
            self._wait(late)

    def _wait(self, ticket: Ticket, seconds: float | None = None) -> None:
        """Wait until an operation has finished, or for some seconds, after which it goes on."""
        self._waiter.waiting(ticket, seconds)
        if self._notices:
            self._warn()

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
        *,
        env_ids: Sequence[int] | None = None,
        out: Any = None,
    ) -> ResetResult[Observations]:
        """Reset all environments, or some of them.

        Args:
            seed: ``None``; or an integer, with which environment ``i`` gets ``seed + i``; or a list
                with one seed per environment.
            options: Passed to every environment, and again at its automatic resets. Gymnasium's
                ``options={"reset_mask": mask}`` selects environments as ``env_ids`` does.
            env_ids: The environments to reset, ``None`` for all. An empty list does nothing, in
                this method and all others.
            out: As for :meth:`step`; it receives the observations of all environments.

        Returns:
            The latest observations of all environments, and one info per environment, which is
            empty for those that were not reset.

        Raises:
            UsageError: A seed, an id or the mask is invalid.
            EnvError: An environment raised.
            WorkerDied: A worker died.
        """
        return self._call(self._format.reset, self._begin_reset, seed, options, env_ids, out)

    def step(
        self, actions: Actions, *, env_ids: Sequence[int] | None = None, out: Any = None
    ) -> StepResult[Observations, Rewards, Flags]:
        """Step all environments, or some of them.

        Args:
            actions: One action per environment, as a list or as a batch of arrays.
            env_ids: The environments to step, in ascending order, ``None`` for all. The result has
                only these.
            out: Where to write the result, which is also returned: arrays of shape
                ``(n, *shape)``, nested as observations are, for the observations; or
                ``buffer[t]`` of a :meth:`step_buffer`, also for rewards and flags.

        Raises:
            UsageError: Wrong number, shape or dtype of actions, or of ``out``; nothing was sent.
            BusyError: The last step of an environment was sent and not received.
            ResetNeededError: An environment was not reset, or raised; nothing was sent.
            EnvError: An environment raised; several errors at once are an ``ExceptionGroup``, too.
            StepTimeout: The deadline passed.
            WorkerDied: A worker died.
        """
        if env_ids is not None or self._ids is not None:
            env_ids = self._global(env_ids)
        if out is not None:
            out = self._format.check_out(out)
        result: StepResult[Observations, Rewards, Flags] = self._step(actions, env_ids, out)
        infos: Any = result.infos
        if type(infos) is VectorInfos:  # the runner of an AgymVectorEnv
            result = result._replace(infos=infos.split())
        return self._format.step(result) if self._format.converts else result

    def send(self, actions: Actions, env_ids: Sequence[int] | None = None) -> None:
        """Start a step of all environments, or some of them; :meth:`recv` returns the results.

        An environment accepts no other step until this one's result was received. It accepts
        resets, renders and calls, which run after the step; the result can still be received.

        Args:
            actions: One action per environment, as for :meth:`step`.
            env_ids: The environments, in any order, ``None`` for all.

        Raises:
            UsageError: Wrong number, shape or dtype of actions; nothing was sent.
            BusyError: An environment still steps, or its last step was sent and not received.
            ResetNeededError: An environment was not reset, or raised; nothing was sent.
        """
        ids = self._global(env_ids)
        self._engine.refuse_in_place(ids)
        self._begin(self._engine.send, actions, ids, self._ready)

    def recv(
        self, min_envs: int = 1, max_envs: int | None = None, timeout: float | None = None
    ) -> Batch[Observations, Rewards, Flags]:
        """Wait until some of the sent environments have finished their step; return their results.

        Args:
            min_envs: How many environments to wait for; if fewer are in flight, all of them.
            max_envs: How many to return at most, oldest first; ``None`` for all finished ones.
            timeout: Seconds after which to return the finished ones, even if there are none.

        Raises:
            NothingSentError: There is no step that was sent and not received.
            EnvError: An environment raised; the next call returns other results.
            StepTimeout: Environments missed the deadline; the next call returns other results.
            WorkerDied: A worker died; the next call returns other results.
        """
        check_batch_size(min_envs, max_envs, timeout)
        end = None if timeout is None else time.monotonic() + timeout
        batch: Batch | None = None
        engine, waiter = self._engine, self._waiter
        with Uninterrupted():
            # While this thread waits without the lock, another may receive the results that it
            # waited for: then ``receive`` returns ``None``, and this thread waits again.
            while batch is None:
                with waiter.lock:
                    receiver = engine.expect(self._ready, min_envs, end)
                try:
                    waiter.wait(receiver)
                    with waiter.lock:
                        batch = engine.receive(receiver, max_envs)
                finally:
                    with waiter.lock:
                        engine.leave(receiver)
                    self._warn()
        return self._batch_result(batch)

    def as_completed(
        self, min_envs: int = 1, max_envs: int | None = None, timeout: float | None = None
    ) -> Iterator[Batch[Observations, Rewards, Flags]]:
        """Yield batches until everything sent was received; see :meth:`recv`."""
        while self._ready.left or self._ready.errors:
            try:
                batch = self.recv(min_envs, max_envs, timeout)
            except NothingSentError:
                return  # another thread received the last results
            yield batch

    def render(self, env_ids: Sequence[int] | None = None) -> list[Any]:
        """Render all environments, or some of them; return a frame of each, in the order of ids.

        A frame is the value that the environment's ``render`` returns: an array for ``rgb_array``
        and ``depth_array``, a list of arrays for ``rgb_array_list``, a text for ``ansi``. Frames
        never change. Arrays from a worker process are not copied: they are views of the memory that
        the worker wrote into, in the memory order of the environment's array. The worker reuses
        that memory once no array refers to it any more.

        Raises:
            EnvError: An environment raised.
            WorkerDied: A worker died.
        """
        return self._call(list, self._engine.ask, Render(), self._global(env_ids))

    def call(self, name: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method of every environment, or read an attribute; return a list of results."""
        return self._call(list, self._engine.ask, Call(name, args, kwargs), self._ids)

    def get_attr(self, name: str) -> list[Any]:
        """Read an attribute of every environment or of a wrapper around it; dots are allowed.

        For a method, the value is a function that calls the method where the environment runs.

        Raises:
            AttributeError: An environment does not have it.
        """
        return self._call(
            partial(self._attributes, name), self._engine.ask, GetAttr(name), self._ids
        )

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of every environment.

        Args:
            name: The attribute, dots allowed.
            values: A list or tuple with a value per environment, or one value for all.
        """
        message = SetAttr(name, self._each(name, values))
        self._call(lambda _: None, self._engine.ask, message, self._ids)

    def _assign(self, name: str, values: Any, *, optional: bool = False) -> bool:
        """Set an attribute that environments have; return whether any has it, if ``optional``.

        Raises:
            AttributeError: Some environments lack it; a misspelt name would be added silently.
        """
        message = SetAttr(name, self._each(name, values), create=False)
        answers = self._call(list, self._engine.ask, message, self._ids)
        missing = [i for i, answer in enumerate(answers) if answer is Placeholder.MISSING]
        if not missing:
            return True
        if optional and len(missing) == len(answers):
            return False
        others = "" if len(missing) == len(answers) else "; it was set in the other environments"
        raise AttributeError(
            f"environments {name_ids(missing)} have no attribute {name!r}: to add it to them,"
            f" call set_attr({name!r}, ...){others}{suggest(self, name)}"
        )

    def snapshot(self, env_ids: Sequence[int] | None = None) -> list[Snapshot]:
        """Return copies of the states of all environments, or some of them.

        Example:
            >>> import agym
            >>> with agym.make("CartPole-v1", 2) as envs:
            ...     observations, infos = envs.reset(seed=0)
            ...     before = envs.snapshot()
            ...     tried = envs.step([0, 0]).observations
            ...     observations, infos = envs.restore(before)
            ...     again = envs.step([0, 0]).observations
            >>> bool((tried[0] == again[0]).all())
            True

        The environments do not change. The first snapshot of a kind of environment takes longer: it
        makes two more environments, and tests with them that a copy behaves exactly as its
        original.

        Returns:
            A :class:`agym.Snapshot` for each, in ascending order of ids.

        Raises:
            SnapshotError: A state cannot be copied; the message says why, and what to do.
            ResetNeededError: An environment was not reset, or raised since.
        """
        ids = parse_env_ids(self._global(env_ids), self._engine.num_envs)
        return self._call(partial(self._snapshots, ids), self._engine.snapshot, ids)

    def restore(
        self, snapshots: Snapshot | Sequence[Snapshot], env_ids: Sequence[int] | None = None
    ) -> ResetResult[Observations]:
        """Continue all environments, or some of them, from snapshots.

        Args:
            snapshots: One for all, or one for each, in the order of ``env_ids``. They may come from
                other environments, processes or machines.
            env_ids: The environments, ``None`` for all.

        Returns:
            The latest observations of all environments, and the infos of those that were restored,
            as :meth:`reset` returns them.

        Raises:
            UsageError: Wrong number of snapshots, or wrong ids.
            SnapshotError: A snapshot is of another kind of environment.
            EnvError: Restoring failed; the environment must be reset or restored again.
        """
        return self._call(self._format.reset, self._begin_restore, snapshots, env_ids)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the whole run to a file, from which :func:`agym.load` continues it.

        Raises:
            SnapshotError: The state of an environment cannot be copied.
            ResetNeededError: An environment was not reset, or raised since.
            UsageError: The arguments of :func:`agym.make`, or a state, cannot be pickled, or the
                file cannot be written.
        """
        self._check_saved()
        self._recipe.save(path, self.snapshot())

    def restart(self, env_ids: Sequence[int] | None = None) -> list[int]:
        """Replace environments by new ones, which must be reset.

        Args:
            env_ids: The environments; ``None`` for those whose worker died or that were given up.
                Environments of the same dead worker are replaced, too.

        Returns:
            The environments that were replaced.

        Raises:
            BusyError: An environment has an operation under way.
            EnvError: A constructor raised.
            WorkerDied: The worker died again.
        """
        ticket = self._begin(self._engine.restart, self._global(env_ids))
        self._wait(ticket)
        ticket.result()
        return list(ticket.ids)

    def close(self) -> None:
        """Close all environments and stop all workers, by force if necessary. Idempotent."""
        self._close_all()

    def _close_all(self, *, fast: bool = False) -> None:
        error: BaseException | None = None
        closing, waiter = self._life.closing(fast=fast), self._waiter
        with self._closing:  # a second thread waits for the first
            while self._pages:
                self._pages.pop().close()
            with Uninterrupted():
                # ``closing`` asks the workers to close, then terminates them, then kills them.
                while measure := self._begin(next, closing, None):
                    waiter.wait(*measure)
                    error = measure[0].error
                # Another thread may still be about to leave its sleep on the descriptors.
                waiter.wait_until_unused()
                self._life.release()
        if error is not None:
            raise error

    def _leave(self) -> None:
        """Close at interpreter shutdown; daemon threads that still use the engine stay blocked."""
        while self._pages:
            self._pages.pop().close()
        waiter = self._waiter
        # The lock is never released, so that no daemon thread touches an engine that is closed.
        if waiter.lock.acquire(timeout=LEAVE_SECONDS):
            close_quickly(self._engine)
        else:  # a daemon thread holds the lock, because it is stepping an environment
            waiter.abandon()
            self._life.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        """Close; an error of the block takes precedence over errors of closing."""
        if self._life.released:
            return  # at interpreter shutdown, the globals that closing needs may be gone
        # After Ctrl-C, SystemExit or a cancelled task, the program is about to end.
        fast = error is not None and not isinstance(error, Exception)
        with contextlib.suppress(*() if error is None else (AgymError,)):
            self._close_all(fast=fast)

    if not TYPE_CHECKING:  # type checkers report these by themselves

        def __await__(self) -> NoReturn:
            raise UsageTypeError(
                "the environments of agym.make are used without `await`: use `with` and plain"
                " calls, or make them with agym.make_async"
            )

        async def __aenter__(self) -> NoReturn:
            self.__await__()

        async def __aexit__(self, *_: object) -> None:
            """Exist, since ``async with`` looks it up before it calls ``__aenter__``."""

    def __getitem__(self, index: int) -> EnvHandle:
        return EnvHandle(self, self._index(index))

    def __iter__(self) -> Iterator[EnvHandle]:
        return (EnvHandle(self, i) for i in range(self.num_envs))

    @property
    def unwrapped(self) -> Broadcast:
        """The innermost environments: ``envs.unwrapped.gravity`` is a list of values."""
        return Broadcast(self, "unwrapped")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _look_up(self, name: str) -> Any:
        values = self._call(list, self._engine.ask, GetAttr(name), self._ids)
        if any(value is Placeholder.METHOD for value in values):
            return partial(self.call, name)
        return self._attributes(name, values)


class Broadcast(EnvProxy):
    """An object inside every environment; its attributes are lists of values."""

    def __init__(self, envs: Envs, path: str) -> None:
        self._envs = envs
        self._path = path

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _look_up(self, name: str) -> Any:
        return self._envs._look_up(f"{self._path}.{name}")

    def _assign(self, name: str, value: Any) -> None:
        self._envs._assign(f"{self._path}.{name}", value)

    def __repr__(self) -> str:
        return f"Broadcast({self._envs!r}, {self._path!r})"


class EnvHandle(Handle, gymnasium.Env[EnvObservation, EnvAction]):  # type: ignore[override]
    """One environment of a batch, as a ``gymnasium.Env``; Gymnasium's wrappers accept it.

    Example:
        >>> import agym
        >>> with agym.make("CartPole-v1", 2) as envs:
        ...     env = envs[0]
        ...     observation, info = env.reset(seed=0)
        ...     observation, reward, terminated, truncated, info = env.step(0)
        >>> reward
        1.0

    With ``output="torch"`` or ``"jax"``, observations are tensors or JAX arrays; rewards and flags
    are always plain numbers. ``env.gravity`` reads an attribute of the environment, and
    ``env.gravity = 1.6`` sets it. ``with envs[0] as env:`` closes this environment alone.

    A type checker cannot derive the types of one observation and action from those of a batch.
    Annotate them: ``env: agym.EnvHandle[np.ndarray, int] = envs[0]``.
    """

    _envs: Envs[Any, Any]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[EnvObservation, dict[str, Any]]:
        """Reset the environment; return ``observation, info``."""
        return self._envs._call(self._one_reset, self._begin_reset, seed, options)

    def step(self, action: EnvAction) -> tuple[EnvObservation, float, bool, bool, dict[str, Any]]:
        """Step the environment; return ``observation, reward, terminated, truncated, info``."""
        return self._one_step(self._envs._step([action], [self._id]))

    def render(self) -> Any:
        """Render the environment."""
        return self._ask(Render())

    def snapshot(self) -> Snapshot:
        """Return a copy of the environment's state; see :meth:`Envs.snapshot`."""
        envs = self._envs
        return envs._call(self._one_snapshot, envs._engine.snapshot, [self._id])

    def restore(self, snapshot: Snapshot) -> tuple[EnvObservation, dict[str, Any]]:
        """Continue from a snapshot; return ``observation, info``; see :meth:`Envs.restore`."""
        return self._envs._call(self._one_reset, self._begin_restore, snapshot)

    def branch(self, count: int | None = None, *, into: Sequence[int] | None = None) -> list[Self]:
        """Put other environments into the state of this one; return their handles.

        Example:
            >>> import agym
            >>> with agym.make("CartPole-v1", 3) as envs:
            ...     observation, info = envs[0].reset(seed=0)
            ...     left, right = envs[0].branch(2)
            ...     velocities = left.step(0)[0][1], right.step(1)[0][1]
            >>> bool(velocities[0] < 0 < velocities[1])
            True

        Args:
            count: How many environments, by default all others (of the group, after
                :meth:`Envs.split`).
            into: Which environments, by default the first others.

        Returns:
            A handle for each branch.

        Raises:
            UsageError: There are fewer other environments.
            SnapshotError: The state cannot be copied.
        """
        envs = self._envs
        others = envs._others(self.index, count, into)
        begin = partial(envs._begin_restore, only_these=True)
        envs._call(lambda _: None, begin, self.snapshot(), others)
        return [type(self)(envs, i) for i in others]

    def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method, or read an attribute."""
        return self._ask(Call(self._path + name, args, kwargs))

    def get_attr(self, name: str) -> Any:
        """Read an attribute, dots allowed.

        Raises:
            AttributeError: The environment does not have it.
        """
        return self._found(name, self._ask(GetAttr(self._path + name)))

    def set_attr(self, name: str, value: Any) -> None:
        """Set or add an attribute, dots allowed."""
        self._ask(SetAttr(self._path + name, [value]))

    def _assign(self, name: str, value: Any) -> None:
        if not self.set_wrapper_attr(name, value, force=False):
            raise AttributeError(
                f"environment {self._id} has no attribute {name!r}: to add it, call"
                f" set_attr({name!r}, ...){suggest(self, name)}"
            )

    def _ask(self, message: Message) -> Any:
        envs = self._envs
        return envs._call(itemgetter(0), envs._engine.ask, message, [self._id])

    def close(self) -> None:
        """Close this environment alone. Idempotent."""
        if not self.closed:
            self._envs._call(lambda _: None, self._envs._engine.close_env, self._id)

    # ---------------------------------------------------------------- for Gymnasium's wrappers

    def has_wrapper_attr(self, name: str) -> bool:
        """Whether there is an attribute; its value is not transferred."""
        arguments = (self._path + name,)
        return has_own(self, name) or bool(self._ask(Call(has_attribute, arguments)))

    def get_wrapper_attr(self, name: str) -> Any:
        """Read an attribute, of the handle or the environment."""
        return getattr(self, name) if has_own(self, name) else self.get_attr(name)

    def set_wrapper_attr(self, name: str, value: Any, *, force: bool = True) -> bool:
        """Set an attribute, of the handle or the environment; return whether it existed."""
        if has_own(self, name):
            setattr(self, name, value)
            return True
        message = SetAttr(self._path + name, [value], create=force)
        return self._ask(message) is not Placeholder.MISSING

    @property
    def np_random(self) -> Any:
        """The environment's random number generator; a copy unless it runs in this process."""
        return self.get_attr("np_random")

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.set_attr("np_random", value)

    @property
    def np_random_seed(self) -> int:
        """The seed of ``np_random``."""
        seed: int = self.get_attr("np_random_seed")
        return seed

    @property
    def _np_random(self) -> Any:  # type: ignore[override]
        return self.get_attr("unwrapped._np_random")

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def _look_up(self, name: str) -> Any:
        return self.get_attr(name)
