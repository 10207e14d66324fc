"""agym: many Gymnasium environments concurrently, with asyncio or without.

Each name is imported when it is first used. So a worker process, which imports this package too,
loads the hosts alone, and no program loads the live page, the recorder or the planner in vain.
"""

import importlib
from typing import TYPE_CHECKING, Any

from agym.envs import registration as registration

if TYPE_CHECKING:
    from agym import backends, sb3
    from agym.api.aio import AsyncEnvHandle, AsyncEnvs, Pending
    from agym.api.auto.plan import plan
    from agym.api.make import envs_of, make, make_async
    from agym.api.saving import restore_envs
    from agym.api.sync import EnvHandle, Envs
    from agym.api.vector.env import AgymVectorEnv
    from agym.api.vector.make import make_vec
    from agym.backends.options import Recycle
    from agym.engine.batches.out_target import RolloutBuffer
    from agym.engine.batches.results import Batch, ResetResult, StepResult
    from agym.engine.faults.policy import FaultPolicy
    from agym.engine.hooks import Hook
    from agym.engine.snapshots import Snapshot, load_snapshot
    from agym.engine.stats import EnvStats, Stats, WorkerStats
    from agym.engine.tap import Tap
    from agym.envs.rules.vectorize import register_rules, vectorize
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
        GroupError,
        MissingExtraError,
        NothingSentError,
        RemoteError,
        ResetNeededError,
        SnapshotError,
        SpaceMismatchError,
        StepTimeout,
        UsageError,
        UsageTypeError,
        WorkerDied,
        WorkerDiedGroup,
    )
    from agym.hosts.async_env import AsyncEnv
    from agym.hosts.snapshots import codecs as snapshots
    from agym.planning.plans import Plan
    from agym.tools import adapters
    from agym.tools.chaos import Chaos, chaos
    from agym.tools.live.page import watch
    from agym.tools.openenv.client import openenv
    from agym.tools.rollouts.batched import Answer, BatchedPolicy, batched
    from agym.tools.rollouts.group import Group, group
    from agym.tools.rollouts.policy_stats import PolicyStats
    from agym.tools.rollouts.rollout import Rollout, rollout
    from agym.tools.run import run
    from agym.tools.serving.limits import ServerLimits
    from agym.tools.serving.serve import serve
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
    "Answer",
    "AsyncEnv",
    "AsyncEnvHandle",
    "AsyncEnvs",
    "Batch",
    "BatchedPolicy",
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
    "Group",
    "GroupError",
    "Hook",
    "MissingExtraError",
    "NothingSentError",
    "Overlap",
    "Pending",
    "Plan",
    "PolicyStats",
    "Recording",
    "Recycle",
    "RemoteError",
    "ResetNeededError",
    "ResetResult",
    "Rollout",
    "RolloutBuffer",
    "ServerLimits",
    "Snapshot",
    "SnapshotError",
    "SpaceMismatchError",
    "Stats",
    "StepResult",
    "StepTimeout",
    "Tap",
    "TensorBoard",
    "UsageError",
    "UsageTypeError",
    "WorkerDied",
    "WorkerDiedGroup",
    "WorkerStats",
    "adapters",
    "backends",
    "batched",
    "chaos",
    "envs_of",
    "group",
    "load_snapshot",
    "make",
    "make_async",
    "make_vec",
    "mark",
    "mosaic",
    "openenv",
    "overlap",
    "plan",
    "record",
    "register_rules",
    "restore_envs",
    "rollout",
    "run",
    "sb3",
    "serve",
    "snapshots",
    "trace",
    "vectorize",
    "watch",
]

_MODULE_OF = {
    "AgymError": "agym.errors",
    "AgymErrorGroup": "agym.errors",
    "AgymVectorEnv": "agym.api.vector.env",
    "Answer": "agym.tools.rollouts.batched",
    "AsyncEnv": "agym.hosts.async_env",
    "AsyncEnvHandle": "agym.api.aio",
    "AsyncEnvs": "agym.api.aio",
    "Batch": "agym.engine.batches.results",
    "BatchedPolicy": "agym.tools.rollouts.batched",
    "BusyError": "agym.errors",
    "Chaos": "agym.tools.chaos",
    "ClosedError": "agym.errors",
    "CrashLoopError": "agym.errors",
    "CrashLoopErrorGroup": "agym.errors",
    "EnvError": "agym.errors",
    "EnvErrorGroup": "agym.errors",
    "EnvHandle": "agym.api.sync",
    "EnvStats": "agym.engine.stats",
    "Envs": "agym.api.sync",
    "Fault": "agym.errors",
    "FaultPolicy": "agym.engine.faults.policy",
    "Group": "agym.tools.rollouts.group",
    "GroupError": "agym.errors",
    "Hook": "agym.engine.hooks",
    "MissingExtraError": "agym.errors",
    "NothingSentError": "agym.errors",
    "Overlap": "agym.tools.trace.report",
    "Pending": "agym.api.aio",
    "Plan": "agym.planning.plans",
    "PolicyStats": "agym.tools.rollouts.policy_stats",
    "Recording": "agym.tools.video.recording",
    "Recycle": "agym.backends.options",
    "RemoteError": "agym.errors",
    "ResetNeededError": "agym.errors",
    "ResetResult": "agym.engine.batches.results",
    "Rollout": "agym.tools.rollouts.rollout",
    "RolloutBuffer": "agym.engine.batches.out_target",
    "ServerLimits": "agym.tools.serving.limits",
    "Snapshot": "agym.engine.snapshots",
    "SnapshotError": "agym.errors",
    "SpaceMismatchError": "agym.errors",
    "Stats": "agym.engine.stats",
    "StepResult": "agym.engine.batches.results",
    "StepTimeout": "agym.errors",
    "Tap": "agym.engine.tap",
    "TensorBoard": "agym.tools.tensorboard.tensorboard",
    "UsageError": "agym.errors",
    "UsageTypeError": "agym.errors",
    "WorkerDied": "agym.errors",
    "WorkerDiedGroup": "agym.errors",
    "WorkerStats": "agym.engine.stats",
    "batched": "agym.tools.rollouts.batched",
    "chaos": "agym.tools.chaos",
    "envs_of": "agym.api.make",
    "group": "agym.tools.rollouts.group",
    "load_snapshot": "agym.engine.snapshots",
    "make": "agym.api.make",
    "make_async": "agym.api.make",
    "make_vec": "agym.api.vector.make",
    "mark": "agym.tools.trace.timeline",
    "mosaic": "agym.tools.video.tiling",
    "openenv": "agym.tools.openenv.client",
    "overlap": "agym.tools.trace.report",
    "plan": "agym.api.auto.plan",
    "record": "agym.tools.video.recording",
    "register_rules": "agym.envs.rules.vectorize",
    "restore_envs": "agym.api.saving",
    "rollout": "agym.tools.rollouts.rollout",
    "run": "agym.tools.run",
    "serve": "agym.tools.serving.serve",
    "trace": "agym.tools.trace.timeline",
    "vectorize": "agym.envs.rules.vectorize",
    "watch": "agym.tools.live.page",
}

# Public modules that lie elsewhere.
_MODULES = {
    "adapters": "agym.tools.adapters",
    "snapshots": "agym.hosts.snapshots.codecs",
}


def __getattr__(name: str) -> Any:
    """Import a public name, or one of the modules that are public."""
    if name not in __all__:
        raise AttributeError(f"module 'agym' has no attribute {name!r}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    else:
        value = importlib.import_module(_MODULES.get(name, f"agym.{name}"))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
