"""Twins of Gymnasium's toy text: environments that are a table of transitions, and Blackjack."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.envs.toy_text import blackjack as module

from agym.core.protocol.typing import Array
from agym.twins.engine import Advanced, Columns, Family, Rows

blackjack: Any = module  # without types


class Table(Family):
    """``FrozenLake``, ``CliffWalking``: the original's table ``P`` as arrays.

    Below 16 environments, stepping the originals is faster.

    Attributes:
        states: The environments' states.
    """

    min_envs = 16

    def __init__(self, original: Any, num_envs: int, random: Any) -> None:
        super().__init__(original, num_envs, random)
        self.states = np.zeros(num_envs, np.int64)
        self._actions = np.full(num_envs, -1)  # the last ones, for pictures
        self._initial = np.cumsum(original.initial_state_distrib)
        actions = range(original.action_space.n)
        table = [[original.P[state][action] for action in actions] for state in sorted(original.P)]
        most = max(len(outcomes) for row in table for outcomes in row)
        # Outcomes that do not exist are never drawn.
        none = [(0.0, 0, 0, False)] * most
        padded = [[(outcomes + none)[:most] for outcomes in row] for row in table]
        self._prob, self._next, self._reward, self._done = (
            np.array([[[outcome[k] for outcome in cell] for cell in row] for row in padded])
            for k in range(4)
        )
        self._bounds = np.full(self._prob.shape, -np.inf)
        for state, row in enumerate(table):
            for action, outcomes in enumerate(row):
                bounds = np.cumsum([outcome[0] for outcome in outcomes])
                self._bounds[state, action, : len(outcomes)] = bounds

    def begin(self, rows: Rows) -> None:
        self._actions[rows] = -1
        self.states[rows] = (self._initial > self.random.drawn(rows)[:, None]).argmax(1)

    def advance(self, rows: Rows, actions: Array) -> Advanced:
        cells = self.states[rows].copy(), actions
        outcomes = *cells, (self._bounds[cells] > self.random.drawn(rows)[:, None]).argmax(1)
        self.move(rows, self._next[outcomes])
        self._actions[rows] = actions
        return Advanced(
            self._reward[outcomes], self._done[outcomes],
            {**self.infos(rows), "prob": self._prob[outcomes]},
        )  # fmt: skip

    def move(self, rows: Rows, states: Array) -> None:
        self.states[rows] = states

    def observe(self, rows: Rows) -> Array:
        return self.states[rows].copy()

    def infos(self, rows: Rows) -> Columns:
        return {"prob": np.ones(len(self.states[rows]), np.int64)}

    def pose(self, i: int) -> None:
        self.original.s = int(self.states[i])
        self.original.lastaction = None if self._actions[i] < 0 else int(self._actions[i])

    def get_state(self, i: int) -> Any:
        return int(self.states[i]), int(self._actions[i])

    def set_state(self, i: int, state: Any) -> None:
        self.states[i], self._actions[i] = state


class Taxi(Table):
    """``Taxi``."""

    def __init__(self, original: Any, num_envs: int, random: Any) -> None:
        super().__init__(original, num_envs, random)
        self._masks = np.array([original.action_mask(state) for state in sorted(original.P)])
        self._fickle = np.zeros(num_envs, bool)
        self._facing = np.zeros(num_envs, int)  # in pictures

    def begin(self, rows: Rows) -> None:
        super().begin(rows)
        if self.original.fickle_passenger:
            self._fickle[rows] = self.random.drawn(rows) < self.original.fickle_probability

    def move(self, rows: Rows, states: Array) -> None:
        before, ids = self.states[rows].copy(), np.arange(self.num_envs)[rows]
        # In a taxi that has moved, a fickle passenger changes the destination, once an episode.
        riding, moved = before // 4 % 5 == 4, before // 20 != states // 20
        for k in np.flatnonzero(self._fickle[ids] & riding & moved).tolist():
            self._fickle[ids[k]] = False
            others = [place for place in range(4) if place != before[k] % 4]
            place = others[int(self.random[ids[k]].integers(3))]
            states[k] += place - states[k] % 4
        self.states[rows] = states

    def infos(self, rows: Rows) -> Columns:
        states = self.states[rows]
        return {"prob": np.ones(len(states)), "action_mask": self._masks[states]}

    def pose(self, i: int) -> None:
        super().pose(i)
        if 0 <= self._actions[i] < 4:
            self._facing[i] = self._actions[i]
        self.original.taxi_orientation = int(self._facing[i])

    def get_state(self, i: int) -> Any:
        return super().get_state(i), bool(self._fickle[i])

    def set_state(self, i: int, state: Any) -> None:
        of_table, self._fickle[i] = state
        super().set_state(i, of_table)


class Blackjack(Family):
    """``Blackjack-v1``, by the functions of the original on each environment's hands.

    Attributes:
        hands: By environment, the cards of player and dealer, and the dealer's card in pictures.
    """

    min_envs = 16

    def __init__(self, original: Any, num_envs: int, random: Any) -> None:
        super().__init__(original, num_envs, random)
        self.hands: list[tuple[list[int], list[int], Any, Any]] = [([], [], "", "")] * num_envs
        self._observations = np.zeros((num_envs, 3), np.int64)

    def draw(self, i: int) -> int:
        return int(blackjack.deck[int(self.random[i].integers(13))])

    def begin(self, rows: Rows) -> None:
        for i in np.arange(self.num_envs)[rows].tolist():
            dealer, player = ([self.draw(i), self.draw(i)] for _ in range(2))
            suit, value = "CDHS"[int(self.random[i].integers(4))], str(dealer[0])
            if dealer[0] == 1:
                value = "A"
            elif dealer[0] == 10:
                value = "JQK"[int(self.random[i].integers(3))]
            self.hands[i] = player, dealer, suit, value
            self.look(i)

    def look(self, i: int) -> None:
        player, dealer, *_ = self.hands[i]
        total, ace = blackjack._hand_sum_and_usable_ace(player)
        self._observations[i] = total, dealer[0], ace

    def advance(self, rows: Rows, actions: Array) -> Advanced:
        ids = np.arange(self.num_envs)[rows].tolist()
        rewards, terminated = np.zeros(len(ids)), np.ones(len(ids), bool)
        for k, (i, action) in enumerate(zip(ids, actions.tolist(), strict=True)):
            player, dealer, *_ = self.hands[i]
            if action:
                player.append(self.draw(i))
                terminated[k] = blackjack.is_bust(player)
                rewards[k] = -1.0 if terminated[k] else 0.0
                self.look(i)
            else:
                while blackjack.sum_hand(dealer) < 17:
                    dealer.append(self.draw(i))
                rewards[k] = self.score(player, dealer)
        return Advanced(rewards, terminated, {})

    def score(self, player: list[int], dealer: list[int]) -> float:
        env, natural = self.original, blackjack.is_natural(player)
        reward: float = blackjack.cmp(blackjack.score(player), blackjack.score(dealer))
        if env.sab and natural and not blackjack.is_natural(dealer):
            return 1.0
        return 1.5 if not env.sab and env.natural and natural and reward == 1.0 else reward

    def observe(self, rows: Rows) -> Any:
        return tuple(self._observations[rows].T)

    def infos(self, rows: Rows) -> Columns:
        return {}

    def pose(self, i: int) -> None:
        env = self.original
        env.player, env.dealer, env.dealer_top_card_suit, env.dealer_top_card_value_str = (
            self.hands[i]
        )

    def get_state(self, i: int) -> Any:
        player, dealer, *card = self.hands[i]
        return [*player], [*dealer], *card

    def set_state(self, i: int, state: Any) -> None:
        player, dealer, *card = state
        self.hands[i] = [*player], [*dealer], *card
        self.look(i)
