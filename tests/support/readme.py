"""The README's badges, and the code blocks of all pages: read by the tests and by ``.ci/run``."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?:<!-- (?P<how>needs|apart): (?P<package>\w+) -->\n)?"
    r"```(?P<language>\w+)\n(?P<code>.*?)```",
    re.DOTALL,
)
# The line of badges, below its marker.
BADGES = re.compile(r"(?<=<!-- badges -->\n).*")


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
    found = (ROOT / "docs").rglob("*.md")
    return ["README.md", *sorted(str(page.relative_to(ROOT)) for page in found)]


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


def apart(package: str) -> list[str]:
    """The blocks for a package that are run apart."""
    found = (block for page in pages() for block in blocks(page))
    return [block.code for block in found if block.apart and block.needs == package]


def first() -> str:
    """The first script."""
    return next(block.code for block in blocks() if block.language == "python")


def badges(*, repository: str, documentation: str) -> str:
    """The line of badges; those that need an address are left out if it is empty."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    static, package = "https://img.shields.io/badge", project["name"]
    found = [
        (
            f"Python {pythons[0]} to {pythons[-1]}",
            f"{static}/Python-{pythons[0]}%20to%20{pythons[-1]}-blue",
            "docs/start/installation.md",
        ),
        (f"{project['license']} license", f"{static}/license-{project['license']}-blue", "LICENSE"),
    ]
    if repository:
        tests = f"{repository}/actions/workflows/tests.yml"
        found += [
            ("Result of the tests", f"{tests}/badge.svg", tests),
            (
                "Version on PyPI",
                f"https://img.shields.io/pypi/v/{package}",
                f"https://pypi.org/project/{package}/",
            ),
        ]
    if documentation:
        found.append(("Documentation", f"{static}/documentation-site-blue", documentation))
    return " ".join(f"[![{says}]({picture})]({link})" for says, picture, link in found)


def write_badges() -> str:
    """Write the badges for the addresses of ``pyproject.toml`` into the README."""
    addresses = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["agym"]
    line, readme = badges(**addresses), ROOT / "README.md"
    readme.write_text(BADGES.sub(line, readme.read_text(), count=1))
    return f"{line}\n"


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    found = {
        "setup": lambda: commands()[0],
        "tests": lambda: commands()[1],
        "first": first,
        "badges": write_badges,
        "apart": lambda package, number: apart(package)[int(number)],
    }
    sys.stdout.write(found[what](*rest))  # type: ignore[operator]
