"""agym: runs many Gymnasium environments concurrently, with asyncio or without.

Each name is imported when it is first used. So a worker process, which imports this package, too,
loads only the code that hosts environments, and no program loads the live page, the recorder or
the planner unless it uses them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from agym.envs import registration as registration
from agym.twins.registration import register_twins

if TYPE_CHECKING:  # the names that type checkers see
    from agym import backends as backends
    from agym import sb3 as sb3
    from agym.agents import adapters as adapters
    from agym.agents.openenv.client import openenv as openenv
    from agym.agents.serving.limits import ServerLimits as ServerLimits
    from agym.agents.serving.serve import serve as serve
    from agym.api.aio import AsyncEnvHandle as AsyncEnvHandle
    from agym.api.aio import AsyncEnvs as AsyncEnvs
    from agym.api.aio import Pending as Pending
    from agym.api.make import envs_of as envs_of
    from agym.api.make import load as load
    from agym.api.make import make as make
    from agym.api.make import make_async as make_async
    from agym.api.plan import plan as plan
    from agym.api.run import run as run
    from agym.api.sync import EnvHandle as EnvHandle
    from agym.api.sync import Envs as Envs
    from agym.api.vector.env import AgymVectorEnv as AgymVectorEnv
    from agym.api.vector.make_vec import make_vec as make_vec
    from agym.core.backends.options import Recycle as Recycle
    from agym.core.engine.batches.out_target import StepBuffer as StepBuffer
    from agym.core.engine.batches.results import Batch as Batch
    from agym.core.engine.batches.results import ResetResult as ResetResult
    from agym.core.engine.batches.results import StepResult as StepResult
    from agym.core.engine.faults.fault_policy import FaultPolicy as FaultPolicy
    from agym.core.engine.hooks import Hook as Hook
    from agym.core.engine.snapshots import Snapshot as Snapshot
    from agym.core.engine.stats import EnvStats as EnvStats
    from agym.core.engine.stats import Stats as Stats
    from agym.core.engine.stats import WorkerStats as WorkerStats
    from agym.core.engine.tap import Tap as Tap
    from agym.core.engine.tap import mark as mark
    from agym.core.hosts.async_env import AsyncEnv as AsyncEnv
    from agym.core.hosts.states import codecs
    from agym.core.hosts.vector.twins import register_twin as register_twin
    from agym.core.planning.choice import Plan as Plan
    from agym.errors import AgymError as AgymError
    from agym.errors import AgymErrorGroup as AgymErrorGroup
    from agym.errors import BusyError as BusyError
    from agym.errors import ClosedError as ClosedError
    from agym.errors import CrashLoopError as CrashLoopError
    from agym.errors import EnvError as EnvError
    from agym.errors import Fault as Fault
    from agym.errors import GroupError as GroupError
    from agym.errors import MissingExtraError as MissingExtraError
    from agym.errors import NothingSentError as NothingSentError
    from agym.errors import RemoteError as RemoteError
    from agym.errors import ResetNeededError as ResetNeededError
    from agym.errors import SnapshotError as SnapshotError
    from agym.errors import SpaceMismatchError as SpaceMismatchError
    from agym.errors import StepTimeout as StepTimeout
    from agym.errors import UsageError as UsageError
    from agym.errors import UsageTypeError as UsageTypeError
    from agym.errors import WorkerDied as WorkerDied
    from agym.faults.chaos import Chaos as Chaos
    from agym.faults.chaos import chaos as chaos
    from agym.multi_agent.aec import AECEnvs as AECEnvs
    from agym.multi_agent.aec import AsyncAECEnvs as AsyncAECEnvs
    from agym.multi_agent.make import make_aec as make_aec
    from agym.multi_agent.make import make_aec_async as make_aec_async
    from agym.multi_agent.make import make_parallel as make_parallel
    from agym.multi_agent.make import make_parallel_async as make_parallel_async
    from agym.multi_agent.parallel import AsyncParallelEnvs as AsyncParallelEnvs
    from agym.multi_agent.parallel import ParallelEnvs as ParallelEnvs
    from agym.multi_agent.results import AECBatch as AECBatch
    from agym.multi_agent.results import AgentGroup as AgentGroup
    from agym.multi_agent.results import AgentReset as AgentReset
    from agym.multi_agent.results import AgentStep as AgentStep
    from agym.multi_agent.results import Turn as Turn
    from agym.rollouts.batched import Answer as Answer
    from agym.rollouts.batched import BatchedPolicy as BatchedPolicy
    from agym.rollouts.batched import batched as batched
    from agym.rollouts.group import Group as Group
    from agym.rollouts.group import group as group
    from agym.rollouts.policy_stats import PolicyStats as PolicyStats
    from agym.rollouts.rollout import Rollout as Rollout
    from agym.rollouts.rollout import rollout as rollout
    from agym.rules.vectorize import register_rules as register_rules
    from agym.rules.vectorize import vectorize as vectorize
    from agym.watching.live.page import AsyncPage as AsyncPage
    from agym.watching.live.page import Page as Page
    from agym.watching.live.page import watch as watch
    from agym.watching.log import Log as Log
    from agym.watching.log import log as log
    from agym.watching.prometheus import Metrics as Metrics
    from agym.watching.prometheus import metrics as metrics
    from agym.watching.tensorboard import tensorboard as tensorboard
    from agym.watching.trace import Trace as Trace
    from agym.watching.trace import trace as trace
    from agym.watching.trace_report import Overlap as Overlap
    from agym.watching.trace_report import overlap as overlap
    from agym.watching.video.recording import Recording as Recording
    from agym.watching.video.recording import record as record
    from agym.watching.video.tiling import mosaic as mosaic

    snapshot_codecs = codecs


__version__ = "0.2.0"

registration.register_games()
register_twins()

# The public names of each module.
_NAMES_OF = {
    "agym.agents.openenv.client": "openenv",
    "agym.agents.serving.limits": "ServerLimits",
    "agym.agents.serving.serve": "serve",
    "agym.api.aio": "AsyncEnvHandle AsyncEnvs Pending",
    "agym.api.make": "envs_of load make make_async",
    "agym.api.plan": "plan",
    "agym.api.run": "run",
    "agym.api.sync": "EnvHandle Envs",
    "agym.api.vector.env": "AgymVectorEnv",
    "agym.api.vector.make_vec": "make_vec",
    "agym.core.backends.options": "Recycle",
    "agym.core.engine.batches.out_target": "StepBuffer",
    "agym.core.engine.batches.results": "Batch ResetResult StepResult",
    "agym.core.engine.faults.fault_policy": "FaultPolicy",
    "agym.core.engine.hooks": "Hook",
    "agym.core.engine.snapshots": "Snapshot",
    "agym.core.engine.stats": "EnvStats Stats WorkerStats",
    "agym.core.engine.tap": "Tap mark",
    "agym.core.hosts.async_env": "AsyncEnv",
    "agym.core.hosts.vector.twins": "register_twin",
    "agym.core.planning.choice": "Plan",
    "agym.errors": (
        "AgymError AgymErrorGroup BusyError ClosedError CrashLoopError EnvError Fault"
        " GroupError MissingExtraError NothingSentError RemoteError ResetNeededError"
        " SnapshotError SpaceMismatchError StepTimeout UsageError UsageTypeError WorkerDied"
    ),
    "agym.faults.chaos": "Chaos chaos",
    "agym.multi_agent.aec": "AECEnvs AsyncAECEnvs",
    "agym.multi_agent.make": "make_aec make_aec_async make_parallel make_parallel_async",
    "agym.multi_agent.parallel": "AsyncParallelEnvs ParallelEnvs",
    "agym.multi_agent.results": "AECBatch AgentGroup AgentReset AgentStep Turn",
    "agym.rollouts.batched": "Answer BatchedPolicy batched",
    "agym.rollouts.group": "Group group",
    "agym.rollouts.policy_stats": "PolicyStats",
    "agym.rollouts.rollout": "Rollout rollout",
    "agym.rules.vectorize": "register_rules vectorize",
    "agym.watching.live.page": "AsyncPage Page watch",
    "agym.watching.log": "Log log",
    "agym.watching.prometheus": "Metrics metrics",
    "agym.watching.tensorboard": "tensorboard",
    "agym.watching.trace": "Trace trace",
    "agym.watching.trace_report": "Overlap overlap",
    "agym.watching.video.recording": "Recording record",
    "agym.watching.video.tiling": "mosaic",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}

# The public modules.
_MODULES = {
    "adapters": "agym.agents.adapters",
    "backends": "agym.backends",
    "sb3": "agym.sb3",
    "snapshot_codecs": "agym.core.hosts.states.codecs",
}


def __getattr__(name: str) -> Any:
    """Import a public name or a public module."""
    if name in _MODULE_OF:
        value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(_MODULES[name])
    else:
        raise AttributeError(f"module 'agym' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted([*_MODULE_OF, *_MODULES])


if not TYPE_CHECKING:
    __all__ = __dir__()
