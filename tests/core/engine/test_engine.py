"""The engine alone, on a fake backend: what no law can time, because nothing runs by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from agym.core.backends.pool import Pool
from agym.core.backends.port import BackendOptions, Force
from agym.core.backends.serial import SerialPort
from agym.core.engine.calls.ticket import Ticket
from agym.core.engine.engine import Engine
from agym.core.protocol.messages.completions import Completion, Description, Payload
from agym.core.protocol.messages.failures import Failure
from agym.core.protocol.messages.operations import (
    CLOSE,
    OPEN,
    Operation,
    Reset,
    Step,
)
from agym.core.protocol.table import SlotTable
from agym.errors import (
    BusyError,
    ClosedError,
    EnvError,
    StepTimeout,
)

SPACE = spaces.Box(-100, 100, (2,), np.float32)


def never() -> Any:
    raise NotImplementedError


class FakeBackend(Pool):
    """Remembers what it was given; the test says what comes of it."""

    ended = False
    pids = (None,)

    def __init__(self) -> None:
        super().__init__(BackendOptions([never] * 4, AutoresetMode.NEXT_STEP), SerialPort)
        self.operations: list[Operation] = []
        self.outcomes: list[Completion] = []
        self.forces: list[Force] = []
        self.table: SlotTable

    def start(self) -> None:
        description = Description(SPACE, spaces.Discrete(3), {}, None, None)
        self.outcomes.append(Completion(OPEN, 0, 4, Payload(values={0: description})))

    def attach(self, table: SlotTable) -> None:
        self.table = table

    def submit(self, operation: Operation) -> None:
        self.operations.append(operation)

    def poll(self) -> Sequence[Completion]:
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def close(self, force: Force = Force.NONE) -> None:
        self.forces.append(force)

    def end(self, index: int = 0, *, fill: float = 0.0) -> None:
        """Let the operation at ``index`` end, its rows filled with a number."""
        operation = self.operations.pop(index)
        message = operation.message
        if isinstance(message, Step | Reset):
            rows = slice(operation.start, operation.stop)
            self.table.planes[message.plane].observations[0][rows] = fill
            self.table.planes[message.plane].rewards[rows] = fill
        self.outcomes.append(Completion(*operation.span, None))


def ready(**options: Any) -> tuple[Engine, FakeBackend]:
    backend = FakeBackend()
    engine = Engine(backend, **options)
    assert engine.life.open().done
    engine.reset()
    backend.end()
    engine.poll()
    return engine, backend


def value_of(engine: Engine, ticket: Ticket) -> Any:
    engine.poll()
    assert ticket.done
    return ticket.result()


def test_a_batch_is_one_operation() -> None:
    engine, backend = ready()
    ticket = engine.step([0, 1, 2, 0])
    assert backend.operations == [(ticket.number, 0, 4, Step(0))]
    np.testing.assert_array_equal(backend.table.actions[0], [0, 1, 2, 0])
    backend.end(fill=7)
    result = value_of(engine, ticket)
    np.testing.assert_array_equal(result.observations, np.full((4, 2), 7, np.float32))
    assert result.infos == [{}, {}, {}, {}]


def test_a_missed_deadline_names_the_late_and_drops_their_answer() -> None:
    engine, backend = ready(timeout=1e-9)
    late = engine.step([0] * 4)
    number, plane = backend.operations[0].number, backend.operations[0].message.plane
    backend.outcomes.append(Completion(number, 0, 3))
    engine.poll()
    engine.expire()
    with pytest.raises(StepTimeout, match="environment 3;") as caught:
        late.result()
    assert caught.value.env_ids == (3,)
    with pytest.raises(BusyError, match="environment 3"):
        engine.step([0] * 4)
    others = engine.step([0] * 3, env_ids=[0, 1, 2])
    backend.end(1, fill=5)
    assert value_of(engine, others).rewards.tolist() == [5] * 3
    backend.table.planes[plane].rewards[:] = 99
    backend.outcomes.append(Completion(number, 3, 4))
    backend.operations.clear()
    engine.poll()
    following = engine.step([0] * 4)
    backend.end(fill=1)
    assert value_of(engine, following).rewards.tolist() == [1] * 4
    with pytest.raises(StepTimeout):
        late.result()


def test_an_outcome_that_nobody_waits_for_is_dropped() -> None:
    engine, backend = ready()
    backend.outcomes.append(Completion(999, 0, 4))
    engine.poll()
    ticket = engine.step([0] * 4)
    backend.end(fill=2)
    assert value_of(engine, ticket).rewards.tolist() == [2] * 4


def test_closing_asks_then_terminates_then_kills() -> None:
    engine, backend = ready()
    pending = engine.step([0] * 4)
    for _ticket, _seconds in engine.life.closing():
        pass
    assert backend.forces == [*Force]
    with pytest.raises(ClosedError):
        pending.result()
    with pytest.raises(ClosedError):
        engine.reset()


def test_closing_stops_when_all_have_ended() -> None:
    engine, backend = ready()
    for ticket, _seconds in engine.life.closing():
        backend.ended = True
        payload = Payload(problems=[Failure.of(OSError("stuck"), 1, "close")])
        backend.outcomes.append(Completion(CLOSE, 0, 4, payload))
        engine.poll()
        assert ticket.done
        with pytest.raises(EnvError, match="environment 1 raised in close"):
            ticket.result()
    assert backend.forces == [Force.NONE]
    assert list(engine.life.closing()) == []
