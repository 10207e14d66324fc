"""Every example runs, prints what its page shows, and ends in a sentence where it fails."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

from tests.support.patience import patience

EXAMPLES = Path(__file__).parent.parent / "examples"
PAGE = (EXAMPLES.parent / "docs/start/examples.md").read_text()

# The commands on the page, and their output there.
SHOWN = dict(re.findall(r"^```text\n\$ python examples/(.*)\n((?:.*\n)*?)```", PAGE, re.MULTILINE))

# Their output is the same in every run; that of the others has times.
EXACT = {"quickstart.py", "own_env.py", "crashes.py"}

# Runs that are short but whole; an example that is neither here nor on the page is a failure.
RUNS = [
    "longer/dqn_pong.py --frames 400 --points 1",
    "longer/dqn_pong.py --variant wrappers-parallel --skill 0 --target 6",
    "longer/branching/best_of_n.py --tasks 4 --n 1 4 --picture best.png",
    "longer/branching/go_explore.py --steps 2000 --num-envs 4 --workers 2 --picture go.png",
    "longer/branching/mcts.py --moves 8 --simulations 4 --depth 10 --games 1 --picture tree.png",
    "longer/branching/mcts.py --env-id agym/CartPole-v1 --simulations 2 --moves 20 --depth 4",
    "ppo.py --total-timesteps 2000 --num-steps 32",
    "ppo.py --total-timesteps 2000 --num-steps 32 --groups 2 --backend process --workers 2",
    "ppo.py --env-id agym/CartPole-v1 --backend vector --total-timesteps 2000 --num-steps 32",
    "ppo.py --env-id sync:CartPole-v1 --backend vector --total-timesteps 2000 --num-steps 32",
    "ppo_atari.py --total-timesteps 64 --num-steps 8 --num-envs 4 --groups 2 --workers 2",
    "longer/compare/render_wall.py --num-envs 6 --episodes 2 --workers 2 --video-steps 10",
    "longer/ray_cluster/cluster.py --num-envs 64 --steps 50 --workers 2 --address local",
    "longer/compare/sb3.py --target 40 --timesteps 16000 --compare 512 --num-envs 4 --workers 2",
    "longer/compare/stragglers.py --seconds 0.5",
    "longer/compare/subproc.py --num-envs 4 --num-procs 1 2 --steps 300",
    "longer/openenv_agents.py --sessions 8 --episodes 2",
    "longer/tool_agents.py --num-envs 40 --rounds 3",
    "longer/train_tool_agent.py --batches 4 --groups 2 --group-size 4 --picture curve.png",
]

# So little that nothing is learned or won, or that cannot work; and the sentence that says so.
SMALL = {
    "longer/branching/best_of_n.py --tasks 1 --n 1 --segment 9": "",
    "longer/branching/best_of_n.py --n 2 0": "must be at least 1",
    "longer/branching/best_of_n.py --picture nowhere/best.png": "cannot be written",
    "longer/branching/go_explore.py --steps 1 --num-envs 1 --backend serial --skip-random": "",
    "longer/branching/go_explore.py --num-envs 0": "must be at least 1",
    "longer/branching/go_explore.py --repeat 0.5": "must be at least 1",
    "longer/branching/go_explore.py --seed -1": "must be at least 0",
    "longer/branching/go_explore.py --picture nowhere/a.png": "cannot be written",
    "longer/branching/go_explore.py --picture a.txt": "must be a file that ends with .png",
    "longer/openenv_agents.py --sessions 0": "must be at least 1",
    "longer/openenv_agents.py --url 127.0.0.1": "must be the address",
    "longer/branching/mcts.py --simulations 1 --moves 1 --games 1 --depth 1": "",
    "longer/branching/mcts.py --simulations 0": "must be at least 1",
    "longer/branching/mcts.py --seed -1": "seed",
    "longer/branching/mcts.py --env-id Nope-v0": "cannot be found",
    "longer/branching/mcts.py --env-id Pendulum-v1": "no discrete actions",
    "longer/branching/mcts.py --picture missing/tree.png": "cannot be written",
    "longer/branching/mcts.py --picture tree.jpg": "must end in .png",
    "longer/branching/mcts.py --backend nothing": "is unknown",
    "longer/dqn_pong.py --frames 1 --variant baseline": "",
    "longer/dqn_pong.py --frames 10 --variant wrappers-parallel --points 1 --seeds 0 1": "",
    "own_game.py --num-envs 0": "must be at least 1",
    "own_game.py --num-envs 1 --steps 1 --engine python": "",
    "ppo.py --total-timesteps 8 --num-envs 1 --num-steps 8": "",
    "ppo.py --total-timesteps 0": "at least a rollout: 1024",
    "ppo.py --env-id Nope-v0": "cannot be found",
    "ppo.py --seed -1": "seed",
    "ppo_atari.py --device nothing": "--device nothing",
    "ppo_atari.py --env-id CartPole-v1": "CartPole",
    "ppo.py --num-envs 1 --num-steps 2": "a minibatch needs two steps",
    "ppo.py --env-id Pendulum-v1": "no discrete actions",
    "ppo_atari.py --groups 0": "must be at least 1",
    "longer/compare/render_wall.py --num-envs 1 --episodes 1 --video-steps 1": "",
    "longer/compare/render_wall.py --num-envs 1 --episodes 1 --video-steps 0": "must be at least 1",
    "longer/ray_cluster/cluster.py --num-envs 1 --steps 1 --workers 1 --address local": "",
    "longer/compare/sb3.py --num-envs 1 --timesteps 10 --compare 10 --workers 1": "needs more",
    "longer/compare/stragglers.py --num-envs 1 --seconds 0.1": "must be at least 2",
    "longer/compare/stragglers.py --num-envs 4 --seconds 0 --times 1": "",
    "longer/compare/subproc.py --num-envs 2 --num-procs 1 2 --steps 1": "",
    "longer/compare/subproc.py --num-envs 2 --num-procs 2 --steps 0": "must be at least 1",
    "longer/tool_agents.py --num-envs 1 --rounds 1": "",
    "longer/tool_agents.py --num-envs 1 --rounds 0": "must be at least 1",
    "longer/train_tool_agent.py --batches 1 --groups 1 --group-size 2": "",
    "longer/train_tool_agent.py --batches 0": "must be at least 1",
    "longer/train_tool_agent.py --group-size 1": "--group-size at least 2",
    "longer/train_tool_agent.py --picture nowhere/curve.png": "cannot be written",
    "twins.py --num-envs 1": "must be at least 2",
    "twins.py --env-id agym/CartPole-v1 --num-envs 2": "has no twin here",
    "watch_training.py --steps 3": "must be at least 4",
}

# Packages that an example imports, and the extra that brings each.
ATARI = {"ale_py": "atari"}
OF_EXAMPLES = {name: {name: "examples"} for name in ("torch", "aiohttp", "matplotlib")}
TORCH, AIOHTTP, MATPLOTLIB = OF_EXAMPLES.values()
PPO = TORCH | {"tyro": "examples", "tensorboard": "examples"}
NEEDS = {
    "async_training.py": TORCH,
    "longer/branching/best_of_n.py": AIOHTTP | MATPLOTLIB,
    "longer/branching/go_explore.py": ATARI | MATPLOTLIB,
    "longer/branching/mcts.py": MATPLOTLIB,
    "longer/dqn_pong.py": TORCH,
    "longer/ray_cluster/cluster.py": {"ray": "ray"},
    "own_game.py": {"numba": "vectorize"},
    "ppo.py": PPO,
    "ppo_atari.py": PPO | ATARI | {"cv2": "examples"},
    "longer/compare/render_wall.py": {"pygame": "render", "av": "video"},
    "sb3_ppo.py": {"stable_baselines3": "sb3"},
    "longer/compare/sb3.py": {"stable_baselines3": "sb3"},
    "longer/tool_agents.py": AIOHTTP,
    "longer/train_tool_agent.py": TORCH | MATPLOTLIB,
    "twins.py": {"tyro": "examples", "numba": "vectorize"},
    "watch_training.py": TORCH | {"starlette": "watch"},
}


def run(command: str, folder: Path, sentence: str = "") -> str:
    """Run an example in a folder, where it may write; a warning is an error. Gives its output.

    If a sentence is given, it is to end with that, and an exit code.
    """
    name, *options = command.split()
    for module, extra in NEEDS.get(name, {}).items():
        pytest.importorskip(module, reason=f"{name} needs {module}: the extra `{extra}`")
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, *options], cwd=folder,
        capture_output=True, text=True, timeout=patience(10),
    )  # fmt: skip
    assert (done.returncode == 0) is not bool(sentence), done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_every_example_is_run() -> None:
    found = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py")}
    assert found == {command.split()[0] for command in (*RUNS, *SHOWN)}


def test_the_page_shows_every_short_example() -> None:
    included = re.findall(r"\{literalinclude\} \.\./\.\./examples/(\S+)", PAGE)
    assert included == [command.split()[0] for command in SHOWN]
    assert {*included, "ppo_atari.py"} == {path.name for path in EXAMPLES.glob("*.py")}


def shape(output: str) -> list[str]:
    """The lines without what differs from run to run: addresses, numbers, and equal lines."""
    output = re.sub(r"\d[\d,.]*", "N", re.sub(r"http://\S+", "URL", output))
    return [line for line, _ in groupby(" ".join(line.split()) for line in output.splitlines())]


@pytest.mark.once
@pytest.mark.parametrize("command", SHOWN)
def test_the_page_shows_what_an_example_prints(command: str, tmp_path: Path) -> None:
    output = run(command, tmp_path)
    assert shape(output) == shape(SHOWN[command])
    if command in EXACT:
        assert output == SHOWN[command]


@pytest.mark.once
@pytest.mark.parametrize("command", RUNS)
def test_example(command: str, tmp_path: Path) -> None:
    run(command, tmp_path)


@pytest.mark.once
@pytest.mark.parametrize("command", SMALL)
def test_small_settings_end_in_a_sentence(command: str, tmp_path: Path) -> None:
    run(command, tmp_path, SMALL[command])


@pytest.mark.full
def test_games_with_lives_are_played_to_their_end(tmp_path: Path) -> None:
    told = run(
        "ppo_atari.py --env-id BreakoutNoFrameskip-v4 --total-timesteps 2048 --num-envs 4",
        tmp_path,
    )
    assert "return" in told.splitlines()[-1]
    assert "nan" not in told.splitlines()[-1], "no game ended"


@pytest.mark.parametrize("example", sorted(EXAMPLES.rglob("*.py")))
def test_examples_end_in_sentences_and_describe_flags(example: Path) -> None:
    text = example.read_text()
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Assert)]
    told = [node for node in found if "pending is not None" not in ast.unparse(node.test)]
    assert not told, "an assertion ends in a traceback: say it in a sentence"
    for call in re.findall(r"\badd(?:_argument)?\((?:[^()]|\([^()]*\))*\)", text):
        assert "help=" in call, call
        assert "default" in call or "store_true" in call, call


@pytest.mark.full
def test_dqn_on_the_emulator(tmp_path: Path) -> None:
    for module, extra in (("ale_py", "atari"), ("cv2", "examples")):
        pytest.importorskip(module, reason=f"{module} is missing: the extra `{extra}`")
    some = "baseline wrappers-parallel"
    run(f"longer/dqn_pong.py --env ALE/Pong-v5 --frames 30 --variant {some}", tmp_path)
