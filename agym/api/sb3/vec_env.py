"""The Stable-Baselines3 API: a ``VecEnv`` that can replace DummyVecEnv or SubprocVecEnv.

It follows SB3's documentation of ``VecEnv``: steps return four values, finished environments are
reset in the same step, and seeds and options apply to the next reset alone. Errors are agym's, and
leave the other environments usable::

    step_async --> Envs (same-step autoreset) --> step_wait: final_obs  --> terminal_observation
                                                             final_info --> info
                                                             info       --> reset_infos
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, Unpack

import numpy as np
from gymnasium import Env, Wrapper
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvObs, VecEnvStepReturn
from stable_baselines3.common.vec_env.util import obs_space_info

from agym.api.options.build import build
from agym.api.options.environments import EnvLike
from agym.api.options.names import check_option_names
from agym.api.options.options import OPTION_NAMES, BackendLike, EnvOptions, Options
from agym.api.sb3.lazy import deferring_imports
from agym.api.sync import Envs
from agym.api.vector.arguments import check_functions, with_start_method
from agym.core.engine.batches.results import StepResult
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.engine import Engine
from agym.core.engine.stats import Stats
from agym.core.protocol.attributes import (
    Placeholder,
    call_method,
    get_attribute,
    has_attribute,
    identity,
    is_wrapped,
)
from agym.core.protocol.messages.operations import Call
from agym.core.protocol.messages.resets import PerEnvOptions
from agym.core.protocol.typing import Info
from agym.errors import BusyError, Fault, NothingSentError, UsageError

# Options of agym's that are not accepted here.
NOT_HERE = {
    "autoreset": "Stable-Baselines3 resets in the same step",
    "num_envs": "make_vec_env has n_envs, and env_fns has one function per environment",
    "output": "observations are arrays, as Stable-Baselines3 expects them",
    "render_mode": "it is for the environment, so put it into env_kwargs",
}


class AgymVecEnv(VecEnv):
    """Environments on any backend of agym, as Stable-Baselines3's vectorized environment.

    Attributes:
        runner: The underlying :class:`agym.Envs`, for example for ``runner.restart()``.
    """

    runner: Envs
    _pending: Ticket | None = None

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Env[Any, Any]]],
        start_method: str | None = None,
        *,
        backend: BackendLike = "auto",
        sample: Callable[[], Any] | None = None,
        **options: Unpack[EnvOptions],
    ) -> None:
        """Make the environments; the first arguments are SubprocVecEnv's.

        Args:
            env_fns: Functions that make the environments.
            start_method: How worker processes start: ``"spawn"``, ``"forkserver"`` or ``"fork"``.
                If set, ``backend="auto"`` uses worker processes.
            backend: Where environments run; see :func:`agym.make`.
            sample: Makes a similar environment, which ``backend="auto"`` may step to measure it;
                ``None`` if no environment may be stepped before the first ``step``.
            **options: The other options of :func:`agym.make`, such as ``workers``.

        Raises:
            UsageError: An argument is invalid (a ``ValueError``).
            NotImplementedError: The observation space is nested, which SB3 does not support.
            EnvError: A constructor raised.
        """
        factories = [deferring_imports(function) for function in check_functions(env_fns)]
        _check_options(options)
        spec = with_start_method(backend, "start_method", start_method)
        all_options = Options(spec, autoreset="same_step", **options)
        # SB3 gives environments a render mode by default, and its algorithms don't render them.
        self._open(build(factories, None, {}, all_options, sample=sample, renders=False))

    @classmethod
    def vector(
        cls, env: EnvLike, num_envs: int, env_kwargs: dict[str, Any], /, **options: Any
    ) -> Self:
        """Make environments of one vector environment; :func:`agym.sb3.make_vec_env` does this."""
        self = cls.__new__(cls)
        _check_options(options)
        self._open(build(env, num_envs, env_kwargs, Options(autoreset="same_step", **options)))
        return self

    def _open(self, engine: Engine) -> None:
        self.runner = Envs(engine, "array")
        try:
            self._describe()
        except BaseException:
            self.runner.close()
            raise

    def _describe(self) -> None:
        runner = self.runner
        space = runner.single_observation_space
        for key, shape in obs_space_info(space)[1].items():
            if shape is None:
                where = "" if key is None else f" in {key!r}"
                raise UsageError(f"SB3 needs observations of a fixed shape, not {space}{where}")
        super().__init__(runner.num_envs, space, runner.single_action_space)
        self.metadata = runner._life.description().metadata
        if not runner._backend.env_groups and len({*self._apply(None, identity)}) < self.num_envs:
            raise UsageError(
                "two functions in env_fns returned the same environment: each call must make a new"
                " one"
            )
        runner._engine.allow_unreset_steps()  # SB3 does not require a reset before the first step

    # ---------------------------------------------------------------- reset and step

    def reset(self) -> VecEnvObs:
        """Reset every environment, and drop the result of a pending step.

        Raises:
            EnvError: An environment raised.
            WorkerDied: A worker died.
        """
        self._pending = None
        options = PerEnvOptions({i: value for i, value in enumerate(self._options) if value})
        try:
            result = self.runner._call(tuple, self.runner._engine.reset, self._seeds, options)
        finally:  # seeds and options are for this reset only, even if it fails
            self._reset_seeds()
            self._reset_options()
        observations, self.reset_infos = result
        return observations  # type: ignore[no-any-return]

    def step_async(self, actions: Any) -> None:
        """Dispatch a step, and return while the environments run.

        Raises:
            UsageError: Wrong number, shape or dtype of actions; nothing was sent.
            BusyError: A step is pending.
        """
        self._check_idle()
        self._pending = self.runner._begin(self.runner._engine.step, self._to_integers(actions))

    def step(self, actions: Any) -> VecEnvStepReturn:
        """Step every environment: :meth:`step_async`, then :meth:`step_wait`."""
        self._check_idle()
        return self._results(self.runner._step(self._to_integers(actions)))

    def _check_idle(self) -> None:
        if self._pending is not None:
            raise BusyError("a step is pending: call step_wait() before the next step")
        self.runner._wait_for_late()

    def step_wait(self) -> VecEnvStepReturn:
        """Wait for the step.

        Raises:
            NothingSentError: No step is pending.
            EnvError: An environment raised; several errors at once are an ``ExceptionGroup``, too.
            StepTimeout: The deadline passed.
            WorkerDied: A worker died.
        """
        ticket = self._pending
        if ticket is None:
            raise NothingSentError("no step is pending: call step_async() first")
        self.runner._wait(ticket)
        self._pending = None
        return self._results(ticket.result())

    def _results(self, result: StepResult) -> VecEnvStepReturn:
        observations, rewards, terminated, truncated, infos = result
        dones = terminated | truncated
        # For a few flags, this test is twenty times as fast as ``any``.
        ended = np.flatnonzero(dones).tolist() if 1 in dones.tobytes() else ()
        for i in ended:
            infos[i] = self._split_info(i, infos[i])
        for info in infos:
            info["TimeLimit.truncated"] = False
        for i in ended:
            infos[i]["TimeLimit.truncated"] = bool(truncated[i] and not terminated[i])
        return observations, rewards.astype(np.float32), dones, infos

    def _split_info(self, i: int, info: Info) -> Info:
        """Return the info of the step that ended an episode; keep the rest as the reset's info."""
        final: Info = info.pop("final_info")
        final["terminal_observation"] = info.pop("final_obs")
        if isinstance(info.get("fault"), Fault):  # the fault ended the episode
            final["fault"] = info.pop("fault")
        self.reset_infos[i] = info
        return final

    def _to_integers(self, actions: Any) -> Any:
        """Convert float actions to integers without loss; SB3 samples MultiBinary as floats."""
        dtype = self.action_space.dtype
        if dtype is None or dtype.kind not in "iub" or np.asarray(actions).dtype.kind != "f":
            return actions
        whole = np.asarray(actions).astype(dtype)
        return whole if np.array_equal(whole, actions) else actions

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Set the seeds of the next reset: ``seed + i``, or random seeds."""
        if seed is None and self.runner._backend.env_groups:
            # Some vector environments accept no larger seeds.
            seed = int(np.random.randint(2**30))  # noqa: NPY002 # as SB3, which uses NumPy's seed
        return super().seed(seed)

    def set_options(self, options: list[dict[str, Any]] | dict[str, Any] | None = None) -> None:
        """Set options for the next reset: the same for all environments, or a list with one each.

        Raises:
            UsageError: The list has the wrong length.
        """
        if isinstance(options, list) and len(options) != self.num_envs:
            raise UsageError(f"got {len(options)} options for {self.num_envs} environments")
        super().set_options(options)

    def close(self) -> None:
        """Close all environments and stop all workers, by force if necessary. Idempotent."""
        self._pending = None
        self.runner.close()

    @property
    def closed(self) -> bool:
        """Whether the environments are closed."""
        return self.runner.closed

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
        return f"{type(self).__name__}({repr(self.runner).partition('(')[2]}"

    # ---------------------------------------------------------------- single environments

    def get_images(self) -> Sequence[np.ndarray[Any, Any] | None]:
        """Render every environment; return an image of each."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"The render mode is {self.render_mode}, but this method assumes it is `rgb_array`"
                " to obtain images.",
                stacklevel=2,
            )
            return [None] * self.num_envs
        return self.runner.render()

    def has_attr(self, attr_name: str) -> bool:
        """Whether every environment, or a wrapper around it, has an attribute."""
        return all(self._apply(None, has_attribute, attr_name))

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Read an attribute of environments or of wrappers around them.

        Raises:
            AttributeError: An environment does not have it.
        """
        return self._found(attr_name, self._apply(indices, get_attribute, attr_name))

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the outermost wrapper around environments."""
        self._apply(indices, setattr, attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of environments or of wrappers around them.

        ``env_method("snapshot")`` returns snapshots, and ``env_method("restore", snapshot)``
        restores each environment from the same snapshot and returns the observations; see
        :meth:`agym.Envs.snapshot`.

        Raises:
            AttributeError: An environment does not have the method.
            EnvError: The method raised.
        """
        if method_name in ("snapshot", "restore"):
            ids = [range(self.num_envs)[i] for i in self._get_indices(indices)]
            handles = [self.runner[i] for i in ids]
            answers = [getattr(env, method_name)(*method_args) for env in handles]
            return answers if method_name == "snapshot" else [first for first, _ in answers]
        answers = self._apply(indices, call_method, method_name, method_args, method_kwargs)
        return self._found(method_name, answers)

    def env_is_wrapped(
        self, wrapper_class: type[Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Whether a wrapper of some class, or a subclass, is around environments."""
        name = wrapper_class.__module__, wrapper_class.__qualname__
        return self._apply(indices, is_wrapped, *name)

    def _apply(
        self, indices: VecEnvIndices, function: Callable[..., Any], *arguments: Any
    ) -> list[Any]:
        """Call a function with environments, where they run; return results in order of indices."""
        all_ids = range(self.num_envs)
        ids = [all_ids[i] for i in self._get_indices(indices)]  # allows negative indices
        if not ids:
            return []
        sorted_ids = sorted({*ids})
        call = Call(function, arguments)
        answers = self.runner._call(list, self.runner._engine.ask, call, sorted_ids)
        by_id = dict(zip(sorted_ids, answers, strict=True))
        return [by_id[i] for i in ids]

    def _found(self, name: str, answers: list[Any]) -> list[Any]:
        if any(answer is Placeholder.MISSING for answer in answers):
            raise AttributeError(f"the environments have no attribute {name!r}")
        return answers


def _check_options(options: Mapping[str, Any]) -> None:
    check_option_names(options, OPTION_NAMES, where="AgymVecEnv", instead=NOT_HERE)
