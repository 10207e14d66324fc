"""agym: many Gymnasium environments concurrently, with asyncio or without."""

import importlib
from typing import TYPE_CHECKING, Any

from agym import backends
from agym.api.aio import AsyncEnvHandle, AsyncEnvs, Pending
from agym.api.make import make, make_async, make_vec, register
from agym.api.sync import EnvHandle, Envs
from agym.api.vector.env import AgymVectorEnv
from agym.backends.options import Recycle
from agym.engine.batches.debugging import debug
from agym.engine.batches.out_target import RolloutBuffer
from agym.engine.batches.results import Batch, ResetResult, StepResult
from agym.engine.faults.policy import FaultPolicy
from agym.engine.stats import EnvStats, Stats, WorkerStats
from agym.envs import registration as registration
from agym.errors import (
    AgymError,
    AgymErrorGroup,
    BusyError,
    ClosedError,
    CrashLoopError,
    CrashLoopErrorGroup,
    EnvError,
    EnvErrorGroup,
    Fault,
    MissingExtraError,
    NothingSentError,
    ResetNeededError,
    SpaceMismatchError,
    StepTimeout,
    UsageError,
    UsageTypeError,
    WorkerDied,
    WorkerDiedGroup,
)
from agym.hosts.async_env import AsyncEnv

if TYPE_CHECKING:
    from agym import sb3
    from agym.api.auto.plan import plan
    from agym.api.rollout import Rollout, rollout
    from agym.planning.plans import Plan
    from agym.tools.chaos import Chaos, chaos
    from agym.tools.live.page import watch
    from agym.tools.run import run
    from agym.tools.tensorboard.tensorboard import TensorBoard
    from agym.tools.trace.report import Overlap, overlap
    from agym.tools.trace.timeline import mark, trace
    from agym.tools.video.recording import Recording, record
    from agym.tools.video.tiling import mosaic

__version__ = "0.1.0"

registration.register_games()

__all__ = [
    "AgymError",
    "AgymErrorGroup",
    "AgymVectorEnv",
    "AsyncEnv",
    "AsyncEnvHandle",
    "AsyncEnvs",
    "Batch",
    "BusyError",
    "Chaos",
    "ClosedError",
    "CrashLoopError",
    "CrashLoopErrorGroup",
    "EnvError",
    "EnvErrorGroup",
    "EnvHandle",
    "EnvStats",
    "Envs",
    "Fault",
    "FaultPolicy",
    "MissingExtraError",
    "NothingSentError",
    "Overlap",
    "Pending",
    "Plan",
    "Recording",
    "Recycle",
    "ResetNeededError",
    "ResetResult",
    "Rollout",
    "RolloutBuffer",
    "SpaceMismatchError",
    "Stats",
    "StepResult",
    "StepTimeout",
    "TensorBoard",
    "UsageError",
    "UsageTypeError",
    "WorkerDied",
    "WorkerDiedGroup",
    "WorkerStats",
    "backends",
    "chaos",
    "debug",
    "make",
    "make_async",
    "make_vec",
    "mark",
    "mosaic",
    "overlap",
    "plan",
    "record",
    "register",
    "rollout",
    "run",
    "sb3",
    "trace",
    "watch",
]

# The modules of names that are imported on first use.
_LATER = {
    "Chaos": "agym.tools.chaos",
    "Overlap": "agym.tools.trace.report",
    "Plan": "agym.planning.plans",
    "Recording": "agym.tools.video.recording",
    "Rollout": "agym.api.rollout",
    "TensorBoard": "agym.tools.tensorboard.tensorboard",
    "chaos": "agym.tools.chaos",
    "mark": "agym.tools.trace.timeline",
    "mosaic": "agym.tools.video.tiling",
    "overlap": "agym.tools.trace.report",
    "plan": "agym.api.auto.plan",
    "record": "agym.tools.video.recording",
    "rollout": "agym.api.rollout",
    "run": "agym.tools.run",
    "sb3": "agym.sb3",
    "trace": "agym.tools.trace.timeline",
    "watch": "agym.tools.live.page",
}


def __getattr__(name: str) -> Any:
    """Import what most programs do not use, when it is used."""
    if name not in _LATER:
        raise AttributeError(f"module 'agym' has no attribute {name!r}")
    module = importlib.import_module(_LATER[name])
    value = globals()[name] = module if name == "sb3" else getattr(module, name)
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
