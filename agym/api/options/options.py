"""The options that the functions which make environments have in common."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypedDict, get_args

from gymnasium.vector import AutoresetMode

from agym.api.output import Output, make_output_format
from agym.core.backends.options import SPECS, BackendName, BackendSpec
from agym.core.engine.faults.fault_policy import FaultMode, FaultPolicy
from agym.core.hosts.episode import parse_mode
from agym.core.protocol.arguments import check_choice, check_count, check_flag, check_seconds
from agym.core.protocol.infos.policy import InfoPolicy
from agym.errors import UsageError

BackendLike = BackendName | BackendSpec
Autoreset = Literal["disabled", "next_step", "same_step"]
AutoresetLike = Autoreset | AutoresetMode
Infos = Literal["all", "episode", "none"]
OnFault = FaultMode | FaultPolicy


class EnvOptions(TypedDict, total=False):
    """agym's options of classes whose other arguments are another library's."""

    workers: int | None
    infos: Infos
    episode_stats: bool
    timeout: float | None
    on_fault: OnFault
    rate_limit: float | None


class VecEnvOptions(EnvOptions, total=False):
    """``EnvOptions`` and the backend, for functions that have no parameter for it."""

    backend: BackendLike


@dataclass(frozen=True)
class Options:
    """Checked options; see :func:`agym.make`.

    Attributes:
        spec: The backend with its own options and the number of workers.
        autoreset_mode: What follows an episode's end.
        fault_policy: How faults are handled.
        info_policy: Which infos are reported.

    Raises:
        UsageError: An option is invalid.
    """

    backend: BackendLike = "auto"
    workers: int | None = None
    autoreset: AutoresetLike = "next_step"
    output: Output = "array"
    copy: bool = True
    infos: Infos = "all"
    episode_stats: bool = False
    timeout: float | None = None
    on_fault: OnFault = "raise"
    rate_limit: float | None = None

    spec: BackendSpec = field(init=False)
    autoreset_mode: AutoresetMode = field(init=False)
    fault_policy: FaultPolicy = field(init=False)
    info_policy: InfoPolicy = field(init=False)

    def __post_init__(self) -> None:
        check_flag("copy", self.copy)
        make_output_format(self.output, copy=self.copy)  # for its checks
        if self.timeout is not None:
            check_seconds("timeout", self.timeout)
        if self.rate_limit is not None:
            check_seconds("rate_limit", self.rate_limit, "calls per second", ", or None")
        derived = {
            "spec": with_workers(parse_backend(self.backend), self.workers),
            "autoreset_mode": parse_mode(self.autoreset),
            "fault_policy": _fault_policy(self.on_fault),
            "info_policy": _info_policy(self.infos, self.episode_stats),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def needs_no_engine(self) -> bool:
        """Whether a vector environment can step in the caller's thread, without an engine."""
        plain = Options(autoreset=self.autoreset)
        return self == plain and self.autoreset_mode is not AutoresetMode.DISABLED


# Keywords that are never passed to an environment.
OPTION_NAMES = ("num_envs", *(option.name for option in fields(Options) if option.init))


def parse_backend(backend: BackendLike) -> BackendSpec:
    """Parse ``backend``: a name, or an object of ``agym.backends`` or of a third-party class.

    Raises:
        UsageError: It is something else.
    """
    if isinstance(backend, BackendSpec) and (backend.name in SPECS or backend.port is not None):
        return backend
    if isinstance(backend, type) and issubclass(backend, BackendSpec):
        name = backend.__name__
        call = f"agym.backends.{name}()" if backend in SPECS.values() else f"{name}()"
        raise UsageError(f"backend={name} is a class: call it, {call}")
    check_choice("backend", backend, [*SPECS], ", or an object of agym.backends")
    return SPECS[str(backend)]()


def _fault_policy(on_fault: OnFault) -> FaultPolicy:
    return on_fault if isinstance(on_fault, FaultPolicy) else FaultPolicy(on_fault)


def with_workers(spec: BackendSpec, workers: int | None) -> BackendSpec:
    """Set the number of workers.

    Raises:
        UsageError: It is not a positive integer, or contradicts the number of the spec.
    """
    if workers is None:
        return spec
    workers = check_count("workers", workers)
    if spec.workers not in (None, workers):
        raise UsageError(f"workers={workers} contradicts {spec!r}: pass the number of workers once")
    return replace(spec, workers=workers)


def _info_policy(infos: Any, episode_stats: bool) -> InfoPolicy:
    check_choice("infos", infos, get_args(Infos))
    check_flag("episode_stats", episode_stats)
    if episode_stats and infos == "none":
        raise UsageError("episode_stats=True needs infos, but infos='none': use infos='episode'")
    return InfoPolicy(infos, episode_stats)
