"""The folders are the architecture: each ring imports only from those before it."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import agym
from agym.core.backends.port import Port

PACKAGE = Path(agym.__file__).parent

# The rooms, in the order in which they may import each other. The package itself comes last.
RINGS = (
    "errors", "core._system", "core.protocol", "core.hosts", "core.backends", "core.engine",
    "core.planning", "core.web", "backends", "api", "rules", "envs", "twins", "rollouts",
    "watching", "agents", "multi_agent", "faults", "cli", "testing", "sb3", "",
)  # fmt: skip
MAX_ENTRIES = 12
MAX_ROOMS = 15  # of the package itself, which is the table of contents
CORE = PACKAGE / "core"


TREES = {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}
# The dotted name of each module.
MODULES = {
    path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in TREES
}


def nodes(folder: Path) -> Iterator[tuple[Path, ast.AST]]:
    """All code under a folder of the package."""
    for path, tree in TREES.items():
        if path.is_relative_to(folder):
            yield from ((path, node) for node in ast.walk(tree))


def ring_of(module: str) -> str:
    parts = module.split(".")[1:]
    return ".".join(parts[:2]) if parts[:1] == ["core"] else "".join(parts[:1])


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "agym":
            yield from (module_of(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def module_of(name: str) -> str:
    """The module that a public name comes from."""
    thing = getattr(agym, name, None)
    return getattr(thing, "__name__" if inspect.ismodule(thing) else "__module__", f"agym.{name}")


def test_each_ring_imports_only_from_those_before_it() -> None:
    for path, name in MODULES.items():
        if name not in ("agym", "agym.__main__", "agym.core"):
            ring = RINGS.index(ring_of(name))
            for other in imported(TREES[path]):
                if other.split(".")[0] == "agym":
                    assert RINGS.index(ring_of(other)) <= ring, f"{path} imports {other}"


def test_no_two_files_of_a_room_have_the_same_name() -> None:
    files = Counter((name.split(".")[1], path.name) for path, name in MODULES.items()
                    if path.name not in ("__init__.py", "__main__.py"))  # fmt: skip
    assert not [file for file, count in files.items() if count > 1]


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports for type checkers, and late ones, count too: they say who knows whom."""
    known = {*MODULES.values()}
    graph = {
        name: {*imported(TREES[path])} & known - {"agym", name} for path, name in MODULES.items()
    }
    TopologicalSorter(graph).prepare()  # raises a CycleError, which names them


def test_hosts_and_engine_reach_for_no_private_attributes_of_others() -> None:
    for path, node in (*nodes(CORE / "hosts"), *nodes(CORE / "engine")):
        for name in names_of_others(node):
            private = name.startswith("_") and not name.startswith("__")
            assert not private or name in NOT_PRIVATE | OF_LIBRARIES, f"{path}: {name}"


def test_the_engine_is_known_to_its_apis_alone() -> None:
    """What is built on the core uses ``envs.tap``, as somebody else's package would."""
    for path in (*TREES, *(PACKAGE.parent / "benchmarks").rglob("*.py")):
        if not path.is_relative_to(CORE / "engine") and not path.is_relative_to(PACKAGE / "api"):
            assert not re.search(r"\b_engine\b", path.read_text()), path


def test_folders_are_small() -> None:
    for folder in (
        top
        for root in (PACKAGE, PACKAGE.parent / "benchmarks")
        for top in (root, *(path for path in root.rglob("*") if path.is_dir()))
        if top.name != "__pycache__"
    ):
        entries = [
            path.name for path in folder.iterdir()
            if path.name not in ("__init__.py", "__main__.py", "__pycache__", "py.typed")
        ]  # fmt: skip
        limit = MAX_ROOMS if folder == PACKAGE else MAX_ENTRIES
        assert len(entries) <= limit, f"{folder} has {len(entries)}"
        depth = len(folder.relative_to(PACKAGE.parent).parts)
        assert depth <= 3 + folder.is_relative_to(CORE), f"{folder} is too deep"


def test_the_page_on_the_architecture_names_what_there_is() -> None:
    page = (PACKAGE.parent / "docs" / "explanation" / "architecture.md").read_text()
    for path in re.findall(r"`([\w/]+(?:\.py|/))`", page):
        assert any((root / path).exists() for root in (PACKAGE, PACKAGE.parent)), path


# What few programs use, and these files import late.
LATE = {
    "agents/serving/serve.py": {"agym.agents.serving.http"},
    "core/web/server.py": {"agym.core.web.protocols"},
    "__main__.py": {"agym.cli.app"},
    "api/options/build.py": {"agym.core.planning.choosing", "agym.core.planning.model"},
    "api/options/environments.py": {"agym.core.hosts.vector.construction"},
    "multi_agent/aec.py": {"agym.multi_agent.handles"},
    "multi_agent/parallel.py": {
        "agym.multi_agent.flat", "agym.multi_agent.flat_sb3", "agym.multi_agent.handles",
    },
    "sb3.py": {"agym.api.sb3.vec_env"},
    "core/engine/engine.py": {"agym.core.engine.faults.recycling"},
    "core/_system/load.py": {"psutil"},
}  # fmt: skip


def test_imports_inside_functions_are_few() -> None:
    late: dict[str, set[str]] = {}
    for path, function in nodes(PACKAGE):
        is_function = isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and (names := {*imported(function)}):
            late.setdefault(str(path.relative_to(PACKAGE)), set()).update(names)
    assert late == LATE


# Environments that wait, and what makes environments wait, sleep on purpose; so does whoever wants
# to see for a moment what other programs do, asks a full server again, or waits for its turn.
SLEEPERS = {
    "testing",
    "core/hosts/fault_injection.py",
    "core/hosts/rate_limit.py",
    "core/planning/choosing.py",
    "agents/openenv/client_server.py",
    "agents/serving/sessions.py",
    "agents/serving/slots.py",
}


def test_only_spinning_sleeps() -> None:
    """Nothing polls with sleep: ``sleep(0)`` gives the core away, or lets other tasks run."""
    calls = {
        str(path.relative_to(PACKAGE))
        for path, node in nodes(PACKAGE)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
        and not any(path.is_relative_to(PACKAGE / sleeper) for sleeper in SLEEPERS)
    }
    # The demo waits as for a GPU.
    assert calls == {"cli/demo.py", "core/backends/spinning.py", "core/web/protocols.py"}


TESTS = Path(__file__).parent

# The private attributes that tests reach for, beside those in support/. A list to shorten.
REACHED = {
    "benchmarks/test_measuring.py": {
        "_actions", "_envs", "_frames", "_latest", "_next_delay", "_turns",
    },
    "core/protocol/test_gauges.py": {"_started"},
    "api/test_assignment.py": {"_note"},
    "api/test_leases.py": {"_states"},
    "api/test_receiving.py": {"_parked"},
    "api/test_step_buffer.py": {"_begin", "_wait"},
    "watching/live/test_page.py": {"_host"},
    "watching/live/test_rough_treatment.py": {"_frames", "_host", "_loop"},
    "twins/test_choice.py": {"_twins"},
    "twins/test_twin_features.py": {"_backend"},
}  # fmt: skip
# Of the standard library, and private by name only.
NOT_PRIVATE = {"_asdict", "_exit", "_fields", "_get_running_loop", "_replace", "_repr_html_"}

# Of the standard library, and private: asyncio complains of idle tasks that end with their loop.
OF_LIBRARIES = {"_log_destroy_pending"}


def test_tests_reach_for_few_private_attributes() -> None:
    found: dict[str, set[str]] = {}
    for path in TESTS.rglob("*.py"):
        if path.is_relative_to(TESTS / "support") or path == TESTS / "conftest.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            for name in names_of_others(node):
                if name.startswith("_") and not name.startswith("__") and name not in NOT_PRIVATE:
                    found.setdefault(str(path.relative_to(TESTS)), set()).add(name)
    assert found == REACHED


def names_of_others(node: ast.AST) -> list[str]:
    """The attributes that a piece of code takes of what is not itself, and what it imports."""
    if isinstance(node, ast.ImportFrom):
        return [alias.name for alias in node.names]
    own = ("self", "cls", "super()")
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in own:
        return [node.attr]
    return []


def test_the_engine_knows_no_backend_and_nobody_knows_its_parts() -> None:
    """It asks the pool what a backend can do."""
    for path, node in nodes(CORE / "engine"):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in imported(ast.Module([node], [])):
                assert not name.startswith("agym.core.backends") or (
                    name.split(".")[3] in ("pool", "port", "options")
                ), f"{path} imports {name}"
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            assert len(methods) <= 25, f"{path}: {node.name} has {len(methods)} methods"
    for path, node in nodes(PACKAGE):
        outside = not path.is_relative_to(CORE / "engine") and isinstance(node, ast.Attribute)
        if outside and isinstance(node.value, ast.Attribute):
            owner = ast.unparse(node.value.value).rpartition(".")[2]
            assert owner not in ("engine", "_engine"), f"{path}: {ast.unparse(node)}"


def test_a_backend_is_small() -> None:
    """Four methods; everything else has a default."""
    assert {*Port.__abstractmethods__} == {"start", "attach", "post", "close"}
