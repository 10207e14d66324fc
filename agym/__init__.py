"""agym: runs many Gymnasium environments concurrently, with asyncio or without.

Each name is imported when it is first used. So a worker process, which imports this package, too,
loads only the code that hosts environments, and no program loads the live page, the recorder or
the planner unless it uses them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from agym.envs import registration as registration

if TYPE_CHECKING:
    from agym import backends, sb3
    from agym.agents import adapters
    from agym.agents.openenv.client import openenv
    from agym.agents.serving.limits import ServerLimits
    from agym.agents.serving.serve import serve
    from agym.api.aio import AsyncEnvHandle, AsyncEnvs, Pending
    from agym.api.make import envs_of, load, make, make_async
    from agym.api.plan import plan
    from agym.api.run import run
    from agym.api.sync import EnvHandle, Envs
    from agym.api.vector.env import AgymVectorEnv
    from agym.api.vector.make_vec import make_vec
    from agym.core.backends.options import Recycle
    from agym.core.engine.batches.out_target import StepBuffer
    from agym.core.engine.batches.results import Batch, ResetResult, StepResult
    from agym.core.engine.faults.fault_policy import FaultPolicy
    from agym.core.engine.hooks import Hook
    from agym.core.engine.snapshots import Snapshot
    from agym.core.engine.stats import EnvStats, Stats, WorkerStats
    from agym.core.engine.tap import Tap, mark
    from agym.core.hosts.async_env import AsyncEnv
    from agym.core.hosts.states import codecs as snapshot_codecs
    from agym.core.planning.choice import Plan
    from agym.errors import (
        AgymError,
        AgymErrorGroup,
        BusyError,
        ClosedError,
        CrashLoopError,
        EnvError,
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
    )
    from agym.faults.chaos import Chaos, chaos
    from agym.rollouts.batched import Answer, BatchedPolicy, batched
    from agym.rollouts.group import Group, group
    from agym.rollouts.policy_stats import PolicyStats
    from agym.rollouts.rollout import Rollout, rollout
    from agym.rules.vectorize import register_rules, vectorize
    from agym.watching.live.page import AsyncPage, Page, watch
    from agym.watching.tensorboard import TensorBoard, tensorboard
    from agym.watching.trace import Trace, trace
    from agym.watching.trace_report import Overlap, overlap
    from agym.watching.video.recording import Recording, record
    from agym.watching.video.tiling import mosaic


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
    "AsyncPage",
    "Batch",
    "BatchedPolicy",
    "BusyError",
    "Chaos",
    "ClosedError",
    "CrashLoopError",
    "EnvError",
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
    "Page",
    "Pending",
    "Plan",
    "PolicyStats",
    "Recording",
    "Recycle",
    "RemoteError",
    "ResetNeededError",
    "ResetResult",
    "Rollout",
    "ServerLimits",
    "Snapshot",
    "SnapshotError",
    "SpaceMismatchError",
    "Stats",
    "StepBuffer",
    "StepResult",
    "StepTimeout",
    "Tap",
    "TensorBoard",
    "Trace",
    "UsageError",
    "UsageTypeError",
    "WorkerDied",
    "WorkerStats",
    "adapters",
    "backends",
    "batched",
    "chaos",
    "envs_of",
    "group",
    "load",
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
    "rollout",
    "run",
    "sb3",
    "serve",
    "snapshot_codecs",
    "tensorboard",
    "trace",
    "vectorize",
    "watch",
]

_MODULE_OF = {
    "AgymError": "agym.errors",
    "AgymErrorGroup": "agym.errors",
    "AgymVectorEnv": "agym.api.vector.env",
    "Answer": "agym.rollouts.batched",
    "AsyncEnv": "agym.core.hosts.async_env",
    "AsyncEnvHandle": "agym.api.aio",
    "AsyncEnvs": "agym.api.aio",
    "AsyncPage": "agym.watching.live.page",
    "Batch": "agym.core.engine.batches.results",
    "BatchedPolicy": "agym.rollouts.batched",
    "BusyError": "agym.errors",
    "Chaos": "agym.faults.chaos",
    "ClosedError": "agym.errors",
    "CrashLoopError": "agym.errors",
    "EnvError": "agym.errors",
    "EnvHandle": "agym.api.sync",
    "EnvStats": "agym.core.engine.stats",
    "Envs": "agym.api.sync",
    "Fault": "agym.errors",
    "FaultPolicy": "agym.core.engine.faults.fault_policy",
    "Group": "agym.rollouts.group",
    "GroupError": "agym.errors",
    "Hook": "agym.core.engine.hooks",
    "MissingExtraError": "agym.errors",
    "NothingSentError": "agym.errors",
    "Overlap": "agym.watching.trace_report",
    "Page": "agym.watching.live.page",
    "Pending": "agym.api.aio",
    "Plan": "agym.core.planning.choice",
    "PolicyStats": "agym.rollouts.policy_stats",
    "Recording": "agym.watching.video.recording",
    "Recycle": "agym.core.backends.options",
    "RemoteError": "agym.errors",
    "ResetNeededError": "agym.errors",
    "ResetResult": "agym.core.engine.batches.results",
    "Rollout": "agym.rollouts.rollout",
    "StepBuffer": "agym.core.engine.batches.out_target",
    "ServerLimits": "agym.agents.serving.limits",
    "Snapshot": "agym.core.engine.snapshots",
    "SnapshotError": "agym.errors",
    "SpaceMismatchError": "agym.errors",
    "Stats": "agym.core.engine.stats",
    "StepResult": "agym.core.engine.batches.results",
    "StepTimeout": "agym.errors",
    "Tap": "agym.core.engine.tap",
    "TensorBoard": "agym.watching.tensorboard",
    "Trace": "agym.watching.trace",
    "UsageError": "agym.errors",
    "UsageTypeError": "agym.errors",
    "WorkerDied": "agym.errors",
    "WorkerStats": "agym.core.engine.stats",
    "batched": "agym.rollouts.batched",
    "chaos": "agym.faults.chaos",
    "envs_of": "agym.api.make",
    "group": "agym.rollouts.group",
    "load": "agym.api.make",
    "make": "agym.api.make",
    "make_async": "agym.api.make",
    "make_vec": "agym.api.vector.make_vec",
    "mark": "agym.core.engine.tap",
    "mosaic": "agym.watching.video.tiling",
    "openenv": "agym.agents.openenv.client",
    "overlap": "agym.watching.trace_report",
    "plan": "agym.api.plan",
    "record": "agym.watching.video.recording",
    "register_rules": "agym.rules.vectorize",
    "rollout": "agym.rollouts.rollout",
    "run": "agym.api.run",
    "serve": "agym.agents.serving.serve",
    "tensorboard": "agym.watching.tensorboard",
    "trace": "agym.watching.trace",
    "vectorize": "agym.rules.vectorize",
    "watch": "agym.watching.live.page",
}

# Public modules whose path differs from their name.
_MODULES = {
    "adapters": "agym.agents.adapters",
    "snapshot_codecs": "agym.core.hosts.states.codecs",
}


def __getattr__(name: str) -> Any:
    """Import a public name or a public module."""
    if name not in __all__:
        raise AttributeError(f"module 'agym' has no attribute {name!r}")
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    else:
        value = importlib.import_module(_MODULES.get(name, f"agym.{name}"))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
