"""``imports``: the time that ``import agym`` adds to ``import gymnasium, numpy``."""

from __future__ import annotations

import json as json_format
import os
import subprocess
import sys
from statistics import median
from typing import Annotated

import typer
from rich.table import Table

from benchmarks.measuring.progress import progress_bar
from benchmarks.reports.output import JsonFile, check_writable, deliver

EXAMPLES = """Examples:

python -m benchmarks imports

python -m benchmarks imports --repeats 50 --json imports.json
"""

# Maximum time of `import agym` relative to the other imports, and maximum number of its modules
# with `make` and `make_async` in use.
SHARE_LIMIT, MODULES_LIMIT = 0.35, 90

SCRIPT = """
import json, sys, time
started = time.perf_counter()
import gymnasium, numpy
between = time.perf_counter()
import agym
ended = time.perf_counter()
agym.make, agym.make_async
used = time.perf_counter()
modules = [name for name in sys.modules if name.split(".")[0] == "agym"]
print(json.dumps([between - started, ended - between, used - ended, len(modules)]))
"""


def imports(
    repeats: Annotated[int, typer.Option(min=1, help="Number of fresh interpreters.")] = 21,
    json: JsonFile = None,
) -> None:
    """Measure the time that `import agym` adds, in fresh interpreters with compiled modules."""
    check_writable(json)
    runs = []
    with progress_bar(repeats) as bar:
        for k in range(-1, repeats):  # the first, unmeasured one writes the compiled modules
            if k < 0:
                _import()
                continue
            with bar.part(f"interpreter {k + 1}"):
                runs.append(_import())
    others, ours, used, modules = (median(column) for column in zip(*runs, strict=True))
    share = median(run[1] / run[0] for run in runs)
    in_use = median((run[1] + run[2]) / run[0] for run in runs)
    table = Table("import", "ms", "target", title="import agym", title_justify="left")
    table.add_row("gymnasium, numpy", f"{1e3 * others:.0f}", "")
    table.add_row("agym after them", f"{1e3 * ours:.0f}", "")
    table.add_row("agym.make, make_async", f"{1e3 * used:.0f}", "")
    table.add_row("ratio of the import", f"{share:.2f}", f"≤ {SHARE_LIMIT}")
    table.add_row("ratio with both names used", f"{in_use:.2f}", "")
    table.add_row("modules of agym", f"{modules:.0f}", f"≤ {MODULES_LIMIT}")
    report = {"runs": runs, "ratio": share, "ratio_in_use": in_use, "modules": modules}
    deliver(table, json_format.dumps(report, indent=2), json)


def _import() -> list[float]:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    figures: list[float] = json_format.loads(done.stdout)
    return figures
