"""Problems as tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from mcpo_cli.backends.local.sampler import Rollouts
from mcpo_cli.data.base import Problem


@dataclass(frozen=True)
class Encoded:
    """P problems: prompt_PS, and gold_PT with its end token, padded with the end token; lengths_P in tokens."""

    prompt_PS: Tensor
    gold_PT: Tensor
    length_P: Tensor

    @property
    def mask_PT(self) -> Tensor:
        """True for gold tokens."""
        return torch.arange(self.gold_PT.shape[-1], device=self.length_P.device) < self.length_P[:, None]

    def to(self, device: torch.device) -> "Encoded":
        """On that device."""
        return Encoded(self.prompt_PS.to(device), self.gold_PT.to(device), self.length_P.to(device))

    def correct(self, rollouts: Rollouts) -> Tensor:
        """correct_PG: the whole response equals the gold one, end token included.

        Says what `tasks.correct` says of the decoded text, at the price of one comparison.
        """
        T = rollouts.token_PGT.shape[-1]
        same = (rollouts.token_PGT == self.gold_PT[:, None, :T]).all(-1)
        return same & (rollouts.length_PG == self.length_P[:, None])


def encode(tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem], max_response: int) -> Encoded:
    """Tokens of `problems`; all prompts must have the same length, gold answers at most `max_response`.

    A word is a token: looking it up takes a quarter of the tokenizer's time.
    """
    ids = tokenizer.get_vocab()
    prompts = [[ids[word] for word in problem.text.split()] for problem in problems]
    golds = [[*(ids[word] for word in problem.gold.split()), tokenizer.eos_token_id] for problem in problems]
    padded = [[*gold, *[tokenizer.pad_token_id] * (max_response - len(gold))] for gold in golds]
    return Encoded(torch.tensor(prompts), torch.tensor(padded), torch.tensor([len(gold) for gold in golds]))
