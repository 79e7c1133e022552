"""Problems as tensors, and responses as text with the verdicts on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from mcpo_cli import grading
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.tokenizer import Stops, separator, split
from mcpo_cli.data.base import Problem
from mcpo_cli.grading import Grade, functions
from mcpo_cli.tasks import Task
from mcpo_cli.tasks.base import Messages
from mcpo_cli.tokenization import decoded, opened, prompt_ids

T = TypeVar("T")


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
class Grades:
    """The verdicts on G responses to each of P prompts."""

    correct_PG: Tensor
    """True if the response is correct; False in empty places."""
    graded_PG: Tensor
    """False if the response could not be graded, and in empty places."""
    answers: list[list[str | None]]
    """The answers that the grader extracted, one list per group; None for a response without an answer."""


class Language:
    """The language of a run's model: its tokenizer, the task's prompts, the ends of responses.

    stop_ids: the tokens that end a response; the first of them is the padding. A model built from scratch (`closed`)
    has the task's vocabulary: a word is a token, and looking it up takes a quarter of the tokenizer's time.
    """

    def __init__(
        self, task: Task, tokenizer: PreTrainedTokenizerBase, stop_ids: Sequence[int] = (), *, closed: bool
    ) -> None:
        self.task, self.tokenizer, self.closed = task, tokenizer, closed
        self.eos: int = tokenizer.eos_token_id if closed else stop_ids[0]
        self.stops = None if closed else Stops(tokenizer, stop_ids, task.stops)

    def prompts(self, problems: Sequence[Problem]) -> Tensor:
        """prompt_PS: the tokens of the prompts, filled up with `trees.NO_TOKEN`."""
        if self.closed:
            return prompts(self.tokenizer, problems)
        ids = [torch.tensor(self.prompt(self.task.messages(problem))) for problem in problems]
        return torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=trees.NO_TOKEN)

    def prompt(self, messages: Messages) -> list[int]:
        """The tokens of a prompt for an existing model."""
        return prompt_ids(self.tokenizer, messages, self.task.template_variables)

    def tokens(self, messages: Messages) -> int:
        """The number of tokens of a prompt."""
        return len(self.prompt(messages))

    def shown(self, rollouts: Rollouts) -> list[list[str]]:
        """The text of each response with its end, one list per group."""
        return words_of(rollouts, self.tokenizer) if self.closed else self._read(rollouts)

    def texts(self, rollouts: Rollouts) -> list[list[str]]:
        """The text of each response as graders take it: without its end token, up to the first stop string."""
        if self.stops is None:
            end = self.tokenizer.eos_token
            return [[text.removesuffix(end) for text in texts] for texts in words_of(rollouts, self.tokenizer)]
        return self._read(rollouts, self.stops)

    def _read(self, rollouts: Rollouts, stops: Stops | None = None) -> list[list[str]]:
        """The text of each response after the tag of reasoning that its prompt opened; without its end if `stops`."""
        ends, cut = (stops.ids, stops.cut) if stops else ((), str)
        texts = []
        for prompt, group in zip(rollouts.prompt_PS.tolist(), _tokens(rollouts), strict=True):
            tag = opened(self.tokenizer, [token for token in prompt if token != trees.NO_TOKEN])
            texts.append([tag + cut(decoded(self.tokenizer, tokens, ends)) for tokens in group])
        return texts

    def grade(self, problems: Sequence[Problem], rollouts: Rollouts, source: str = "") -> Grades:
        """The verdicts of the task's grader on the text of each response, as verl and `mcpo evaluate` have them.

        A group's equal responses are graded once. source: the held-out tier of the problems; empty for training.
        """
        groups = self._grades(self.task.grader_of(source or self.task.source), problems, rollouts)
        G, tensor = rollouts.length_PG.shape[-1], partial(torch.tensor, device=rollouts.length_PG.device)
        correct_PG = [_filled([grade.status == "correct" for grade in group], G, False) for group in groups]
        graded_PG = [_filled([grade.is_graded for grade in group], G, False) for group in groups]
        answers = [_filled([grade.answer for grade in group], G, None) for group in groups]
        return Grades(tensor(correct_PG), tensor(graded_PG), answers)

    def rewards(self, function: str, problems: Sequence[Problem], rollouts: Rollouts) -> Tensor:
        """reward_PG: the values that a user's function (`train.reward`) returns for the text of each response."""
        groups = self._grades(function, problems, rollouts)
        G = rollouts.length_PG.shape[-1]
        reward = [_filled([grade.reward for grade in group], G, 0.0) for group in groups]
        return torch.tensor(reward, dtype=torch.float64, device=rollouts.length_PG.device)

    def _grades(self, grader: str, problems: Sequence[Problem], rollouts: Rollouts) -> list[list[Grade]]:
        """The verdicts of `grader`, one list per group."""
        texts_PG = self.texts(rollouts)
        pairs = [(p, text) for p, texts in enumerate(texts_PG) for text in dict.fromkeys(texts)]
        questions = [(functions.question(grader, problems[p].text, problems[p].gold), text) for p, text in pairs]
        verdicts = grading.grades(grader, questions, apart=self.task.judged_apart)
        grades = dict(zip(pairs, verdicts, strict=True))
        return [[grades[p, text] for text in texts] for p, texts in enumerate(texts_PG)]


def _filled(values: list[T], places: int, value: T) -> list[T]:
    """`values` with `value` in the empty places of a smaller group."""
    return values + [value] * (places - len(values))


def prompts(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]) -> Tensor:
    """prompt_PS: the tokens of the prompts of a closed task, which all have the same length."""
    ids = tokenizer.get_vocab()
    return torch.tensor([[ids[word] for word in split(problem.text, ids)] for problem in problems])


def encode(tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem], longest: int) -> Encoded:
    """Tokens of demonstrations, whose golds are whole responses of at most `longest` tokens."""
    ids = tokenizer.get_vocab()
    golds = [[*(ids[word] for word in split(problem.gold, ids)), tokenizer.eos_token_id] for problem in problems]
    rows = [[*gold, *[tokenizer.pad_token_id] * (longest - len(gold))] for gold in golds]
    return Encoded(prompts(tokenizer, problems), torch.tensor(rows), torch.tensor([len(gold) for gold in golds]))


def words_of(rollouts: Rollouts, tokenizer: PreTrainedTokenizerBase) -> list[list[str]]:
    """The text of each response of a model with a closed vocabulary, its end token included, one list per group."""
    words, space = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer)))), separator(tokenizer.get_vocab())
    return [[space.join([words[token] for token in tokens]) for tokens in group] for group in _tokens(rollouts)]


def _tokens(rollouts: Rollouts) -> list[list[list[int]]]:
    """The tokens of each response, one list per group; empty places are left out."""
    return [
        [tokens[:length] for tokens, length in zip(*group, strict=True) if length]
        for group in zip(rollouts.token_PGT.tolist(), rollouts.length_PG.tolist(), strict=True)
    ]
