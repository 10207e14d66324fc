"""Agym's performance targets as data, and whether a run met them.

The factors hold for two workers on two dedicated cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.results import BOUND, LOOP, StartupResult, Verdict, WorkResult
from benchmarks.rollouts import ROLLOUTS, VecEnvProcess, VectorProcess
from benchmarks.sb3_startup import AGYM as SB3_STARTED
from benchmarks.sb3_startup import NAME as SB3_STARTUP
from benchmarks.startup import STARTUP_WORK
from benchmarks.systems import (
    AgymProcess,
    AgymProcessAsync,
    AgymSerial,
    GymnasiumAsync,
    GymnasiumSync,
    SB3Dummy,
    SB3Subproc,
)
from benchmarks.variants import COPIES, INFOS, CopiedViews, Kept, Views, WithoutInfos


@dataclass(frozen=True)
class Aim:
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
class StartupAim:
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

AIMS = (
    Aim("CartPole-v1 ×8", PROCESS, GymnasiumSync.name, 1.6),
    Aim("CartPole-v1 ×8", PROCESS, GymnasiumAsync.name, 12.0),
    Aim("CartPole-v1 ×1024", PROCESS, GymnasiumSync.name, 2.0),
    Aim("CartPole-v1 ×1024", PROCESS, BOUND, 0.88),
    Aim("Acrobot-v1 ×64", PROCESS, BOUND, 0.94),
    Aim("ALE/Pong-v5 ×16", PROCESS, BOUND, 0.93),
    Aim("HumanoidStandup-v5 ×16", PROCESS, BOUND, 0.93),
    Aim("CartPole-v1 ×8", SERIAL, GymnasiumSync.name, 1.15),
    Aim("CartPole-v1 ×64", SERIAL, LOOP, 0.92),
    Aim("ALE/Pong-v5 ×8", PROCESS, GymnasiumAsync.name, 1.6),
    Aim("ALE/Pong-v5 ×8", PROCESS, BOUND, 0.88),
    Aim("CartPole-v1 ×8", ASYNC, PROCESS, 0.95),
    Aim("CartPole-v1 ×1024", ASYNC, PROCESS, 0.95),
    Aim("ALE/Pong-v5 ×8", ASYNC, PROCESS, 0.95),
    Aim(INFOS.name, PROCESS, WithoutInfos.name, 0.96),
    Aim(COPIES.name, Kept.name, Views.name, 0.98),
    Aim(COPIES.name, Kept.name, CopiedViews.name, 1.0),
    Aim(COPIES.name, Views.name, CopiedViews.name, 1.0),
    *(
        Aim(work.name, row, against, 1.5)
        for work in ROLLOUTS
        for row, against in (
            (VecEnvProcess.name, (SB3Dummy.name, SB3Subproc.name)),
            (VectorProcess.name, (GymnasiumSync.name, GymnasiumAsync.name)),
        )
        if not (work.network and row == VectorProcess.name)
    ),
    Aim(SB3_STARTUP, SB3_STARTED, SB3Subproc.name, 20.0),
)

STARTUP_AIMS = (StartupAim("seconds", 1.5, "s"), StartupAim("memory", 200.0, "MB"))


def judge(
    works: Sequence[WorkResult],
    startup: StartupResult | None = None,
    aims: Sequence[Aim] = AIMS,
    startup_aims: Sequence[StartupAim] = STARTUP_AIMS,
) -> tuple[Verdict, ...]:
    """Compare results with the targets that concern them."""
    verdicts = []
    for aim in aims:
        for work in works:
            if work.work == aim.work:
                others = (aim.against,) if isinstance(aim.against, str) else aim.against
                ratios = [work.ratio(aim.row, other) for other in others]
                ratio = min((one for one in ratios if one is not None), default=None)
                text = f"{aim.work}: {aim.row} against {' and '.join(others)}"
                verdicts.append(Verdict.on_ratio(text, aim.factor, ratio))
    if startup is not None and startup.work == STARTUP_WORK.name:
        verdicts += _judge_startup(startup, startup_aims)
    return tuple(verdicts)


def _judge_startup(startup: StartupResult, aims: Sequence[StartupAim]) -> Iterator[Verdict]:
    measured = {"seconds": median(startup.seconds), "memory": median(startup.memory) / 1e6}
    for aim in aims:
        value = measured[aim.what]
        text = f"{startup.work}, ready to step: {aim.what}"
        yield Verdict.on_limit(text, aim.limit, value, aim.unit)
