"""A learner: proximal policy optimization in torch, as CleanRL writes it, for any vector runner."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from agym.core._system.extras import require

EPOCHS, MINIBATCHES = 4, 4
GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, MAX_NORM = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5


class Learner:
    """An actor and a critic, and their transitions.

    Pictures get CleanRL's network for Atari games, vectors two layers of 64.
    """

    def __init__(
        self, space: spaces.Space[Any], actions: spaces.Space[Any], rows: tuple[int, int]
    ) -> None:
        """Make the networks, and room for ``rows``: steps and environments.

        Raises:
            MissingExtraError: torch is not installed.
        """
        self._torch = torch = require("torch", "sb3")
        shape, taken = space.shape or (), actions.shape or ()
        self._pictures = len(shape) == 3
        self._discrete = isinstance(actions, spaces.Discrete)
        outputs = int(actions.n) if isinstance(actions, spaces.Discrete) else taken[0]
        # Normal distributions have no bounds, and spaces do.
        self._bounds = (actions.low, actions.high) if isinstance(actions, spaces.Box) else None
        nn = torch.nn
        if self._pictures:
            self._body = nn.Sequential(
                nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
                nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(), nn.Flatten(),
                nn.Linear(64 * 7 * 7, 512), nn.ReLU(),
            )  # fmt: skip
            width = 512
        else:
            width = 64
            self._body = nn.Sequential(
                nn.Linear(shape[0], width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
            )
        self._actor, self._critic = nn.Linear(width, outputs), nn.Linear(width, 1)
        parts = nn.ModuleList([self._body, self._actor, self._critic])
        self._parameters = [*parts.parameters()]
        self._optimizer = torch.optim.Adam(self._parameters, 2.5e-4, eps=1e-5)
        self._obs = torch.zeros((*rows, *shape), dtype=getattr(torch, str(space.dtype)))
        kind = torch.long if self._discrete else torch.float32
        self._actions = torch.zeros((*rows, *taken), dtype=kind)
        self._logprobs, self._values, self._rewards, self._ends = torch.zeros((4, *rows))

    def _policy(self, obs: Any) -> tuple[Any, Any]:
        torch = self._torch
        hidden = self._body(obs / 255.0 if self._pictures else obs.float())
        outputs, values = self._actor(hidden), self._critic(hidden).squeeze(-1)
        distributions = torch.distributions
        if self._discrete:
            return distributions.Categorical(logits=outputs, validate_args=False), values
        normal = distributions.Normal(outputs, 1.0, validate_args=False)
        return distributions.Independent(normal, 1, validate_args=False), values

    def act(self, obs: Any, t: int, ids: Any = slice(None)) -> Any:
        """Return actions for the environments ``ids``, and store them as row ``t``."""
        torch = self._torch
        with torch.no_grad():
            obs = torch.as_tensor(obs)
            policy, values = self._policy(obs)
            actions = policy.sample()
            self._obs[t, ids], self._actions[t, ids] = obs, actions
            self._logprobs[t, ids], self._values[t, ids] = policy.log_prob(actions), values
            given = actions.numpy()
            return given if self._bounds is None else given.clip(*self._bounds)

    def note(self, t: int, rewards: Any, ends: Any, ids: Any = slice(None)) -> None:
        """Store the results of row ``t``."""
        self._rewards[t, ids] = self._torch.as_tensor(np.asarray(rewards, np.float32))
        self._ends[t, ids] = self._torch.as_tensor(np.asarray(ends, np.float32))

    def learn(self, obs: Any) -> None:
        """Learn from all rows; the arguments are the observations after the last row."""
        torch = self._torch
        with torch.no_grad():
            last = value = self._policy(torch.as_tensor(obs))[1]
            gains, last = torch.zeros_like(self._rewards), torch.zeros_like(last)
            for t in reversed(range(len(gains))):
                goes_on = 1.0 - self._ends[t]
                delta = self._rewards[t] + GAMMA * value * goes_on - self._values[t]
                gains[t] = last = delta + GAMMA * LAMBDA * goes_on * last
                value = self._values[t]
        rows = [each.flatten(0, 1) for each in (self._obs, self._actions)]
        rows += [each.flatten() for each in (self._logprobs, gains, gains + self._values)]
        for _ in range(EPOCHS):
            for some in torch.randperm(len(rows[0])).tensor_split(MINIBATCHES):
                self._update(*(each[some] for each in rows))

    def _update(self, obs: Any, actions: Any, logprobs: Any, gains: Any, returns: Any) -> None:
        torch = self._torch
        policy, values = self._policy(obs)
        ratio = (policy.log_prob(actions) - logprobs).exp()
        gains = (gains - gains.mean()) / (gains.std() + 1e-8)
        loss = -torch.minimum(gains * ratio, gains * ratio.clamp(1 - CLIP, 1 + CLIP)).mean()
        loss = loss + VALUE * (values - returns).square().mean()
        loss = loss - ENTROPY * policy.entropy().mean()
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, MAX_NORM)
        self._optimizer.step()
