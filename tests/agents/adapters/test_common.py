"""What the adapters share, without any of the libraries."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np
import pytest

import agym
from agym.agents.adapters.common import OwnRandom, Seat, as_chat, as_text
from tests.agents.adapters.examples import failures
from tests.support.envs.text_envs import Guess, Meeting
from tests.support.patience import patience
from tests.support.scripts import install_command


def test_a_seat_is_an_environment_for_a_library_that_waits() -> None:
    seat = Seat(Guess, {"most": 7})
    observation, info = seat.reset(seed=3)
    assert observation == "guess a number up to 7"
    assert seat.reset(seed=3)[1] == info
    step = seat.step(info["number"])
    assert (step.observation, step.reward, step.terminated, step.truncated) == (
        "right",
        1.0,
        True,
        False,
    )
    with pytest.raises(agym.UsageError, match="the episode is over"):
        seat.step(1)
    seat.close()
    seat.close()
    with pytest.raises(agym.ClosedError):
        seat.step(1)


def test_options_of_a_reset_arrive() -> None:
    seat = Seat(Guess, {})
    assert seat.reset(options={"number": 9})[1]["number"] == 9
    seat.close()


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


class Nested(gymnasium.Env[Any, Any]):
    """Steps another environment through an adapter."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)
    inner: Seat | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        self.inner = Seat(Guess, {})
        self.inner.reset()
        return 0, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert self.inner is not None
        return 0, self.inner.step(1).reward, False, False, {}

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()


def test_a_seat_inside_a_seat_is_refused_or_runs_in_a_thread() -> None:
    seat = Seat(Nested, {"backend": "serial"})
    with pytest.raises(agym.EnvError, match="backend='thread'"):
        seat.reset()
    seat.close()
    seat = Seat(Nested, {"backend": "thread"})
    seat.reset()
    assert seat.step(0).reward in (0.0, 1.0)
    seat.close()


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
def test_a_missing_library_is_a_sentence_that_names_the_extra(library: str) -> None:
    script = f"""
import sys
sys.modules[{library!r}] = None  # as if it were not installed
import agym
try:
    agym.adapters.{library}
except agym.MissingExtraError as error:
    print(error)
"""
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=patience(5)
    )
    hint = install_command(library.replace("_", "-"))
    assert told.stdout.strip().endswith(f"is not installed: {hint}"), told


def test_the_example_is_true() -> None:
    assert not failures(agym.adapters)


def test_importing_agym_imports_no_adapter() -> None:
    script = "import agym, sys; print([m for m in sys.modules if m.startswith('agym.agents')])"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert told.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        agym.adapters.nonsense  # noqa: B018
    assert dir(agym.adapters) == agym.adapters.__all__
