"""agym's environments in TRL's GRPOTrainer, with TRL's release: a tiny model is trained."""

from __future__ import annotations

import asyncio
import atexit
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import trl
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from transformers.utils import get_json_schema
from trl.trainer.utils import shutdown_event_loop_in_daemon

import agym
from tests.support.envs.text_envs import Guess, Meeting

adapter = agym.adapters.trl
TEMPLATE = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
CALLS = [
    f'<tool_call>\n{{"name": "guess", "arguments": {{"number": {n}}}}}\n</tool_call>'
    for n in (1, 2, 3)
]
WORDS = [*CALLS, " 1 ", " 2 ", " 3 "]

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # TRL's, Accelerate's and Transformers' own
    pytest.mark.timeout(240),
]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes, and a token for each thing that the model is to say."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_tokens([AddedToken(word, normalized=False) for word in WORDS])
    made = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"], padding_side="left",
    )  # fmt: skip
    made.chat_template = TEMPLATE.read_text()
    return made


def model_that_says(tokenizer: PreTrainedTokenizerFast, words: list[str]) -> GPT2LMHeadModel:
    """Two layers, which say one of the words, or end."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=2048, n_embd=32, n_layer=2, n_head=2,
        bos_token_id=None, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id, tie_word_embeddings=False,
    )  # fmt: skip
    model = GPT2LMHeadModel(config)
    said = tokenizer.convert_tokens_to_ids([*words, "<|im_end|>"])
    with torch.no_grad():
        # A direction in which every state points keeps the other words unsaid.
        model.transformer.ln_f.bias[0] = 20.0
        model.lm_head.weight[:, 0] = -5.0
        model.lm_head.weight[said, 0] = 0.0
    return model


def trained(
    tokenizer: PreTrainedTokenizerFast, folder: Path, words: list[str], data: Any, **options: Any
) -> trl.GRPOTrainer:
    """Train a model that says some words for two steps, which change its weights."""
    config = trl.GRPOConfig(
        output_dir=str(folder), use_cpu=True, per_device_train_batch_size=8, num_generations=4,
        max_steps=2, learning_rate=1e-2, logging_steps=1, report_to=[], save_strategy="no",
        bf16=False, disable_tqdm=True, gradient_checkpointing=False, max_completion_length=200,
        **options.pop("config", {}),
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model=model_that_says(tokenizer, words), processing_class=tokenizer, args=config,
        train_dataset=Dataset.from_dict(data), **options,
    )  # fmt: skip
    before = trainer.model.lm_head.weight.detach().clone()
    trainer.train()
    assert not torch.equal(trainer.model.lm_head.weight, before)
    return trainer


def guess(number: int) -> int:
    """Guess the number.

    Args:
        number: Your guess.
    """
    return number


PROMPTS = [[{"role": "user", "content": "Let us play. "}]] * 4


def test_a_trainer_calls_tools_that_step_environments(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    kind = adapter.environment_class(Guess, tools=[guess], most=3, turns=2)
    trainer = trained(
        tokenizer, tmp_path, CALLS, {"prompt": PROMPTS, "seed": [0, 1, 2, 3]},
        environment_factory=kind, config={"max_tool_calling_iterations": 3},
    )  # fmt: skip
    log = trainer.state.log_history
    assert log[0]["tools/call_frequency"] > 0
    assert all(0.0 <= entry["rewards/Environment/mean"] <= 1.0 for entry in log[:2])
    assert any(environment.turns for environment in trainer.environments)
    for environment in trainer.environments:
        assert environment.get_reward() == float(environment.terminated)
        assert environment.turns <= 2
    atexit.unregister(shutdown_event_loop_in_daemon)
    shutdown_event_loop_in_daemon(trainer.async_loop_thread, trainer.async_loop)
    trainer.async_loop.close()
    kind.close_all()


@contextmanager
def environments(env: Any, count: int = 1, **options: Any) -> Iterator[list[Any]]:
    """Make environments as a trainer does."""
    kind = adapter.environment_class(env, **options)
    try:
        yield [kind() for _ in range(count)]
    finally:
        kind.close_all()


def test_a_tool_is_described_as_its_function_is() -> None:
    with environments(Guess, tools=[guess]) as (environment,):
        described = get_json_schema(environment.guess)["function"]
        assert described["parameters"] == get_json_schema(guess)["function"]["parameters"]
        assert described["description"] == "Guess the number."
        methods = inspect.getmembers(type(environment), inspect.isfunction)
        tools = {name for name, _ in methods if not name.startswith("_")}
        assert tools - {"reset", "get_reward"} == {"guess"}


def test_the_default_tool_steps() -> None:
    with environments(Guess, most=5) as (environment,):
        assert environment.reset(prompt="?", options={"number": 4}) == "guess a number up to 5"
        assert asyncio.run(environment.step("2")) == "higher"
        assert asyncio.run(environment.step(action="4")) == "right"
        assert environment.get_reward() == 1.0
        with pytest.raises(agym.UsageError, match="the episode is over"):
            asyncio.run(environment.step("4"))
        assert environment.reset(seed=1) == environment.reset(seed=1)
        assert environment.get_reward() == 0.0


def test_an_error_leaves_no_reward_behind_and_a_reset_goes_on() -> None:
    with environments(Guess) as (environment,):
        environment.reset(options={"number": 4})
        for action, error in (("raise", agym.EnvError), ("4", agym.ResetNeededError)):
            with pytest.raises(error):
                asyncio.run(environment.step(action))
            assert environment.get_reward() is None
        environment.reset(options={"number": 4})
        asyncio.run(environment.step("4"))
        assert environment.get_reward() == 1.0


def test_tools_of_many_rollouts_wait_at_once() -> None:
    async def main(made: list[Any]) -> list[str]:
        return await asyncio.gather(*(each.step("now") for each in made))

    with environments(Meeting, 8, parties=8) as made:
        for environment in made:
            environment.reset()
        assert {*asyncio.run(main(made))} == {f"met as {i}" for i in range(8)}


class Seen:
    """A reward function that keeps what it is given."""

    __name__ = "seen"

    def __init__(self) -> None:
        self.batches: list[dict[str, Any]] = []

    def __call__(self, **given: Any) -> list[float | None]:
        self.batches.append(given)
        return adapter.env_reward(**given)


def number_in(text: str) -> int:
    return int(next(filter(str.isdigit, text), 0))


@pytest.mark.parametrize("conversational", [True, False])
def test_a_trainer_plays_all_completions_at_once(
    tokenizer: PreTrainedTokenizerFast, tmp_path: Path, conversational: bool
) -> None:
    prompts: list[Any] = PROMPTS if conversational else ["Let us play. "] * 4
    seen = Seen()
    rollouts = adapter.rollout_func(Guess, parse=number_in, max_turns=3, most=3, turns=9)
    options = {"reward_funcs": seen, "rollout_func": rollouts}
    trained(tokenizer, tmp_path, [" 1 ", " 2 ", " 3 "], {"prompt": prompts}, **options)
    rollouts.close()
    assert len(seen.batches) == 2
    for batch in seen.batches:
        assert len(batch["env_reward"]) == 8
        for k in range(8):
            assert 1 <= batch["env_turns"][k] <= 3
            assert batch["env_terminated"][k] is (batch["env_reward"][k] == 1.0)
            assert batch["env_terminated"][k] is not batch["env_truncated"][k]
            told = tokenizer.decode(batch["completion_ids"][k])
            assert told.count("higher") + told.count("lower") == batch["env_turns"][k] - 1
    assert {reward for batch in seen.batches for reward in batch["env_reward"]} == {0.0, 1.0}


class StubTrainer:
    """What :func:`rollout_func` reads of a trainer."""

    def __init__(self, tokenizer: Any, room: int) -> None:
        self.processing_class = tokenizer
        self.num_generations = 2
        self.num_generations_eval = 1
        self.max_completion_length = room
        self.model = torch.nn.Linear(1, 1)
        self.accelerator = SimpleNamespace(process_index=0, num_processes=1)


def rolled_out(
    tokenizer: Any,
    env: Any,
    says: str = "0",
    score: float | None = None,
    prompts: Any = PROMPTS,
    room: int = 500,
    **options: Any,
) -> Any:
    """Roll out two completions of each prompt, whose model always says the same."""

    def generate(trainer: StubTrainer, contexts: list[list[int]]) -> Any:
        ids = [tokenizer(f"{says}<|im_end|>")["input_ids"] for _ in contexts]
        return ids, None if score is None else [[score] * len(each) for each in ids]

    with adapter.rollout_func(env, generate=generate, **options) as rollouts:
        trainer = StubTrainer(tokenizer, room)
        for batch in prompts if isinstance(prompts, tuple) else (prompts,):
            output = rollouts(batch, trainer)
            assert {len(values) for values in output.values() if values} == {len(batch)}
    return output


def test_a_conversation_is_what_the_template_makes_of_it(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    seed_of = {"Let us play. ": 0}
    output = rolled_out(
        tokenizer, Guess, score=-0.5, prompts=PROMPTS[:2], parse=int, most=3, turns=2,
        seed=lambda prompt: seed_of[prompt[0]["content"]],
    )  # fmt: skip
    told = tokenizer.decode(output["prompt_ids"][0] + output["completion_ids"][0])
    assert told == (
        "<|im_start|>user\nLet us play. guess a number up to 3<|im_end|>\n<|im_start|>assistant\n"
        "0<|im_end|>\n<|im_start|>user\nhigher<|im_end|>\n<|im_start|>assistant\n0<|im_end|>"
    )
    mask, ids = output["env_mask"][0], output["completion_ids"][0]
    mine = [token for token, own in zip(ids, mask, strict=True) if own]
    assert tokenizer.decode(mine) == "0<|im_end|>" * 2
    assert output["logprobs"][0] == [-0.5 if own else 0.0 for own in mask]
    assert (output["env_turns"], output["env_truncated"]) == ([2, 2], [True, True])


def test_completions_of_one_prompt_play_the_same_task(tokenizer: PreTrainedTokenizerFast) -> None:
    numbers: list[int] = []

    class Noting(Guess):
        async def reset(self, **keywords: Any) -> Any:
            result = await super().reset(**keywords)
            numbers.append(self.number)
            return result

    rolled_out(tokenizer, Noting, prompts=(PROMPTS, PROMPTS), parse=int, most=10**9, turns=1)
    groups = [numbers[i : i + 2] for i in range(0, 8, 2)]
    assert all(first == second for first, second in groups)
    assert len({first for first, _ in groups}) == 4


def test_batches_may_become_smaller_and_larger(tokenizer: PreTrainedTokenizerFast) -> None:
    batches = tuple(PROMPTS[:n] for n in (2, 1, 4))
    rolled_out(tokenizer, Guess, prompts=batches, parse=int, turns=1)


def test_what_exceeds_the_room_is_cut_off(tokenizer: PreTrainedTokenizerFast) -> None:
    output = rolled_out(tokenizer, Guess, prompts=PROMPTS[:2], room=8, parse=int)
    assert output["env_truncated"] == [True, True]
    assert output["logprobs"] is None
    assert all(len(ids) <= 8 for ids in output["completion_ids"])
    assert tokenizer.decode(output["completion_ids"][0]) == "0<|im_end|>"


def test_a_fault_leaves_no_reward(tokenizer: PreTrainedTokenizerFast) -> None:
    output = rolled_out(tokenizer, Guess, "raise", on_fault="restart")
    assert output["env_reward"] == [None] * 4
    with pytest.raises(agym.AgymError, match="the tool is broken"):
        rolled_out(tokenizer, Guess, "raise")


def test_environments_of_a_batch_wait_at_once(tokenizer: PreTrainedTokenizerFast) -> None:
    assert rolled_out(tokenizer, Meeting, "now", parties=4)["env_reward"] == [1.0] * 4
