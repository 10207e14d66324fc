"""Polygons: pygame fills one at a time, so that environments in several threads draw what is right.

``pygame.gfxdraw`` fills polygons by way of one table for the whole process, and lets go of the GIL
meanwhile. Two threads that do so at once write into each other's: one picture in a thousand has
wrong lines then, each on a surface of its own. (All else that Gymnasium's environments draw with
keeps to its surface.) A lock around these two functions mends that; one around ``render`` would
have an environment wait for others that are slow, whatever they draw with.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

# What uses the table.
NAMES = ("filled_polygon", "textured_polygon")

_lock = threading.Lock()
_done = False


def lock_polygons() -> None:
    """From now on one thread of this process at a time fills a polygon, if there is pygame."""
    global _done
    with _lock:
        if _done:
            return
        _done = True
        try:
            gfxdraw = importlib.import_module("pygame.gfxdraw")
        except ImportError:
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
