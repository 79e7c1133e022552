"""Problems as tensors, and responses as text with the verdicts on them."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from mcpo_cli import grading
from mcpo_cli.backends.local.sampler import Rollouts
from mcpo_cli.backends.local.tokenizer import separator, split
from mcpo_cli.data.base import Problem
from mcpo_cli.tasks import ClosedTask


@dataclass(frozen=True)
class Encoded:
    """P demonstrations as tokens."""

    prompt_PS: Tensor
    """Prompts, all of one length."""
    gold_PT: Tensor
    """Whole responses with their end token, padded with the end token."""
    length_P: Tensor
    """Tokens of each response, end token included."""

    @property
    def mask_PT(self) -> Tensor:
        """True for gold tokens."""
        return torch.arange(self.gold_PT.shape[-1], device=self.length_P.device) < self.length_P[:, None]

    def to(self, device: torch.device) -> "Encoded":
        """On that device."""
        return Encoded(self.prompt_PS.to(device), self.gold_PT.to(device), self.length_P.to(device))


@dataclass(frozen=True)
class Judged:
    """The verdicts on G responses to each of P prompts."""

    correct_PG: Tensor
    """Whether the response is right."""
    answers: list[list[str | None]]
    """What the grader took for the answer, a list a group."""


def prompts(tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem]) -> Tensor:
    """prompt_PS: the tokens of the prompts, which must have the same length.

    A word is a token: looking it up takes a quarter of the tokenizer's time.
    """
    ids = tokenizer.get_vocab()
    return torch.tensor([[ids[word] for word in split(problem.text, ids)] for problem in problems])


def encode(tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem], longest: int) -> Encoded:
    """Tokens of demonstrations, whose golds are whole responses of at most `longest` tokens."""
    ids = tokenizer.get_vocab()
    golds = [[*(ids[word] for word in split(problem.gold, ids)), tokenizer.eos_token_id] for problem in problems]
    padded = [[*gold, *[tokenizer.pad_token_id] * (longest - len(gold))] for gold in golds]
    return Encoded(prompts(tokenizer, problems), torch.tensor(padded), torch.tensor([len(gold) for gold in golds]))


def decoded(rollouts: Rollouts, tokenizer: PreTrainedTokenizerFast) -> list[list[str]]:
    """The text of each response, its end token included, a list a group."""
    words, between = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))), separator(tokenizer.get_vocab())
    return [
        [between.join([words[token] for token in token_T[:length]]) for token_T, length in zip(*group, strict=True)]
        for group in zip(rollouts.token_PGT.tolist(), rollouts.length_PG.tolist(), strict=True)
    ]


def judge(
    task: ClosedTask, tokenizer: PreTrainedTokenizerFast, problems: Sequence[Problem], rollouts: Rollouts
) -> Judged:
    """The verdicts of the task's grader on the text of each response, as verl and `mcpo evaluate` have them.

    A group's equal responses are judged once.
    """
    end = tokenizer.eos_token
    texts_PG = [[text.removesuffix(end) for text in texts] for texts in decoded(rollouts, tokenizer)]
    pairs = [(p, text) for p, texts in enumerate(texts_PG) for text in dict.fromkeys(texts)]
    judged = grading.verdicts(task.grader, [(problems[p].gold, text) for p, text in pairs], apart=task.judged_apart)
    verdicts = dict(zip(pairs, judged, strict=True))
    groups = [[verdicts[p, text] for text in texts] for p, texts in enumerate(texts_PG)]
    correct = [[verdict.status == "correct" for verdict in group] for group in groups]
    correct_PG = torch.tensor(correct, device=rollouts.length_PG.device)
    return Judged(correct_PG, [[verdict.answer for verdict in group] for group in groups])
