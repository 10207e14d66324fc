"""Environments whose package is not installed: the error says what to install."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripts import install_command, run

HINT = install_command("atari")
MAKES = {
    "make": 'agym.make("ALE/Pong-v5", 2)',
    "async": 'agym.make_async("ALE/Pong-v5", 2, backend="process")',
    "vector": 'agym.make_vec("ALE/Pong-v5", 2)',
    "vector-backend": 'agym.make("ALE/Pong-v5", 2, backend="vector")',
    "plan": 'agym.plan("ALE/Pong-v5", 2)',
}


def refused(folder: Path, call: str, package: str = "ale_py") -> str:
    """What a call raises where a package is not installed."""
    code = f"""
        import asyncio
        import sys

        sys.modules[{package!r}] = None  # it is as if it were not there
        import agym

        async def main():
            made = {call}
            if isinstance(made, agym.AsyncEnvs):
                async with made:
                    pass
            elif hasattr(made, "close"):
                with made:
                    made.reset()
                    made.render()

        try:
            asyncio.run(main())
        except agym.AgymError as error:
            print(type(error).__name__, error)
    """
    exit_code, out, err = run(folder, code)
    assert exit_code == 0, err
    return out


@pytest.mark.once
@pytest.mark.parametrize("call", MAKES.values(), ids=MAKES)
def test_the_extra_that_brings_an_environment_is_named(tmp_path: Path, call: str) -> None:
    out = refused(tmp_path, call)
    assert "MissingExtraError" in out
    assert "'ALE/Pong-v5'" in out
    assert f"ale_py is not installed: {HINT}" in out


ORIGINS: dict[str, tuple[dict[str, Any] | None, str]] = {
    "an index": (None, '"agym-envs[atari]"'),
    "a folder": ({"dir_info": {}, "url": "file:///a%20b/agym"}, '"/a b/agym[atari]"'),
    "a wheel": (
        {"archive_info": {}, "url": "https://a.example/agym_envs-0.1.0-py3-none-any.whl"},
        '"agym-envs[atari] @ https://a.example/agym_envs-0.1.0-py3-none-any.whl"',
    ),
    "a repository": (
        {"vcs_info": {"vcs": "git", "commit_id": "abc"}, "url": "https://a.example/agym.git"},
        '"agym-envs[atari] @ git+https://a.example/agym.git@abc"',
    ),
}


@pytest.mark.once
@pytest.mark.parametrize("origin", ORIGINS)
def test_the_command_is_that_of_where_agym_came_from(tmp_path: Path, origin: str) -> None:
    """As pip records it (PEP 610); this clone's own is in the other tests."""
    record, command = ORIGINS[origin]
    about = tmp_path / "agym_envs-0.1.0.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text("Name: agym-envs\nVersion: 0.1.0\n")
    if record is not None:
        about.joinpath("direct_url.json").write_text(json.dumps(record))
    assert f"ale_py is not installed: pip install {command}\n" in refused(tmp_path, MAKES["make"])


@pytest.mark.once
@pytest.mark.parametrize(
    ("line", "package", "hint"),
    [
        *(
            (f"agym {name} ALE/Pong-v5", "ale_py", HINT)
            for name in ("demo", "plan", "watch", "play")
        ),
        ("agym record ALE/Pong-v5 -o a.gif", "ale_py", HINT),
        ("agym record CartPole-v1 -o a.mp4 --steps 2", "av", install_command("video")),
        ("agym trace run.json -o a.png", "matplotlib", install_command("plot")),
        ("agym trace run.json", "matplotlib", ""),
        ("agym trace no[b].json", "matplotlib", "no[b].json"),
        ("benchmarks overlap --json no/folder.json", "torch", "no/folder.json"),
        ("benchmarks overlap CartPole-v1:2", "torch", install_command("sb3")),
    ],
)
def test_the_command_line_names_it(tmp_path: Path, line: str, package: str, hint: str) -> None:
    """Also where it is in brackets, which rich would take for markup."""
    (tmp_path / "run.json").write_text('{"traceEvents": []}')
    code = f"""
        import sys

        sys.modules[{package!r}] = None
        from agym.cli.app import app as agym
        from benchmarks.app import app as benchmarks

        program, *words = {line.split()!r}
        {{"agym": agym, "benchmarks": benchmarks}}[program](words)
    """
    exit_code, out, err = run(tmp_path, code, 6)
    assert (exit_code == 0) == (line in ("agym trace run.json", "benchmarks overlap CartPole-v1:2"))
    assert "Traceback" not in err
    assert hint in " ".join((err if exit_code else out).split())
    assert not [*tmp_path.glob("a.*")]


def test_what_was_registered_by_hand_needs_no_package(tmp_path: Path) -> None:
    entry_point = "gymnasium.envs.classic_control:CartPoleEnv"
    register = f"__import__('gymnasium').register('ALE/Mine-v0', {entry_point!r})"
    assert "fine" in refused(tmp_path, f"{register}, agym.make('ALE/Mine-v0', 2), print('fine')")


CART_POLE = 'agym.make("CartPole-v1", 2, render_mode="rgb_array", '


@pytest.mark.once
@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        ('agym.make("Ant-v5", 2, ', "mujoco", "mujoco"),
        ('agym.make("LunarLander-v3", 2, ', "Box2D", "box2d"),
        (CART_POLE, "pygame", "classic-control"),
    ],
)
@pytest.mark.parametrize("backend", ["'serial'", "agym.backends.Process(start_method='fork')"])
def test_gymnasium_names_what_its_own_environments_need(
    tmp_path: Path, call: str, package: str, extra: str, backend: str
) -> None:
    out = refused(tmp_path, f"{call}backend={backend})", package)
    assert out.startswith(("EnvError", "AgymErrorGroup"))
    assert f'pip install "gymnasium[{extra}]"' in out


@pytest.mark.parametrize("package", ["typer", "rich"])
@pytest.mark.parametrize(
    ("module", "needs", "extra"),
    [("agym", "The command agym needs", "cli"), ("benchmarks", "The benchmarks need", "bench")],
)
def test_a_command_without_its_extra_says_so_in_one_sentence(
    tmp_path: Path, module: str, needs: str, extra: str, package: str
) -> None:
    """As ``python -m`` runs it; the console script calls the same function."""
    code = f"""
        import runpy
        import sys

        sys.modules[{package!r}] = None
        runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
    """
    error = f"{needs} {package}: {install_command(extra)}\n"
    assert run(tmp_path, code) == (1, "", error)
