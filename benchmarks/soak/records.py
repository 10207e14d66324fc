"""Records of a soak: its plan and its result."""

from __future__ import annotations

from dataclasses import dataclass, field

from agym.core.engine.faults.fault_policy import FaultMode


@dataclass(frozen=True)
class Plan:
    """The plan of a run; without a ``chance`` of an injection per step, it is measured."""

    seconds: float = 120.0
    num_envs: int = 64
    workers: int = 2
    seed: int = 0
    on_fault: FaultMode = "restart"
    chance: float | None = None


@dataclass
class SoakResult:
    """Result of a soak.

    Attributes:
        steps: Number of checked rows.
        seconds: Duration.
        chance: Probability of an injection per step.
        injections: Injections of chaos, by kind.
        deeds: The faults and leaks that the probes caused themselves, by kind.
        faults: Faults that agym reported, by kind.
        injected: Number of injections and deeds that are faults.
        survived: Number of these faults after which the environment has stepped again.
        lost: Transitions that never arrived.
        duplicated: Transitions that arrived twice.
        bystanders: Faults that interrupted environments which only shared the culprit's worker.
        restarts: Number of replaced workers.
        refused: Renders that failed because the worker died or hung.
        descriptors: Open file descriptors of this process: before, after opening, at the end of
            the run, after closing.
        left: Processes left after closing.
        errors: Errors in callbacks of the event loop.
        memory: Growth of this process's memory, in bytes per second.
        worker_memory: Growth of the memory of all workers together.
    """

    steps: int = 0
    seconds: float = 0.0
    chance: float = 0.0
    injections: dict[str, int] = field(default_factory=dict)
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
