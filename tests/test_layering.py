"""Modules import only from layers before their own; nothing is imported inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import agym

PACKAGE = Path(agym.__file__).parent

# Foundations first. A module may import from earlier lines of this list only.
LAYERS = [
    [
        "console",
        "core.exits",
        "core.forks",
        "core.outside_loop",
        "core.polygons",
        "core.recorders",
        "core.type_variables",
        "core.usage",
    ],
    ["core.results"],
    ["errors"],
    ["core.attributes", "core.autoreset", "core.once", "extras"],
    [
        "core.async_env",
        "core.by_value",
        "core.inside",
        "core.interrupts",
        "core.machine",
        "core.marking",
        "core.owning",
        "core.deadline",
        "core.tensors",
        "core.info_policy",
        "core.info_schema",
    ],
    ["core.layout", "core.arguments", "core.arena", "core.frames", "core.operations"],
    ["core.spans"],
    ["core.gauges", "core.info_table"],
    ["core.brake", "core.listeners", "core.ready"],
    ["core.episodes"],
    ["core.actions", "core.capsule", "core.slots"],
    ["core.debugging", "core.out", "core.parcels", "core.planes"],
    ["core.frame_leases"],
    ["core.ticket"],
    ["core.native_calls", "core.vector_batch", "core.vector_holds", "core.vector_making"],
    ["core.capsule_file", "core.rows", "core.order", "core.collect", "core.health", "core.sent"],
    ["core.luggage", "core.stats"],
    ["core.action_log", "core.affliction", "core.budget", "core.revival"],
    ["core.making"],
    ["core.incidents"],
    ["core.recovery"],
    ["core.migration", "core.recycling"],
    ["core.runner"],
    ["core.mending"],
    ["core.replica", "core.host", "core.coroutine_host", "core.native_host", "core.engine"],
    ["core.native_pool"],
    ["executors.cluster_options"],
    [
        "executors.base",
        "executors.lifeline",
        "executors.nameless",
        "executors.registry",
        "executors.wire",
    ],
    ["executors.channel"],
    ["executors.doorbell", "executors.ray_cluster", "executors.serial", "executors.supervisor"],
    ["executors.outbox"],
    ["executors.coroutine", "executors.mailbox", "executors.thread"],
    ["executors.mailbox_worker", "executors.native"],
    ["executors.loop_worker"],
    ["executors.worker"],
    ["executors.link"],
    ["executors.process"],
    ["executors.ray_told"],
    ["executors.ray_link", "executors.ray_loop", "executors.ray_pump"],
    ["executors.ray_actor", "executors.ray_stage"],
    ["executors.ray"],
    ["executors.migrating"],
    ["factories"],
    ["option_names"],
    ["faces.pinning"],
    ["render.tiling"],
    ["render", "live"],
    ["live.camera", "live.keyboard", "live.score", "live.view"],
    ["live.hub"],
    ["live.app"],
    ["live.server"],
    ["live.page"],
    ["faces.output", "faces.waiting"],
    ["faces.base"],
    ["faces.handles"],
    ["faces.aio", "faces.sync"],
    ["render.blocks", "render.movie"],
    ["render.writer"],
    ["render.recording"],
    ["log.clips"],
    ["log.tensorboard"],
    ["log"],
    ["planning"],
    ["planning.model", "planning.sampling"],
    ["planning.caching", "planning.plans", "planning.profiling"],
    ["planning.probing", "planning.transport"],
    ["planning.cluster", "planning.placing"],
    ["planning.replanning"],
    ["wiring"],
    ["faces.vector_arguments"],
    ["faces.sb3_light"],
    ["faces.sb3", "faces.vector"],
    ["timeline_report"],
    ["chaos", "make", "plan", "rollout", "run", "sb3", "timeline"],
    ["envs", "rerun"],
    ["bench", "demo", "plan_command", "record_command", "replay", "trace_command", "watch_command"],
    ["play_command"],
    ["cli", "testing"],
    [""],
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def rank_of(module: str) -> int | None:
    """The rank of a module, or that of the nearest package that is listed."""
    while module not in RANK and "." in module:
        module = module.rpartition(".")[0]
    return RANK.get(module)


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "agym":
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "agym":
            names.add((node.module or "").removeprefix("agym").lstrip("."))
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names if alias.name.split(".")[0] == "agym"]
            names |= {name.removeprefix("agym").lstrip(".") for name in found}
    return names


def test_imports_are_of_earlier_layers() -> None:
    assert not [fault for path in modules() for fault in wrong_imports(path)]


def wrong_imports(path: Path) -> Iterator[str]:
    name = name_of(path)
    names = imported(ast.parse(path.read_text()))
    if name in ("core", "executors", "faces"):
        yield from (f"{name} only holds modules, and imports {other}" for other in names)
        return
    rank = rank_of(name)
    if rank is None:
        yield f"{name} is in no layer: add it to the list"
        return
    for other in names:
        other_rank = rank_of(other)
        package = name.split(".")[0]
        same = rank == other_rank and other.split(".")[0] == package in ("bench", "envs")
        if other_rank is None:
            yield f"{name} imports {other}, which is in no layer"
        elif other_rank >= rank and not same:
            yield f"{name} must not import {other}"


# The doors of optional dependencies: the one file that uses each may import it late.
DOORS = {"sb3"}


def test_no_imports_inside_functions() -> None:
    late = [
        f"{name_of(path)}.{function.name} imports late"
        for path in modules()
        if name_of(path).split(".")[0] not in DOORS
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not late


def test_only_the_doorbell_sleeps() -> None:
    """Nothing polls with sleep: the one ``time.sleep(0)`` gives the core away."""
    calls = [
        f"{name_of(path)}:{node.lineno}"
        for path in modules()
        if name_of(path).split(".")[0] not in ("bench", "envs", "testing")  # envs that wait
        and name_of(path) != "core.affliction"  # which makes them wait
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "sleep"
    ]
    assert [call.split(":")[0] for call in calls] in ([], ["executors.doorbell"])


TESTS = Path(__file__).parent

# The private attributes that tests reach for, beside those in support/. A list to shorten.
REACHED = {
    "bench/test_all.py": {"_latest"},
    "bench/test_grid.py": {"_envs"},
    "bench/test_overhead.py": {"_envs", "_turns"},
    "bench/test_parts.py": {"_envs"},
    "bench/test_pool.py": {"_envs"},
    "bench/test_render.py": {"_actions", "_frames"},
    "bench/test_rollouts.py": {"_latest"},
    "bench/test_waiting.py": {"_next_delay"},
    "core/test_gauges.py": {"_begun"},
    "envs/same_games.py": {"_players"},
    "envs/test_envs.py": {"_games"},
    "faces/sb3/test_monitor_infos.py": {"_maker"},
    "faces/test_assignment.py": {"_note"},
    "faces/test_debug.py": {"_collector", "_views"},
    "faces/test_leases.py": {"_collector", "_states"},
    "faces/test_rollout_buffer.py": {"_begin", "_wait"},
    "core/test_machine.py": {"_quota"},
    "live/test_limited_by.py": {"_score"},
    "live/test_page.py": {"_envs", "_host"},
    "live/test_rough_treatment.py": {"_envs", "_frames", "_host", "_loop"},
}
# Of the standard library, and private by name only.
NOT_PRIVATE = {"_asdict", "_exit", "_fields", "_get_running_loop", "_replace", "_repr_html_"}


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
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in (
        "self",
        "cls",
        "super()",
    ):
        return [node.attr]
    return []
