"""Support for pygame: a lock around its polygon functions, and silence without a display.

``pygame.gfxdraw`` fills polygons through one table of the whole process, and releases the GIL while
it does. Two threads that do so at the same time overwrite each other's entries: one picture in a
thousand then has wrong lines, even on separate surfaces. (Everything else with which Gymnasium's
environments draw is confined to its surface.) A lock around ``render`` would also prevent this, but
would make environments wait for slow ones.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

# The functions that use the table.
NAMES = ("filled_polygon", "textured_polygon")

_lock = threading.Lock()
_done = False


def headless(*, always: bool = False) -> dict[str, str]:
    """Return the variables that keep SDL from looking for a display if there is none.

    Otherwise SDL complains about ``XDG_RUNTIME_DIR`` and sound cards, on stderr, in each process.
    ``always`` is for programs that open no window even if there is a display.
    """
    display = not always and {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if sys.platform != "linux" or display:
        return {}
    names = ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER")
    return {name: os.environ.get(name, "dummy") for name in names}


def lock_polygons() -> None:
    """Let only one thread at a time fill polygons in this process, if pygame is installed."""
    global _done
    with _lock:
        if _done:
            return
        _done = True
        try:
            gfxdraw = importlib.import_module("pygame.gfxdraw")
        except Exception:
            # It is not installed, or cannot be imported here (a broken build, or a warning that is
            # an error). Environments that need it raise their own error.
            return
        lock = threading.Lock()
        for name in NAMES:
            setattr(gfxdraw, name, _locked(getattr(gfxdraw, name), lock))


def _locked(draw: Callable[..., Any], lock: threading.Lock) -> Callable[..., Any]:
    @wraps(draw)
    def drawing(*args: Any, **keywords: Any) -> Any:
        with lock:
            return draw(*args, **keywords)

    return drawing
