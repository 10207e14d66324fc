"""The keyboard: maps pressed keys to an action.

As in :func:`gymnasium.utils.play.play`, an environment may define ``get_keys_to_action``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space, spaces

from agym.errors import UsageError

Keys = frozenset[str]

# The names that browsers use, by SDL's scancodes.
_SCANCODES = {
    **{57 + n: f"F{n}" for n in range(1, 13)},
    73: "Insert", 74: "Home", 75: "PageUp", 77: "End", 78: "PageDown",
    79: "ArrowRight", 80: "ArrowLeft", 81: "ArrowDown", 82: "ArrowUp",
    84: "/", 85: "*", 86: "-", 87: "+", 88: "Enter", 99: ".",
    **{88 + n: str(n % 10) for n in range(1, 11)},
    **dict(enumerate(["Control", "Shift", "Alt", "Meta"] * 2, 224)),
}  # fmt: skip

# The names that browsers use, by pygame's keycodes. The keycode of any other key is its character.
NAMES = {8: "Backspace", 9: "Tab", 13: "Enter", 27: "Escape", 127: "Delete"}
NAMES |= {1 << 30 | scancode: name for scancode, name in _SCANCODES.items()}

# The names that browsers use, by common names in lower case.
CALLED = {name.lower(): name for name in NAMES.values() if len(name) > 1}
CALLED |= {name[5:].lower(): name for name in NAMES.values() if name.startswith("Arrow")}
CALLED |= {"space": " ", "ctrl": "Control", "esc": "Escape", "return": "Enter"}

OF_ENVIRONMENT = "the environment's get_keys_to_action (--keys replaces it)"

# The legend's names of keys without a letter.
SHOWN = {" ": "Space bar", "ArrowRight": "→", "ArrowLeft": "←", "ArrowDown": "↓", "ArrowUp": "↑"}


class Keyboard(NamedTuple):
    """Mapping of keys to actions.

    Attributes:
        actions: The action of each set of keys that are pressed together.
        noop: The action of all other sets of keys.
        legend: Text for the player, with a line per set of keys.
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
            keys: The user's keys: ``"a=0 left=1"``, with actions in JSON.
            noop: Action while no key is pressed, in JSON; by default zeros.
            custom: Result of the environment's ``get_keys_to_action``, if it has that method.
            meanings: Names of the actions, if the environment has them.

        Raises:
            UsageError: A key is unknown, or has two actions, or an action is not in the space.
        """
        if keys is not None:
            actions = _parse(keys, space)
        elif custom is not None and not isinstance(custom, Mapping):
            name = type(custom).__name__
            raise UsageError(f"{OF_ENVIRONMENT} returned a {name}, not a dict of keys and actions")
        elif custom:
            actions = {_names(OF_ENVIRONMENT, keys): action for keys, action in custom.items()}
        elif isinstance(space, spaces.Discrete) and space.n <= 10:
            actions = {frozenset([str(k)]): space.start + k for k in range(int(space.n))}
        else:
            raise UsageError(
                "the environment does not define keys: pass --keys, such as"
                f" 'a={_example(space)} d={_example(space)}'"
            )
        idle = _none(space) if noop is None else _action("--noop", noop, space)
        lines = [
            f"{' + '.join(map(_shown, sorted(names)))}: {_meaning(action, meanings)}"
            for names, action in actions.items()
            if names
        ]
        return cls(actions, idle, "\n".join(lines))

    def action(self, pressed: Keys) -> Any:
        """Return the action of the largest set of keys that are all pressed."""
        known = [keys for keys in self.actions if keys <= pressed and keys]
        return self.actions[max(known, key=len)] if known else self.noop


def _shown(key: str) -> str:
    """Return the name of a key in the legend."""
    return SHOWN.get(key, key.capitalize())


def _parse(keys: str, space: Space[Any]) -> dict[Keys, Any]:
    actions: dict[Keys, Any] = {}
    for part in keys.split():
        combination, equals, action = part.rpartition("=")
        if not equals or not combination:
            raise UsageError(f"--keys: {part!r} must be a key and an action, such as 'a=0'")
        names = _names("--keys", combination.split("+"))
        if names in actions:
            raise UsageError(f"--keys: {combination!r} has two actions")
        actions[names] = _action("--keys", action, space)
    if not actions:
        raise UsageError("--keys is empty: pass keys and actions, such as 'a=0 d=1'")
    return actions


def _names(source: str, keys: Any) -> Keys:
    """Return keys by the names that browsers use; ``source`` is for error messages."""
    keys = keys if isinstance(keys, str | list | tuple) else [keys]
    return frozenset(_name(source, key) for key in keys)


def _name(source: str, key: Any) -> str:
    name = key
    if isinstance(key, int) and 0 <= key < 1 << 31:
        name = NAMES.get(key) or (chr(key) if key <= sys.maxunicode else "")
    if isinstance(name, str) and name.lower() in CALLED:
        return CALLED[name.lower()]
    if not isinstance(name, str) or len(name) != 1 or not name.isprintable():
        raise UsageError(
            f"{source}: {key!r} is not a key: use a character, or a name such as left, space,"
            " enter, shift or f1"
        )
    return name.lower()


def _action(option: str, text: str, space: Space[Any]) -> Any:
    try:
        action = json.loads(text)
        valid = not isinstance(action, bool)  # spaces accept True and False as 1 and 0
        if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
            action = np.array(action, space.dtype).reshape(space.shape)
        valid = valid and space.contains(action)
    except (ValueError, TypeError, OverflowError, RecursionError):
        valid = False
    if not valid:
        raise UsageError(f"{option}: {text!r} is not an action of {space}")
    return action


def _none(space: Space[Any]) -> Any:
    """Return the action for no key: zeros, or the nearest action."""
    if isinstance(space, spaces.Discrete):
        return int(space.start)
    if isinstance(space, spaces.Box):
        return np.zeros(space.shape, space.dtype).clip(space.low, space.high)
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        return np.zeros(space.shape, space.dtype)
    return space.sample()


def _example(space: Space[Any]) -> str:
    return _json(_none(space)).replace(" ", "")


def _json(action: Any) -> str:
    return json.dumps(action, default=lambda part: np.asarray(part).tolist())


def _meaning(action: Any, meanings: Sequence[str] | None) -> str:
    numbered = isinstance(meanings, Sequence) and isinstance(action, int | np.integer)
    if meanings is not None and numbered and 0 <= action < len(meanings):
        return str(meanings[int(action)])
    return _json(action)
