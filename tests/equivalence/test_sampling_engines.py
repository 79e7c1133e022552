"""engine=hf generates what transformers does, engine=local draws its samples; each sample depends on its seed alone."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

from mcpo_cli.evaluation.engines import Sample, SampleRequest, Sampling, local, open_engine
from mcpo_cli.model_facts import ModelFacts, resolve
from tests.errors import refused
from tests.models import encoded, untrained, wordy

Floats = npt.NDArray[np.float64]
Engine = Literal["hf", "local"]
PROMPTS = ("3 + 4 * 2 =", "5 - 7 =", "1 * 1 + 1 - 9 =")
SUMS = tuple(" + ".join(map(str, range(1, terms + 1))) + " =" for terms in range(2, 9))
LINES = ("a", "Say it:\n", "One, two, three, four, five:", "7\n8\n")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return resolve(str(untrained(tmp_path_factory.mktemp("model"))))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return resolve(str(wordy(tmp_path_factory.mktemp("text"))))


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def request(facts: ModelFacts, prompt: str, *seeds: int, stops: tuple[str, ...] = ()) -> SampleRequest:
    return SampleRequest(prompt, encoded(facts, prompt), seeds, stops)


def requests(facts: ModelFacts, prompts: Sequence[str], n: int, stops: tuple[str, ...] = ()) -> list[SampleRequest]:
    return [request(facts, prompt, *range(n * i, n * i + n), stops=stops) for i, prompt in enumerate(prompts)]


def sampling(facts: ModelFacts, temperature: float, max_tokens: int = 20, top_p: float = 1.0) -> Sampling:
    return Sampling(temperature, top_p, max_tokens, facts.stop_ids)


def by_hf(facts: ModelFacts, how: Sampling, *asked: SampleRequest) -> dict[str, list[Sample]]:
    return dict(open_engine("hf", facts, how).generate(asked))


def generate(name: Engine, facts: ModelFacts, how: Sampling, asked: Sequence[SampleRequest]) -> list[Sample]:
    """The samples of all requests, in their order."""
    found = dict(open_engine(name, facts, how).generate(asked))
    assert set(found) == {request.key for request in asked}
    return [sample for request in asked for sample in found[request.key]]


def edited(facts: ModelFacts, folder: Path, **changes: object) -> ModelFacts:
    """The facts of a copy of the model with another config.json."""
    shutil.copytree(facts.folder, folder / "model")
    path = folder / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return resolve(str(folder / "model"))


def stock(facts: ModelFacts) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(facts.folder, dtype="float32")


def test_greedy_is_what_transformers_generates(facts: ModelFacts) -> None:
    ours = by_hf(facts, sampling(facts, 0.0), *(request(facts, text, 0, 1) for text in PROMPTS))
    assert list(ours) == list(PROMPTS)
    model, words = stock(facts), facts.tokenizer
    for text in PROMPTS:
        ids = torch.tensor([encoded(facts, text)])
        theirs = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False)
        tokens = theirs[0, ids.shape[1] :].tolist()
        stopped = tokens[-1] in facts.stop_ids
        for sample in ours[text]:
            assert sample.tokens == len(tokens)
            assert sample.finish == ("stop" if stopped else "length")
            whole = tokens[:-1] if stopped else tokens
            assert sample.text == words.decode(whole, skip_special_tokens=False)


def test_a_sample_depends_on_its_seed_alone(facts: ModelFacts) -> None:
    how = sampling(facts, 1.0)
    together = by_hf(facts, how, *(request(facts, text, 1, 2, 3) for text in PROMPTS))
    turned = by_hf(facts, how, *(request(facts, text, 3, 2, 1) for text in reversed(PROMPTS)))
    alone = {text: by_hf(facts, how, request(facts, text, 2))[text] for text in PROMPTS}
    for text in PROMPTS:
        assert [sample.seed for sample in together[text]] == [1, 2, 3]
        assert turned[text][::-1] == together[text]
        assert alone[text] == together[text][1:2]


@pytest.mark.parametrize("top_p", [1.0, 0.6])
def test_the_first_token_follows_the_models_distribution(facts: ModelFacts, top_p: float) -> None:
    count, text = 4000, PROMPTS[0]
    how = sampling(facts, 0.7, max_tokens=1, top_p=top_p)
    samples = by_hf(facts, how, request(facts, text, *range(count)))[text]
    # The end token is no part of the text; `stop` shows it. All other tokens are.
    seen = Counter((sample.text, sample.finish) for sample in samples)

    with torch.no_grad():
        logits = stock(facts)(torch.tensor([encoded(facts, text)])).logits[0, -1]
    expected = nucleus((logits.double() / 0.7).softmax(-1).numpy(), top_p)
    words = facts.tokenizer
    names = [
        ("", "stop") if i in facts.stop_ids else (words.decode([i], skip_special_tokens=False), "length")
        for i in range(len(expected))
    ]
    assert len(set(names)) == len(names)
    assert {name for name in seen if name not in names} == set()
    allowed = expected > 0
    assert sum(seen[name] for name, kept in zip(names, allowed, strict=True) if not kept) == 0
    observed = [seen[name] for name, kept in zip(names, allowed, strict=True) if kept]
    assert chisquare(observed, count * expected[allowed]).pvalue > 1e-3


def nucleus(p: Floats, top_p: float) -> Floats:
    """The smallest set of most likely tokens with total probability `top_p`, and their renormalised probabilities."""
    order = np.argsort(-p)
    size = int(np.searchsorted(np.cumsum(p[order]), top_p - 1e-12)) + 1
    kept = np.zeros_like(p)
    kept[order[:size]] = p[order[:size]]
    return kept / kept.sum()


def test_only_the_given_stop_ids_end_a_response(facts: ModelFacts) -> None:
    text = PROMPTS[0]
    (free,) = by_hf(facts, Sampling(1.0, 1.0, 30, (10**6,)), request(facts, text, 5))[text]
    words = facts.tokenizer
    fourth = free.text.split()[3]
    early = Sampling(1.0, 1.0, 30, (10**6, words.convert_tokens_to_ids(fourth)))
    (ended,) = by_hf(facts, early, request(facts, text, 5))[text]
    assert ended.finish == "stop"
    assert ended.text.split() == free.text.split()[: free.text.split().index(fourth)]


def test_nothing_of_the_models_generation_config_leaks_in(facts: ModelFacts, tmp_path: Path) -> None:
    shutil.copytree(facts.folder, tmp_path / "model")
    planted = {"do_sample": True, "top_k": 1, "top_p": 0.1, "temperature": 0.1, "repetition_penalty": 5.0}
    planted |= {"min_new_tokens": 15, "suppress_tokens": [12, 13], "num_beams": 2, "eos_token_id": 0}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(planted))
    other = resolve(str(tmp_path / "model"))
    assert other.digest != facts.digest
    for temperature in (0.0, 1.0):
        how = sampling(facts, temperature)
        asked = request(facts, PROMPTS[0], *range(8))
        assert by_hf(other, how, asked) == by_hf(facts, how, asked)


def test_global_random_numbers_are_left_alone(facts: ModelFacts) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state(), random.getstate()
    by_hf(facts, sampling(facts, 1.0), request(facts, PROMPTS[0], 1, 2))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


def test_weights_that_are_missing_are_not_made_up(facts: ModelFacts, tmp_path: Path) -> None:
    shutil.copytree(facts.folder, tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.0.mlp.up_proj.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with refused("bad_model", "model.layers.0.mlp.up_proj.weight"):
        open_engine("hf", resolve(str(tmp_path / "model")), sampling(facts, 0.0))


@pytest.mark.parametrize(("ids", "code"), [((), "bad_data"), ((1,) * 128, "no_room")])
def test_prompts_that_leave_no_room(facts: ModelFacts, ids: tuple[int, ...], code: str) -> None:
    with refused(code, "one: "):
        by_hf(facts, sampling(facts, 0.0), SampleRequest("one", ids, (0,)))


@pytest.mark.parametrize("engine", ["hf", "local"])
def test_a_gpu_that_is_not_there(engine: Engine, facts: ModelFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused("needs_gpu"):
        open_engine(engine, facts, sampling(facts, 0.0), device="cuda")


@pytest.mark.parametrize("engine", ["hf", "local"])
@pytest.mark.parametrize(("temperature", "value"), [(0.0, torch.nan), (1.0, torch.inf)])
def test_a_model_whose_logits_are_not_finite_is_not_graded(
    engine: Engine, temperature: float, value: float, facts: ModelFacts, tmp_path: Path
) -> None:
    """Otherwise its token would be the first of the vocabulary, which looks like any other answer."""
    folder = shutil.copytree(facts.folder, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"].fill_(value)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    broken = resolve(str(folder))
    with refused("bad_model"):
        list(open_engine(engine, broken, sampling(broken, temperature)).generate([request(broken, PROMPTS[0], 0, 1)]))


def equal(ours: Sequence[Sample], theirs: Sequence[Sample]) -> float:
    """The share of equal samples; seeds are in the same order."""
    assert [sample.seed for sample in ours] == [sample.seed for sample in theirs]
    return sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(ours)


@pytest.mark.parametrize(
    ("most", "n", "top_p"), [(30, 24, 1.0), (30, 24, 0.7), pytest.param(300, 5, 0.9, marks=pytest.mark.slow)]
)
def test_samples_are_those_of_hf(facts: ModelFacts, text: ModelFacts, most: int, n: int, top_p: float) -> None:
    """With 30 the samples of a prompt share rows; with 300 they do not, and the window cuts them.

    Rounding differs between kinds of processors. A token that it changes changes the rest of its sample, so one sample
    of 300 tokens may differ.
    """
    for model, prompts in ((facts, SUMS[:3]), (text, LINES[::2])):
        how, asked = sampling(model, 0.9, most, top_p), requests(model, prompts, n)
        ours = generate("local", model, how, asked)
        assert equal(ours, generate("hf", model, how, asked)) >= (0.99 if most == 30 else 1 - 1 / len(ours))
        assert len({sample.text for sample in ours}) > len(ours) / 2


def test_greedy_answers_are_those_of_hf(facts: ModelFacts, text: ModelFacts) -> None:
    for model, prompts in ((facts, SUMS), (text, LINES)):
        how, asked = sampling(model, 0.0, 40), requests(model, prompts, 1)
        assert generate("local", model, how, asked) == generate("hf", model, how, asked)


def test_a_sample_hardly_depends_on_its_batch(text: ModelFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    how, asked = sampling(text, 1.0, 40), requests(text, LINES, 16)
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
    return generate("hf", text, sampling(text, 2.0, 60), requests(text, LINES, 30))


def test_stop_strings_end_responses_as_in_hf(text: ModelFacts, free: list[Sample]) -> None:
    n, stops = len(free) // len(LINES), ("ab", "7\n", "e\n", "\n")
    asked, how = requests(text, LINES, n, stops), sampling(text, 2.0, 60)
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
    names: tuple[Engine, ...] = ("hf", "local")
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
    facts = edited(text, tmp_path, model_type="mistral", sliding_window=20)
    engine = open_engine("local", facts, Sampling(1.0, 1.0, 9, (0,)))
    assert len(dict(engine.generate([SampleRequest("fits", (1,) * 11, (0,))]))) == 1
    with refused("no_room", "20 tokens", "21 tokens"):
        list(engine.generate([SampleRequest("long", (1,) * 12, (0,))]))
