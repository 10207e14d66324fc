"""agym: many Gymnasium environments concurrently, behind an asyncio face."""

from agym import log as log
from agym import render as render
from agym import sb3 as sb3
from agym.chaos import Chaos, chaos
from agym.core.async_env import AsyncEnv
from agym.core.debugging import debug
from agym.core.out import RolloutBuffer
from agym.core.results import Batch, Fault, ResetResult, StepResult
from agym.core.stats import EnvStats, Stats, WorkerStats
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
from agym.faces.aio import AsyncEnvHandle, AsyncEnvs, Pending
from agym.faces.sync import EnvHandle, Envs
from agym.faces.vector import AgymVectorEnv
from agym.make import make, make_async, make_vec, register
from agym.plan import plan
from agym.planning.plans import Plan
from agym.render.recording import Recording, record
from agym.rollout import Rollout, rollout
from agym.run import run
from agym.timeline import mark, trace
from agym.timeline_report import Overlap, overlap

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
    "MissingExtraError",
    "NothingSentError",
    "Overlap",
    "Pending",
    "Plan",
    "Recording",
    "ResetNeededError",
    "ResetResult",
    "Rollout",
    "RolloutBuffer",
    "SpaceMismatchError",
    "Stats",
    "StepResult",
    "StepTimeout",
    "UsageError",
    "UsageTypeError",
    "WorkerDied",
    "WorkerDiedGroup",
    "WorkerStats",
    "chaos",
    "debug",
    "make",
    "make_async",
    "make_vec",
    "mark",
    "overlap",
    "plan",
    "record",
    "register",
    "rollout",
    "run",
    "trace",
]
