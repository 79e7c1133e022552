"""engine=local draws the samples of engine=hf, in batches of many requests, and ends responses at the same tokens."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import pytest
import torch

from mcpo_cli.evaluation.engines import Sample, SampleRequest, Sampling, local, open_engine
from mcpo_cli.model_facts import ModelFacts, resolve
from tests.errors import refused
from tests.models import encoded, untrained, wordy

SUMS = tuple(" + ".join(map(str, range(1, terms + 1))) + " =" for terms in range(2, 9))
LINES = ("a", "Say it:\n", "One, two, three, four, five:", "7\n8\n")


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return resolve(str(untrained(tmp_path_factory.mktemp("words"))))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return resolve(str(wordy(tmp_path_factory.mktemp("text"))))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def requests(facts: ModelFacts, prompts: Sequence[str], n: int, stops: tuple[str, ...] = ()) -> list[SampleRequest]:
    return [
        SampleRequest(prompt, encoded(facts, prompt), tuple(range(n * i, n * i + n)), stops)
        for i, prompt in enumerate(prompts)
    ]


def generate(
    name: Literal["hf", "local"], facts: ModelFacts, how: Sampling, asked: Sequence[SampleRequest]
) -> list[Sample]:
    """The samples of all requests, in their order."""
    found = dict(open_engine(name, facts, how).generate(asked))
    assert set(found) == {request.key for request in asked}
    return [sample for request in asked for sample in found[request.key]]


def equal(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float:
    """The share of equal samples; seeds are in the same order."""
    assert [sample.seed for sample in ours] == [sample.seed for sample in theirs]
    return sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(ours)


@pytest.mark.parametrize(
    ("most", "n", "top_p"), [(30, 24, 1.0), (30, 24, 0.7), pytest.param(300, 5, 0.9, marks=pytest.mark.slow)]
)
def test_samples_are_those_of_hf(words: ModelFacts, text: ModelFacts, most: int, n: int, top_p: float) -> None:
    """With 30 the samples of a prompt share rows; with 300 they do not, and the window cuts them.

    Rounding differs between kinds of processors. A token that it changes changes the rest of its sample, so one sample
    of 300 tokens may differ.
    """
    for facts, prompts in ((words, SUMS[:3]), (text, LINES[::2])):
        how, asked = Sampling(0.9, top_p, most, facts.stop_ids), requests(facts, prompts, n)
        ours = generate("local", facts, how, asked)
        assert equal(ours, generate("hf", facts, how, asked)) >= (0.99 if most == 30 else 1 - 1 / len(ours))
        assert len({sample.text for sample in ours}) > len(ours) / 2


def test_greedy_answers_are_those_of_hf(words: ModelFacts, text: ModelFacts) -> None:
    for facts, prompts in ((words, SUMS), (text, LINES)):
        how, asked = Sampling(0.0, 1.0, 40, facts.stop_ids), requests(facts, prompts, 1)
        assert generate("local", facts, how, asked) == generate("hf", facts, how, asked)


def test_a_sample_hardly_depends_on_its_batch(text: ModelFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    how, asked = Sampling(1.0, 1.0, 40, text.stop_ids), requests(text, LINES, 16)
    together = generate("local", text, how, asked)
    monkeypatch.setattr(local, "ROWS", 1)
    assert equal(together, generate("local", text, how, asked)) >= 0.98
    monkeypatch.setattr(local, "TOGETHER", 1)
    assert equal(together, generate("local", text, how, asked)) >= 0.98
    alone = {request.key: generate("local", text, how, [request]) for request in asked}
    assert equal(together, [sample for request in asked for sample in alone[request.key]]) >= 0.98


@pytest.fixture(scope="module")
def free(text: ModelFacts) -> list[Sample]:
    """The samples without stop strings, 30 per line."""
    return generate("hf", text, Sampling(2.0, 1.0, 60, text.stop_ids), requests(text, LINES, 30))


def test_stop_strings_end_responses_as_in_hf(text: ModelFacts, free: list[Sample]) -> None:
    n, stops = len(free) // len(LINES), ("ab", "7\n", "e\n", "\n")
    asked, how = requests(text, LINES, n, stops), Sampling(2.0, 1.0, 60, text.stop_ids)
    theirs = generate("hf", text, how, asked)
    assert equal(generate("local", text, how, asked), theirs) >= 0.98
    ended = []
    for before, after in zip(free, theirs, strict=True):
        place = min((at for stop in stops if (at := before.text.find(stop)) >= 0), default=None)
        assert after.text == before.text[:place]
        if place is not None:
            ended.append(after)
            assert after.finish == "stop"
            assert after.tokens <= before.tokens
        else:
            assert after == before
    assert ended
    # The last token of a response is the one that completes a stop string.
    for sample in [one for one in ended if one.tokens > 1][:4]:
        prompt_ids = asked[sample.seed // n].prompt_ids
        (cut,) = generate(
            "local", text, how, [SampleRequest("cut", prompt_ids, (sample.seed,), stops, sample.tokens - 1)]
        )
        assert cut.finish == "length"


def test_each_request_has_its_own_limit(text: ModelFacts) -> None:
    endless, long = Sampling(1.0, 1.0, 10**5, (10**6,)), "x" * 250
    prompts = [SampleRequest(key, encoded(text, key), (1, 2)) for key in ("x", long)]
    short = SampleRequest("short", prompts[0].prompt_ids, (1, 2), max_tokens=5)
    names: tuple[Literal["hf", "local"], ...] = ("hf", "local")
    for name in names:
        found = dict(open_engine(name, text, endless).generate([*prompts, short]))
        assert [(one.tokens, one.finish) for one in found["x"]] == [(255, "length")] * 2
        assert [(one.tokens, one.finish) for one in found[long]] == [(6, "length")] * 2
        assert [(one.tokens, one.finish) for one in found["short"]] == [(5, "length")] * 2


def test_batches_have_a_limit_and_requests_of_similar_length(text: ModelFacts) -> None:
    asked = [SampleRequest(str(i), (1,) * (1 + i * 7 % 40), tuple(range(8)), ("a",) * (i % 2)) for i in range(100)]
    batches = [batch for batch, _ in local._batches(asked, Sampling(1.0, 1.0, 9, (0,)), 256)]
    assert sorted(one.key for batch in batches for one in batch) == sorted(one.key for one in asked)
    for batch in batches:
        assert sum(len(one.seeds) for one in batch) <= local.ROWS
        assert len({one.stops for one in batch}) == 1
        lengths = [len(one.prompt_ids) for one in batch]
        assert lengths == sorted(lengths)
    assert len(batches) == 4


def test_a_sliding_window_that_is_too_short(text: ModelFacts, tmp_path: Path) -> None:
    facts = edited(text, tmp_path, {"model_type": "mistral", "sliding_window": 20})
    engine = open_engine("local", facts, Sampling(1.0, 1.0, 9, (0,)))
    assert len(dict(engine.generate([SampleRequest("fits", (1,) * 11, (0,))]))) == 1
    with refused("no_room", "20 tokens", "21 tokens"):
        list(engine.generate([SampleRequest("long", (1,) * 12, (0,))]))


def edited(facts: ModelFacts, folder: Path, changes: dict[str, object]) -> ModelFacts:
    """The facts of a copy of the model with another config.json."""
    shutil.copytree(facts.folder, folder / "model")
    path = folder / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return resolve(str(folder / "model"))
