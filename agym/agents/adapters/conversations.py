"""Conversations of a model with an environment, as tokens for a trainer.

::

    prompt + first observation | model | observation | model | observation | model
    prompt_ids                 | completion_ids ..................................
    env_mask                   | 1 1 1 | 0 0 0 0 0 0 | 1 1 1 | ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from agym.agents.adapters.common import as_chat, as_text
from agym.errors import UsageError

Prompt = str | list[dict[str, Any]]

# A placeholder for the model's turn, when the chat template is applied.
TURN = "\N{WHITE SQUARE}\N{BLACK SQUARE}\N{WHITE SQUARE}"


@dataclass
class Conversation:
    """An unfinished completion: the tokens of the model and of the environment, in turns."""

    prompt_ids: list[int]
    room: int  # maximum number of tokens of the completion
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)  # 1 for the model's tokens
    total: float | None = 0.0
    turns: int = 0
    terminated: bool = False
    truncated: bool = False

    @property
    def over(self) -> bool:
        """Whether the conversation has ended."""
        return self.terminated or self.truncated

    def add(self, ids: Sequence[int], logprobs: Sequence[float] | None, mask: int) -> None:
        """Append tokens of the model (``mask`` is 1) or of the environment (0)."""
        self.completion_ids += ids
        self.logprobs += logprobs or [0.0] * len(ids)
        self.env_mask += [mask] * len(ids)


class Text:
    """Converts observations to tokens for a trainer's model."""

    def __init__(self, trainer: Any) -> None:
        self.tokenizer = trainer.processing_class
        self._template = getattr(trainer, "chat_template", None)
        self._keywords = getattr(trainer, "chat_template_kwargs", None) or {}
        self._chat = True

    def prompt(self, prompt: Prompt, observation: Any) -> list[int]:
        """Return the tokens of a prompt that ends with the first observation."""
        self._chat = not isinstance(prompt, str)
        if isinstance(prompt, str):
            ids: list[int] = self.tokenizer(prompt + as_text(observation))["input_ids"]
            return ids
        *earlier, last = prompt
        if last["role"] == "user" and isinstance(last["content"], str):
            messages = [*earlier, {**last, "content": last["content"] + as_text(observation)}]
        else:
            messages = [*prompt, *as_chat(observation)]
        rendered: list[int] = self._apply(messages, True)
        return rendered

    def reply(self, observation: Any, after: int) -> list[int]:
        """Return the tokens between two turns of the model; ``after`` is the token before them."""
        text = f"\n{as_text(observation)}\n"
        if self._chat:
            # Use only the template's text after the turn, since templates may change earlier text.
            turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": TURN}]
            _, turn, text = self._apply([*turns, *as_chat(observation)], False).partition(TURN)
            if not turn:
                raise UsageError("the chat template drops the model's turns: use another one")
            if after == self.tokenizer.eos_token_id:
                text = text.removeprefix(self.tokenizer.eos_token)
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def _apply(self, messages: list[dict[str, Any]], tokenize: bool) -> Any:
        return self.tokenizer.apply_chat_template(
            messages,
            add_generation_prompt=True,
            tokenize=tokenize,
            return_dict=False,
            chat_template=self._template,
            **self._keywords,
        )
