"""Worlds, in which laws must hold: a backend, an API, an autoreset mode, a kind of environment."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import gymnasium
from gymnasium.vector import AutoresetMode

from agym.api.make import make, make_async
from agym.api.options.options import Autoreset, BackendLike, parse_backend
from agym.core.backends.options import Process, ProcessWithCaller, Serial
from agym.testing.scripted import Script, scripted_vector_env

MODES: dict[Autoreset, AutoresetMode] = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}
Api = Literal["sync", "async"]
Kind = Literal["env", "coroutine", "vector"]

# The properties of a world that a law may need.
Need = Literal[
    "sync", "async", "single", "concurrent", "processes", "deadlines",
    "next_step", "same_step", "disabled", "not_same_step",
]  # fmt: skip


class AsCoroutine:
    """An ordinary environment as a coroutine environment. It blocks the loop: only for tests."""

    def __init__(self, factory: Callable[[], gymnasium.Env[Any, Any]]) -> None:
        self._env = factory()

    async def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment after other tasks have run."""
        await asyncio.sleep(0)
        return self._env.reset(seed=seed, options=options)

    async def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment after other tasks have run."""
        await asyncio.sleep(0)
        return self._env.step(action)

    async def render(self) -> Any:
        return self._env.render()

    async def close(self) -> None:
        self._env.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


class Player:
    """Environments of either API with blocking calls.

    With the async API, each call runs the event loop until the call has finished.

    Attributes:
        envs: The environments.
        runner: The event loop of the async API, ``None`` with the sync API.
        script: The script of the environments, if they are scripted.
    """

    script: Script

    def __init__(self, envs: Any, runner: asyncio.Runner | None) -> None:
        self.envs = envs
        self.runner = runner

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.envs, name)
        if self.runner is None or not callable(attribute):
            return attribute
        return partial(self._run, attribute)

    def __getitem__(self, index: int) -> Player:
        return Player(self.envs[index], self.runner)

    def _run(self, method: Callable[..., Any], *args: Any, **keywords: Any) -> Any:
        async def run() -> Any:
            result = method(*args, **keywords)
            if inspect.isasyncgen(result):
                return [batch async for batch in result]
            return await result if inspect.isawaitable(result) else result

        assert self.runner is not None
        return self.runner.run(run())

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine on the event loop of the async API."""
        assert self.runner is not None
        return self.runner.run(coroutine)

    def open_gate(self, env_id: int) -> None:
        """Open a gate once the environment waits there; the event loop runs during the wait."""
        if self.runner is None:
            self.script.open(env_id)
        else:
            self.runner.run(asyncio.to_thread(self.script.open, env_id))

    def close(self) -> None:
        """Close the environments, or the one of a handle."""
        if self.runner is None:
            self.envs.close()
        else:
            self._run(self.envs.aclose if hasattr(self.envs, "aclose") else self.envs.close)


@dataclass(frozen=True)
class World:
    """A combination of backend, API and options in which laws must hold.

    Example:
        >>> from agym.testing import World
        >>> with World("serial", autoreset="same_step").open(2) as envs:
        ...     observations, infos = envs.reset(seed=0)
        >>> observations.shape
        (2, 4)

    Attributes:
        backend: The backend.
        api: ``"sync"`` or ``"async"``.
        autoreset: The autoreset mode.
        kind: ``"env"``, ``"coroutine"`` or ``"vector"``.
        workers: The number of workers, ``None`` for the default.
        options: Other options of :func:`agym.make`.
        examples: The number of spaces that are drawn for laws about any spaces.
    """

    backend: BackendLike
    api: Api = "sync"
    autoreset: Autoreset = "disabled"
    kind: Kind = "env"
    workers: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    examples: int = 10

    def __str__(self) -> str:
        name = parse_backend(self.backend).name
        kind = "" if self.kind in ("env", name) else f"-{self.kind}"
        return f"{name}{kind}-{self.api}-{self.autoreset}"

    @property
    def has(self) -> frozenset[str]:
        """The properties of this world that laws may need."""
        spec = parse_backend(self.backend)
        has: set[Need] = {self.api, self.autoreset}
        if self.autoreset != "same_step":
            has.add("not_same_step")
        if self.kind != "vector":
            has.add("single")
            in_caller = isinstance(spec, Serial | ProcessWithCaller)  # some environments, or all
            if not in_caller:
                has |= {"concurrent", "deadlines"}
            if isinstance(spec, Process) and not in_caller:  # Ray reports no exit codes
                has.add("processes")
        return frozenset(has)

    @property
    def serial(self) -> World:
        """The oracle: ordinary environments in the caller's thread, through the sync API."""
        return World("serial", autoreset=self.autoreset)

    def with_options(self, **options: Any) -> World:
        """Return this world with more options of :func:`agym.make`."""
        return replace(self, options={**self.options, **options})

    @contextmanager
    def open(self, num_envs: int = 4, **options: Any) -> Iterator[Any]:
        """Open scripted environments; set their acts with ``script`` of the result.

        Args:
            num_envs: Number of environments.
            **options: ``length=`` and ``truncates=`` of the environments, and options of
                :func:`agym.make`.
        """
        env_options = {key: options.pop(key) for key in ("length", "truncates") if key in options}
        with tempfile.TemporaryDirectory(prefix="agym-") as parent:
            folder = Path(parent, "script")
            folder.mkdir()
            script = Script(str(folder))
            coroutines = self.kind == "coroutine"
            env: Any = script.factories(num_envs, coroutines=coroutines, **env_options)
            if self.kind == "vector":
                mode = MODES[self.autoreset]
                env = partial(scripted_vector_env, autoreset_mode=mode, **env_options)
            count = num_envs if self.kind == "vector" else None
            try:
                with self.open_envs(env, count, **options) as envs:
                    envs.script = script
                    yield envs
            finally:
                script.open_all()  # for threads that were abandoned
                # They close their environments, which must not write while the folder is removed.
                folder.rename(Path(parent, "over"))

    @contextmanager
    def open_envs(self, env: Any, num_envs: int | None = None, **options: Any) -> Iterator[Any]:
        """Open other environments: an id, a factory or a list of factories of ordinary ones."""
        keywords = {
            "backend": self.backend, "workers": self.workers, "autoreset": self.autoreset,
            "output": "array", **self.options, **options,
        }  # fmt: skip
        if self.api == "sync":
            with make(env, num_envs, **keywords) as envs:
                yield Player(envs, None)
            return
        with asyncio.Runner() as runner:
            player = Player(make_async(env, num_envs, **keywords), runner)
            try:
                player.__aenter__()
                yield player
            finally:
                player.close()

    def adapt(self, factory: Callable[[], gymnasium.Env[Any, Any]]) -> Callable[[], Any]:
        """Return a factory of this world's kind for ordinary environments."""
        return partial(AsCoroutine, factory) if self.kind == "coroutine" else factory
