"""The keyboard: maps keys that are held down to an action.

As in :func:`gymnasium.utils.play.play`, an environment defines them by ``get_keys_to_action``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

from agym.errors import UsageError

Keys = frozenset[str]

# pygame's numbers of keys, by the names that browsers use.
NAMES = {
    1073741903: "ArrowRight",
    1073741904: "ArrowLeft",
    1073741905: "ArrowDown",
    1073741906: "ArrowUp",
    13: "Enter",
    27: "Escape",
}


# How the legend names keys that have no letter.
SHOWN = {
    " ": "Space bar",
    "ArrowRight": "→",
    "ArrowLeft": "←",
    "ArrowDown": "↓",
    "ArrowUp": "↑",
}


class Keyboard(NamedTuple):
    """Mapping of keys to actions.

    Attributes:
        actions: Action for each set of keys held down together.
        noop: Action for any other keys.
        legend: Text for the player, a line per set of keys.
    """

    actions: Mapping[Keys, Any]
    noop: Any
    legend: str

    @classmethod
    def of(
        cls,
        space: Space[Any],
        keys: str | None,
        noop: str | None,
        custom: Mapping[Any, Any] | None = None,
        meanings: Sequence[str] | None = None,
    ) -> Keyboard:
        """Make the keyboard of an environment.

        Args:
            space: Action space.
            keys: The user's keys: ``"a=0 d=1"``, with actions in JSON.
            noop: Action of no key, in JSON; by default zeros.
            custom: The environment's ``get_keys_to_action``, ``None`` without.
            meanings: Names of its actions, ``None`` without.

        Raises:
            UsageError: The keys are unknown, or an action is not in the space.
        """
        if keys is not None:
            actions = dict(_parse(part, space) for part in keys.split())
        elif custom:
            actions = {_names(held): action for held, action in custom.items()}
        elif isinstance(space, spaces.Discrete) and space.n <= 10:
            actions = {frozenset([str(k)]): space.start + k for k in range(int(space.n))}
        else:
            raise UsageError(
                f"the environment does not say which keys play it: say so, as in --keys"
                f" 'a={_example(space)} d={_example(space)}'"
            )
        idle = _none(space) if noop is None else _action("--noop", noop, space)
        lines = [
            f"{' + '.join(map(_shown, sorted(held)))}: {_meaning(action, meanings)}"
            for held, action in actions.items()
            if held
        ]
        return cls(actions, idle, "\n".join(lines))

    def action(self, held: Keys) -> Any:
        """Return the action of the largest known set of keys among those held down."""
        known = [keys for keys in self.actions if keys <= held and keys]
        return self.actions[max(known, key=len)] if known else self.noop


def _shown(key: str) -> str:
    """Return the name of a key for people."""
    return SHOWN.get(key, key.capitalize())


def _parse(part: str, space: Space[Any]) -> tuple[Keys, Any]:
    held, equals, action = part.rpartition("=")
    if not equals or not held:
        raise UsageError(f"--keys: {part!r} must be a key and an action, such as 'a=0'")
    return _names(held.split("+")), _action("--keys", action, space)


def _names(held: Any) -> Keys:
    """Return keys by the names that browsers use."""
    held = held if isinstance(held, str | list | tuple) else [held]
    names = [NAMES.get(key) or chr(key) if isinstance(key, int) else key for key in held]
    return frozenset(name.lower() if len(name) == 1 else name for name in names)


def _action(option: str, text: str, space: Space[Any]) -> Any:
    try:
        action = json.loads(text)
    except ValueError:
        action = None
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        try:
            action = np.array(action, space.dtype).reshape(space.shape)
        except (ValueError, TypeError):
            action = None
    if not space.contains(action):
        raise UsageError(f"{option}: {text!r} is not an action of {space}")
    return action


def _none(space: Space[Any]) -> Any:
    """Return the action of doing nothing: zeros, or the nearest to them."""
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    if isinstance(space, spaces.Box):
        return np.zeros(space.shape, space.dtype).clip(space.low, space.high)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    return space.sample()


def _example(space: Space[Any]) -> str:
    return json.dumps(np.asarray(_none(space)).tolist()).replace(" ", "")


def _meaning(action: Any, meanings: Sequence[str] | None) -> str:
    if meanings is not None and np.ndim(action) == 0 and 0 <= int(action) < len(meanings):
        return str(meanings[int(action)])
    return str(np.asarray(action).tolist())
