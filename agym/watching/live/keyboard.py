"""The keyboard: maps keys that are held down to an action.

As in :func:`gymnasium.utils.play.play`, an environment defines them by ``get_keys_to_action``.
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

# The names that browsers use, by SDL's numbers of keys on the keyboard.
_PLACES = {
    **{57 + n: f"F{n}" for n in range(1, 13)},
    73: "Insert", 74: "Home", 75: "PageUp", 77: "End", 78: "PageDown",
    79: "ArrowRight", 80: "ArrowLeft", 81: "ArrowDown", 82: "ArrowUp",
    84: "/", 85: "*", 86: "-", 87: "+", 88: "Enter", 99: ".",
    **{88 + n: str(n % 10) for n in range(1, 11)},
    **dict(enumerate(["Control", "Shift", "Alt", "Meta"] * 2, 224)),
}  # fmt: skip

# The same by pygame's numbers of keys; others are the number of their character.
NAMES = {8: "Backspace", 9: "Tab", 13: "Enter", 27: "Escape", 127: "Delete"}
NAMES |= {1 << 30 | place: name for place, name in _PLACES.items()}

# The same by what people call them, in small letters.
CALLED = {name.lower(): name for name in NAMES.values() if len(name) > 1}
CALLED |= {name[5:].lower(): name for name in NAMES.values() if name.startswith("Arrow")}
CALLED |= {"space": " ", "ctrl": "Control", "esc": "Escape", "return": "Enter"}

OWN = "the environment's get_keys_to_action (--keys replaces it)"

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
            keys: The user's keys: ``"a=0 left=1"``, with actions in JSON.
            noop: Action of no key, in JSON; by default zeros.
            custom: The environment's ``get_keys_to_action``, ``None`` without.
            meanings: Names of its actions, ``None`` without.

        Raises:
            UsageError: A key is unknown, or given twice, or an action is not in the space.
        """
        if keys is not None:
            actions = _parse(keys, space)
        elif custom is not None and not isinstance(custom, Mapping):
            raise UsageError(f"{OWN}: a {type(custom).__name__} is no dict of keys and actions")
        elif custom:
            actions = {_names(OWN, held): action for held, action in custom.items()}
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


def _parse(keys: str, space: Space[Any]) -> dict[Keys, Any]:
    actions: dict[Keys, Any] = {}
    for part in keys.split():
        held, equals, action = part.rpartition("=")
        if not equals or not held:
            raise UsageError(f"--keys: {part!r} must be a key and an action, such as 'a=0'")
        names = _names("--keys", held.split("+"))
        if names in actions:
            raise UsageError(f"--keys: {held!r} has two actions")
        actions[names] = _action("--keys", action, space)
    if not actions:
        raise UsageError("--keys is empty: take keys and actions, such as 'a=0 d=1'")
    return actions


def _names(whose: str, held: Any) -> Keys:
    """Return keys by the names that browsers use."""
    held = held if isinstance(held, str | list | tuple) else [held]
    return frozenset(_name(whose, key) for key in held)


def _name(whose: str, key: Any) -> str:
    name = key
    if isinstance(key, int) and 0 <= key < 1 << 31:
        name = NAMES.get(key) or (chr(key) if key <= sys.maxunicode else "")
    if isinstance(name, str) and name.lower() in CALLED:
        return CALLED[name.lower()]
    if not isinstance(name, str) or len(name) != 1 or not name.isprintable():
        raise UsageError(
            f"{whose}: {key!r} is no key: take a character, or a name such as left, space, enter,"
            " shift or f1"
        )
    return name.lower()


def _action(option: str, text: str, space: Space[Any]) -> Any:
    try:
        action = json.loads(text)
        known = not isinstance(action, bool)  # which Python takes for 0 and 1
        if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
            action = np.array(action, space.dtype).reshape(space.shape)
        known = known and space.contains(action)
    except (ValueError, TypeError, OverflowError, RecursionError):
        known = False
    if not known:
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
    return _json(_none(space)).replace(" ", "")


def _json(action: Any) -> str:
    return json.dumps(action, default=lambda part: np.asarray(part).tolist())


def _meaning(action: Any, meanings: Sequence[str] | None) -> str:
    numbered = isinstance(meanings, Sequence) and isinstance(action, int | np.integer)
    if meanings is not None and numbered and 0 <= action < len(meanings):
        return str(meanings[int(action)])
    return _json(action)
