"""Metrics for Prometheus, read when Prometheus asks for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from agym import envs_of
from agym.core._system.extras import require
from agym.core.engine.attached import Attached
from agym.errors import UsageError
from agym.watching.episode_totals import Ended, EpisodesHook, mean

# Number of latest episodes over which means are taken.
MEAN_OF = 100


def metrics(envs: Any, registry: Any = None, *, prefix: str = "agym") -> Metrics:
    """Show environments to Prometheus, by the library ``prometheus_client``.

    Example:
        >>> import agym
        >>> from prometheus_client import CollectorRegistry, generate_latest
        >>> registry = CollectorRegistry()
        >>> with agym.make("CartPole-v1", 4) as envs, agym.metrics(envs, registry):
        ...     observations, infos = envs.reset(seed=0)
        ...     result = envs.step([0, 1, 0, 1])
        ...     text = generate_latest(registry).decode()
        >>> "agym_steps_total 4.0" in text
        True

    The metrics are registered until the end of the block, ``with`` or ``async with``. Serve them
    with ``prometheus_client.start_http_server(9000)``, or with any other exporter of the library.

    ================================== ==========================================================
    ``agym_environments``              number of environments
    ``agym_steps_total``               steps, including those that reset an environment
    ``agym_episodes_total``            episodes that ended since this call and count; see
                                       :func:`agym.log`
    ``agym_episode_return``,           means over the latest 100 of these episodes; absent before
    ``agym_episode_length``            the first
    ``agym_faults_total``              how often environments raised, were late, or lost a worker
    ``agym_worker_restarts_total``     per worker, as are the following
    ``agym_worker_busy_seconds_total`` time in which it ran environments
    ``agym_worker_memory_bytes``       memory of its process
    ``agym_step_seconds``              mean time of a batch's step, by ``part``: queue, work,
                                       transport, caller
    ================================== ==========================================================

    Args:
        envs: Opened environments that agym runs, wrapped or not.
        registry: A ``CollectorRegistry``; by default the one of the library.
        prefix: First part of all names. Environments in the same registry need different ones.

    Raises:
        UsageError: The registry has metrics of these names.
        MissingExtraError: prometheus_client is not installed.
        ClosedError: The environments are not open.
    """
    api = envs_of(envs, "agym.metrics")
    client = require("prometheus_client", "metrics")
    started = Metrics(api.tap, client.REGISTRY if registry is None else registry, prefix)
    started.start()
    return started


class Metrics(Attached, EpisodesHook):
    """A collector of ``prometheus_client``; made by :func:`agym.metrics`.

    Example:
        >>> import agym
        >>> from prometheus_client import CollectorRegistry
        >>> registry = CollectorRegistry()
        >>> with agym.make("CartPole-v1", 4) as envs, agym.metrics(envs, registry):
        ...     registry.get_sample_value("agym_environments")
        4
    """

    def __init__(self, tap: Any, registry: Any, prefix: str) -> None:
        """Prepare; :meth:`start` registers the metrics."""
        super().__init__(tap)
        self._registry = registry
        self._prefix = prefix
        self._ended = 0
        self._latest: deque[Ended] = deque(maxlen=MEAN_OF)

    def start(self) -> None:
        """Count from now on, and register the metrics."""
        try:
            self._registry.register(self)
        except ValueError as error:
            raise UsageError(
                f"the registry has metrics of the prefix {self._prefix!r}: pass another prefix="
            ) from error
        super().start()

    def on_steps(self) -> None:
        """Take the episodes that ended."""
        if self.episodes.ended:
            ended = self.episodes.take()
            self._latest.extend(ended)
            self._ended += len(ended)

    def collect(self) -> Iterator[Any]:
        """Yield the families of metrics; called by the registry in any thread."""
        core = require("prometheus_client.core", "metrics")

        def family(kind: str, name: str, about: str, values: Any, label: str = "") -> Any:
            metric = getattr(core, f"{kind}MetricFamily")(
                f"{self._prefix}_{name}", about, labels=[label] if label else []
            )
            for key, value in values.items() if label else [("", values)]:
                if value is not None:
                    metric.add_metric([str(key)] if label else [], value)
            return metric

        if self._tap.closed:
            return
        stats, latest = self._tap.stats(), [*self._latest]
        busy = {each.worker: each.busy * stats.seconds for each in stats.workers}
        restarts = {each.worker: each.restarts for each in stats.workers}
        memory = {each.worker: each.rss for each in stats.workers}
        parts = {name: getattr(stats, name) for name in ("queue", "work", "transport", "caller")}
        steps, faults = (sum(getattr(e, name) for e in stats.envs) for name in ("steps", "faults"))
        mean_return = mean([each.total for each in latest]) if latest else None
        mean_length = mean([each.length for each in latest]) if latest else None
        yield family("Gauge", "environments", "Environments.", len(stats.envs))
        yield family("Counter", "steps", "Steps of all environments.", steps)
        yield family("Counter", "episodes", "Episodes that ended.", self._ended)
        yield family("Gauge", "episode_return", "Mean of the latest episodes.", mean_return)
        yield family("Gauge", "episode_length", "Mean of the latest episodes.", mean_length)
        yield family("Counter", "faults", "Faults of environments.", faults)
        yield family("Counter", "worker_restarts", "Restarts.", restarts, "worker")
        yield family("Counter", "worker_busy_seconds", "Busy time.", busy, "worker")
        yield family("Gauge", "worker_memory_bytes", "Memory.", memory, "worker")
        yield family("Gauge", "step_seconds", "Mean time of a step by part.", parts, "part")

    # Without it, a registry does not know the names, and accepts the same ones twice.
    describe = collect

    def _finish(self) -> None:
        if self in self._tap.hooks:
            self._tap.remove_hook(self)
            self._registry.unregister(self)
