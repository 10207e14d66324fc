"""What the adapters share: a seat for a library that waits, and promises that all of them make."""

from __future__ import annotations

import asyncio
import doctest
import gc
import random
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import agym
from agym.agents.adapters import common
from agym.agents.adapters.common import OwnRandom, Seat, as_chat, as_text
from tests.agents.adapters.conftest import AVAILABLE
from tests.support.envs.plain_envs import Tally
from tests.support.envs.text_envs import Guess, Meeting
from tests.support.patience import patience
from tests.support.scripts import install_command, run


def test_a_seat_is_an_environment_for_a_library_that_waits() -> None:
    seat = Seat(Guess, {"most": 7})
    observation, info = seat.reset(seed=3)
    assert observation == "guess a number up to 7"
    assert seat.reset(seed=3)[1] == info
    assert seat.step(info["number"])[:4] == ("right", 1.0, True, False)
    with pytest.raises(agym.UsageError, match="the episode is over"):
        seat.step(1)
    assert seat.reset(options={"number": 9})[1]["number"] == 9
    seat.close()
    seat.close()
    with pytest.raises(agym.ClosedError):
        seat.step(1)


def test_texts_are_parsed() -> None:
    seat = Seat("CartPole-v1", {}, parse=int)
    observation, _ = seat.reset(seed=0)
    with agym.make("CartPole-v1") as envs:
        assert np.array_equal(envs.reset(seed=0).observations[0], observation)
        assert np.array_equal(envs.step([1]).observations[0], seat.step("1").observation)
    with pytest.raises(ValueError, match="invalid literal"):
        seat.step("left")
    seat.step("0")  # nothing was sent
    seat.close()


def test_many_seats_share_a_thread_and_wait_at_once() -> None:
    seats = [Seat(Meeting, {"parties": 8}) for _ in range(8)]
    assert [thread.name for thread in threading.enumerate()].count("agym-adapters") == 1
    for seat in seats:
        seat.reset()
    with ThreadPoolExecutor(8) as pool:
        steps = list(pool.map(lambda seat: seat.step("now"), seats, timeout=patience()))
    assert {step.observation for step in steps} == {f"met as {i}" for i in range(8)}
    for seat in seats:
        seat.close()


async def test_steps_are_awaited_from_any_loop_in_order() -> None:
    seat = Seat(Guess, {"turns": 9})
    seat.reset(options={"number": 5})
    steps = await asyncio.gather(*(seat.step_async(guess) for guess in (1, 9, 5)))
    assert [step.observation for step in steps] == ["higher", "lower", "right"]
    seat.close()


def test_an_error_of_the_environment_names_it_and_leaves_others_alone() -> None:
    broken, fine = Seat(Guess, {}), Seat(Guess, {})
    broken.reset()
    fine.reset()
    with pytest.raises(agym.EnvError, match="the tool is broken"):
        broken.step("raise")
    fine.step(1)
    broken.reset()
    broken.step(1)
    broken.close()
    fine.close()


def test_a_seat_that_cannot_be_made_leaves_nothing() -> None:
    with pytest.raises(agym.UsageError, match="cannot be found"):
        Seat("Nope-v0", {})
    with pytest.raises(agym.EnvError):
        Seat(Guess, {"nonsense_for_it": 1})


def test_what_nobody_holds_is_closed() -> None:
    closed = threading.Event()

    class Closes(Guess):
        async def close(self) -> None:
            closed.set()

    seat = Seat(Closes, {})
    seat.reset()
    thread = next(thread for thread in threading.enumerate() if thread.name == "agym-adapters")
    gone = weakref.ref(seat)
    del seat
    gc.collect()
    assert gone() is None
    assert closed.wait(patience())
    thread.join(patience())
    assert not thread.is_alive()


class Nested(Tally):
    """Steps another environment through an adapter."""

    def step(self, action: Any) -> Any:
        with closing(Seat(Guess, {})) as inner:
            inner.reset()
            inner.step(1)
        return super().step(action)


def test_a_seat_inside_a_seat_is_refused_or_runs_in_a_thread() -> None:
    with closing(Seat(Nested, {"backend": "serial"})) as seat:
        seat.reset()
        with pytest.raises(agym.EnvError, match="backend='thread'"):
            seat.step(0)
    with closing(Seat(Nested, {"backend": "thread"})) as seat:
        seat.reset()
        assert seat.step(0).reward > 0


def test_each_has_random_states_of_its_own() -> None:
    def draw(own: OwnRandom) -> tuple[float, float]:
        with own:
            return random.random(), float(np.random.random())  # noqa: NPY002

    def seeded(seed: int) -> OwnRandom:
        own = OwnRandom()
        with own:
            random.seed(seed)
            np.random.seed(seed)  # noqa: NPY002
        return own

    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    alone = [[draw(own) for _ in range(3)] for own in map(seeded, range(4))]
    many = [seeded(seed) for seed in range(4)]
    in_turns = [[draw(own) for own in many] for _ in range(3)]
    assert [list(row) for row in zip(*in_turns, strict=True)] == alone
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
    assert draw(OwnRandom()) != draw(OwnRandom())


def test_observations_as_text_and_as_chat() -> None:
    chat = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert as_text("plain") == "plain"
    assert as_text(chat) == "a\nb"
    assert as_text(np.array([1, 2])) == "[1 2]"
    assert as_chat(chat) == chat
    assert as_chat("plain") == [{"role": "user", "content": "plain"}]


@pytest.mark.once
@pytest.mark.parametrize("library", agym.adapters.__all__)
def test_a_missing_library_is_a_sentence_that_names_the_extra(library: str, tmp_path: Path) -> None:
    """Importing agym imports no adapter."""
    script = f"""
        import sys
        sys.modules[{library!r}] = None  # as if it were not installed
        import agym
        print([name for name in sys.modules if name.startswith("agym.agents")])
        try:
            agym.adapters.{library}
        except agym.MissingExtraError as error:
            print(error)
    """
    _, out, _ = run(tmp_path, script)
    imported, sentence = out.splitlines()
    assert imported == "[]"
    hint = install_command(library.replace("_", "-"))
    assert sentence.endswith(f"is not installed: {hint}")


def test_the_adapters_are_listed() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        agym.adapters.nonsense  # noqa: B018
    assert dir(agym.adapters) == agym.adapters.__all__


@pytest.mark.filterwarnings("ignore")  # the libraries warn of each other's future
@pytest.mark.parametrize("library", ["", *AVAILABLE])
def test_the_examples_are_true(library: str) -> None:
    module = getattr(agym.adapters, library) if library else agym.adapters
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert examples
    for example in examples:
        runner.run(example, out=report.append)
    assert not report


CART_POLE, EASY = "CartPole-v1", "game:GuessTheNumber-v0-easy"
ROW = {"prompt": [{"role": "user", "content": "6 x 7?"}]}


def bare(x: int) -> int:
    return x


def act(x: int) -> int:
    """Act."""
    return x


def reset(x: int) -> int:
    """Take a name of the adapter's own."""
    return x


async def act_later(x: int) -> int:
    """Act."""
    return x


def tools(*functions: Any) -> Callable[[Any], Any]:
    return lambda adapter: adapter.environment_class(Guess, tools=[*functions])


# What each adapter refuses, and a part of the error.
REFUSED: dict[str, list[tuple[Callable[[Any], Any], str]]] = {
    "common": [
        (lambda adapter: adapter.Seat(CART_POLE, {}, parse=5), "parse=5 must be a function"),
        (lambda adapter: adapter.Seat(CART_POLE, {"num_envs": 4}), "num_envs=4 isn't an option"),
    ],
    "gem": [
        (lambda adapter: adapter.factory(5), "_id=5 must be a string"),
        (lambda adapter: adapter.register(5, CART_POLE), "_id=5 must be a string"),
        (lambda adapter: adapter.factory("game:Game2048-v0-har"), "mean 'game:Game2048-v0-hard'"),
        (lambda adapter: adapter.factory(EASY, wrappers=[5]), "wrappers=.* list of functions"),
        (lambda adapter: adapter.VectorEnv(CART_POLE, 2, autoreset_mode="same"), "_mode='same'"),
        (lambda adapter: adapter.VectorEnv(CART_POLE, 2, parse=5), "parse=5 must be a function"),
        (lambda adapter: adapter.Env(CART_POLE, parse="int"), "parse='int' must be a function"),
        (lambda adapter: adapter.Env(CART_POLE, num_envs=4), "num_envs=4 isn't an option"),
        (lambda adapter: adapter.register("test:x", CART_POLE, num_envs=4), "gem.make_vec"),
    ],
    "skyrl_gym": [
        (lambda adapter: adapter.factory(5, [ROW]), "_id=5 must be a string"),
        (lambda adapter: adapter.register(5, CART_POLE), "_id=5 must be a string"),
        (lambda adapter: adapter.factory("gsm9k", [ROW]), r"'gsm9k' is not registered.*gsm8k"),
        (lambda adapter: adapter.factory("gsm8k", []), "tasks is empty"),
        (lambda adapter: adapter.factory("gsm8k", [ROW, {"prompt": "a"}]), r"tasks\[1\] needs a"),
        (lambda adapter: adapter.factory("gsm8k", ROW), "tasks=.* must be a sequence of rows"),
        (lambda adapter: adapter.factory("gsm8k", 5), "tasks=5 must be a sequence of rows"),
        (lambda adapter: adapter.factory("gsm8k", ["6 x 7?"]), r"tasks\[0\] needs a 'prompt'"),
        (lambda adapter: adapter.register("x", CART_POLE, parse=2), "parse=2 must be a function"),
    ],
    "textarena": [
        (lambda adapter: adapter.factory(5), "_id=5 must be a string"),
        (lambda adapter: adapter.register(5, CART_POLE), "_id=5 must be a string"),
        (lambda adapter: adapter.factory("TicTacTo-v0"), "did you mean"),
        (lambda adapter: adapter.factory("TicTacToe-v0", opponent=act, seat=2), "the 2 players"),
        (lambda adapter: adapter.factory("TicTacToe-v0", players=2), "needs an opponent"),
        (lambda adapter: adapter.factory("TicTacToe-v0", players="2"), "players='2' must be"),
        (lambda adapter: adapter.factory("TicTacToe-v0", seat=0.5), "seat=0.5 must be"),
        (lambda adapter: adapter.factory("TicTacToe-v0", opponent="me"), "opponent='me' must be"),
        (lambda adapter: adapter.register("x-v0", CART_POLE, parse=5), "parse=5 must be a"),
    ],
    "trl": [
        (lambda adapter: adapter.environment_class(Guess, tools=act), "tools=.* must be a list"),
        (lambda adapter: adapter.environment_class(Guess, num_envs=2), "num_envs=2 isn't an"),
        (tools(5), "tools=.* must be a list"),
        (tools(), "tools is empty"),
        (tools(reset), "cannot be named 'reset'"),
        (tools(bare), "'bare' needs a docstring"),
        (tools(act_later), "must be a plain `def`"),
        (tools(act, act), "two tools are named 'act'"),
        (lambda adapter: adapter.rollout_func(Guess, max_turns=0), "max_turns=0"),
        (lambda adapter: adapter.rollout_func(Guess, max_turns="8"), "max_turns='8' must be"),
        (lambda adapter: adapter.rollout_func(Guess, seed=None), "seed=None must be"),
        (lambda adapter: adapter.rollout_func(Guess, parse=1), "parse=1 must be a function"),
        (lambda adapter: adapter.rollout_func(Guess, generate=1), "generate=1 must be a function"),
    ],
    "verifiers": [
        (lambda adapter: adapter.register(5, CART_POLE), "_id=5 must be a string"),
        (lambda adapter: adapter.factory({"taskset": {"id": "no-such-taskset"}}), "not found"),
        (lambda adapter: adapter.factory("agym-guess"), "env='agym-guess' must be a dict"),
        (lambda adapter: adapter.classes(CART_POLE, tasks=["a"]), "neither a seed"),
        (lambda adapter: adapter.classes(CART_POLE, tasks=5), "tasks=5 must be a list"),
        (lambda adapter: adapter.classes(CART_POLE, tasks={"seed": 3}), "tasks=.* must be a list"),
        (lambda adapter: adapter.classes(CART_POLE, tasks=[]), "tasks is empty"),
        (lambda adapter: adapter.classes(CART_POLE, tasks=[True]), "neither a seed nor"),
        (lambda adapter: adapter.classes(CART_POLE, tasks=[-1]), "-1: it must be an integer"),
        (lambda adapter: adapter.classes(CART_POLE, parse=5), "parse=5 must be a function"),
        (lambda adapter: adapter.classes(CART_POLE, num_envs=5), "num_envs=5 isn't an option"),
        (lambda adapter: adapter.register("sys", Guess), "there is already a module 'sys'"),
        (lambda adapter: adapter.register("a.b", Guess), "must be a name"),
    ],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["common", *AVAILABLE])
def test_wrong_arguments_are_named(library: str) -> None:
    adapter = common if library == "common" else getattr(agym.adapters, library)
    for call, message in REFUSED[library]:
        with pytest.raises(agym.UsageError, match=message):
            call(adapter)
