"""Backends with options of their own, which many tests share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agym.api.options.options import parse_backend
from agym.backends import Process

# Worker processes that start at once.
FORK = Process(start_method="fork")

# The same in scripts: format it with a start method.
PROCESS_CODE = "agym.backends.Process(start_method={!r})"

# Backends of ordinary environments, with two workers where there are workers.
OF_ENVS: dict[str, dict[str, Any]] = {
    "serial": {"backend": "serial"},
    "thread": {"backend": "thread", "workers": 2},
    "process": {"backend": FORK, "workers": 2},
}

# For pytest.mark.parametrize("backend", ...).
SERIAL_OR_FORK = [pytest.param("serial", id="serial"), pytest.param(FORK, id="process")]


def name_of(options: dict[str, Any]) -> str:
    """What the backend among the options of ``agym.make`` is called."""
    return parse_backend(options["backend"]).name


def with_own(options: dict[str, Any], **own: Any) -> dict[str, Any]:
    """Give the backend among the options of ``agym.make`` options of its own."""
    return {**options, "backend": replace(parse_backend(options["backend"]), **own)}
