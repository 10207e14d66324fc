"""How an ``EnvHost`` continues environments: what a fault or another worker left, and snapshots."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from agym.errors import SnapshotError
from agym.hosts.episode import Phase
from agym.hosts.gym.beginning import begin, set_step
from agym.hosts.snapshots import attributes
from agym.hosts.snapshots.codecs import learn
from agym.hosts.snapshots.replaying import (
    CUT_OFF,
    OTHER_KIND,
    OTHER_REPLAY,
    REMEDY,
    UNRECORDED,
    replay,
    restore_start,
    same_observation,
)
from agym.hosts.snapshots.states import EnvState
from agym.hosts.snapshots.ways import copy_env, import_proofs
from agym.protocol.messages.operations import Export, Recreate, Restore, TakeSnapshot
from agym.protocol.messages.resets import EpisodeStart, RestoreSpec

if TYPE_CHECKING:
    from agym.hosts.gym.host import EnvHost, StepResult


def step_others(
    host: EnvHost,
    error: BaseException,
    results: list[StepResult],
    actions: Sequence[Any],
    start: int,
    stop: int,
    plane: int,
) -> None:
    """Continue one environment at a time after one raised, so that the others are stepped."""
    host._unflagged += 1  # the engine decides about rows of failed ones
    host._blank += 1
    rescued: list[StepResult | None] = [*results]
    if len(results) < stop - start:
        host._fail(error, start + len(results), "step", actions[len(results)])
        rescued.append(None)
    for slot in range(start + len(rescued), stop):
        host._mark(slot)
        try:
            rescued.append(host._steps[slot - host.first](actions[slot - start]))
        except host._catch as another:
            if another.__context__ is error:  # an unrelated exception
                another.__context__ = None
            host._fail(another, slot, "step", actions[slot - start])
            rescued.append(None)
    host._mark(None)
    for slot, result in enumerate(rescued, start):
        if result is not None:
            try:
                host._store([result], slot, slot + 1, plane)
            except host._catch as misfit:  # does not fit the space
                host._fail(misfit, slot, "step", actions[slot - start])


def recreate(host: EnvHost, slot: int, message: Recreate, k: int) -> str | None:
    """Replace an environment that is broken or gone.

    Returns:
        ``""`` if the state of the old one was restored, the reason if that failed, ``None`` if
        it was not tried.
    """
    i, restore = slot - host.first, message.restores[k]
    if restore.used:
        with suppress(host._catch):
            host._envs[i].close()
        host._envs[i] = host._make_again(i)
    host._import_env(i, restore)
    reason = None
    if isinstance(restore.start, EpisodeStart) and restore.over is not None:
        restore_start(host._envs[i], restore.start)
        host._episodes[i].end(host._rule, (restore.observation, 0.0, *restore.over, {}))
        reason = ""
    elif restore.start is not None:
        reason = _replay(host, i, restore, restore.start)
    if reason != "":
        host._episodes[i].cut_off(restore.observation)
        host._filter.cut(i)
    set_step(host, i)
    return reason


def export(host: EnvHost, slot: int, message: Export, k: int) -> EnvState | EpisodeStart | None:
    """Return where a replacement continues; ``None`` if it cannot before the next episode."""
    i = slot - host.first
    if message.proofs is not None:
        env, kind = host._envs[i], host.kind_of(i)
        import_proofs(env, kind, message.proofs)
        copied = copy_env(env, kind, None, host._envs)
        if not isinstance(copied, str) and host._episodes[i].phase is not Phase.CUT:
            return host._state(i, copied, host.steps_of(i), message.planes[k])
    if host._rule.resets_now:
        return host._starts[i] if host.steps_of(i) == 0 else None
    if host._episodes[i].phase not in (Phase.DUE, Phase.HELD):
        return None
    return host._next_start(i)


def _replay(host: EnvHost, i: int, restore: RestoreSpec, start: EpisodeStart | EnvState) -> str:
    """Replay an episode, from its beginning or a state in it.

    Returns:
        Why its state differs, ``""`` if it does not.
    """
    episode = host._episodes[i]
    reseed, episode.reseed = episode.reseed, None
    try:
        if isinstance(start, EnvState):
            _continue_from(host, i, start)
            observation, episode = start.observation, host._episodes[i]
        else:
            arguments = copy.deepcopy(restore_start(host._envs[i], start))
            host._episodes[i].lineage = start.lineage
            observation, _ = begin(host, i, **arguments)
        env = host._envs[i]
        for action in restore.actions if episode.phase is not Phase.HELD else ():
            host._begun[i] -= 1
            result = env.step(action)
            host._filter.add(i, result[1:2])
            observation = result[0]
            if result[2] or result[3]:
                episode.end(host._rule, result)
                break
        if same_observation(host._layout, observation, restore.observation):
            if not isinstance(start, EnvState):
                episode.number = restore.episode  # a replay is no new episode
            return ""
        reason = "its replay came to another observation"
    except host._catch as error:
        host._resetting = None
        reason = f"its replay raised {type(error).__name__}"
    host._import_env(i, restore)
    host._episodes[i].reseed = reseed
    return reason


def take(host: EnvHost, slot: int, message: TakeSnapshot, k: int) -> EnvState | str:
    """Return an environment's state, or why it cannot be had."""
    i = slot - host.first
    env, episode = host._envs[i], host._episodes[i]
    if episode.phase is Phase.CUT:
        return CUT_OFF
    learn(message.codecs)
    record = partial(host._recorder.of, i)
    make = partial(host._make_again, i)
    copied = copy_env(env, host.kind_of(i), make, host._envs, record)
    if isinstance(copied, str):
        if record() is not None:
            return f"{copied}. {REMEDY}"
        host._recorder.on = True
        return f"{copied}. {UNRECORDED}. {REMEDY}"
    return host._state(i, copied, host.steps_of(i), message.planes[k])


def restore(host: EnvHost, slot: int, message: Restore, k: int) -> None:
    """Continue from a state."""
    i = slot - host.first
    state: EnvState = message.states[k]
    learn(message.codecs)
    _continue_from(host, i, state)
    row = host._rows.plane(message.plane, slot, slot + 1)
    host._reset_row(slot, row, state.observation, *host._filter.running([state.info]))
    with host._guard:
        row.rewards[:] = 0.0
        row.terminated[:], row.truncated[:] = state.flags
    host._unflagged += 1


def _continue_from(host: EnvHost, i: int, state: EnvState) -> None:
    """Set the state of an environment, and its host's record of it."""
    state = state.unpacked()
    if state.way == "actions":
        observation = replay(host._envs[i], state.data)
        if not same_observation(host._layout, observation, state.observation):
            raise SnapshotError(OTHER_REPLAY)
        host._recorder.set(i, state.data)
    elif state.way != "attributes":
        raise SnapshotError(OTHER_KIND.format(state.detail))
    else:
        attributes.put(host._envs[i], state.data)
        host._recorder.set(i, None)
    host._episodes[i] = host._rule.restored(state.episode, state.observation, state.flags)
    host._begun[i] = host._rounds - state.steps
    host._filter.resume(i, state.statistics)
    set_step(host, i)
