"""Measures environments with unknown code in a separate process.

An environment that crashes, hangs or exits under random actions affects only that process. Files
that it writes with relative paths go to a temporary folder.
"""

from __future__ import annotations

import contextlib
import tempfile
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from agym.api.sync import Envs
from agym.core.backends.options import Process
from agym.core.backends.pool import open_pool
from agym.core.backends.port import BackendOptions
from agym.core.engine.engine import Engine
from agym.core.hosts.factories import Factory, innermost, is_coroutine_env
from agym.core.planning.caching import source_file
from agym.core.planning.model import Profile
from agym.core.planning.sampling import make_sample, measure, measure_on_loop, name_of, obstacle
from agym.errors import EnvError, StepTimeout, UsageError, WorkerDied

# How many seconds making and measuring an environment may take.
PROBE_SECONDS = 60.0


class Probe(gymnasium.Env[Any, Any]):
    """Runs in a worker process, where it makes and measures the actual environment."""

    observation_space = action_space = spaces.Discrete(1)

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    def measure(self, folder: str) -> tuple[Profile, str | None]:
        """Make the environment in a folder and measure it; see :func:`measure_here`."""
        with contextlib.suppress(FileNotFoundError), contextlib.chdir(folder):
            return measure_here(self._factory)
        return measure_here(self._factory)  # the environment reads files from the caller's folder


def measure_here(factory: Factory) -> tuple[Profile, str | None]:
    """Make an environment in this process and measure it.

    Returns:
        Its profile, and the file with its code.

    Raises:
        Exception: The environment raised it.
    """
    if is_coroutine_env(innermost(factory)):
        return measure_on_loop(factory), source_file(innermost(factory))
    sample = make_sample(factory)
    file = source_file(sample.env)
    if sample.coroutine:
        return measure_on_loop(lambda: sample.env), file
    try:
        return measure(sample, factory), file
    finally:
        sample.close()


def measure_apart(factory: Factory) -> tuple[Profile, str | None]:
    """Make an environment in a temporary worker process and measure it.

    Raises:
        UsageError: The factory cannot be sent there, or the process died or took too long.
        Exception: The environment raised it.
    """
    name = name_of(factory)
    instead = "name a backend, so that nothing is measured"
    if why := obstacle([factory]):
        raise UsageError(f"{name} must be measured in a separate process, which {why}: {instead}")
    mode = AutoresetMode.DISABLED
    probes, spec = [partial(Probe, factory)], Process(workers=1)
    backend = open_pool(BackendOptions(probes, mode, spec, track_running=True))
    engine = Engine(backend, timeout=PROBE_SECONDS)
    scratch = tempfile.TemporaryDirectory(prefix="agym-", ignore_cleanup_errors=True)
    try:
        with scratch as folder, Envs(engine, "list") as envs:
            ((profile, file),) = envs.call("measure", folder)
    except EnvError as error:
        exception = error.exception
        raise (exception if isinstance(exception, Exception) else error) from error
    except StepTimeout as error:
        raise UsageError(
            f"making and measuring {name} took more than {PROBE_SECONDS:g} s: {instead}"
        ) from error
    except WorkerDied as error:
        end = error.signal or f"exit code {error.exitcode}"
        raise UsageError(
            f"{name} ended its process ({end}) while it was measured with random actions:"
            " fix it, or use backend='process' with on_fault='restart'"
        ) from error
    return replace(profile, name=name), file
