"""The sync API in a notebook, where an event loop is running already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import agym
from tests.support.patience import patience
from tests.support.scripts import ROOT

CELLS = [
    "import asyncio, agym\nasyncio.get_running_loop().is_running()",
    """\
class Corridor(__import__("gymnasium").Env):  # lives in the notebook alone
    from gymnasium.spaces import Discrete
    observation_space, action_space = Discrete(5), Discrete(2)
    def reset(self, *, seed=None, options=None):
        self.at = 0
        return 0, {}
    def step(self, action):
        self.at += int(action)
        return self.at, 1.0, self.at == 4, False, {}
""",
    """\
import gymnasium
gymnasium.register("Corridor-v0", Corridor)
results = []
for backend in ("serial", "process"):
    makers = [Corridor, lambda: gymnasium.make("Corridor-v0")]
    with agym.make([makers[i % 2] for i in range(5)], backend=backend, workers=2) as envs:
        envs.reset(seed=0)
        for _ in range(4):
            observations, rewards, terminated, truncated, infos = envs.step([1, 0, 1, 0, 1])
        results.append((backend, [int(o) for o in observations], terminated))
results
""",
    """\
async with agym.make_async("CartPole-v1", 4, backend="process", workers=2) as envs:
    observations, infos = await envs.reset(seed=0)
    step = await envs.step([0, 1, 0, 1])
step.observations.shape
""",
]


# In a process of its own, since the notebook client leaves an event loop behind.
EXECUTE = """\
import json, sys, nbclient, nbformat
from tests.support.patience import patience
cells = [nbformat.v4.new_code_cell(cell) for cell in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
limit = int(patience(6))
client = nbclient.NotebookClient(
    notebook, timeout=limit, startup_timeout=limit, kernel_name="python3"
)
client.execute()
outputs = [cell.outputs[0].data["text/plain"] if cell.outputs else None for cell in cells]
json.dump(outputs, sys.stdout)
"""


@pytest.mark.full
def test_both_apis_in_a_real_notebook(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXECUTE],
        input=json.dumps(CELLS),
        capture_output=True,
        text=True,
        timeout=patience(10),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    reached = "[4, 0, 4, 0, 4], [True, False, True, False, True]"
    serial_and_process = f"[('serial', {reached}),\n ('process', {reached})]"
    assert json.loads(done.stdout) == ["True", None, serial_and_process, "(4, 4)"]


@pytest.mark.parametrize("output", ["list", "array"])
def test_results_of_many_environments_are_shown_in_short(output: Any) -> None:
    """A cell shows what ``print`` shows."""
    with agym.make("CartPole-v1", 1000, output=output, backend="serial") as envs:
        reset = envs.reset(seed=0)
        stepped = envs.step(envs.action_space.sample())
        envs.send(envs.action_space.sample())
        received = envs.recv(min_envs=1000)
        figures = envs.stats(), agym.plan("CartPole-v1", 1)
    for result in (reset, stepped, received):
        assert repr(result).startswith(f"{type(result).__name__}({result._fields[0]}=")
        assert len(repr(result).splitlines()) <= 10
        assert len(repr(result)) < 2500
    pretty = pytest.importorskip("IPython.lib.pretty", reason="the extra `ci`").pretty
    for value in (reset, stepped, received, *figures):
        assert pretty(value) == str(value)
