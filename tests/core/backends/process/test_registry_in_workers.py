"""What a program has registered with Gymnasium is there in its workers too."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.backends import PROCESS_CODE
from tests.support.scripts import run

# A package as many are: its import registers, by strings; what it has not imported yet is heavy.
PACKAGE = {
    "__init__.py": """
        import gymnasium
        for env_id, sides in {"Dice-v0": 6, "Dice-v1": 20, "Coin-v0": 2}.items():
            entry_point = "games.dice:Dice"
            gymnasium.register(f"games/{env_id}", entry_point, kwargs={"sides": sides})
    """,
    "dice.py": """
        import sys
        from tests.support.envs.plain_envs import Dice as Base

        class Dice(Base):
            def loaded(self):
                return "games.heavy" in sys.modules
    """,
    "heavy.py": "from games.dice import Dice\nclass Heavy(Dice): ...\n",
}

BEGINNING = """
    import asyncio, dataclasses, functools, logging, os, sys, threading, warnings
    import gymnasium as gym
    import games, games.heavy
    from games.dice import Dice
    from tests.support.envs.plain_envs import Plus as BasePlus
    import agym

    class Mine(Dice): ...
    class Plus(BasePlus): ...

    logging.getLogger("agym").setLevel("ERROR")
    options = {"backend": BACKEND, "workers": 2}
    forks = getattr(options["backend"], "start_method", "") == "fork"
    wrapper = gym.envs.registration.WrapperSpec("Plus", "__main__:Plus", {"by": 5})

    def seen(make, count=3, **more):
        with agym.make(make, count, **options | more) as envs:
            return envs.reset(seed=0).observations
"""


SCRIPTS = {
    "ids that a factory makes": """
        # As CleanRL's make_env and its relatives.
        def make_env(env_id, wrap=False):
            def thunk():
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # Gymnasium tells of old and missing versions
                    env = gym.make(env_id)
                return gym.wrappers.RecordEpisodeStatistics(env) if wrap else env
            return thunk

        gym.register("Class-v0", entry_point=Mine)
        gym.register("Lambda-v0", entry_point=lambda **kwargs: Mine(78, **kwargs))
        gym.register("Partial-v0", entry_point=functools.partial(Mine, 79))
        gym.register("String-v0", entry_point="__main__:Mine", kwargs={"sides": 80})
        gym.register("Kwargs-v0", entry_point=Mine, kwargs={"sides": 81})
        gym.register("Steps-v0", entry_point=Mine, max_episode_steps=5)
        gym.register("Wrapped-v0", entry_point=Mine, additional_wrappers=(wrapper,))
        gym.register("agym.Nested-v0", entry_point=lambda: gym.make("Wrapped-v0"))
        gym.registry["Alias-v3"] = gym.spec("Kwargs-v0")

        expected = {
            "Class-v0": 77, "Lambda-v0": 78, "Partial-v0": 79, "String-v0": 80, "Kwargs-v0": 81,
            "Wrapped-v0": 82, "agym.Nested-v0": 82, "games/Dice-v0": 6, "games/Dice": 20,
            "games:games/Coin-v0": 2, "Alias-v3": 81,
        }
        makers = [make_env(env_id, wrap) for env_id in expected for wrap in (False, True)]
        wanted = [sides for sides in expected.values() for _ in range(2)]
        assert seen(makers, len(makers)) == wanted

        def changed():
            spec = gym.spec("Class-v0")
            spec.max_episode_steps = 5
            return gym.make(spec)

        makers = [make_env("Steps-v0"), changed]
        with agym.make(makers, **options) as envs:
            envs.reset()
            for _ in range(5):
                truncated = envs.step([0, 0]).truncated
            assert truncated == [True, True]
            assert envs.call("spec")[0].entry_point is Mine
            assert envs.call("get_wrapper_attr", "spec")[1].max_episode_steps == 5
            assert gym.make(envs.call("spec")[0]).reset()[0] == 77
    """,
    "every API": """
        gym.register("Mine-v0", entry_point=Mine)
        make = lambda: gym.make("Mine-v0")
        registry, entries = gym.registry, dict(gym.registry)

        for make_vec in (agym.make_vec, agym.sb3.make_vec_env):
            envs = make_vec(make, 2, **options)
            assert list(envs.reset())[0].tolist() in (77, [77, 77])
            envs.close()

        async def main():
            async with agym.make_async(make, 2, **options) as envs:
                assert (await envs.reset()).observations.tolist() == [77, 77]
        asyncio.run(main())

        # The registry of this process stays as it is.
        assert gym.registry is registry is gym.envs.registration.registry
        assert all(gym.registry[env_id] is spec for env_id, spec in entries.items())
        assert type(registry) is dict and len(registry) == len(entries)
    """,
    "vector entry points and what agym registers": """
        class Both(Mine):
            def __init__(self, vector_id):
                envs = gym.make_vec(vector_id, 2, vectorization_mode="vector_entry_point")
                super().__init__(envs.reset()[0].tolist()[1])
                envs.close()

        def many(num_envs, **kwargs):
            return gym.vector.SyncVectorEnv([lambda: Mine(55)] * num_envs)

        gym.register("Function-v0", vector_entry_point=many)
        gym.register("Name-v0", vector_entry_point="__main__:many")
        gym.register("Mine-v0", entry_point=Mine)
        make = functools.partial(agym.make_vec, "Mine-v0", backend="serial")
        gym.register("Agym-v0", vector_entry_point=make)
        ids = ("Function-v0", "Name-v0", "Agym-v0")
        assert seen([lambda i=i: Both(i) for i in ids]) == [55, 55, 77]
    """,
    "what cannot be sent concerns only those that make it": """
        lock = threading.Lock()
        gym.register("Locked-v0", entry_point=Mine, kwargs={"lock": lock})
        gym.register("LockedToo-v0", entry_point=lambda: lock and Mine())
        if not forks:  # where Gymnasium stumbles over it
            gym.registry["nonsense"] = None
        assert seen("games/Dice-v1") == [20, 20, 20]
        for env_id in () if forks else ("Locked-v0", "LockedToo-v0"):
            try:
                seen(lambda: gym.make(env_id))
            except agym.UsageError as error:
                assert env_id in str(error) and "can't be pickled" in str(error), error
            else:
                raise AssertionError
    """,
    "nothing is imported that is not made": """
        gym.register("Heavy-v0", entry_point=games.heavy.Heavy)
        gym.register("HeavyToo-v0", entry_point=functools.partial(games.heavy.Heavy))
        with agym.make(lambda: gym.make("games/Dice-v1"), 2, **options) as envs:
            assert envs.call("loaded") == [forks] * 2
    """,
    "workers of workers": """
        class Inner(Dice):
            def __init__(self, render_mode=None):
                super().__init__(sum(seen(lambda: gym.make("Mine-v0"), 2)))

        gym.register("Mine-v0", entry_point="__main__:Mine", additional_wrappers=(wrapper,))
        gym.register("Inner-v0", entry_point=Inner)
        assert seen(lambda: gym.make("Inner-v0"), 1, workers=1) == [164]
    """,
    "the program has the last word over packages that workers import": """
        class Loaded(Dice):  # to unpickle it imports the package, which registers all of its ids
            def __init__(self, render_mode=None):
                super().__init__(99)
                self.coin = gym.make("games/Coin-v0")

            def reset(self, *, seed=None, options=None):
                return self.coin.reset()[0], {}

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            gym.register("games/Dice-v1", entry_point=Loaded)
            gym.register("games/Coin-v0", entry_point=Dice, kwargs={"sides": 3})
            gym.register("CartPole-v1", entry_point=Mine)
        assert seen(lambda: gym.make("games/Dice-v1"), 6) == [3] * 6
        assert seen(lambda: gym.make("CartPole-v1")) == [77] * 3

        def late():
            import games
            gym.register("Own-v0", entry_point=Dice, kwargs={"sides": 9})
            return gym.make("games:games/Coin-v0" if os.getpid() % 2 else "games/Coin-v0")

        assert seen(late, workers=3) == [3] * 3

        def own():
            gym.registry.pop("games/Coin-v0")
            gym.register("games/Coin-v0", entry_point=Dice, kwargs={"sides": 8})
            return gym.make("games/Coin-v0")

        assert seen(own, 1) == [8]
    """,
    "a worker that replaces another": """
        class Meta(Dice):
            def step(self, action):
                if action == 1:
                    os._exit(3)
                return self.sides, 0.0, True, False, {}

            def number(self, env_id):
                return gym.make(env_id).unwrapped.sides

        recycled = dataclasses.replace(options["backend"], recycle=agym.Recycle(episodes=1))
        ways = {"restart": {"on_fault": "restart"}, "raise": {}, "recycle": {"backend": recycled}}
        for way, more in ways.items():
            with agym.make(Meta, 1, **options | more, autoreset="next_step") as envs:
                envs.reset()
                before = envs.stats().workers[0].pid
                gym.register(f"{way}-v0", entry_point=Mine, kwargs={"sides": len(way)})
                try:
                    while envs.stats().workers[0].pid == before:
                        envs.step([int(way != "recycle")])
                except agym.WorkerDied:
                    envs.restart()
                assert envs.call("number", f"{way}-v0") == [len(way)]
    """,
}


def check(name: str, backend: str, folder: Path) -> None:
    (folder / "games").mkdir()
    for file, text in PACKAGE.items():
        (folder / "games" / file).write_text(dedent(text))
    whole = dedent(BEGINNING).replace("BACKEND", backend) + dedent(SCRIPTS[name])
    exit_code, out, err = run(folder, whole + "print('done')\n", seconds=10)
    assert (exit_code, out, err) == (0, "done\n", ""), err


def test_a_forked_worker_starts_workers(tmp_path: Path) -> None:
    """Its parent held a lock while it forked."""
    check("workers of workers", PROCESS_CODE.format("fork"), tmp_path)


@pytest.mark.once
@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_know_what_the_program_knows(name: str, method: str, tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    check(name, PROCESS_CODE.format(method), tmp_path)
