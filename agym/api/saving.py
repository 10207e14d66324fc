"""What environments are made from, and whole runs in files: that, and the state of each."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

from agym._system.files import read_pickle, write_pickle
from agym.api.aio import AsyncEnvs
from agym.api.options.build import build
from agym.api.options.environments import EnvLike
from agym.api.options.options import BackendLike, Options
from agym.api.sync import Envs
from agym.engine.snapshots import Snapshot


@dataclass(frozen=True)
class Recipe:
    """The arguments of :func:`agym.make` or :func:`agym.make_async`.

    Attributes:
        env: What to make.
        num_envs: How many.
        env_kwargs: Keywords for them.
        options: All other arguments.
        blocking: Whether it is ``make``.
    """

    env: EnvLike
    num_envs: int | None
    env_kwargs: dict[str, Any]
    options: Options
    blocking: bool

    def make(self) -> Any:
        """Make the environments: ``Envs`` if ``blocking``, else ``AsyncEnvs``."""
        engine = build(
            self.env, self.num_envs, self.env_kwargs, self.options, blocking=self.blocking
        )
        envs = (Envs if self.blocking else AsyncEnvs)(engine, self.options.output)
        envs._recipe = self
        return envs

    def save(self, path: str | os.PathLike[str], snapshots: list[Snapshot]) -> None:
        """Write it to a file, with the states of the environments."""
        head = {
            "env": snapshots[0].env,
            "num_envs": len(snapshots),
            "versions": snapshots[0].versions,
        }
        write_pickle("run", path, (self, snapshots), head)


def restore_envs(
    path: str | os.PathLike[str], *, backend: BackendLike | None = None, workers: int | None = None
) -> Envs | AsyncEnvs:
    """Make the environments that ``envs.save(path)`` saved, and continue where they were.

    Example:
        >>> import agym, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with agym.make("CartPole-v1", 2) as envs:
        ...         observations, infos = envs.reset(seed=0)
        ...         envs.save(f"{folder}/run.agym")
        ...         expected = envs.step([0, 1]).observations
        ...     with agym.restore_envs(f"{folder}/run.agym") as envs:
        ...         observations = envs.step([0, 1]).observations
        >>> bool((observations[0] == expected[0]).all())
        True

    **Only open files that you trust:** reading one runs code from it.

    Args:
        path: The file.
        backend: Another backend than they had, with its own default number of workers.
        workers: Another number of workers.

    Returns:
        Environments as they were made: those of :func:`agym.make` are ready for ``step``; those of
        :func:`agym.make_async` are to be opened by ``async with`` or ``await`` first.

    Raises:
        UsageError: The file cannot be read, is damaged, or holds no run.
        SnapshotError: The environments that are made here are others.
    """
    (recipe, snapshots), _ = read_pickle("run", path)
    if backend is not None or workers is not None:
        options = replace(recipe.options, workers=workers)
        recipe = replace(recipe, options=replace(options, backend=backend or options.backend))
    envs: Envs | AsyncEnvs = recipe.make()
    if isinstance(envs, AsyncEnvs):
        envs._saved = snapshots
        return envs
    try:
        envs.restore(snapshots)
    except BaseException:
        envs.close()
        raise
    return envs
