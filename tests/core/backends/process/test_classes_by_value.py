"""Classes of modules that a worker cannot import travel by value.

Such modules are scripts that are run by child processes, and files that are loaded by their path.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.backends import PROCESS_CODE
from tests.support.scripts import run

# Something of everything that may be in a module: what a class needs goes with it.
MODULE = """
    import dataclasses, enum, functools, logging
    import gymnasium as gym
    from tests.support.envs.plain_envs import Dice

    logger = logging.getLogger(__name__)

    class Kind(enum.Enum):
        A = 1

    @dataclasses.dataclass
    class Note:
        sides: int
        kind: Kind = Kind.A

    class Trouble(Exception):
        pass

    class Base(Dice):
        def reset(self, *, seed=None, options=None):
            sides, _ = super().reset(seed=seed)
            return scaled(sides), {"note": Note(sides)}

    class Mine(Base):
        def step(self, action):
            if action == 1:
                raise Trouble("one")
            return super().step(action)

    def scaled(sides):
        return sides + OFFSET

    def build(sides=77):
        return Mine(sides)

    OFFSET = 0
"""

SEEN = """
    import functools, importlib.util, multiprocessing, runpy, subprocess, sys
    from concurrent.futures import ProcessPoolExecutor
    import gymnasium as gym
    import agym

    def is_known(cls, name):
        return cls.__name__ == name and cls is globals().get(name, cls)

    def seen(env, backend):
        with agym.make(env, None if type(env) is list else 2, backend=backend, workers=2) as envs:
            observations, infos = envs.reset(seed=0)
            assert [info["note"].sides for info in infos] == observations
            assert all(is_known(type(info["note"]), "Note") for info in infos)
            try:
                envs.send([1], [1])
                envs.recv()
            except agym.EnvError as error:
                assert is_known(type(error.exception), "Trouble"), error
            else:
                raise AssertionError
            return list(map(int, observations))
"""

CHILD = """
    gym.register("Class-v0", Mine)
    gym.register("String-v0", "__main__:Mine")
    gym.register("Lambda-v0", lambda: Mine(78))

    def main(backend):
        makers = [Mine, lambda: Mine(), functools.partial(Mine, 77), build,
                  lambda: gym.make("String-v0"), lambda: gym.make("Class-v0")]
        assert seen(makers, backend) == [77] * 6
        assert seen("String-v0", backend) == [77] * 2
        assert seen("Lambda-v0", backend) == [78] * 2
        return __name__

    if __name__ == "__main__":
        context = multiprocessing.get_context(CHILD)
        child = context.Process(target=main, args=(BACKEND,))
        child.start()
        child.join()
        assert child.exitcode == 0
        with ProcessPoolExecutor(1, context) as pool:
            print(pool.submit(main, BACKEND).result())
"""


@pytest.mark.full
@pytest.mark.parametrize(
    ("child", "method"), [("spawn", "spawn"), ("spawn", "fork"), ("forkserver", "forkserver")]
)
def test_classes_of_the_script_in_a_child(child: str, method: str, tmp_path: Path) -> None:
    whole = (SEEN + MODULE + CHILD).replace("CHILD", repr(child))
    whole = whole.replace("BACKEND", PROCESS_CODE.format(method))
    code, out, err = run(tmp_path, whole, seconds=9)
    assert (code, out, err) == (0, "__mp_main__\n", ""), err


LOADING = """
    def load(name, keep=True, path="plugin/plugin.py"):
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        if keep:
            sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    def check(plugin):
        makers = [plugin.Mine, plugin.build, lambda: plugin.Mine(),
                  functools.partial(plugin.build, sides=77)]
        assert seen(makers, BACKEND) == [77] * 4

    plugin = load("plugin_of_mine")
"""


def run_plugin(folder: Path, code: str, backend: str) -> tuple[int, str, str]:
    (folder / "plugin").mkdir()
    (folder / "plugin/plugin.py").write_text(dedent(MODULE))
    return run(folder, (SEEN + LOADING + code).replace("BACKEND", backend), seconds=9)


PATHS = """
    check(plugin)
    gym.register("Class-v0", plugin.Mine)
    gym.register("String-v0", "plugin_of_mine:Mine")
    for env in ("Class-v0", "String-v0", [functools.partial(gym.make, "String-v0")] * 2):
        assert seen(env, BACKEND) == [77] * 2
    check(load("other"))
    check(load("nowhere.at.all"))
    check(load("json.plugin"))
    check(load("unkept", keep=False))

    sys.path.insert(0, "plugin")
    import plugin
    sys.path.pop(0)
    check(plugin)

    class Sub(plugin.Mine):
        pass

    assert seen([Sub, runpy.run_path("plugin/plugin.py")["Mine"]], BACKEND) == [77] * 2
    print("done")
"""


def check_paths(folder: Path, backend: str) -> None:
    (folder / "other.py").write_text("class Mine: ...\n")  # another one of that name
    exit_code, out, err = run_plugin(folder, PATHS, backend)
    assert (exit_code, out, err) == (0, "done\n", ""), err


@pytest.mark.once
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])  # the core takes the quickest
def test_modules_loaded_from_a_path(method: str, tmp_path: Path) -> None:
    check_paths(tmp_path, PROCESS_CODE.format(method))


def test_auto_may_choose_processes_for_them(tmp_path: Path) -> None:
    """What is checked beforehand is what is done then; and environments may move there."""
    code = """
    from agym.core.planning.sampling import obstacle
    from agym.core._system.pickling import dumps_by_value
    assert obstacle([plugin.Mine, lambda: plugin.Mine()]) == ""
    packed = dumps_by_value(plugin.Mine(5))
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).sides)"
    done = subprocess.run([sys.executable, "-c", script], input=packed, capture_output=True)
    print(done.stdout.decode() + done.stderr.decode(), end="")
    """
    exit_code, out, err = run_plugin(tmp_path, code, "unused")
    assert (exit_code, out, err) == (0, "5\n", ""), err
