"""The code blocks of the README and of the pages: read by the tests and by ``.ci/run``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?:<!-- (?P<how>needs|apart): (?P<package>\w+) -->\n)?"
    r"```(?P<language>\w+)\n(?P<code>.*?)```",
    re.DOTALL,
)


class Block(NamedTuple):
    """A code block, its page and line, and the package that it needs.

    What is ``apart`` is run by ``.ci/ecosystem``, in a virtual environment of its own.
    """

    language: str
    code: str
    page: str
    line: int
    needs: str | None
    apart: bool


def pages() -> list[str]:
    """The README and all pages of ``docs``."""
    return ["README.md", *sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]


def blocks(page: str = "README.md") -> list[Block]:
    """All code blocks of a page, in order."""
    text = (ROOT / page).read_text()
    return [
        Block(
            match["language"],
            match["code"],
            page,
            text.count("\n", 0, match.start()) + 1,
            match["package"],
            match["how"] == "apart",
        )
        for match in BLOCK.finditer(text)
    ]


def commands() -> tuple[str, str]:
    """The two set-up commands: the one that installs and runs the demo, the one that tests."""
    setup, tests = (block.code.strip() for block in blocks() if block.language == "bash")
    return setup, tests


def apart(package: str) -> str:
    """The block for a package that is run apart."""
    (code,) = (block.code for block in blocks() if block.apart and block.needs == package)
    return code


def first() -> str:
    """The first script."""
    return next(block.code for block in blocks() if block.language == "python")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    found = {
        "setup": lambda: commands()[0],
        "tests": lambda: commands()[1],
        "first": first,
        "apart": apart,
    }
    sys.stdout.write(found[what](*rest))  # type: ignore[operator]
