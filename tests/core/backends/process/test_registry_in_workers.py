"""What a program has registered with Gymnasium is there in its workers too."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from tests.support.scripts import run

METHODS = ("spawn", "forkserver", "fork")
each_method = pytest.mark.parametrize("method", METHODS)

# A package as many are: its import registers, by strings; what it has not imported yet is heavy.
PACKAGE = {
    "games/__init__.py": """
        import gymnasium
        gymnasium.register("games/Dice-v0", entry_point="games.dice:Dice", kwargs={"sides": 6})
        gymnasium.register("games/Dice-v1", entry_point="games.dice:Dice", kwargs={"sides": 20})
        gymnasium.register("games/Coin-v0", entry_point="games.dice:Dice", kwargs={"sides": 2})
    """,
    "games/dice.py": """
        import gymnasium

        class Dice(gymnasium.Env):
            metadata = {"render_modes": ["ansi"]}
            observation_space = gymnasium.spaces.Discrete(1000)
            action_space = gymnasium.spaces.Discrete(2)

            def __init__(self, sides, render_mode=None):
                self.sides, self.render_mode = sides, render_mode

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                return self.sides, {}

            def step(self, action):
                return self.sides, 0.0, False, False, {}

            def render(self):
                return str(self.sides)
    """,
}


def write(folder: Path, files: dict[str, str] = PACKAGE) -> None:
    for name, code in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(dedent(code))


BEGINNING = """
    import functools, logging, os, sys, threading, warnings
    import gymnasium as gym
    import games
    from games.dice import Dice
    import agym

    class Mine(Dice):
        def __init__(self, sides=77, render_mode=None):
            super().__init__(sides, render_mode)

    class Plus(gym.ObservationWrapper, gym.utils.RecordConstructorArgs):
        def __init__(self, env, by):
            gym.utils.RecordConstructorArgs.__init__(self, by=by)
            gym.ObservationWrapper.__init__(self, env)
            self.by = by

        def observation(self, observation):
            return observation + self.by

    def seen(make, count=3, **options):
        options = {"backend": agym.backends.Process(start_method=METHOD), "workers": 2} | options
        with agym.make(make, count, **options) as envs:
            return envs.reset(seed=0).observations
"""


def script(folder: Path, code: str, method: str = "spawn") -> None:
    write(folder)
    whole = dedent(BEGINNING).replace("METHOD", repr(method)) + dedent(code) + "print('done')\n"
    exit_code, out, err = run(folder, whole)
    assert (exit_code, out, err) == (0, "done\n", ""), err


@pytest.mark.full
@each_method
def test_ids_that_a_factory_makes(method: str, tmp_path: Path) -> None:
    """CleanRL's ``make_env`` and its relatives: the id is looked up in the worker."""
    script(
        tmp_path,
        """
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
        wrapper = gym.envs.registration.WrapperSpec("Plus", "__main__:Plus", {"by": 5})
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
        for env_id, sides in expected.items():
            if "/" not in env_id:
                assert gym.make(env_id).reset()[0] == sides

        def changed():
            spec = gym.spec("Class-v0")
            spec.max_episode_steps = 5
            return gym.make(spec)

        makers = [make_env("Steps-v0"), changed]
        with agym.make(makers, backend="process", workers=1) as envs:
            envs.reset()
            for _ in range(5):
                truncated = envs.step([0, 0]).truncated
            assert truncated == [True, True]
            assert envs.call("spec")[0].entry_point is Mine
            assert envs.call("get_wrapper_attr", "spec")[1].max_episode_steps == 5
            assert gym.make(envs.call("spec")[0]).reset()[0] == 77
        envs = agym.AgymVectorEnv([make_env("Class-v0")] * 3, context=METHOD)
        assert envs.reset()[0].tolist() == [77] * 3
        envs.close()
        """.replace("METHOD", repr(method)),
        method,
    )


def test_every_api(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="the extra `sb3`")
    script(
        tmp_path,
        """
        import asyncio
        make = lambda: gym.make("Mine-v0")
        gym.register("Mine-v0", entry_point=Mine)
        options = {"backend": "process", "workers": 2}

        envs = agym.make_vec(make, 2, **options)
        assert envs.reset()[0].tolist() == [77, 77]
        envs.close()
        envs = agym.sb3.make_vec_env(make, 2, **options)
        assert envs.reset().tolist() == [77, 77]
        envs.close()

        async def main():
            async with agym.make_async(make, 2, **options) as envs:
                assert (await envs.reset()).observations.tolist() == [77, 77]
        asyncio.run(main())
        """,
    )


@pytest.mark.full
def test_vector_entry_points_and_what_agym_registers(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        class Both(Mine):
            def __init__(self, vector_id):
                super().__init__()
                envs = gym.make_vec(vector_id, 2, vectorization_mode="vector_entry_point")
                self.sides = envs.reset()[0].tolist()[1]
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
    )


@pytest.mark.full
def test_what_cannot_be_sent_concerns_only_who_makes_it(tmp_path: Path) -> None:
    """Nor is anything imported that is not made; a user's own registration of an id is his."""
    write(tmp_path)
    write(
        tmp_path,
        {
            "games/heavy.py": "from games.dice import Dice\nclass Heavy(Dice): ...\n",
            "games/looking.py": """
                import sys
                from games.dice import Dice
                class Looking(Dice):
                    @property
                    def loaded(self):
                        return "games.heavy" in sys.modules
            """,
        },
    )
    script(
        tmp_path,
        """
        import games.heavy, games.looking
        lock = threading.Lock()
        gym.register("Locked-v0", entry_point=Mine, kwargs={"lock": lock})
        gym.register("LockedToo-v0", entry_point=lambda: lock and Mine())
        gym.register("Heavy-v0", entry_point=games.heavy.Heavy)
        gym.register("HeavyToo-v0", entry_point=functools.partial(games.heavy.Heavy))
        gym.register("Looking-v0", entry_point="games.looking:Looking", kwargs={"sides": 4})
        gym.registry["nonsense"] = None
        assert seen("games/Dice-v1") == [20, 20, 20]
        options = {"backend": "process", "workers": 2}
        with agym.make(lambda: gym.make("Looking-v0"), 2, **options) as envs:
            assert envs.call("get_wrapper_attr", "loaded") == [False, False]
        for env_id in ("Locked-v0", "LockedToo-v0"):
            try:
                seen(lambda: gym.make(env_id))
            except agym.UsageError as error:
                assert env_id in str(error) and "can't be pickled" in str(error), error
            else:
                raise AssertionError
        """,
    )


@pytest.mark.full
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_program_has_the_last_word(method: str, tmp_path: Path) -> None:
    """Packages register when a worker imports them, as they did here: nothing changes by that."""
    script(
        tmp_path,
        """
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
        method,
    )


@pytest.mark.full
@pytest.mark.parametrize("method", METHODS)
def test_a_replaced_worker_knows_what_was_registered_meanwhile(method: str, tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        class Meta(Dice):
            def __init__(self):
                super().__init__(1)

            def step(self, action):
                if action == 1:
                    os._exit(3)
                return self.sides, 0.0, True, False, {}

            def number(self, env_id):
                return gym.make(env_id).unwrapped.sides

        options = {"backend": agym.backends.Process(start_method=METHOD), "workers": 1}
        logging.getLogger("agym").setLevel("ERROR")
        with agym.make(Meta, 1, on_fault="restart", **options) as envs:
            envs.reset()
            gym.register("Later-v0", entry_point=Mine)
            envs.step([1])
            assert envs.call("number", "Later-v0") == [77]
        with agym.make(Meta, 1, **options) as envs:
            envs.reset()
            gym.register("Later-v1", entry_point=Mine, kwargs={"sides": 5})
            try:
                envs.step([1])
            except agym.WorkerDied:
                envs.restart()
            assert envs.call("number", "Later-v1") == [5]
        recycled = agym.backends.Process(start_method=METHOD, recycle=agym.Recycle(episodes=1))
        with agym.make(
            Meta, 2, backend=recycled, workers=1, autoreset="next_step", output="array"
        ) as envs:
            envs.reset()
            before = envs.stats().workers[0].pid
            gym.register("Later-v2", entry_point=Mine, kwargs={"sides": 6})
            while envs.stats().workers[0].pid == before:
                envs.step([0, 0])
            assert envs.call("number", "Later-v2") == [6, 6]
        """.replace("METHOD", repr(method)),
        method,
    )


@pytest.mark.full
def test_the_registry_of_this_process_stays_as_it_is(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        gym.register("Mine-v0", entry_point=Mine)
        registry, entries = gym.registry, dict(gym.registry)
        assert seen(lambda: gym.make("Mine-v0")) == [77] * 3
        assert gym.registry is registry is gym.envs.registration.registry
        assert all(gym.registry[env_id] is spec for env_id, spec in entries.items())
        assert type(registry) is dict and len(registry) == len(entries)
        """,
    )


@pytest.mark.full
def test_workers_of_workers_know_it_too(tmp_path: Path) -> None:
    script(
        tmp_path,
        """
        class Inner(Dice):
            def __init__(self, render_mode=None):
                super().__init__(0)
                options = {"backend": "process", "workers": 1}
                with agym.make(lambda: gym.make("Mine-v0"), 2, **options) as envs:
                    self.sides = sum(envs.reset().observations)

        wrapper = gym.envs.registration.WrapperSpec("Plus", "__main__:Plus", {"by": 5})
        gym.register("Mine-v0", entry_point="__main__:Mine", additional_wrappers=(wrapper,))
        gym.register("Inner-v0", entry_point=Inner)
        assert seen(lambda: gym.make("Inner-v0"), 1, workers=1) == [164]
        """,
    )


@pytest.mark.full
def test_what_a_package_registers_as_it_is_imported(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="the extra `atari`")
    code, out, err = run(
        tmp_path,
        """
        import ale_py, gymnasium, agym
        gymnasium.register_envs(ale_py)
        def make_env():
            return gymnasium.make("ALE/Pong-v5", obs_type="ram")
        with agym.make([make_env] * 2, backend="process", workers=2) as envs:
            print(len(envs.reset(seed=0).observations[1]))
        """,
    )
    assert (code, out) == (0, "128\n"), err  # ALE says hello on stderr
