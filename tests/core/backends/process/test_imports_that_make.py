"""A module that makes environments while it is imported starts no more and more processes."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.backends import PROCESS_CODE
from tests.support.scripts import run

# Who imports it is written down.
BEGINNING = """
    import asyncio, functools, os
    from concurrent.futures import ThreadPoolExecutor
    import gymnasium
    import agym
    from tests.support.envs.plain_envs import Dice

    with open("FOLDER/imports", "a") as file:
        file.write(f"{os.getpid()}\\n")

    class Mine(Dice): ...

    gymnasium.register("Mine-v0", "mine:Mine")
    options = {"backend": BACKEND, "workers": 2}

    async def make():
        await agym.make_async(Mine, 4, **options)
"""

MAKES = {
    "class": "agym.make(Mine, 4, **options)",
    "partial": "agym.make(functools.partial(Mine), 4, **options)",
    "id": 'agym.make("Mine-v0", 4, **options)',
    "factory": 'agym.make(lambda: gymnasium.make("mine:Mine-v0"), 4, **options)',
    "late": 'agym.make(lambda: __import__("mine").Mine(), 4, **options)',
    "restart": 'agym.make(Mine, 4, on_fault="restart", timeout=60, **options)',
    "auto": "agym.make(Mine, 4, workers=2)",
    "vector": "agym.AgymVectorEnv([Mine] * 4, workers=2)",
    "make_vec": "agym.make_vec(Mine, 4, **options)",
    "async": "asyncio.run(make())",
    "thread": """ThreadPoolExecutor(1).submit(
        agym.make, lambda: __import__("mine").Mine(), 4, **options
    ).result()""",
}


SPAWN = PROCESS_CODE.format("spawn")


def with_beginning(folder: Path, code: str, backend: str = SPAWN) -> str:
    beginning = dedent(BEGINNING).replace("BACKEND", backend).replace("FOLDER", str(folder))
    return beginning + dedent(code)


def script(folder: Path, code: str, backend: str = SPAWN) -> tuple[int, str, str, int]:
    """Import the module in a script; also how many processes have imported it."""
    module = with_beginning(folder, code, backend)
    (folder / "mine.py").write_text(module)
    told = run(folder, "import mine\nprint('done')", seconds=6)
    return *told, len((folder / "imports").read_text().split())


@pytest.mark.once
@pytest.mark.parametrize(
    ("kind", "method"), [*((kind, "spawn") for kind in MAKES), ("class", "forkserver")]
)
def test_the_error_says_what_to_do(kind: str, method: str, tmp_path: Path) -> None:
    code, out, err, imports = script(
        tmp_path, f"envs = {MAKES[kind]}\n", SPAWN.replace("spawn", method)
    )
    assert (code, out) == (1, ""), err
    last = err.rstrip().splitlines()
    (sentence,) = {line for line in last if "agym.errors.Usage" in line and "'mine'" in line}
    assert "makes environments while it is imported" in sentence
    assert "move that into a function" in sentence
    assert "`if __name__ == '__main__':`" in sentence
    assert imports == 3, "the program and its two workers"


@pytest.mark.full
def test_a_fork_imports_nothing(tmp_path: Path) -> None:
    code = """
        with agym.make(Mine, 4, **options) as envs:
            assert envs.reset().observations == [77] * 4
    """
    assert script(tmp_path, code, PROCESS_CODE.format("fork")) == (0, "done\n", "", 1)


@pytest.mark.full
def test_what_starts_no_processes_and_what_is_guarded_may_be_made(tmp_path: Path) -> None:
    """So does an environment that makes others when it is made, whoever imports what."""
    code = """
        import fractions  # nobody has it yet

        with agym.make("CartPole-v1") as one, agym.make(Mine, 2, backend="thread") as some:
            SPACE = one.single_observation_space
            assert some.reset().observations == [77, 77]

        class Outer(Mine):
            def __init__(self):
                super().__init__()
                with agym.make(Mine, 2, backend="process", workers=1) as envs:
                    assert envs.reset().observations == [77, 77]

        def main():
            with agym.make(Outer, 2, **options) as envs:
                assert envs.reset().observations == [77, 77]

        if __name__ == "__main__":
            main()
    """
    (tmp_path / "mine.py").write_text(with_beginning(tmp_path, code))
    told = run(tmp_path, "import mine\nmine.main()\nprint('done')", seconds=6)
    assert told == (0, "done\n", "")
