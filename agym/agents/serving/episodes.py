"""One client's use of one environment: the protocol's reset, step and state."""

from __future__ import annotations

import secrets
import warnings
from typing import Any, NoReturn

import numpy as np
from gymnasium import Space, spaces

from agym.agents.openenv.space_json import from_json, shown
from agym.agents.openenv.wire import VALUE, Code
from agym.agents.serving.slots import SessionSlot
from agym.core.hosts.async_env import AnySpace
from agym.core.protocol.messages.failures import describe_exit
from agym.errors import (
    AgymError,
    ClosedError,
    CrashLoopError,
    EnvError,
    Fault,
    StepTimeout,
    UsageError,
    WorkerDied,
)

# Fields that all typed actions of OpenEnv have.
METADATA = "metadata"
# The longest id of an episode.
MAX_ID_LENGTH = 255
# What a client hears of a worker's end, before its exit code or signal.
DIED = "the environment's worker died: "


class ProtocolError(Exception):
    """What is answered instead of a result.

    Attributes:
        code: The kind of error.
        details: More fields of the error message.
    """

    def __init__(self, code: Code, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class Episodes:
    """The episodes that a client plays in one environment, one after another."""

    def __init__(self, slot: SessionSlot) -> None:
        self._slot = slot
        self._space: Space[Any] = slot.env.action_space
        # Its action must be one field, "value".
        self._is_value = not isinstance(self._space, spaces.Dict | AnySpace)
        self._running = False
        self._why = "the environment was not reset: send a reset first"
        self._steps = 0
        self._episode: str | None = None

    async def reset(self, data: dict[str, Any]) -> dict[str, Any]:
        """Start an episode; return the data of the answer.

        Args:
            data: ``seed``, ``episode_id`` and ``options``; other fields become options too.

        Raises:
            ProtocolError: The data are wrong, or the environment failed.
        """
        given = dict(data)
        seed, episode = given.pop("seed", None), given.pop("episode_id", None)
        options = given.pop("options", None)
        if seed is not None and (type(seed) is not int or not 0 <= seed < 2**63):
            raise invalid("seed must be an integer from 0 to 2**63 - 1", "seed")
        if episode is not None and (not isinstance(episode, str) or len(episode) > MAX_ID_LENGTH):
            raise invalid(
                f"episode_id must be a text of at most {MAX_ID_LENGTH} letters", "episode_id"
            )
        if not isinstance(options, dict | None):
            raise invalid("options must be an object", "options")
        options = {**given, **(options or {})} or None
        self._running = False
        self._why = "the last reset failed: send another"
        self._episode = episode or secrets.token_hex(16)
        outcome = await self._slot.reset(seed, options)
        if isinstance(outcome, BaseException):
            self._raise(outcome)
        observation, info = outcome
        # What failed was another session's step on the same worker, or an earlier attempt to reset.
        info = {key: value for key, value in info.items() if not isinstance(value, Fault)}
        self._running, self._steps = True, 0
        return {"observation": observation, "reward": None, "done": False, METADATA: {"info": info}}

    async def step(self, fields: Any, *, native: bool) -> dict[str, Any]:
        """Step the environment; return the data of the answer.

        Args:
            fields: The action: the fields of an object, or the action itself if ``native``.
            native: Whether the action is a value of Python's or NumPy's.

        Raises:
            ProtocolError: The action is not in its space, there is no episode, or the environment
                failed.
        """
        action = self.action(fields, native=native)
        if not self._running:
            raise ProtocolError(Code.EXECUTION_ERROR, self._why)
        outcome = await self._slot.step(action)
        if isinstance(outcome, BaseException):
            self._raise(outcome)
        observation, reward, terminated, truncated, info = outcome
        self._check(info)
        self._steps += 1
        done = terminated or truncated
        if done:
            self._running = False
            self._why = "the episode has ended: send a reset"
        return {
            "observation": observation,
            "reward": reward,
            "done": done,
            METADATA: {"terminated": terminated, "truncated": truncated, "info": info},
        }

    def state(self) -> dict[str, Any]:
        """Return the environment's state in the sense of the protocol."""
        return {"episode_id": self._episode, "step_count": self._steps}

    def action(self, fields: Any, *, native: bool) -> Any:
        """Return the action, which is in its space.

        Raises:
            ProtocolError: It is not.
        """
        if native and contains(self._space, fields):
            return fields
        value = fields if native else self._from_fields(fields)
        try:
            action = from_json(self._space, value, "action")
        except UsageError as error:
            raise invalid(str(error), "action") from None
        if contains(self._space, action):
            return action
        raise invalid(f"the action {shown(value)} is not in {shown(self._space)}", "action")

    def _from_fields(self, fields: Any) -> Any:
        if not isinstance(fields, dict):
            raise invalid("an action must be an object", "data")
        names = fields.keys() - {METADATA}
        if self._is_value:
            if names != {VALUE}:
                raise invalid(
                    f'an action must be an object with the field "{VALUE}", not {shown(fields)}',
                    "data",
                )
            return fields[VALUE]
        if isinstance(self._space, spaces.Dict):
            known = METADATA in self._space.spaces
            return fields if known else {key: fields[key] for key in fields if key != METADATA}
        return fields[VALUE] if names == {VALUE} else fields

    def _raise(self, error: BaseException) -> NoReturn:
        """Raise an error with the text that the client receives. The log has the traceback."""
        match error:
            case WorkerDied():
                why = DIED + describe_exit(error.exitcode)
                raise ProtocolError(Code.SESSION_ERROR, why) from error
            case CrashLoopError():
                why = f"the environment fails too often: {error.faults[-1].error}"
                raise ProtocolError(Code.SESSION_ERROR, why) from error
            case ClosedError():
                raise ProtocolError(Code.SESSION_ERROR, "the server is closed") from error
            case UsageError():
                raise invalid(str(error), "data") from error
            case EnvError():
                self._fail(error.error)
            case StepTimeout():
                self._fail(f"{error.operation} took too long")
            case AgymError():
                self._fail(str(error))
        raise error

    def _check(self, info: dict[str, Any]) -> None:
        """Raise the fault that agym reports in an info."""
        fault = info.get("fault")
        if isinstance(fault, Fault):
            self._fail((DIED if fault.kind == "died" else "") + fault.error)

    def _fail(self, why: str) -> NoReturn:
        self._running = False
        self._why = "the environment failed in the last step: send a reset"
        raise ProtocolError(Code.EXECUTION_ERROR, why)


def contains(space: Space[Any], value: Any) -> bool:
    """Whether a space contains a value that may be anything.

    Over some values spaces raise, and over lists in place of arrays they warn.
    """
    try:
        if isinstance(value, np.ndarray) or isinstance(space, spaces.Discrete | AnySpace):
            return space.contains(value)  # the usual ones, of which none does
        with warnings.catch_warnings(action="ignore"):
            return space.contains(value)
    except Exception:
        return False


def invalid(message: str, where: str) -> ProtocolError:
    """Return the error of a message that breaks a rule."""
    errors = [{"type": "value_error", "loc": [where], "msg": message}]
    return ProtocolError(Code.VALIDATION_ERROR, f"Invalid message: {message}", errors=errors)
