"""Renders rule books of Gymnasium's environments with Gymnasium's own renderers."""

from __future__ import annotations

import threading
from typing import Any

from gymnasium.envs.registration import load_env_creator

from agym.core._system.extras import require

# Environments that only draw: one per class, mode and arguments. The lock guards them, because all
# games of a process share them.
_drawers: dict[Any, Any] = {}
_lock = threading.Lock()


def gymnasium_picture(
    entry_point: str, mode: str, attributes: dict[str, Any], **arguments: Any
) -> Any:
    """Render a state in an environment of Gymnasium.

    Example:
        >>> acrobot = "gymnasium.envs.classic_control.acrobot:AcrobotEnv"
        >>> gymnasium_picture(acrobot, "rgb_array", {"state": (0.0, 0.5, 0.0, 0.0)}).shape
        (500, 500, 3)

    The argument is a class, not an id, because an id's version changes: Taxi is v3 in Gymnasium
    1.2, and v4 in 1.4.

    Args:
        entry_point: The environment's class, ``"module:Class"``.
        mode: Render mode, ``"rgb_array"`` or ``"ansi"``.
        attributes: The state to draw, as attributes of the environment.
        **arguments: For the class; they must be hashable.

    Returns:
        ``uint8[height, width, 3]`` or text.

    Raises:
        MissingExtraError: pygame is not installed.
    """
    pygame: Any = require("pygame", "render") if mode != "ansi" else None
    key = entry_point, mode, *sorted(arguments.items())
    with _lock:
        if key not in _drawers:
            _drawers[key] = load_env_creator(entry_point)(render_mode=mode, **arguments)
        drawer = _drawers[key]
        for name, value in attributes.items():
            setattr(drawer, name, value)
        # Gymnasium opens a display, although it does not need one to draw. SDL may open a socket
        # for it.
        was_open = pygame is None or pygame.display.get_init()
        picture = drawer.render()
        if not was_open:
            pygame.display.quit()
        return picture
