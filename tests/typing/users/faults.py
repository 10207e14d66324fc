"""What goes wrong: the attributes of errors and faults."""

from __future__ import annotations

from typing import Any, assert_type

import agym


def errors(envs: agym.Envs, actions: Any) -> None:
    try:
        envs.step(actions)
    except agym.EnvError as error:
        assert_type(error.env_id, int)
        assert_type(error.operation, str)
        assert_type(error.seed, int | None)
        assert_type(error.capsule, str)
    except agym.WorkerDied as error:
        assert_type(error.env_ids, tuple[int, ...])
        assert_type(error.operations, dict[int, str])
        assert_type(error.exitcode, int | None)
        assert_type(error.signal, str | None)
    except agym.StepTimeout as error:
        assert_type(error.env_ids, tuple[int, ...])
    except agym.CrashLoopError as error:
        assert_type(error.faults, tuple[agym.Fault, ...])


def several_at_once(envs: agym.Envs, actions: Any) -> None:
    try:
        envs.step(actions)
    except* agym.EnvError as group:
        for error in group.exceptions:
            print(error)


def known_by_their_bases(
    usage: agym.UsageError, timeout: agym.StepTimeout, missing: agym.MissingExtraError
) -> tuple[ValueError, TimeoutError, ImportError]:
    return usage, timeout, missing


def faults(result: agym.StepResult) -> None:
    fault: agym.Fault | None = result.infos[0].get("fault")
    if fault is not None:
        assert_type(fault.kind, str)
        assert_type(fault.worker, int | None)


def chaos(envs: agym.Envs, aenvs: agym.AsyncEnvs) -> None:
    with agym.chaos(envs, error=0.1) as struck:
        assert_type(struck, agym.Chaos)
    agym.chaos(aenvs, kill=0.1)


def mistakes(error: agym.EnvError, fault: agym.Fault) -> None:
    error.pid  # type: ignore[attr-defined]
    fault.kind = "died"  # type: ignore[misc]
    agym.chaos(object(), kill="often")  # type: ignore[arg-type]
