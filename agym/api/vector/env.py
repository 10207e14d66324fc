"""The Gymnasium API: a ``gymnasium.vector.VectorEnv`` that can replace AsyncVectorEnv.

It follows Gymnasium's documentation of vector environments, and raises the same error classes. It
recovers where AsyncVectorEnv does not: after a timeout of ``step_wait``, the next call waits for
the late step and drops its result; environments that raised can be reset and used again; and the
options of a reset apply to automatic resets, too.
"""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar, Unpack

import numpy as np
from gymnasium import Env, logger
from gymnasium.error import AlreadyPendingCallError, ClosedEnvironmentError, NoAsyncCallError
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_differing_spaces, iterate
from numpy.typing import NDArray

from agym.api.base import is_own
from agym.api.options.build import build
from agym.api.options.names import check_option_names
from agym.api.options.options import OPTION_NAMES, AutoresetLike, BackendLike, EnvOptions, Options
from agym.api.sync import Envs
from agym.api.vector import arguments
from agym.core.engine.batches.results import ResetResult, StepResult
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.engine import Engine
from agym.core.engine.stats import Stats
from agym.core.hosts.factories import LooseSpaceFactory
from agym.core.protocol.infos.vector_infos import VectorInfos
from agym.core.protocol.messages.operations import Call, Render
from agym.errors import (
    AgymErrorGroup,
    EnvError,
    InvalidResult,
    RemoteTraceback,
    SpaceMismatchError,
    UsageError,
)

T = TypeVar("T")
Infos = dict[str, Any]
Steps = tuple[Any, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Infos]

HOW_TO_DIFFER = (
    "Here the sub-environments observation spaces are not equivalent. If this is intentional,"
    " use `observation_mode='different'` instead."
)


class AgymVectorEnv(VectorEnv[Any, Any, Any]):
    """Environments on any backend of agym, with the API of Gymnasium's ``AsyncVectorEnv``.

    Example:
        >>> import agym, gymnasium
        >>> envs = agym.AgymVectorEnv([lambda: gymnasium.make("CartPole-v1")] * 3)
        >>> observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (3, 4)
        >>> envs.close()

    ``envs.gravity = 1.6`` sets an attribute in every environment, as ``set_attr`` does, and
    ``get_attr`` reads it.

    Attributes:
        runner: The underlying :class:`agym.Envs`, for example for ``runner.restart()``.
        autoreset_mode: What follows an episode's end.
    """

    runner: Envs
    autoreset_mode: AutoresetMode

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        shared_memory: bool = True,
        copy: bool = True,
        context: str | None = None,
        daemon: bool = True,
        worker: Callable[..., None] | None = None,
        observation_mode: arguments.ObservationMode = "same",
        autoreset_mode: AutoresetLike = AutoresetMode.NEXT_STEP,
        max_concurrency: int | None = None,
        *,
        backend: BackendLike = "auto",
        **options: Unpack[EnvOptions],
    ) -> None:
        """Make the environments; the arguments are AsyncVectorEnv's, and agym's options.

        Args:
            env_fns: Functions that make the environments.
            shared_memory: Ignored: values of a fixed size are always in shared memory; others, such
                as values of custom spaces, are pickled.
            copy: ``False`` for observations that are valid until the second step after theirs.
            context: How worker processes start: ``"spawn"``, ``"forkserver"`` or ``"fork"``. If
                set, ``backend="auto"`` uses worker processes.
            daemon: Ignored: worker processes end with this process, and may have children.
            worker: Must be ``None``: an agym worker runs several environments.
            observation_mode: ``"same"``, ``"different"`` (spaces that differ in their bounds), or
                a tuple of the batch's space and the space of one environment.
            autoreset_mode: What follows an episode's end.
            max_concurrency: How many environments may step at once; limits ``workers``. If set,
                ``backend="auto"`` uses worker processes.
            backend: Where environments run; see :func:`agym.make`.
            **options: The other options of :func:`agym.make`.

        Raises:
            SpaceMismatchError: Spaces of environments differ (a ``RuntimeError``).
            ValueError: An argument is invalid.
            Exception: A constructor raised it.
        """
        factories = arguments.check_functions(env_fns)
        check_option_names(options, OPTION_NAMES, where="AgymVectorEnv", instead=arguments.NOT_HERE)
        arguments.check_worker(worker)
        arguments.check_mode(observation_mode)
        spec = arguments.with_start_method(backend, "context", context)
        spec = arguments.with_max_concurrency(spec, options.pop("workers", None), max_concurrency)
        if observation_mode != "same":
            factories = [LooseSpaceFactory(factory) for factory in factories]
        all_options = Options(spec, autoreset=autoreset_mode, copy=copy, **options)
        engine = build(factories, None, {}, all_options, vector_infos=True)
        self._open(engine, observation_mode)

    @classmethod
    def over(cls, engine: Engine) -> Self:
        """Wrap an engine; :func:`agym.make_vec` does this."""
        self = cls.__new__(cls)
        self._open(engine)
        self.spec = self.runner.spec
        return self

    def _open(self, engine: Engine, observation_mode: arguments.ObservationMode = "same") -> None:
        # The operation that was started and not waited for; at most one.
        self._pending: list[Ticket] = []
        try:
            self.runner = Envs(engine, "array")
        except (EnvError, AgymErrorGroup) as error:
            _raise_env_error(error)
        except SpaceMismatchError as error:
            if observation_mode != "same" or "observation_space" not in str(error):
                raise
            raise SpaceMismatchError(f"{error}. {HOW_TO_DIFFER}") from None
        self._engine = self.runner._engine
        self._engine.allow_unreset_steps(lambda actions: iterate(self.action_space, actions))
        try:
            self._describe(observation_mode)
        except BaseException:
            self.runner.close()
            raise

    def _describe(self, observation_mode: arguments.ObservationMode) -> None:
        runner = self.runner
        self.num_envs = runner.num_envs
        self.metadata = runner.metadata
        self.autoreset_mode = runner.metadata["autoreset_mode"]
        self.render_mode = runner.render_mode
        self.single_action_space = runner.single_action_space
        self.action_space = runner.action_space
        self.single_observation_space = env_space = runner.single_observation_space
        self.observation_space = runner.observation_space
        if observation_mode == "different":
            each = runner.get_attr("observation_space")
            self.observation_space = batch_differing_spaces(each)
        elif isinstance(observation_mode, tuple):
            batch, single = observation_mode
            if not is_space_dtype_shape_equiv(single, env_space):
                raise SpaceMismatchError(
                    f"the observation spaces {single}, given as observation_mode, and {env_space},"
                    " of the environments, do not share a common shape and dtype"
                )
            self.observation_space, self.single_observation_space = batch, single

    # ---------------------------------------------------------------- reset and step

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Infos | None = None
    ) -> tuple[Any, Infos]:
        """Reset all environments, or those that ``options["reset_mask"]`` selects.

        Returns:
            The latest observations of all, and infos as a dict of arrays with masks.
        """
        self.reset_async(seed, options)
        return self._wait_now(self.reset_wait)

    def reset_async(
        self, seed: int | Sequence[int | None] | None = None, options: Infos | None = None
    ) -> None:
        """Start a reset for :meth:`reset_wait`.

        Raises:
            ClosedEnvironmentError: The environments are closed.
            AlreadyPendingCallError: Another call is pending.
            TypeError: The mask is not a boolean array.
            ValueError: The seeds or the mask are not one per environment.
        """
        self._start("reset_async", self._engine.reset, seed, options)

    def reset_wait(self, timeout: float | None = None) -> tuple[Any, Infos]:
        """Wait for the pending reset.

        Raises:
            ClosedEnvironmentError: The environments are closed.
            NoAsyncCallError: No reset is pending.
            multiprocessing.TimeoutError: ``timeout`` seconds have passed. The result is dropped.
            UsageError: ``timeout`` is not ``None``, and the environments run in this thread.
        """
        result: ResetResult[Any] = self._wait("reset", timeout)
        return result.observations, self._batch_infos(result.infos)

    def step(self, actions: Any) -> Steps:
        """Step all environments.

        Args:
            actions: A batch, an element of ``action_space``.

        Returns:
            Observations, rewards ``float64[n]``, terminations and truncations ``bool[n]``, infos.
        """
        self._check_idle("step_async")
        try:
            result = self.runner._step(actions)
        except (EnvError, AgymErrorGroup) as error:
            _raise_env_error(error)
        return (*result[:4], self._batch_infos(result.infos))

    def step_async(self, actions: Any) -> None:
        """Start a step for :meth:`step_wait`.

        Raises:
            ClosedEnvironmentError: The environments are closed.
            AlreadyPendingCallError: Another call is pending.
            ValueError: Wrong number, shape or dtype of actions; nothing was sent.
        """
        self._start("step_async", self._engine.step, actions)

    def step_wait(self, timeout: float | None = None) -> Steps:
        """Wait for the pending step; see :meth:`step` and :meth:`reset_wait`.

        A result that is dropped after a timeout may include the end of an episode.
        """
        result: StepResult[Any] = self._wait("step", timeout)
        return (*result[:4], self._batch_infos(result.infos))

    # ---------------------------------------------------------------- calls

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of every environment, or read an attribute; return the results."""
        self.call_async(name, *args, **kwargs)
        return self._wait_now(self.call_wait)

    def call_async(self, name: str, /, *args: Any, **kwargs: Any) -> None:
        """Start a call for :meth:`call_wait`; see :meth:`reset_async` for the errors."""
        if name in ("reset", "step", "close"):
            raise UsageError(f"call({name!r}) would bypass the runner: use {name}()")
        self._start("call_async", self._engine.ask, Call(name, args, kwargs))

    def call_wait(self, timeout: float | None = None) -> tuple[Any, ...]:
        """Wait for the pending call; see :meth:`reset_wait`."""
        return tuple(self._wait("call", timeout))

    def render(self) -> tuple[Any, ...]:
        """Render every environment; return a frame of each."""
        self._start("call_async", self._engine.ask, Render())
        return tuple(self._wait_now(partial(self._wait, "render", None)))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of every environment; a method is called, as in Gymnasium."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute in every environment; a list or tuple has a value for each."""
        self._check_idle("set_attr")
        _with_own_errors(self.runner.set_attr, name, values)

    if not TYPE_CHECKING:  # type checkers report these by themselves

        def __getattr__(self, name: str) -> NoReturn:
            """Refuse, with the call that reads the attribute from the environments.

            Unlike :class:`agym.Envs`, do not look it up there: libraries classify a vector
            environment by its attributes. TorchRL treats an object with ``get_wrapper_attr`` as a
            single environment.
            """
            call = f"envs.get_attr({name!r})"
            remedy = "" if is_own(self, name) else f": {call} reads it in every environment"
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}{remedy}")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the environments if they have it, otherwise of this object.

        In a subclass, always set it in this object.
        """
        open_and_plain = type(self) is AgymVectorEnv and "runner" in vars(self)
        if not open_and_plain or is_own(self, name) or not self._set_in_envs(name, value):
            super().__setattr__(name, value)

    def _set_in_envs(self, name: str, value: Any) -> bool:
        """Set an attribute that environments have; return whether any has it."""
        self._check_idle("set_attr")
        return _with_own_errors(partial(self.runner._assign, optional=True), name, value)

    @property
    def backend(self) -> str:
        """The name of the backend; with ``backend="auto"``, the one that was chosen."""
        return self.runner.backend

    @property
    def workers(self) -> int:
        """Number of workers; see :attr:`agym.Envs.workers`."""
        return self.runner.workers

    def stats(self) -> Stats:
        """Return statistics of the run, without waiting; see :class:`agym.Stats`."""
        return self.runner.stats()

    def __repr__(self) -> str:
        return super().__repr__().removesuffix(")") + (", closed)" if self.closed else ")")

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The environments' random number generators; copies for environments in workers."""
        return self.get_attr("np_random")

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seeds of ``np_random``."""
        return self.get_attr("np_random_seed")

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Close the environments.

        Args:
            timeout: How many seconds to wait for a pending call; ``None`` for the usual time that
                workers have to close.
            terminate: Do not wait for environments that are busy.
        """
        if self._pending:
            (ticket,) = self._pending
            logger.warn(
                f"Calling `close` while waiting for a pending call to `{ticket.message.name}` to"
                " complete."
            )
            if timeout is not None and not terminate:  # otherwise closing has its own deadline
                self.runner._wait(ticket, timeout)
                terminate = not ticket.done
        self.closed = True  # even if closing raises
        self.runner._close_all(fast=terminate)

    # ---------------------------------------------------------------- inside

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(
                f"Trying to operate on `{type(self).__name__}`, after a call to `close()`."
            )

    def _check_idle(self, method: str) -> None:
        """Refuse a call while another is pending; wait for a late call that has timed out."""
        self._check_open()
        if self._pending:
            kind = self._pending[0].message.name
            raise AlreadyPendingCallError(
                f"Calling `{method}` while waiting for a pending call to `{kind}` to complete.",
                kind,
            )
        self.runner._wait_for_late()

    def _start(self, method: str, begin: Callable[..., Ticket], *arguments: Any) -> None:
        """Start an operation for :meth:`_wait`; ``method`` is its name in error messages."""
        self._check_idle(method)
        self._pending.append(self.runner._begin(begin, *arguments))

    def _wait_now(self, wait: Callable[[], T]) -> T:
        try:
            return wait()
        finally:
            # Also after Ctrl-C: the caller of ``step`` has no pending call to wait for.
            self._pending.clear()

    def _wait(self, kind: str, timeout: float | None) -> Any:
        self._check_open()
        ticket = self._pending[0] if self._pending else None
        if ticket is None or ticket.message.name != kind:
            raise NoAsyncCallError(
                f"Calling `{kind}_wait` without any prior call to `{kind}_async`.", kind
            )
        if timeout is not None and self.runner._backend.inline is not None:
            raise UsageError(
                f"{kind}_wait(timeout={timeout!r}) cannot stop waiting, because with"
                f" backend={self.backend!r} the environments run in this thread: use"
                " backend='thread' or backend='process', or leave the timeout out"
            )
        self.runner._wait(ticket, timeout)
        self._pending.clear()
        if not ticket.done:
            raise multiprocessing.TimeoutError(
                f"The call to `{kind}_wait` has timed out after {timeout} second(s)."
            )
        return _with_own_errors(ticket.result)

    def _batch_infos(self, infos: list[Infos] | VectorInfos) -> Infos:
        if isinstance(infos, VectorInfos):
            return infos.columns
        batch: Infos = {}
        for i, info in enumerate(infos):
            if info:
                batch = self._add_info(batch, info, i)
        return batch


def _with_own_errors(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function, and raise the environments' errors as Gymnasium does."""
    try:
        return function(*arguments)
    except (EnvError, AgymErrorGroup) as error:
        _raise_env_error(error)


def _raise_env_error(error: EnvError | AgymErrorGroup) -> NoReturn:
    """Raise the environment's exception, after logging it as Gymnasium does.

    Despite Gymnasium's text, the environment is not shut down: it can be reset and used again.
    """
    errors = error.exceptions if isinstance(error, AgymErrorGroup) else [error]
    env_errors = [e for e in errors if isinstance(e, EnvError)]
    if len(env_errors) < len(errors):  # a worker died, too; Gymnasium has no error for that
        raise error
    for e in env_errors:
        logger.error(f"Received the following error from Worker-{e.env_id} - Shutting it down")
        logger.error("%s", _traceback(e))
    logger.error("Raising the last exception back to the main process.")
    exception = env_errors[-1].exception
    if isinstance(exception, Exception) and not isinstance(exception, InvalidResult):
        raise exception from error
    raise env_errors[-1]


def _traceback(error: EnvError) -> str:
    cause = error.__cause__
    if cause is None or isinstance(cause, RemoteTraceback):
        return str(cause).lstrip()
    return "".join(traceback.format_exception(cause))
