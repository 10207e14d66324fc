"""The engine alone, on a fake executor: no process, no thread, no environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from agym.engine.engine import Engine
from agym.engine.ticket import Ticket
from agym.errors import (
    BusyError,
    ClosedError,
    EnvError,
    ResetNeededError,
    StepTimeout,
    UsageError,
    WorkerDied,
)
from agym.hosts.base import Factory
from agym.protocol.messages import (
    CLOSE,
    OPEN,
    ROW_KINDS,
    Completion,
    Description,
    Failure,
    Operation,
    Payload,
    WorkerDeath,
)
from agym.protocol.table import SlotTable

SPACE = spaces.Box(-100, 100, (2,), np.float32)


class FakeExecutor:
    """Remembers what it was given; the test says what comes of it."""

    shared = False
    replaceable = False
    immediate = False
    together: Sequence[range] = ()
    pids: Sequence[int | None] = (None,)
    factories: Sequence[Factory] = ()
    forgotten = False

    def __init__(self, num_envs: int, description: Description | None = None) -> None:
        self.num_envs = num_envs
        self.ranges = [range(num_envs)]
        self.operations: list[Operation] = []
        self.outcomes: list[Completion] = []
        self.resorts: list[str] = []
        self.looks = 0
        self.ended = False
        self.table: SlotTable
        self.description = description or Description(SPACE, spaces.Discrete(3), {}, None, None)

    def objection(self, *_: Any) -> str | None:
        return None

    def start(self) -> None:
        extras = Payload(values={0: self.description})
        self.outcomes.append(Completion(OPEN, 0, self.num_envs, extras))

    def attach(self, table: SlotTable) -> None:
        self.table = table

    def submit(self, operation: Operation) -> None:
        self.operations.append(operation)

    def poll(self) -> Sequence[Completion]:
        outcomes, self.outcomes = self.outcomes, []
        return outcomes

    def look(self) -> None:
        self.looks += 1

    def end_worker(self, worker: int, reason: str) -> None:
        raise NotImplementedError

    replace_worker: Any = end_worker
    running: Any = end_worker
    prepare: Any = end_worker
    discard: Any = end_worker
    move: Any = end_worker
    finish: Any = end_worker

    def close(self) -> None:
        self.resorts.append("close")

    def terminate(self) -> None:
        self.resorts.append("terminate")

    def kill(self) -> None:
        self.resorts.append("kill")

    def end(self, index: int = 0, *, fill: float = 0.0, extras: Payload | None = None) -> None:
        """Let the operation at ``index`` end, its rows filled with a number."""
        operation = self.operations.pop(index)
        if operation.kind in ROW_KINDS:
            rows = slice(operation.start, operation.stop)
            self.table.planes[operation.plane].observations[0][rows] = fill
            self.table.planes[operation.plane].rewards[rows] = fill
        self.outcomes.append(Completion(*operation.span, extras))


def opened(num_envs: int = 4, **options: Any) -> tuple[Engine, FakeExecutor]:
    executor = FakeExecutor(num_envs)
    engine = Engine(executor, num_envs, autoreset=AutoresetMode.NEXT_STEP, **options)
    assert engine.open().done
    return engine, executor


def ready(num_envs: int = 4, **options: Any) -> tuple[Engine, FakeExecutor]:
    engine, executor = opened(num_envs, **options)
    engine.reset()
    executor.end()
    engine.poll()
    return engine, executor


def value_of(engine: Engine, ticket: Ticket) -> Any:
    engine.poll()
    assert ticket.done
    return ticket.result()


def test_a_batch_is_one_operation() -> None:
    engine, executor = ready()
    ticket = engine.step([0, 1, 2, 0])
    assert [o[:4] for o in executor.operations] == [(ticket.number, "step", 0, 4)]
    np.testing.assert_array_equal(executor.table.actions[0], [0, 1, 2, 0])
    executor.end(fill=7)
    result = value_of(engine, ticket)
    np.testing.assert_array_equal(result.observations, np.full((4, 2), 7, np.float32))
    assert result.infos == [{}, {}, {}, {}]


def test_a_ticket_ends_with_its_last_part() -> None:
    engine, executor = ready()
    ticket = engine.step([0] * 4)
    number = executor.operations[0].number
    executor.outcomes.append(Completion(number, 2, 4))
    engine.poll()
    assert not ticket.done
    executor.outcomes.append(Completion(number, 0, 2, Payload(infos={1: {"x": 1}})))
    assert value_of(engine, ticket).infos == [{}, {"x": 1}, {}, {}]


def test_full_batches_alternate_between_the_planes() -> None:
    engine, executor = ready()
    planes = []
    for _ in range(4):
        engine.step([0] * 4)
        planes.append(executor.operations[0].plane)
        executor.end()
        engine.poll()
    assert planes[0] != planes[1]
    assert planes[:2] == planes[2:]


def test_copies_are_the_callers_and_views_last_until_the_next_but_one() -> None:
    for copy in (True, False):
        engine, executor = ready(copy=copy)
        results = []
        for fill in (1, 2, 3):
            ticket = engine.step([0] * 4)
            executor.end(fill=fill)
            results.append(value_of(engine, ticket).rewards)
        assert [r[0] for r in results] == ([1, 2, 3] if copy else [3, 2, 3])


def test_a_second_step_in_flight_is_refused() -> None:
    engine, executor = ready()
    engine.step([0, 0], env_ids=[1, 2])
    with pytest.raises(BusyError, match="environment 1"):
        engine.step([0] * 4)
    engine.step([0], env_ids=[3])
    assert len(executor.operations) == 2


def test_a_reset_behind_a_step_waits_for_the_row_and_a_render_behind_it_waits_too() -> None:
    engine, executor = ready()
    step = engine.step([0] * 4)
    early = engine.ask("render")
    reset = engine.reset(env_ids=[2])
    late = engine.ask("render")
    assert [o.kind for o in executor.operations] == ["step", "render", "render", "render"]
    assert [(o.start, o.stop) for o in executor.operations[2:]] == [(0, 2), (3, 4)]
    executor.end(0, fill=1)
    value_of(engine, step)
    kinds = [(o.kind, o.start) for o in executor.operations[3:]]
    assert kinds == [("reset", 2), ("render", 2)]
    executor.end(0, extras=Payload(values=dict.fromkeys(range(4), "early")))
    assert value_of(engine, early) == ["early"] * 4
    executor.end(2, fill=5)
    observations = value_of(engine, reset).observations
    np.testing.assert_array_equal(observations[:, 0], [1, 1, 5, 1])
    for _ in range(3):
        ids = range(executor.operations[0].start, executor.operations[0].stop)
        executor.end(0, extras=Payload(values={i: i for i in ids}))
    assert value_of(engine, late) == [0, 1, 2, 3]


def test_a_step_may_be_sent_right_behind_a_reset() -> None:
    engine, executor = opened()
    engine.reset()
    step = engine.step([2, 1, 0, 2])
    assert [o.kind for o in executor.operations] == ["reset"]
    executor.end()
    engine.poll()
    assert [(o.kind, o.start, o.stop) for o in executor.operations] == [("step", 0, 4)]
    executor.end(fill=1)
    assert value_of(engine, step).rewards.tolist() == [1] * 4


def test_ids_of_a_step_must_ascend_as_its_actions_do() -> None:
    engine, executor = ready()
    with pytest.raises(UsageError, match="must ascend"):
        engine.step([0, 1], env_ids=[2, 1])
    assert not executor.operations


def test_operations_of_other_environments_do_not_wait() -> None:
    engine, executor = ready()
    engine.step([0], env_ids=[0])
    engine.reset(env_ids=[0])
    other = engine.step([1, 1], env_ids=[1, 2])
    assert [(o.kind, o.start) for o in executor.operations] == [("step", 0), ("step", 1)]
    executor.end(1, fill=3)
    assert value_of(engine, other).rewards.tolist() == [3, 3]


def test_scattered_environments_are_cut_into_runs() -> None:
    engine, executor = ready(6)
    ticket = engine.reset(seed=10, env_ids=[5, 0, 1, 3])
    assert [(o.start, o.stop, o.each) for o in executor.operations] == [
        (0, 2, [10, 11]),
        (3, 4, [13]),
        (5, 6, [15]),
    ]
    for fill in (1, 2, 3):
        executor.end(fill=fill)
    observations = value_of(engine, ticket).observations
    assert observations[:, 0].tolist() == [1, 1, 0, 2, 0, 3]


def test_steps_need_a_reset_first_and_again_after_an_error() -> None:
    engine, executor = opened()
    with pytest.raises(ResetNeededError, match="environment 0"):
        engine.step([0] * 4)
    engine.reset()
    executor.end()
    ticket = engine.step([0] * 4)
    failure = Failure.of(ValueError("no"), 2, "step", seed=3)
    executor.end(extras=Payload(problems=[failure]))
    engine.poll()
    with pytest.raises(EnvError, match="environment 2 raised in step: ValueError: no") as caught:
        ticket.result()
    assert (caught.value.env_id, caught.value.seed) == (2, 3)
    assert isinstance(caught.value.__cause__, ValueError)
    with pytest.raises(ResetNeededError, match="environment 2"):
        engine.step([0] * 4)
    engine.step([0] * 3, env_ids=[0, 1, 3])


def test_several_errors_come_as_a_group() -> None:
    engine, executor = ready()
    ticket = engine.step([0] * 4)
    problems: list[Failure | WorkerDeath] = [
        Failure.of(ValueError("no"), i, "step") for i in (0, 3)
    ]
    executor.end(extras=Payload(problems=problems))
    engine.poll()
    with pytest.raises(ExceptionGroup) as caught:
        ticket.result()
    assert [e.env_id for e in caught.value.exceptions if isinstance(e, EnvError)] == [0, 3]


def test_a_dead_worker_takes_only_its_own_environments() -> None:
    engine, executor = ready()
    ticket = engine.step([0] * 4)
    death = WorkerDeath(1, 1234, -9, range(2, 4), "killed by SIGKILL")
    executor.end(extras=Payload(problems=[death]))
    engine.poll()
    with pytest.raises(WorkerDied, match=r"worker 1 .*SIGKILL.*environments 2 to 3"):
        ticket.result()
    with pytest.raises(WorkerDied):
        engine.step([0] * 4)
    engine.step([0, 0], env_ids=[0, 1])


def test_a_missed_deadline_names_the_late_and_drops_their_answer() -> None:
    engine, executor = ready(timeout=1e-9)
    late = engine.step([0] * 4)
    number, plane = executor.operations[0].number, executor.operations[0].plane
    executor.outcomes.append(Completion(number, 0, 3))
    engine.poll()
    engine.expire()
    with pytest.raises(StepTimeout, match="environments 3;") as caught:
        late.result()
    assert caught.value.env_ids == (3,)
    with pytest.raises(BusyError, match="environment 3"):
        engine.step([0] * 4)
    others = engine.step([0] * 3, env_ids=[0, 1, 2])
    executor.end(1, fill=5)
    assert value_of(engine, others).rewards.tolist() == [5] * 3
    executor.table.planes[plane].rewards[:] = 99
    executor.outcomes.append(Completion(number, 3, 4))
    executor.operations.clear()
    engine.poll()
    following = engine.step([0] * 4)
    executor.end(fill=1)
    assert value_of(engine, following).rewards.tolist() == [1] * 4
    with pytest.raises(StepTimeout):
        late.result()


def test_an_outcome_that_nobody_waits_for_is_dropped() -> None:
    engine, executor = ready()
    executor.outcomes.append(Completion(999, 0, 4))
    engine.poll()
    ticket = engine.step([0] * 4)
    executor.end(fill=2)
    assert value_of(engine, ticket).rewards.tolist() == [2] * 4


def test_closing_asks_then_terminates_then_kills() -> None:
    engine, executor = ready()
    pending = engine.step([0] * 4)
    for _ticket, _seconds in engine.closing():
        pass
    assert executor.resorts == ["close", "terminate", "kill"]
    with pytest.raises(ClosedError):
        pending.result()
    with pytest.raises(ClosedError):
        engine.reset()


def test_closing_stops_when_all_have_ended() -> None:
    engine, executor = ready()
    for ticket, _seconds in engine.closing():
        executor.ended = True
        extras = Payload(problems=[Failure.of(OSError("stuck"), 1, "close")])
        executor.outcomes.append(Completion(CLOSE, 0, 4, extras))
        engine.poll()
        assert ticket.done
        with pytest.raises(EnvError, match="environment 1 raised in close"):
            ticket.result()
    assert executor.resorts == ["close"]
    assert list(engine.closing()) == []


def test_workers_with_other_spaces_are_refused() -> None:
    executor = FakeExecutor(4)
    other = Description(SPACE, spaces.Discrete(4), {}, None, None)
    engine = Engine(executor, 4, autoreset=AutoresetMode.NEXT_STEP)
    executor.start()
    executor.outcomes = [
        Completion(OPEN, 0, 2, Payload(values={0: executor.description})),
        Completion(OPEN, 2, 4, Payload(values={2: other})),
    ]
    executor.start = lambda: None  # type: ignore[method-assign]
    with pytest.raises(UsageError, match=r"environment 2 .*action_space"):
        engine.open().result()
