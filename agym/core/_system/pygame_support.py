"""What pygame needs: a lock around its polygon functions, and silence where there is no display.

``pygame.gfxdraw`` fills polygons through one table for the whole process and releases the GIL
meanwhile. Two threads that do so at once overwrite each other's entries: one picture in a thousand
then has wrong lines, even on separate surfaces. (Everything else that Gymnasium's environments draw
with is confined to its surface.) A lock around ``render`` would also prevent this, but would make
environments wait for slow ones.
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
    """Return the variables that keep SDL from looking for a display where there is none.

    It would complain about ``XDG_RUNTIME_DIR`` and sound cards, on stderr, in each process.
    ``always`` is for those who open no window even where there is a display.
    """
    display = not always and {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()
    if sys.platform != "linux" or display:
        return {}
    names = ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER")
    return {name: os.environ.get(name, "dummy") for name in names}


def lock_polygons() -> None:
    """Let one thread at a time fill polygons in this process, if there is a pygame."""
    global _done
    with _lock:
        if _done:
            return
        _done = True
        try:
            gfxdraw = importlib.import_module("pygame.gfxdraw")
        except Exception:
            # It is not installed, or cannot be imported here (a broken build, a warning made an
            # error): environments that need it say so themselves, others do not care.
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
