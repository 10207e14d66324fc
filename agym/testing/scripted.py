"""The environment of the laws: it follows a test's script, and its observations show its history.

Ordinary and coroutine environments share one implementation: the operations are coroutines that
only await a :class:`Gate`. :class:`ScriptedEnv` blocks at a gate, and :class:`AsyncScriptedEnv`
awaits it.
"""

from __future__ import annotations

import asyncio
import copy
import ctypes
import faulthandler
import os
import signal
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

T = TypeVar("T")
Row = tuple[Any, float, bool, bool, dict[str, Any]]

# Seconds between two checks of a gate at which no environment waits yet.
LOOK_SECONDS = 0.001
# The attributes that change when an environment steps.
STATE = ("length", "value", "draw", "episode", "now", "np_random")


class Unpicklable(Exception):
    """An exception that cannot be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("this exception cannot be pickled")


class ManyArguments(Exception):
    """An exception that can be pickled, but not unpickled."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")


class Mute(Exception):
    """An exception whose ``str`` raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Falsy(Exception):
    """An exception that is false."""

    def __bool__(self) -> bool:
        return False


# Exceptions that an environment may raise, by the name of the act.
EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "raise": lambda: ValueError("boom"),
    "raise unpicklable": lambda: Unpicklable("boom"),
    "raise many arguments": lambda: ManyArguments(7, "boom"),
    "raise mute": Mute,
    "raise falsy": lambda: Falsy("boom"),
    "raise eof": lambda: EOFError("boom"),
    "raise timeout": lambda: TimeoutError("boom"),
    "raise broken pipe": lambda: BrokenPipeError("boom"),
    "raise attribute error": lambda: AttributeError("boom"),
    "raise group": lambda: ExceptionGroup("boom", [ValueError("boom")]),
}
# Exceptions that are not errors, by the name of the act; in the caller's thread, they get through.
INTERRUPTIONS: dict[str, Callable[[], BaseException]] = {
    "interrupt": KeyboardInterrupt,
    "system exit": lambda: SystemExit(3),
}
# Acts that end the environment's process, and the exit codes that the caller sees.
DEATHS = {
    "kill": -9,  # SIGKILL, which Windows lacks
    "segv": -signal.SIGSEGV,
    "abort": -signal.SIGABRT,
    "exit": 3,
}


@dataclass(frozen=True)
class Gate:
    """A named pipe at which an environment waits until the test opens it.

    Attributes:
        path: The pipe.
        stubborn: Whether a task that waits here ignores its cancellation.
    """

    path: str
    stubborn: bool = False

    def block(self) -> None:
        """Wait in this thread."""
        with Path(self.path).open() as pipe:
            pipe.read()

    async def wait(self) -> None:
        """Wait in this task."""
        loop = asyncio.get_running_loop()
        opened = loop.create_future()
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK)
        loop.add_reader(descriptor, lambda: None if opened.done() else opened.set_result(None))
        try:
            while not opened.done():
                try:
                    await asyncio.wait([opened])
                except asyncio.CancelledError:
                    if not self.stubborn:
                        raise
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def __await__(self) -> Generator[Gate, None, None]:
        """Pass the gate to the driver."""
        yield self


def _block(operation: Coroutine[Gate, None, T]) -> T:
    """Run an operation in this thread."""
    while True:
        try:
            gate = operation.send(None)
        except StopIteration as end:
            result: T = end.value
            return result
        gate.block()


async def _wait(operation: Coroutine[Gate, None, T]) -> T:
    """Run an operation in this task."""
    try:
        await asyncio.sleep(0)
        while True:
            gate = operation.send(None)
            await gate.wait()
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        operation.close()  # it may have been cancelled before it started


@dataclass(frozen=True)
class Script:
    """The acts of environments at their operations; a test writes it, and environments read it.

    The acts are files in a folder, so that environments in all processes can read them. An act is
    removed when an environment performs it, so the environment's replacement does not repeat it.

    Example:
        >>> import agym, tempfile
        >>> from agym.testing import Script
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     script = Script(folder)
        ...     with agym.make(script.factories(2)) as envs:
        ...         observations, infos = envs.reset(seed=0)
        ...         script.set(1, "step", "raise")
        ...         try:
        ...             envs.step([0, 0])
        ...         except agym.EnvError as error:
        ...             print(error.env_id, error.operation)
        1 step

    Acts::

        "raise", "raise unpicklable", ...   raise one of EXCEPTIONS
        "interrupt", "system exit"          raise one of INTERRUPTIONS
        "kill", "segv", "abort", "exit"     end the process
        "wait"                              wait until the test opens the gate
        "wait stubbornly"                   the same, and ignore a cancellation
        "spin"                              compute forever, holding the event loop
        "spin in C"                         never return from C code
        "misfit"                            return an observation of another shape
        "no info"                           step with an empty info

    Attributes:
        folder: The folder, which is empty at first.
    """

    folder: str

    def set(
        self, env_id: int, operation: str, act: str, *, after: int = 0, always: bool = False
    ) -> None:
        """Write an act.

        Args:
            env_id: The environment.
            operation: ``"make"``, ``"reset"``, ``"step"``, ``"render"``, ``"call"`` or ``"close"``.
            act: The act.
            after: Number of operations of this kind before the act.
            always: Whether to repeat the act in all later operations.
        """
        if act.startswith("wait") and not Path(self.gate(env_id).path).exists():
            os.mkfifo(self.gate(env_id).path)
        path = self._path(env_id, operation)
        path.with_suffix(".new").write_text(f"{after}\n{'always' if always else 'once'}\n{act}")
        path.with_suffix(".new").rename(path)

    def clear(self, env_id: int, operation: str) -> None:
        """Remove an act that was not performed yet, or that is repeated."""
        self._path(env_id, operation).unlink(missing_ok=True)

    def is_set(self, env_id: int, operation: str) -> bool:
        """Whether an act has not been performed yet."""
        return self._path(env_id, operation).exists()

    def gate(self, env_id: int, *, stubborn: bool = False) -> Gate:
        """Return the gate of an environment."""
        return Gate(str(Path(self.folder, f"{env_id}.gate")), stubborn)

    def try_open(self, env_id: int) -> bool:
        """Open an environment's gate if the environment waits there; return whether it did."""
        try:
            os.close(os.open(self.gate(env_id).path, os.O_WRONLY | os.O_NONBLOCK))
        except OSError:
            return False
        return True

    def open(self, env_id: int, seconds: float = 120.0) -> None:
        """Wait until an environment reaches its gate, and open the gate.

        Raises:
            TimeoutError: The environment did not reach it.
        """
        end = time.monotonic() + seconds
        while not self.try_open(env_id):
            if time.monotonic() > end:
                raise TimeoutError(f"environment {env_id} did not reach its gate")
            time.sleep(LOOK_SECONDS)

    def open_all(self) -> None:
        """Open all gates at which an environment waits."""
        for path in Path(self.folder).glob("*.gate"):
            self.try_open(int(path.stem))

    def mark_closed(self, env_id: int) -> None:
        """Note that an environment was closed; called by environments."""
        Path(self.folder, f"{env_id}.closed").touch()

    def closed(self) -> list[int]:
        """Return the environments that were closed."""
        return sorted(int(path.stem) for path in Path(self.folder).glob("*.closed"))

    def factories(
        self, num_envs: int, *, coroutines: bool = False, **options: Any
    ) -> list[Callable[[], Any]]:
        """Return factories of environments that follow this script."""
        kind: Any = AsyncScriptedEnv if coroutines else ScriptedEnv
        return [partial(kind, self, i, **options) for i in range(num_envs)]

    def take(self, env_id: int, operation: str) -> str | None:
        """Return the act that an operation must perform now; called by environments."""
        path = self._path(env_id, operation)
        try:
            after, repeat, act = path.read_text().split("\n")
        except FileNotFoundError:
            return None
        if int(after):
            path.write_text(f"{int(after) - 1}\n{repeat}\n{act}")
            return None
        if repeat == "once":
            path.unlink(missing_ok=True)  # the test may clear it at the same time
        return act

    def _path(self, env_id: int, operation: str) -> Path:
        return Path(self.folder, f"{env_id}.{operation}")


class _Scripted:
    """The operations of both kinds of environments."""

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 7}  # noqa: RUF012
    observation_space: Any = spaces.Box(-np.inf, np.inf, (4,), np.float64)
    action_space: Any = spaces.Discrete(10)
    render_mode: str | None = "ansi"

    def __init__(
        self,
        script: Script | None = None,
        number: int = 0,
        *,
        length: int = 3,
        truncates: bool = False,
        reuses_array: bool = True,
    ) -> None:
        """Make an environment.

        Args:
            script: The script; ``None`` for an environment without acts.
            number: The environment's index in the script.
            length: Steps of an episode; ``options={"length": 5}`` of a reset changes it.
            truncates: Whether episodes are truncated instead of terminated.
            reuses_array: Whether all observations are one array, which each operation overwrites.
        """
        self.script = script
        self.row = np.zeros(4) if reuses_array else None
        self.number = number
        self.length = length
        self.truncates = truncates
        self.value = 1.0
        self.draw = 0.0
        self.episode = self.now = 0
        self.np_random = np.random.default_rng(number)
        _block(self._act("make"))

    async def _reset(self, seed: int | None, options: dict[str, Any] | None) -> Any:
        act = await self._act("reset")
        if seed is not None:
            self.np_random = np.random.default_rng(seed)
        self.length = (options or {}).get("length", self.length)
        self.draw = float(self.np_random.random())
        self.episode += 1
        self.now = 0
        info = {"seed": seed, "options": options, "draw": self.draw}
        return self._observe(-1, act), info

    async def _step(self, action: Any) -> Row:
        act = await self._act("step")
        self.now += 1
        over = self.now >= self.length
        reward = self.draw + self.now / 16
        info = {} if act == "no info" else {"now": self.now, "action": int(action)}
        ends = (over and not self.truncates, over and self.truncates)
        return self._observe(int(action), act), reward, *ends, info

    async def _render(self) -> str:
        await self._act("render")
        return f"{self.episode}:{self.now}"

    async def _add(self, number: float) -> float:
        await self._act("call")
        return self.value + number

    async def _close(self) -> None:
        await self._act("close")
        if self.script is not None:
            self.script.mark_closed(self.number)

    def pid(self) -> int:
        """Return the id of the process that runs the environment."""
        return os.getpid()

    def _observe(self, action: int, act: str | None) -> Any:
        row = [self.draw, self.episode, self.now, action]
        if self.row is None or act == "misfit":
            return np.array(row[:3] if act == "misfit" else row)
        self.row[:] = row
        return self.row

    async def _act(self, operation: str) -> str | None:
        """Perform the act of an operation, if the script has one; return it."""
        act = None if self.script is None else self.script.take(self.number, operation)
        if act in EXCEPTIONS or act in INTERRUPTIONS:
            error = (EXCEPTIONS | INTERRUPTIONS)[act]()
            raise error
        if act == "exit":
            os._exit(DEATHS[act])
        elif act in DEATHS:
            faulthandler.disable()  # this death is intended: no traceback is of use
            os.kill(os.getpid(), -DEATHS[act])
            signal.pause()
        elif act is not None and act.startswith("wait"):
            assert self.script is not None
            await self.script.gate(self.number, stubborn=act == "wait stubbornly")
        elif act == "spin in C":
            reader, _ = os.pipe()
            ctypes.PyDLL(None).read(reader, ctypes.create_string_buffer(1), 1)
        while act == "spin":
            pass
        return act


class ScriptedEnv(_Scripted, gymnasium.Env[Any, Any]):
    """An ordinary environment that observes ``[draw, episode, step, action]``.

    Example:
        >>> import agym
        >>> from agym.testing import ScriptedEnv
        >>> with agym.make(ScriptedEnv, 2, output="array") as envs:
        ...     observations, infos = envs.reset(seed=0)
        ...     envs.step([5, 6]).observations[:, 1:].tolist()
        [[1.0, 1.0, 5.0], [1.0, 1.0, 6.0]]

    ``draw`` is a random number of the reset, so that an observation identifies its episode. A
    step's reward is ``draw + step / 16``. All results depend only on the seed and the actions.
    """

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode; the info has the seed, the options and the draw."""
        return _block(self._reset(seed, options))

    def step(self, action: Any) -> Row:
        """Step; the info has the number of the step and the action."""
        return _block(self._step(action))

    def render(self) -> Any:
        """Return the episode and the step as text."""
        return _block(self._render())

    def add(self, number: float) -> float:
        """Return the sum of ``value`` and a number."""
        return _block(self._add(number))

    def close(self) -> None:
        """Write a file, ``NUMBER.closed``."""
        _block(self._close())


class AsyncScriptedEnv(_Scripted):
    """:class:`ScriptedEnv` as a coroutine environment; other tasks run before each operation."""

    @property
    def unwrapped(self) -> AsyncScriptedEnv:
        """The environment itself, whose generator a retry of an episode sets."""
        return self

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Start an episode; the info has the seed, the options and the draw."""
        return await _wait(self._reset(seed, options))

    async def step(self, action: Any) -> Row:
        """Step; the info has the number of the step and the action."""
        return await _wait(self._step(action))

    async def render(self) -> Any:
        """Return the episode and the step as text."""
        return await _wait(self._render())

    async def add(self, number: float) -> float:
        """Return the sum of ``value`` and a number."""
        return await _wait(self._add(number))

    async def close(self) -> None:
        """Write a file, ``NUMBER.closed``."""
        await _wait(self._close())

    async def snapshot(self) -> Any:
        """Return the state, which another environment may restore."""
        return {key: copy.deepcopy(getattr(self, key)) for key in STATE}

    async def restore(self, state: Any) -> None:
        """Continue from a state."""
        vars(self).update(copy.deepcopy(state))


def scripted_vector_env(
    num_envs: int, *, autoreset_mode: AutoresetMode, **options: Any
) -> SyncVectorEnv:
    """Return :class:`ScriptedEnv` environments as one ``VectorEnv``."""
    # Gymnasium does not copy final observations.
    options["reuses_array"] = False
    factories = [partial(ScriptedEnv, None, i, **options) for i in range(num_envs)]
    return SyncVectorEnv(factories, autoreset_mode=autoreset_mode)
