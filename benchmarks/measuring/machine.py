"""Describes the machine of a run, without personal data such as host names and paths."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path

from agym.core._system.cpus import available_cores

# Distributions whose versions matter for the results.
LIBRARIES = (
    "agym-envs", "gymnasium", "numpy", "uvloop", "stable-baselines3", "torch", "ale-py", "mujoco",
    "numba",
)  # fmt: skip


def describe_machine() -> dict[str, str]:
    """Return processor, cores available to this process, system, and versions of libraries."""
    machine = {
        "cpu": _cpu_model(),
        "cores": str(available_cores()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }
    for library in LIBRARIES:
        try:
            machine[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            continue
    return machine


def _cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the processor's name from Linux, else what Python knows."""
    try:
        for line in cpuinfo.read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
