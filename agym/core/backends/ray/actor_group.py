"""The resources of a batch's actors in a cluster; starts and kills the actors there."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from agym.core.backends.options import RAY_RESOURCES, Ray
from agym.core.backends.ray.actor import RayActor

# The concurrency group of an actor that waits for completions, next to the thread for operations.
LISTEN = "listen"

# Fields of Ray's messages that are already known.
HEADINGS = ("class_name", "actor_id", "pid", "name", "namespace", "ip")

# Ray's error if an actor cannot be reached, and its texts if an actor was never started, on a node
# that Ray did not yet know to be lost.
CUT_OFF, NEVER_RAN, NODE_DIED = "ActorUnavailableError", "The actor never ran", "node has died"

# How much of Ray's text about a death is kept.
MAX_CHARACTERS = 300


class ActorGroup:
    """The actors of one batch of environments.

    Their resources are one placement group, which Ray spreads or packs. When nodes are lost, Ray
    moves it to other nodes, or to new ones.
    """

    def __init__(self, ray: Any, spec: Ray) -> None:
        self._ray = ray
        self._spec = spec
        self._group: Any = None

    @property
    def connected(self) -> bool:
        """Whether this process is still in a cluster."""
        return bool(self._ray.is_initialized())

    def open(self, workers: int) -> None:
        """Reserve resources for actors, which may not be available yet."""
        if self._spec.bundle:
            bundles = [self._spec.bundle for _ in range(workers)]
            strategy = self._spec.placement.upper()
            self._group = self._ray.util.placement_group(bundles, strategy=strategy)

    def start(self, worker: int) -> Any:
        """Start an actor as soon as its resources are available; return Ray's handle."""
        bundle = dict(self._spec.bundle)
        options: dict[str, Any] = {
            name: bundle.pop(resource, 0) for name, resource in RAY_RESOURCES.items()
            if resource in bundle or name == "num_cpus"
        }  # fmt: skip
        strategy: Any = "SPREAD" if self._spec.placement == "spread" else "DEFAULT"
        if self._group is not None:
            strategies = self._ray.util.scheduling_strategies
            strategy = strategies.PlacementGroupSchedulingStrategy(
                self._group, placement_group_bundle_index=worker,
                placement_group_capture_child_tasks=False,
            )  # fmt: skip
        remote = self._ray.remote(concurrency_groups={LISTEN: 1})(RayActor)
        return remote.options(
            **options,
            resources=bundle,
            scheduling_strategy=strategy,
            runtime_env=self._spec.runtime_env,
            max_restarts=0,
            max_task_retries=0,
        ).remote()

    def kill(self, actor: Any) -> None:
        if self.connected:
            with suppress(Exception):  # it is already gone
                self._ray.kill(actor)

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None and self.connected:
            with suppress(Exception):
                self._ray.util.remove_placement_group(group)

    def never_ran(self, error: BaseException) -> bool:
        """Return whether an actor that has not replied never can: its node was lost first."""
        text = str(error)
        return type(error).__name__ == CUT_OFF or (NEVER_RAN in text and NODE_DIED in text)

    def describe(self, error: BaseException) -> str:
        """Return why an actor is gone, in one line."""
        cause = getattr(error, "cause", None)  # the error that was raised in the actor itself
        if isinstance(cause, Exception):
            return f"{type(cause).__name__}: {cause}"
        if type(error).__name__ == CUT_OFF:
            return "cut off: its node cannot be reached"
        # The cause is between a heading and advice for readers of Ray's logs.
        text = " ".join(str(error).split()).partition("Worker exit detail: ")
        detail = (text[2] or text[0]).partition(" Some common causes")[0]
        detail = re.sub(rf"({'|'.join(HEADINGS)}): \S+ ?", "", detail)
        short = detail if len(detail) <= MAX_CHARACTERS else f"{detail[:MAX_CHARACTERS]}..."
        return f"Ray reports: {short.rstrip('. ')}"
