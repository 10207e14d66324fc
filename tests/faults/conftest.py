"""What tests of faults share."""

from __future__ import annotations

from .stories import traps

__all__ = ["traps"]
