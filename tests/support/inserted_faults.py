"""Counts how many inserted faults the tests notice: a measure of the tests, not a test.

::

    python -m tests.support.inserted_faults --count 60 --seed 44

Each fault changes one line of ``hosts/``, ``backends/`` or ``engine/`` in a copy of the checkout: a
comparison is turned around, a condition is negated, a number is off by one, a call is left out. The
tests of the folder concerned, and those of the whole, then run until the first failure. The same
seed inserts the same faults in the same code.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("hosts", "backends", "engine")
# The tests of the whole, beside those of the folder.
WHOLE = ("laws", "test_oracle.py")
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "build", "docs", "examples"
)
OPPOSITE = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One changed line.

    Attributes:
        path: The file, relative to the checkout.
        line: The number of its line.
        before: The line.
        after: What replaces it.
    """

    path: str
    line: int
    before: str
    after: str


def faults_of(path: Path, root: Path) -> Iterator[Fault]:
    """Yield the faults that can be inserted into a file."""
    text = path.read_text()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        changed = changed_node(node)
        if changed is None or node.lineno != node.end_lineno:  # type: ignore[attr-defined]
            continue
        number, start, end = node.lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        line = lines[number - 1]
        after = line[:start] + changed + line[end:]
        if line.isascii() and parses([*lines[: number - 1], after, *lines[number:]]):
            yield Fault(str(path.relative_to(root)), number, line, after)


def parses(lines: list[str]) -> bool:
    with contextlib.suppress(SyntaxError):
        return bool(ast.parse("\n".join(lines)))
    return False


def changed_node(node: ast.AST) -> str | None:
    """Return the text of a wrong node in the place of a right one, or ``None``."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
        return f"{left} {operator(OPPOSITE[type(node.ops[0])]())} {right}"
    if isinstance(node, ast.BoolOp):
        other = " or " if isinstance(node.op, ast.And) else " and "
        return other.join(f"({ast.unparse(value)})" for value in node.values)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return ast.unparse(node.operand)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return str(node.value + 1)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await):
        return "pass"
    return None


def operator(op: ast.cmpop) -> str:
    """Return the text of a comparison's operator."""
    both = ast.Compare(ast.Name("a"), [op], [ast.Name("b")])
    return ast.unparse(both)[2:-2]


def chosen(root: Path, count: int, seed: int) -> list[Fault]:
    """Choose faults, each folder as often as the others."""
    draw = random.Random(seed)
    found: list[Fault] = []
    for k, folder in enumerate(FOLDERS):
        files = sorted((root / "agym" / "core" / folder).rglob("*.py"))
        possible = [
            fault for path in files if "ray" not in path.parts for fault in faults_of(path, root)
        ]
        found += draw.sample(possible, (count + len(FOLDERS) - 1 - k) // len(FOLDERS))
    return found


def noticed(root: Path, fault: Fault, seconds: float) -> str:
    """Insert a fault, run the tests, and return how it was noticed; "" if it was not."""
    path = root / fault.path
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    lines[fault.line - 1] = fault.after + "\n"
    path.write_text("".join(lines))
    folder = next(part for part in Path(fault.path).parts if part in FOLDERS)
    tests = [str(root / "tests" / name) for name in (f"core/{folder}", *WHOLE)]
    options = ["-x", "-q", "-n", "2", "-m", "core", "-p", "no:cacheprovider", "--ignore-glob=*ray*"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return "no end"
    finally:
        path.write_text(text)
    if done.returncode == 0:
        return ""
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0][:120] if failed else f"exit code {done.returncode}"


def main() -> None:
    """Insert faults one by one, and print how each was noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=44)
    parser.add_argument("--first", type=int, default=0, help="continue with this fault")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of one run")
    options = parser.parse_args()
    faults = chosen(ROOT, options.count, options.seed)[options.first :]
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
        for number, fault in enumerate(faults, options.first):
            how = noticed(copy, fault, options.seconds)
            total += bool(how)
            result = {"number": number, **asdict(fault), "noticed": how}
            print(json.dumps(result), flush=True)  # noqa: T201
    print(f"{total} of {len(faults)} were noticed")  # noqa: T201


if __name__ == "__main__":
    main()
