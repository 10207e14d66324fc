"""A backward pass of a small torch network, sized to take a given time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

from agym.core._system.extras import require

# A policy network of the usual size; only the batch size varies.
WIDTHS = (348, 256, 256, 17)

# The batch size is found in ROUNDS rounds, starting at BATCH, each timed TRIES times.
BATCH = 256
ROUNDS = 3
TRIES = 9


@contextmanager
def backward_pass(seconds: float) -> Iterator[Callable[[], None]]:
    """Yield a backward pass of about ``seconds``; within the block torch has one thread.

    The pass reuses one graph, so that no forward pass comes in between.

    Raises:
        MissingExtraError: torch is not installed.
    """
    torch = require("torch", "sb3")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        batch = BATCH
        for _ in range(ROUNDS):
            backward = _build(torch, batch)
            batch = max(1, round(batch * seconds / _duration(backward)))
        yield _build(torch, batch)
    finally:
        torch.set_num_threads(threads)


def _build(torch: Any, batch: int) -> Callable[[], None]:
    layers: list[Any] = []
    for width, following in pairwise(WIDTHS):
        layers += [torch.nn.Linear(width, following), torch.nn.Tanh()]
    network = torch.nn.Sequential(*layers)
    loss = network(torch.randn(batch, WIDTHS[0])).square().mean()

    def backward() -> None:
        network.zero_grad(set_to_none=True)
        loss.backward(retain_graph=True)

    return backward


def _duration(run: Callable[[], None]) -> float:
    run()
    seconds = []
    for _ in range(TRIES):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return median(seconds)
