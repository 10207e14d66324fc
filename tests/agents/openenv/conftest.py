from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents.openenv.scripted_server import ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running
