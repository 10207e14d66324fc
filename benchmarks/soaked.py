"""Records of a soak: what is run, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes:
        seconds: For how long.
        num_envs: How many environments.
        workers: How many worker processes.
        seed: Of environments, actions and faults.
        on_fault: ``"restart"`` or ``"replay"``.
        chance: Probability of a strike per step, ``None`` to have it measured.
    """

    seconds: float = 120.0
    num_envs: int = 64
    workers: int = 2
    seed: int = 0
    on_fault: str = "restart"
    chance: float | None = None


@dataclass
class Soaked:
    """What came of it.

    Attributes:
        steps: Rows that were checked.
        seconds: How long it took.
        chance: Probability of a strike per step.
        strikes: Strikes of chaos, by kind.
        deeds: What the probes did by themselves, by kind.
        faults: Faults that agym told, by kind.
        injected: Strikes and deeds that are faults.
        survived: Those after which the environment has stepped on.
        lost: Transitions that never came.
        duplicated: Transitions that came twice.
        bystanders: Faults that cut environments off which only shared the culprit's worker.
        restarts: Workers that were replaced.
        refused: Renders that failed since the worker died or hung.
        descriptors: Open file descriptors of this process: before, opened, at the end of the run,
            after closing.
        left: Processes that are left after closing.
        errors: What was raised in callbacks of the event loop.
        memory: Growth of this process, in bytes per second.
        worker_memory: Growth of all workers together.
    """

    steps: int = 0
    seconds: float = 0.0
    chance: float = 0.0
    strikes: dict[str, int] = field(default_factory=dict)
    deeds: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    injected: int = 0
    survived: int = 0
    lost: int = 0
    duplicated: int = 0
    bystanders: int = 0
    restarts: int = 0
    refused: int = 0
    descriptors: list[int] = field(default_factory=list)
    left: int = 0
    errors: list[str] = field(default_factory=list)
    memory: float = 0.0
    worker_memory: float = 0.0
