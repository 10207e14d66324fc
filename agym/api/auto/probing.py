"""Measures environments with unknown code in a separate process.

An environment that crashes, hangs or exits while it is stepped at random ends only that process.
Files that it writes under relative names go to a temporary folder.
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
from agym.core.planning.profiling import measure, measure_on_loop
from agym.core.planning.sampling import make_sample, name_of, obstacle
from agym.errors import EnvError, StepTimeout, UsageError, WorkerDied

# How long an environment may take to be made and measured.
PROBE_SECONDS = 60.0


class Probe(gymnasium.Env[Any, Any]):
    """Runs in a worker process, and makes the environment there only to measure it."""

    observation_space = action_space = spaces.Discrete(1)

    def __init__(self, factory: Factory) -> None:
        self._factory = factory

    def measure(self, folder: str) -> tuple[Profile, str | None]:
        """Make the environment in a folder and measure it; see :func:`measure_here`."""
        with contextlib.suppress(FileNotFoundError), contextlib.chdir(folder):
            return measure_here(self._factory)
        return measure_here(self._factory)  # it reads files from the caller's folder


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
    instead = "take a backend by name, for which nothing is measured"
    if why := obstacle([factory]):
        raise UsageError(f"{name} is measured in a process of its own, which {why}: {instead}")
    mode = AutoresetMode.DISABLED
    probes, spec = [partial(Probe, factory)], Process(workers=1)
    backend = open_pool(BackendOptions(probes, mode, spec, track_running=True))
    engine = Engine(backend, timeout=PROBE_SECONDS)
    scratch = tempfile.TemporaryDirectory(prefix="agym-", ignore_cleanup_errors=True)
    try:
        with scratch as folder, Envs(engine, "list") as envs:
            ((profile, file),) = envs.call("measure", folder)
    except EnvError as error:
        own = error.exception
        raise (own if isinstance(own, Exception) else error) from error
    except StepTimeout as error:
        raise UsageError(
            f"{name} took more than {PROBE_SECONDS:g} s to be made and measured: {instead}"
        ) from error
    except WorkerDied as error:
        end = error.signal or f"exit code {error.exitcode}"
        raise UsageError(
            f"{name} ended its process ({end}) while it was measured there with random actions:"
            " mend it, or take backend='process' with on_fault='restart'"
        ) from error
    return replace(profile, name=name), file
