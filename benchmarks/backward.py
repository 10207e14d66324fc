"""A backward pass of a small network in torch, sized to take as long as something else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

from agym._system.extras import require

# A policy network of the usual size: what varies is how many observations go through it.
WIDTHS = (348, 256, 256, 17)

# The size of the batch is found in so many rounds, from this one on, each timed so often.
BATCH = 256
ROUNDS = 3
TRIES = 9


@contextmanager
def backward_pass(seconds: float) -> Iterator[Callable[[], None]]:
    """Give a backward pass that takes about so long; torch has one thread in the block.

    The pass is over one graph again and again, so that there is no forward pass in between.

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
        begun = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begun)
    return median(seconds)
