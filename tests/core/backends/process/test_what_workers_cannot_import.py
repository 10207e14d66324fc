"""Environments of modules that no worker can import: scripts of children, files by their path."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.scripts import run

METHODS = ("fork", "forkserver", "spawn")  # the quickest first, which the core takes

# Something of everything that may be in a module: what a class needs goes with it.
MODULE = """
    import dataclasses, enum, functools, logging
    import gymnasium as gym

    logger = logging.getLogger(__name__)

    class Kind(enum.Enum):
        A = 1

    @dataclasses.dataclass
    class Note:
        sides: int
        kind: Kind = Kind.A

    class Trouble(Exception):
        pass

    class Base(gym.Env):
        observation_space = gym.spaces.Discrete(1000)
        action_space = gym.spaces.Discrete(2)

        def __init__(self, sides=77):
            super().__init__()
            self.sides = sides

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return scaled(self.sides), {"note": Note(self.sides)}

    class Mine(Base):
        def step(self, action):
            if action == 1:
                raise Trouble("one")
            return self.sides, 0.0, False, False, {}

    def scaled(sides):
        return sides + OFFSET

    def build(sides=77):
        return Mine(sides)

    OFFSET = 0
"""

CHILD = (
    """
    import multiprocessing, sys
    from concurrent.futures import ProcessPoolExecutor
    import agym
    """
    + MODULE
    + """
    gym.register("Class-v0", Mine)
    gym.register("String-v0", "__main__:Mine")
    gym.register("Lambda-v0", lambda: Mine(78))

    def seen(env, method):
        options = {"backend": agym.backends.Process(start_method=method), "workers": 2}
        with agym.make(env, None if type(env) is list else 2, **options) as envs:
            observations, infos = envs.reset(seed=0)
            assert [info["note"] for info in infos] == [Note(int(o)) for o in observations]
            try:
                envs.send([1], [1])
                envs.recv()
            except agym.EnvError as error:
                assert type(error.exception) is Trouble, error
            else:
                raise AssertionError
            return [int(each) for each in observations]

    def main(method):
        makers = [Mine, lambda: Mine(), functools.partial(Mine, 77), build,
                  lambda: gym.make("String-v0"), lambda: gym.make("Class-v0")]
        assert seen(makers, method) == [77] * 6
        assert seen("String-v0", method) == [77] * 2
        assert seen("Lambda-v0", method) == [78] * 2
        return __name__

    if __name__ == "__main__":
        context = multiprocessing.get_context({child!r})
        child = context.Process(target=main, args=({method!r},))
        child.start()
        child.join()
        assert child.exitcode == 0
        with ProcessPoolExecutor(1, context) as pool:
            print(pool.submit(main, {method!r}).result())
    """
)


@pytest.mark.full
@pytest.mark.parametrize(
    ("child", "method"), [("spawn", "spawn"), ("spawn", "fork"), ("forkserver", "forkserver")]
)
def test_classes_of_the_script_in_a_child(child: str, method: str, tmp_path: Path) -> None:
    whole = CHILD.replace("{child!r}", repr(child)).replace("{method!r}", repr(method))
    code, out, err = run(tmp_path, whole, seconds=9)
    assert (code, out, err) == (0, "__mp_main__\n", ""), err


LOADING = """
    import functools, importlib.util, runpy, sys
    import gymnasium as gym
    import agym

    def load(name, keep=True, path="plugin/plugin.py"):
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        if keep:
            sys.modules[name] = module
        spec.loader.exec_module(module)
        return module

    def seen(env):
        options = {"backend": agym.backends.Process(start_method=METHOD), "workers": 2}
        with agym.make(env, None if type(env) is list else 2, **options) as envs:
            observations, infos = envs.reset(seed=0)
            assert [info["note"].sides for info in infos] == observations
            try:
                envs.send([1], [1])
                envs.recv()
            except agym.EnvError as error:
                assert type(error.exception).__name__ == "Trouble", error
            return [int(each) for each in observations]

    def check(plugin):
        makers = [plugin.Mine, plugin.build, lambda: plugin.Mine(),
                  functools.partial(plugin.build, sides=77)]
        assert seen(makers) == [77] * 4
"""


@pytest.mark.once
@pytest.mark.parametrize("method", METHODS)
def test_modules_loaded_from_a_path(method: str, tmp_path: Path) -> None:
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin/plugin.py").write_text(dedent(MODULE))
    (tmp_path / "other.py").write_text("class Mine: ...\n")  # another one of that name
    code = """
        plugin = load("plugin_of_mine")
        check(plugin)
        gym.register("Class-v0", plugin.Mine)
        gym.register("String-v0", "plugin_of_mine:Mine")
        wrapped = functools.partial(gym.make, "String-v0")
        assert seen("Class-v0") == seen("String-v0") == seen([wrapped] * 2) == [77] * 2
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

        assert seen([Sub, runpy.run_path("plugin/plugin.py")["Mine"]]) == [77] * 2
        print("done")
    """
    whole = dedent(LOADING).replace("METHOD", repr(method)) + dedent(code)
    exit_code, out, err = run(tmp_path, whole, seconds=9)
    assert (exit_code, out, err) == (0, "done\n", ""), err


def test_auto_may_choose_processes_for_them(tmp_path: Path) -> None:
    """What is checked beforehand is what is done then; and environments may move there."""
    (tmp_path / "plugin").mkdir()
    (tmp_path / "plugin/plugin.py").write_text(dedent(MODULE))
    code = """
        plugin = load("plugin_of_mine")
        from agym.core.planning.sampling import obstacle
        from agym.core._system.pickling import dumps_by_value
        import subprocess
        assert obstacle([plugin.Mine, lambda: plugin.Mine()]) == ""
        packed = dumps_by_value(plugin.Mine(5))
        script = "import pickle, sys; print(pickle.load(sys.stdin.buffer).sides)"
        done = subprocess.run([sys.executable, "-c", script], input=packed, capture_output=True)
        print(done.stdout.decode() + done.stderr.decode(), end="")
    """
    exit_code, out, err = run(tmp_path, dedent(LOADING) + dedent(code))
    assert (exit_code, out, err) == (0, "5\n", ""), err
