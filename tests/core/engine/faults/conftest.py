"""What tests of faults share."""

from __future__ import annotations

from tests.support.scenarios import traps

__all__ = ["traps"]
