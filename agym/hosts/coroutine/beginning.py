"""How a ``CoroutineHost`` begins episodes: resets, autoresets and spares."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from agym.hosts.coroutine.spares import SpareTasks
from agym.hosts.fleet.spares import Beginning
from agym.hosts.snapshots.replaying import note_start
from agym.protocol.messages.completions import Payload
from agym.protocol.messages.operations import Reset
from agym.protocol.messages.resets import EpisodeStart, as_keywords, lasting
from agym.protocol.value_copies import copy_info, copy_value

if TYPE_CHECKING:
    from agym.hosts.coroutine.host import CoroutineHost


async def reset(host: CoroutineHost, i: int, message: Reset, seed: int | None) -> Payload | None:
    """Begin an episode at the caller's request."""
    if seed is not None:
        host._episodes[i].seed = seed
    host._episodes[i].options = lasting(message.options)
    keywords = as_keywords(message.options, host.first + i)
    if host._spares is None:
        keywords = copy.deepcopy(keywords)
        observation, info = await _begin(host, i, seed=seed, **keywords)
    else:
        beginning = host._beginning(i, seed, keywords.get("options"))
        observation, info = await _begin_with_spares(host, i, host._spares, beginning)
    return host._store(i, message.plane, (observation, 0.0, False, False, info))


async def autoreset(host: CoroutineHost, i: int) -> tuple[Any, dict[str, Any]]:
    """Reset with the same options, but no seed, so that the random stream continues."""
    if host._spares is not None:
        return await _begin_with_spares(host, i, host._spares, host._next_beginning(i))
    options = host._episodes[i].options
    arguments = {} if options is None else {"options": copy.deepcopy(options)}
    return await _begin(host, i, **arguments)


async def _begin_with_spares(
    host: CoroutineHost, i: int, spares: SpareTasks, beginning: Beginning
) -> tuple[Any, dict[str, Any]]:
    """Begin an episode with a spare, if one was reset ahead for it."""
    episode = host._episodes[i]
    episode.lineage, episode.reseed = beginning.lineage, None
    # A failed episode begins again in the environment that is in place, which is a fresh one.
    again = episode.retry is not None
    begun = None if again else await spares.begin(i, beginning, host._envs[i])
    if begun is None:
        arguments = copy.deepcopy(beginning.arguments())
        observation, info = await _begin(host, i, **arguments)
        reset_ahead(host, spares, i)
    else:
        (start, observation, info), host._envs[i] = begun
        _note_begin(host, i)
        if host._recorder.on:
            _note_start(host, i, start)
        info = _first_info(host, i, info)
    return observation, info


async def _begin(host: CoroutineHost, i: int, **arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Begin an episode in the environment that is in place."""
    env = host._envs[i]
    arguments = host._seeded(i, arguments)
    _note_begin(host, i)
    host._resetting[i] = True
    if host._recorder.on:
        _note_start(host, i, note_start(env, arguments))
    if host._fleet is None:
        observation, info = await env.reset(**arguments)
    else:
        observation, info = await host._fleet.reset(i, env, arguments)
    host._resetting[i] = False
    return observation, _first_info(host, i, info)


def reset_ahead(host: CoroutineHost, spares: SpareTasks, i: int) -> None:
    """Reset idle spares ahead, now that an episode of environment ``i`` has begun."""
    steps, episodes = host._steps, host._episodes
    spares.reset_ahead(i, lambda k: steps[k] if episodes[k].number else -1, host._next_beginning)


def _note_begin(host: CoroutineHost, i: int) -> None:
    host._episodes[i].begin()
    host._meter.begin_episode(host.first + i)
    host._steps[i] = 0


def _note_start(host: CoroutineHost, i: int, start: EpisodeStart) -> None:
    start = start._replace(lineage=host._episodes[i].lineage)
    host._recorder.begin(i, start)
    if host._log:
        host._starts[i] = start


def _first_info(host: CoroutineHost, i: int, info: dict[str, Any]) -> dict[str, Any]:
    host._meter.spent(host.first + i, info)
    if host._filter.active:
        host._filter.begin(i)
        (info,) = host._filter.running([info])
    return info


async def finish_and_reset(host: CoroutineHost, i: int, plane: int, result: Any) -> Payload | None:
    """Same-step autoreset: store the final observation and info, then reset."""
    slot = host.first + i
    final_observation = copy_value(result[0])
    final_info = host._rows.with_final(copy_info(result[4]), final_observation)
    observation, info = await autoreset(host, i)
    payload = host._store(i, plane, (observation, *result[1:4], info))
    row = host._rows.plane(plane, slot, slot + 1)
    final_objects = host._rows.write(row.final, [final_observation], slot)
    fits = host._writer.put(row.final_infos, slot, final_info)
    if fits and not final_objects:
        return payload
    payload = payload or Payload()
    payload.final_objects.update(final_objects or {})
    if not fits:
        payload.final_infos[slot] = final_info
    return payload
