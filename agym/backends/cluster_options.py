"""What the caller asks for of a cluster: the options of ``backend="ray"``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agym.errors import UsageError
from agym.protocol.arguments import check_count

STRATEGIES = ("spread", "pack")

# What Ray knows by names of its own: as an option of an actor, and in a placement group's bundle.
KNOWN = {"num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory"}


@dataclass(frozen=True)
class ClusterOptions:
    """Checked options; see those of :func:`agym.make`.

    Attributes:
        resources: What each actor is to have of its node, by Ray's names.
        strategy: ``"spread"`` over nodes, or ``"pack"`` onto few.
        runtime_env: Ray's, for the actors.
        address: Of the cluster; ``None`` for the one that this process is in, or finds.
        workers_per_node: Worker processes in each actor; ``None`` for none.
    """

    resources: Mapping[str, float] = field(default_factory=dict)
    strategy: str = "spread"
    runtime_env: Mapping[str, Any] | None = None
    address: str | None = None
    workers_per_node: int | None = None

    @property
    def given(self) -> list[str]:
        """What is not as it is by default, by the names of the options."""
        given = {
            "resources": bool(self.resources),
            "placement": self.strategy != "spread",
            "runtime_env": self.runtime_env is not None,
            "address": self.address is not None,
            "workers_per_node": self.workers_per_node is not None,
        }
        return [name for name, is_given in given.items() if is_given]

    @property
    def bundle(self) -> dict[str, float]:
        """What an actor takes of its node, by the names that nodes go by."""
        wanted = {"num_cpus": float(self.workers_per_node or 1), **self.resources}
        return {KNOWN.get(name, name): amount for name, amount in wanted.items() if amount}

    @classmethod
    def of(
        cls,
        resources: Any = None,
        placement: Any = "spread",
        runtime_env: Any = None,
        address: Any = None,
        workers_per_node: Any = None,
    ) -> ClusterOptions:
        """Check options.

        Raises:
            UsageError: One cannot work.
        """
        if resources is not None and not isinstance(resources, Mapping):
            raise UsageError(
                f"resources={resources!r} must be a dict of amounts, such as"
                " {'num_cpus': 1, 'custom': 0.5}"
            )
        for name, amount in (resources or {}).items():
            number = isinstance(amount, int | float) and not isinstance(amount, bool)
            if not isinstance(name, str) or not number or not 0 <= amount < math.inf:
                raise UsageError(f"resources={{{name!r}: {amount!r}}} must be a positive number")
        if placement not in STRATEGIES:
            raise UsageError(f"placement={placement!r} is unknown: take 'spread' or 'pack'")
        if runtime_env is not None and not isinstance(runtime_env, Mapping):
            raise UsageError(f"runtime_env={runtime_env!r} must be a dict, as for ray.init")
        if address is not None and (not isinstance(address, str) or not address):
            raise UsageError(f"address={address!r} must be a cluster's, such as 'auto'")
        if workers_per_node is not None:
            workers_per_node = check_count("workers_per_node", workers_per_node)
        return cls(dict(resources or {}), placement, runtime_env, address, workers_per_node)


NO_CLUSTER = ClusterOptions()
