"""How a ``CoroutineHost`` continues environments: what a fault left, and snapshots."""

from __future__ import annotations

import asyncio
import copy
import pickle
from typing import TYPE_CHECKING, Any

from agym._system.pickling import dumps_by_value
from agym.errors import SnapshotError
from agym.hosts.coroutine.calls import close
from agym.hosts.episode import Phase
from agym.hosts.snapshots.replaying import (
    CUT_OFF,
    OTHER_KIND,
    OTHER_REPLAY,
    UNRECORDED,
    restore_start,
    same_observation,
)
from agym.hosts.snapshots.states import Copy, EnvState, WayName
from agym.protocol.messages.completions import Payload
from agym.protocol.messages.operations import Recreate, Restore, TakeSnapshot
from agym.protocol.messages.resets import EpisodeStart, RestoreSpec

if TYPE_CHECKING:
    from agym.hosts.coroutine.host import CoroutineHost


async def take(host: CoroutineHost, i: int, message: TakeSnapshot, plane: int) -> EnvState | str:
    """Return an environment's state, or why it cannot be had."""
    env = host._envs[i]
    if host._episodes[i].phase is Phase.CUT:
        return CUT_OFF
    name: WayName
    data: Any
    if all(callable(getattr(env, name, None)) for name in ("snapshot", "restore")):
        name, detail = "methods", f"what {type(env).__name__}.snapshot returns"
        try:
            data = dumps_by_value(await env.snapshot())  # so that nothing can change it
        except (TypeError, pickle.PicklingError) as error:
            return f"{detail} cannot be pickled: {error}"
    else:
        why = f"{type(env).__name__} has no `async def snapshot(self)` and `restore(self, state)`"
        name, detail, data = "actions", f"its actions, since {why}", host._recorder.of(i)
        if data is None:
            host._recorder.on = True
            return f"{why}. {UNRECORDED}"
    return host._state(i, Copy(name, detail, data), host._steps[i], plane)


async def restore(host: CoroutineHost, i: int, message: Restore, state: EnvState) -> Payload | None:
    """Continue from a state."""
    await _continue_from(host, i, state)
    (info,) = host._filter.running([state.info])
    return host._store(i, message.plane, (state.observation, 0.0, *state.flags, info))


async def _continue_from(host: CoroutineHost, i: int, state: EnvState) -> None:
    """Set the state of an environment, and its host's record of it."""
    env, state = host._envs[i], state.unpacked()
    if state.way == "actions":
        observation, _ = await env.reset(**copy.deepcopy(restore_start(env, state.data.start)))
        for action in state.data.actions:
            observation, *_ = await env.step(action)
        if not same_observation(host._layout, observation, state.observation):
            raise SnapshotError(OTHER_REPLAY)
        host._recorder.set(i, state.data)
    elif state.way != "methods" or not isinstance(state.data, bytes):
        raise SnapshotError(OTHER_KIND.format(state.detail))
    else:
        await env.restore(pickle.loads(state.data))
        host._recorder.set(i, None)
    host._episodes[i] = host._rule.restored(state.episode, state.observation, state.flags)
    host._steps[i] = state.steps
    host._filter.resume(i, state.statistics)


async def recreate(
    host: CoroutineHost, i: int, message: Recreate, restore: RestoreSpec | None
) -> str | None:
    """Replace an environment; see :func:`agym.hosts.gym.continuing.recreate`."""
    if restore is None:
        return ""
    if restore.used:
        closing = host._running_loop().create_task(_close_quietly(host, host._envs[i]))
        host._track_leftover(closing)
        host._envs[i] = host._make_again(i)
    host._import_env(i, restore)
    host._steps[i], host._resetting[i] = 0, False
    host._injected_faults.pop(i, None)
    reason = None
    if restore.over is not None:
        host._episodes[i].end(host._rule, (restore.observation, 0.0, *restore.over, {}))
        reason = ""
    elif restore.start is not None:
        reason = await _replay(host, i, restore, restore.start)
    if reason != "":
        host._episodes[i].cut_off(restore.observation)
        host._filter.cut(i)
    return reason


async def _close_quietly(host: CoroutineHost, env: Any) -> None:
    try:
        await close(env)
    except asyncio.CancelledError:
        raise
    except host._fatal:
        raise
    except BaseException:
        return


async def _replay(
    host: CoroutineHost, i: int, restore: RestoreSpec, start: EpisodeStart | EnvState
) -> str:
    """Replay an episode; see ``agym.hosts.gym.continuing``."""
    env, episode = host._envs[i], host._episodes[i]
    reseed, episode.reseed = episode.reseed, None
    try:
        if isinstance(start, EnvState):
            await _continue_from(host, i, start)
            observation, episode = start.observation, host._episodes[i]
        else:
            observation, _ = await env.reset(**copy.deepcopy(restore_start(env, start)))
            episode.lineage = start.lineage
            host._filter.begin(i)
        for action in restore.actions if episode.phase is not Phase.HELD else ():
            result = await env.step(action)
            host._steps[i] += 1
            host._filter.add(i, result[1:2])
            observation = result[0]
            if result[2] or result[3]:
                episode.end(host._rule, result)
                break
        if same_observation(host._layout, observation, restore.observation):
            return ""
        reason = "its replay came to another observation"
    except host._fatal:
        raise
    except Exception as error:
        reason = f"its replay raised {type(error).__name__}"
    host._import_env(i, restore)
    host._episodes[i].reseed = reseed
    return reason
