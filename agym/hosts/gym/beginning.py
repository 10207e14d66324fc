"""How an ``EnvHost`` begins episodes: resets, spares, and what follows an episode's end."""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from agym.hosts.episode import Phase
from agym.hosts.fleet.spares import Beginning
from agym.hosts.gym.spares import SpareThreads
from agym.hosts.snapshots.replaying import note_start
from agym.protocol.messages.operations import Reset
from agym.protocol.messages.resets import EpisodeStart, as_keywords, lasting
from agym.protocol.table import Plane
from agym.protocol.typing import Info
from agym.protocol.value_copies import copy_info, copy_value

if TYPE_CHECKING:
    from agym.hosts.gym.host import EnvHost, StepResult


def reset(host: EnvHost, slot: int, message: Reset, k: int) -> None:
    """Begin an episode at the caller's request."""
    i = slot - host.first
    seed = None if message.seeds is None else message.seeds[k]
    if seed is not None:
        host._episodes[i].seed = seed
    host._episodes[i].options = lasting(message.options)
    options = as_keywords(message.options, slot)
    if host._spares is None:
        beginning = begin(host, i, seed=seed, **copy.deepcopy(options))
    else:
        first = host._beginning(i, seed, options.get("options"))
        beginning = _begin_with_spares(host, i, host._spares, first)
    row = host._rows.plane(message.plane, slot, slot + 1)
    host._reset_row(slot, row, *beginning)
    with host._guard:
        row.rewards[:] = 0.0
        row.terminated[:] = False
        row.truncated[:] = False


def autoreset(host: EnvHost, i: int) -> tuple[Any, dict[str, Any]]:
    """Reset with the same options, but no seed, so that the random stream continues."""
    if host._spares is not None:
        return _begin_with_spares(host, i, host._spares, host._next_beginning(i))
    options = host._episodes[i].options
    return begin(host, i) if options is None else begin(host, i, options=copy.deepcopy(options))


def _begin_with_spares(
    host: EnvHost, i: int, spares: SpareThreads, beginning: Beginning
) -> tuple[Any, dict[str, Any]]:
    """Begin an episode with a spare, if one was reset ahead for it; reset others ahead."""
    episode = host._episodes[i]
    episode.lineage, episode.reseed = beginning.lineage, None
    # A failed episode begins again in the environment that is in place, which is a fresh one.
    again = episode.retry is not None
    begun = None if again else spares.begin(i, beginning, host._envs[i])
    if begun is None:
        observation, info = begin(host, i, **copy.deepcopy(beginning.arguments()))
    else:
        (start, observation, info), host._envs[i] = begun
        _note_begin(host, i)
        if host._recorder.on:
            _note_start(host, i, start)
        host._meter.spent(host.first + i, info)
        if host._filter.active:
            info = _first_info(host, i, info)
    episodes = host._episodes
    spares.reset_ahead(
        i, lambda k: host.steps_of(k) if episodes[k].number else -1, host._next_beginning
    )
    return observation, info


def begin(host: EnvHost, i: int, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Begin an episode in the environment that is in place."""
    env = host._envs[i]
    episode = host._episodes[i]
    if episode.reseed is not None or episode.retry is not None:
        arguments = host._seeded(i, arguments)
    _note_begin(host, i)
    host._resetting = i
    if host._recorder.on:
        _note_start(host, i, note_start(env, arguments))
    if host._fleet is None:
        observation, info = env.reset(**arguments)
    else:
        host._fleet.wait(i)
        observation, info = host._in_owner(i, partial(env.reset, **arguments))
    host._resetting = None
    if info:
        host._meter.spent(host.first + i, info)
    if host._filter.active:
        info = _first_info(host, i, info)
    return observation, info


def _note_begin(host: EnvHost, i: int) -> None:
    host._episodes[i].begin()
    host._steps[i] = host._step_of(i)
    host._meter.begin_episode(host.first + i)
    host._begun[i] = host._rounds


def _note_start(host: EnvHost, i: int, start: EpisodeStart) -> None:
    start = start._replace(lineage=host._episodes[i].lineage)
    host._recorder.begin(i, start)
    if host._log:
        host._starts[i] = host._extra.starts[host.first + i] = start


def _first_info(host: EnvHost, i: int, info: dict[str, Any]) -> dict[str, Any]:
    host._filter.begin(i)
    (info,) = host._filter.running([info])
    return info


def finish(host: EnvHost, slot: int, result: StepResult, info: Info, plane: int) -> None:
    """Reset an environment whose episode ended with ``result``, or schedule what follows."""
    i = slot - host.first
    episode = host._episodes[i]
    if episode.phase is Phase.HELD:
        return
    try:
        if not host._rule.resets_now:
            episode.end(host._rule, result)
            set_step(host, i)
            if host._log:
                host._extra.nexts[slot] = host._next_start(i)
        else:
            row = host._rows.plane(plane, slot, slot + 1)
            if host._here is not None:
                host._finals[slot] = (copy_value(result[0]), copy_info(info) if info else {})
            else:
                _put_final(host, row, slot, result[0], info)
            host._mark(slot)
            beginning = autoreset(host, i)
            host._mark(None)
            host._reset_row(slot, row, *beginning)
    except host._catch as error:
        host._fail(error, slot, "reset")


def _put_final(host: EnvHost, row: Plane, slot: int, observation: Any, info: Info) -> None:
    """Write what ended an episode to its row, or else into the payload."""
    with host._guard:
        objects = host._rows.write(row.final, [observation], slot)
        info = host._rows.with_final(info, observation)
        fits = host._writer.put(row.final_infos, slot, info)
    if objects:
        host._extra.final_objects.update(objects)
    # An empty payload saves a message, which takes longer than the step.
    if not fits:
        host._extra.infos.pop(slot, None)
        host._extra.final_infos[slot] = copy_info(info)


def set_step(host: EnvHost, i: int) -> None:
    """Set the function of an environment's next step, by the phase of its episode."""
    phase = host._episodes[i].phase
    if phase is Phase.RUNNING:
        host._steps[i] = host._step_of(i)
    else:
        instead = _reset_step if phase is Phase.DUE else _known_step
        host._steps[i] = partial(instead, host, i)


def _reset_step(host: EnvHost, i: int, _action: Any) -> StepResult:
    observation, info = autoreset(host, i)
    return observation, 0.0, False, False, info


def _known_step(host: EnvHost, i: int, _action: Any) -> tuple[Any, ...]:
    return host._episodes[i].known_row()
