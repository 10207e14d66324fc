"""The core and the extras bring what their code imports, and the core brings nothing else."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.readme import ROOT
from tests.test_examples import NEEDS

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]

# Modules that are not named like their distribution, in lower case.
DISTRIBUTIONS = {"cv2": "opencv-python-headless", "pil": "pillow"}
OWN = {"agym", "benchmarks", "async_training"}

# Files that are imported only where one of these extras is installed.
OF_EXTRAS = {
    "cli/": ["cli"],
    "api/sb3/vec_env.py": ["sb3"],
    "agents/serving/http.py": ["serve"],
    "core/web/protocols.py": ["serve", "verifiers", "watch"],
    "multi_agent/flat_sb3.py": ["sb3"],
    "multi_agent/handles.py": ["multiagent"],
    "testing/": ["test"],
    "twins/mujoco.py": ["mujoco"],
    "twins/mujoco_batch.py": ["mujoco"],
}


def needed(*requirements: str) -> set[str]:
    """The distributions of requirements; extras of agym are replaced by theirs."""
    found = set()
    for requirement in requirements:
        match = re.fullmatch(r"([\w.-]+)(?:\[([\w,-]+)\])?.*", requirement)
        assert match, requirement
        if match[1] == PROJECT["name"]:
            found |= needed(*(each for extra in match[2].split(",") for each in EXTRAS[extra]))
        else:
            found.add(match[1].lower().replace("_", "-"))
    return found


CORE = needed(*PROJECT["dependencies"])


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Those that run when a module is imported; not those for type checkers."""
    for node in body:
        if isinstance(node, ast.If):
            if ast.unparse(node.test) != "TYPE_CHECKING":
                yield from statements(node.body)
            yield from statements(node.orelse)
        elif isinstance(node, ast.Try):
            yield from statements([*node.body, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.With):
            yield from statements(node.body)
        else:
            yield node


def distributions(nodes: Iterator[ast.AST]) -> set[str]:
    """The distributions that statements import from."""
    found = set()
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for module in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - OWN:
            name = module.lower()
            found.add(DISTRIBUTIONS.get(name, name.replace("_", "-")))
    return found


def imported(path: Path) -> set[str]:
    """The distributions that a file imports from when it is imported."""
    return distributions(statements(ast.parse(path.read_text()).body))


def test_the_library_imports_the_core_and_the_core_is_what_it_imports() -> None:
    """The rest goes through ``require``, which names the extra."""
    used: set[str] = set()
    for path in sorted((ROOT / "agym").rglob("*.py")):
        name = str(path.relative_to(ROOT / "agym"))
        found = imported(path)
        extras = [
            extra
            for start, extras in OF_EXTRAS.items() if name.startswith(start)
            for extra in extras
        ]  # fmt: skip
        for extra in extras:
            assert found <= CORE | needed(*EXTRAS[extra]), f"{path} needs more than {extra}"
        if not extras:
            assert found <= CORE, f"{path} imports {found - CORE}"
            anywhere = distributions(ast.walk(ast.parse(path.read_text())))
            assert not anywhere & needed(*EXTRAS["cli"]) - CORE, path
            used |= anywhere
    assert used >= CORE


@pytest.mark.parametrize(
    ("files", "extra"), [("docs/conf.py", "docs"), ("benchmarks/**/*.py", "bench")]
)
def test_an_extra_brings_what_its_files_import(files: str, extra: str) -> None:
    for path in ROOT.glob(files):
        if not path.stem.endswith("_peer"):  # another Python runs these, beside other servers
            assert imported(path) <= CORE | needed(*EXTRAS[extra]), path


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("*.py")), ids=lambda it: it.stem)
def test_extras_bring_what_an_example_imports(path: Path) -> None:
    others = NEEDS.get(str(path.relative_to(ROOT / "examples")), {}).values()
    extras = {"examples", *others}
    brought = CORE.union(*(needed(*EXTRAS[extra]) for extra in extras))
    assert imported(path) <= brought, extras


def test_extras_that_code_names_exist() -> None:
    for path in (*ROOT.glob("agym/**/*.py"), *ROOT.glob("benchmarks/**/*.py")):
        for extra in re.findall(
            r"\b(?:require|how_to_get|install_command)\((?:[^()]*, )?[\"']([\w-]+)[\"']\)",
            path.read_text(),
        ):
            assert extra in EXTRAS, f"{path}: {extra}"
