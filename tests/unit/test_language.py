"""Existing models on the local engine: prompts, ends of responses by stop strings, verdicts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from mcpo_cli import tasks
from mcpo_cli.backends.local import tree as trees
from mcpo_cli.backends.local.encoding import Language
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.tokenizer import Stops
from mcpo_cli.data.base import Problem
from tests.models import words, wordy

END = 1
"""The end token of `words`."""


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    """Tokens are bytes, and `th`, `the` and ` a`."""
    found = words()
    assert isinstance(found, PreTrainedTokenizerBase)
    return found


def ended(stops: Stops, tokenizer: PreTrainedTokenizerBase, text: str) -> list[bool]:
    """The tokens of `text` after which a response ends."""
    ids = torch.tensor(tokenizer(text)["input_ids"])
    return [bool(stops.reached(ids[None, : end + 1])) for end in range(len(ids))]


def test_a_token_that_contains_a_stop_string_ends_a_response(tokenizer: PreTrainedTokenizerBase) -> None:
    stops = Stops(tokenizer, [END], ["\n"])
    assert ended(stops, tokenizer, "7\n8") == [False, True, False]
    assert bool(stops.reached(torch.tensor([[END]])))
    # `the` is one token here, and has an `h` inside.
    assert ended(Stops(tokenizer, [END], ["h"]), tokenizer, "xthe") == [False, True]


def test_a_stop_string_may_be_spread_over_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    stops = Stops(tokenizer, [END], ["\n\n", "Q:"])
    assert ended(stops, tokenizer, "1\n2\n\n3") == [False, False, False, False, True, False]
    assert ended(stops, tokenizer, "a Q: b")[:4] == [False, False, False, True]
    assert not any(ended(stops, tokenizer, "Q :\n\t\n"))


def test_a_letter_of_several_tokens_counts_once_it_is_whole(tokenizer: PreTrainedTokenizerBase) -> None:
    stops = Stops(tokenizer, [END], ["é!"])
    assert ended(stops, tokenizer, "aé!") == [False, False, False, True]


def test_tokens_beyond_the_tokenizer_end_nothing(tokenizer: PreTrainedTokenizerBase) -> None:
    stops = Stops(tokenizer, [END], ["\n"])
    assert not bool(stops.reached(torch.tensor([[len(tokenizer) + 5]])))


@pytest.mark.parametrize(
    ("text", "kept"), [("7\nQ: 8", "7"), ("7", "7"), ("\n7", ""), ("7Q:\n", "7"), ("", ""), ("7\tQ :", "7\tQ :")]
)
def test_text_is_cut_at_the_first_stop_string(text: str, kept: str, tokenizer: PreTrainedTokenizerBase) -> None:
    assert Stops(tokenizer, [END], ["\n", "Q:"]).cut(text) == kept


def responses(tokenizer: PreTrainedTokenizerBase, *texts: str, end: int = END) -> Rollouts:
    """One group of responses, the end token after each."""
    rows = [[*tokenizer(text)["input_ids"], end] for text in texts]
    length_PG = torch.tensor([[len(row) for row in rows]])
    token_GT = torch.nn.utils.rnn.pad_sequence(list(map(torch.tensor, rows)), batch_first=True, padding_value=end)
    nothing = torch.zeros(1, *token_GT.shape)
    return Rollouts(torch.zeros(1, 1, dtype=torch.long), token_GT[None], length_PG, length_PG > 0, nothing, nothing)


def test_verdicts_are_on_the_text_before_the_stop_string(tokenizer: PreTrainedTokenizerBase) -> None:
    language = Language(tasks.get("sums"), tokenizer, [END], closed=False)
    rollouts = responses(tokenizer, " 7", " 7\n", " 7\n8", " 8\n7", " 3 + 4 = 7", "seven")
    assert language.texts(rollouts)[0] == [" 7", " 7", " 7", " 8", " 3 + 4 = 7", "seven"]
    judged = language.grade([Problem("3 + 4", "7")], rollouts)
    assert judged.correct_PG.tolist() == [[True, True, True, False, True, False]]
    assert judged.answers == [["7", "7", "7", "8", "7", None]]
    assert language.shown(rollouts)[0][1] == " 7\n<|end|>"


def test_special_tokens_reach_the_grader_and_samples(tmp_path: Path) -> None:
    """As does the tag that the prompt opened; the token that ended the response does not."""
    words = AutoTokenizer.from_pretrained(wordy(tmp_path / "model", chat=True))
    words.add_special_tokens({"additional_special_tokens": ["<answer>", "</answer>"]})
    words.chat_template += "<think>\n"
    language = Language(tasks.get("sums", style="chat", examples=0), words, [0], closed=False)
    said = responses(words, "5+2 <answer>7</answer>", end=0)
    rollouts = replace(said, prompt_PS=language.prompts([Problem("5 + 2", "7")]))
    assert language.texts(rollouts) == [["<think>5+2 <answer>7</answer>"]]
    assert language.shown(rollouts) == [["<think>5+2 <answer>7</answer><end>"]]


def test_prompts_of_different_lengths_are_filled_up(tokenizer: PreTrainedTokenizerBase) -> None:
    task = tasks.get("sums")
    language = Language(task, tokenizer, [END], closed=False)
    problems = [Problem("3 + 4", "7"), Problem("12 + 7", "19")]
    prompt_PS = language.prompts(problems)
    assert trees.lengths(prompt_PS).tolist() == [prompt_PS.shape[1] - 1, prompt_PS.shape[1]]
    for prompt_S, problem in zip(prompt_PS, problems, strict=True):
        text = tokenizer.decode(prompt_S[prompt_S != trees.NO_TOKEN].tolist())
        assert text == f"2 + 5 = 7\n13 + 4 = 17\n{problem.text} ="
    assert [language.tokens(task.messages(problem)) for problem in problems] == trees.lengths(prompt_PS).tolist()


def test_a_chat_is_asked_in_the_models_template(tmp_path: Path) -> None:
    chatty = AutoTokenizer.from_pretrained(wordy(tmp_path / "model", chat=True))
    language = Language(tasks.get("sums", style="chat", examples=1, system="Add."), chatty, [0], closed=False)
    (prompt_S,) = language.prompts([Problem("3 + 4", "7")])
    assert chatty.decode(prompt_S.tolist()) == (
        "<system>Add.\n<user>What is 2 + 5?\n<assistant>2 + 5 = 7\n<user>What is 3 + 4?\n<assistant>"
    )
