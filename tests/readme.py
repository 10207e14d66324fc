"""The README's code blocks: read here by the tests and by ``.ci/run``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"(?:<!-- needs: (?P<needs>\w+) -->\n)?```(?P<language>\w+)\n(?P<code>.*?)```", re.DOTALL
)


class Block(NamedTuple):
    """A code block, its line in the README, and the package that it needs."""

    language: str
    code: str
    line: int
    needs: str | None


def blocks() -> list[Block]:
    """All code blocks, in order."""
    text = (ROOT / "README.md").read_text()
    return [
        Block(
            match["language"], match["code"], text.count("\n", 0, match.start()) + 1, match["needs"]
        )
        for match in BLOCK.finditer(text)
    ]


def commands() -> tuple[str, str]:
    """The two set-up commands: the one that installs and runs the demo, the one that tests."""
    setup, tests = (block.code.strip() for block in blocks() if block.language == "bash")
    return setup, tests


if __name__ == "__main__":
    sys.stdout.write(dict(zip(("setup", "tests"), commands(), strict=True))[sys.argv[1]])
