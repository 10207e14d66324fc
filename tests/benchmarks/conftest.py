from __future__ import annotations

import io

import pytest


@pytest.fixture(scope="session")
def fonts() -> None:
    """Have matplotlib open its fonts, which it keeps open: of words, and of powers of ten."""
    figure = pytest.importorskip("matplotlib.figure", reason="the extra `plot`").Figure()
    figure.text(0, 0, "words, $10^x$")
    figure.savefig(io.BytesIO())
