"""Counts how many inserted faults the tests notice: a measure of the tests, not a test.

::

    python -m tests.support.inserted_faults --count 60 --seed 44

Each fault changes one line of ``hosts/``, ``backends/`` or ``engine/`` in a copy of the checkout: a
comparison is turned around, a condition is negated, a number is off by one, a call is left out. The
tests of the folder concerned, and those of the whole, then run until the first failure. Tests that
fail without a fault are left out. The same seed inserts the same faults in the same code.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
FOLDERS = ("hosts", "backends", "engine")
# The tests of the whole, beside those of the folder.
WHOLE = ("laws", "test_oracle.py")
PYTEST = ("-q", "-n", "2", "-m", "core", "-p", "no:cacheprovider", "--ignore-glob=*ray*")
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

    @property
    def folder(self) -> str:
        """The folder whose tests should notice the fault."""
        return next(part for part in Path(self.path).parts if part in FOLDERS)


def faults_of(path: Path, core: Path) -> Iterator[Fault]:
    """Yield the faults that can be inserted into a file."""
    text = path.read_text()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        changed = changed_node(node)
        if changed is None or node.lineno != node.end_lineno:  # type: ignore[attr-defined]
            continue
        number, start, end = node.lineno, node.col_offset, node.end_col_offset  # type: ignore[attr-defined]
        line = lines[number - 1]
        if not line.isascii():  # offsets are in bytes
            continue
        after = line[:start] + changed + line[end:]
        try:
            ast.parse("\n".join([*lines[: number - 1], after, *lines[number:]]))
        except SyntaxError:
            continue
        yield Fault(str(path.relative_to(core)), number, line, after)


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
    """Choose faults, of the folders in turns."""
    draw = random.Random(seed)
    core = root / "agym" / "core"
    core = core if core.is_dir() else root / "agym"
    found: list[list[Fault]] = []
    for folder in FOLDERS:
        files = sorted((core / folder).rglob("*.py"))
        files = [path for path in files if "ray" not in path.relative_to(core).parts]
        possible = [fault for path in files for fault in faults_of(path, root)]
        found.append(draw.sample(possible, -(-count // len(FOLDERS))))
    return [fault for turn in zip(*found, strict=True) for fault in turn][:count]


def run_tests(root: Path, folder: str, options: Sequence[str], seconds: float) -> tuple[int, str]:
    """Run the tests of a folder and those of the whole; return the exit code and the output."""
    tests = [root / "tests" / "core" / folder, root / "tests" / folder]
    tests += [root / "tests" / name for name in WHOLE]
    paths = [str(path) for path in tests if path.exists()]
    command = [sys.executable, "-m", "pytest", *PYTEST, *options, *paths]
    environment = {**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=seconds
    )
    return done.returncode, done.stdout


def failed_tests(output: str) -> list[str]:
    """Return the tests that failed."""
    lines = [line.split(" - ")[0] for line in output.splitlines()]
    return [line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]


def noticed(root: Path, fault: Fault, left_out: Sequence[str], seconds: float) -> str:
    """Insert a fault, run the tests, and return how it was noticed; "" if it was not."""
    path = root / fault.path
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    lines[fault.line - 1] = fault.after + "\n"
    path.write_text("".join(lines))
    options = ["-x"]
    options += [f"--{'deselect' if '::' in test else 'ignore'}={test}" for test in left_out]
    try:
        code, output = run_tests(root, fault.folder, options, seconds)
    except subprocess.TimeoutExpired:
        return "no end"
    finally:
        path.write_text(text)
    return next(iter(failed_tests(output)), f"exit code {code}") if code else ""


def show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Insert faults one by one, and print how each was noticed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkout", type=Path, default=ROOT)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=44)
    parser.add_argument("--first", type=int, default=0, help="continue with this fault")
    parser.add_argument("--seconds", type=float, default=600.0, help="limit of one run")
    parser.add_argument("--jobs", type=int, default=1, help="faults at the same time")
    options = parser.parse_args()
    root = options.checkout.resolve()
    faults = chosen(root, options.count, options.seed)[options.first :]
    copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        for k in range(options.jobs):
            copies.put(Path(shutil.copytree(root, f"{folder}/{k}", ignore=NOT_COPIED)))

        def use_copy(act: Callable[[Path], T]) -> T:
            copy = copies.get()
            try:
                return act(copy)
            finally:
                copies.put(copy)

        def left_out(folder: str) -> list[str]:
            return use_copy(lambda copy: failed_tests(run_tests(copy, folder, [], 3600)[1]))

        def count(fault: Fault) -> bool:
            started = time.monotonic()
            how = use_copy(lambda copy: noticed(copy, fault, broken[fault.folder], options.seconds))
            seconds = round(time.monotonic() - started)
            show(json.dumps({**asdict(fault), "noticed": how, "seconds": seconds}))
            return bool(how)

        broken = dict(zip(FOLDERS, pool.map(left_out, FOLDERS), strict=True))
        show(json.dumps(broken))
        total = sum(pool.map(count, faults))
    show(f"{total} of {len(faults)} were noticed")


if __name__ == "__main__":
    main()
