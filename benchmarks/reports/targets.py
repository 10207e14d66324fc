"""agym's performance targets as data, and whether a run met them.

The factors hold for two workers on two dedicated cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.overhead.measure_startup import STARTUP_WORKLOAD
from benchmarks.reports.results import BOUND, LOOP, StartupResult, Verdict, WorkloadResult
from benchmarks.systems.rollouts import (
    PPO_ROLLOUTS,
    ROLLOUTS,
    VecEnvAuto,
    VecEnvProcess,
    VectorProcess,
)
from benchmarks.systems.runners import (
    AgymProcess,
    AgymProcessAsync,
    AgymSerial,
    GymnasiumAsync,
    GymnasiumSync,
    SB3Dummy,
    SB3Subproc,
)
from benchmarks.systems.sb3_startup import AGYM as SB3_STARTED
from benchmarks.systems.sb3_startup import NAME as SB3_STARTUP
from benchmarks.systems.variants import COPIES, INFOS, CopiedViews, Kept, Views, WithoutInfos


@dataclass(frozen=True)
class Target:
    """One system must be ``factor`` times as fast as another.

    Attributes:
        work: Name of the workload.
        row: The system.
        against: The other system, or several of which the best counts; or the bound.
        factor: The required ratio.
    """

    work: str
    row: str
    against: str | tuple[str, ...]
    factor: float


@dataclass(frozen=True)
class StartupTarget:
    """The start-up must stay below a limit.

    Attributes:
        what: ``"seconds"`` or ``"memory"``.
        limit: Limit in ``unit``; MB are 10^6 bytes.
        unit: ``"s"`` or ``"MB"``.
    """

    what: str
    limit: float
    unit: str


SERIAL, PROCESS, ASYNC = AgymSerial.name, AgymProcess.name, AgymProcessAsync.name

TARGETS = (
    Target("CartPole-v1 ×8", PROCESS, GymnasiumSync.name, 1.6),
    Target("CartPole-v1 ×8", PROCESS, GymnasiumAsync.name, 12.0),
    Target("CartPole-v1 ×1024", PROCESS, GymnasiumSync.name, 2.0),
    Target("CartPole-v1 ×1024", PROCESS, BOUND, 0.88),
    Target("Acrobot-v1 ×64", PROCESS, BOUND, 0.94),
    Target("ALE/Pong-v5 ×16", PROCESS, BOUND, 0.93),
    Target("HumanoidStandup-v5 ×16", PROCESS, BOUND, 0.93),
    Target("CartPole-v1 ×8", SERIAL, GymnasiumSync.name, 1.15),
    Target("CartPole-v1 ×64", SERIAL, LOOP, 0.92),
    Target("ALE/Pong-v5 ×8", PROCESS, GymnasiumAsync.name, 1.6),
    Target("ALE/Pong-v5 ×8", PROCESS, BOUND, 0.88),
    Target("CartPole-v1 ×8", ASYNC, PROCESS, 0.95),
    Target("CartPole-v1 ×1024", ASYNC, PROCESS, 0.95),
    Target("ALE/Pong-v5 ×8", ASYNC, PROCESS, 0.95),
    Target(INFOS.name, PROCESS, WithoutInfos.name, 0.96),
    Target(COPIES.name, Kept.name, Views.name, 0.98),
    Target(COPIES.name, Kept.name, CopiedViews.name, 1.0),
    Target(COPIES.name, Views.name, CopiedViews.name, 1.0),
    *(
        Target(work.name, row, against, 1.5)
        for work in ROLLOUTS
        if not work.network
        for row, against in (
            (VecEnvProcess.name, (SB3Dummy.name, SB3Subproc.name)),
            (VectorProcess.name, (GymnasiumSync.name, GymnasiumAsync.name)),
        )
    ),
    *(
        Target(work.name, VecEnvAuto.name, (SB3Dummy.name, SB3Subproc.name), work.wanted)
        for work in PPO_ROLLOUTS
    ),
    Target(SB3_STARTUP, SB3_STARTED, SB3Subproc.name, 20.0),
)

STARTUP_AIMS = (StartupTarget("seconds", 1.5, "s"), StartupTarget("memory", 200.0, "MB"))


def judge(
    workloads: Sequence[WorkloadResult],
    startup: StartupResult | None = None,
    targets: Sequence[Target] = TARGETS,
    startup_targets: Sequence[StartupTarget] = STARTUP_AIMS,
) -> tuple[Verdict, ...]:
    """Compare results with the targets that concern them."""
    verdicts = []
    for target in targets:
        for work in workloads:
            if work.work == target.work:
                others = (target.against,) if isinstance(target.against, str) else target.against
                ratios = [work.ratio(target.row, other) for other in others]
                ratio = min((one for one in ratios if one is not None), default=None)
                text = f"{target.work}: {target.row} against {' and '.join(others)}"
                verdicts.append(Verdict.on_ratio(text, target.factor, ratio))
    if startup is not None and startup.work == STARTUP_WORKLOAD.name:
        verdicts += _judge_startup(startup, startup_targets)
    return tuple(verdicts)


def _judge_startup(startup: StartupResult, targets: Sequence[StartupTarget]) -> Iterator[Verdict]:
    measured = {"seconds": median(startup.seconds), "memory": median(startup.memory) / 1e6}
    for target in targets:
        value = measured[target.what]
        text = f"{startup.work}, ready to step: {target.what}"
        yield Verdict.on_limit(text, target.limit, value, target.unit)
