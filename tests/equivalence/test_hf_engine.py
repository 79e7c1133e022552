"""engine=hf: greedy responses are those of transformers, and samples depend only on their own seeds."""

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import chisquare
from transformers import AutoModelForCausalLM

from mcpo_cli.evaluation.engines import Sample, SampleRequest, Sampling, open_engine
from mcpo_cli.model_facts import ModelFacts, resolve
from tests.errors import refused
from tests.models import encoded, untrained

Floats = npt.NDArray[np.float64]
PROMPTS = ("3 + 4 * 2 =", "5 - 7 =", "1 * 1 + 1 - 9 =")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    return resolve(str(untrained(tmp_path_factory.mktemp("model"))))


def request(facts: ModelFacts, text: str, *seeds: int) -> SampleRequest:
    return SampleRequest(text, encoded(facts, text), seeds)


def sampling(facts: ModelFacts, temperature: float, max_tokens: int = 20, top_p: float = 1.0) -> Sampling:
    return Sampling(temperature, top_p, max_tokens, facts.stop_ids)


def generate(facts: ModelFacts, how: Sampling, *requests: SampleRequest) -> dict[str, list[Sample]]:
    return dict(open_engine("hf", facts, how).generate(requests))


def stock(facts: ModelFacts) -> torch.nn.Module:
    return AutoModelForCausalLM.from_pretrained(facts.folder, dtype="float32")


def test_greedy_is_what_transformers_generates(facts: ModelFacts) -> None:
    ours = generate(facts, sampling(facts, 0.0), *(request(facts, text, 0, 1) for text in PROMPTS))
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
    together = generate(facts, how, *(request(facts, text, 1, 2, 3) for text in PROMPTS))
    turned = generate(facts, how, *(request(facts, text, 3, 2, 1) for text in reversed(PROMPTS)))
    alone = {text: generate(facts, how, request(facts, text, 2))[text] for text in PROMPTS}
    for text in PROMPTS:
        assert [sample.seed for sample in together[text]] == [1, 2, 3]
        assert turned[text][::-1] == together[text]
        assert alone[text] == together[text][1:2]


@pytest.mark.parametrize("top_p", [1.0, 0.6])
def test_the_first_token_follows_the_models_distribution(facts: ModelFacts, top_p: float) -> None:
    count, text = 4000, PROMPTS[0]
    how = sampling(facts, 0.7, max_tokens=1, top_p=top_p)
    samples = generate(facts, how, request(facts, text, *range(count)))[text]
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


def test_what_is_cut_says_so(facts: ModelFacts) -> None:
    (text, *_) = PROMPTS
    endless = Sampling(0.0, 1.0, 3, (10**6,))
    (sample,) = generate(facts, endless, request(facts, text, 0))[text]
    assert (sample.tokens, sample.finish) == (3, "length")
    # The window limits prompt and response together.
    beyond = Sampling(0.0, 1.0, 10**5, (10**6,))
    (sample,) = generate(facts, beyond, request(facts, text, 0))[text]
    assert (sample.tokens, sample.finish) == (facts.window - len(text.split()), "length")


def test_only_the_given_stop_ids_end_a_response(facts: ModelFacts) -> None:
    text = PROMPTS[0]
    (free,) = generate(facts, Sampling(1.0, 1.0, 30, (10**6,)), request(facts, text, 5))[text]
    words = facts.tokenizer
    fourth = free.text.split()[3]
    early = Sampling(1.0, 1.0, 30, (10**6, words.convert_tokens_to_ids(fourth)))
    (ended,) = generate(facts, early, request(facts, text, 5))[text]
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
        assert generate(other, how, asked) == generate(facts, how, asked)


def test_global_random_numbers_are_left_alone(facts: ModelFacts) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state(), random.getstate()
    generate(facts, sampling(facts, 1.0), request(facts, PROMPTS[0], 1, 2))
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
        generate(facts, sampling(facts, 0.0), SampleRequest("one", ids, (0,)))


@pytest.mark.parametrize("engine", ["hf", "local"])
def test_a_gpu_that_is_not_there(
    engine: Literal["hf", "local"], facts: ModelFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with refused("needs_gpu"):
        open_engine(engine, facts, sampling(facts, 0.0), device="cuda")


@pytest.mark.parametrize("engine", ["hf", "local"])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_model_whose_logits_are_not_finite_is_not_graded(
    engine: str, temperature: float, value: float, facts: ModelFacts, tmp_path: Path
) -> None:
    """Otherwise its token would be the first of the vocabulary, which looks like any other answer."""
    folder = shutil.copytree(facts.folder, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["model.norm.weight"].fill_(value)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    broken = resolve(str(folder))
    with refused("bad_model"):
        list(open_engine(engine, broken, sampling(broken, temperature)).generate([request(broken, PROMPTS[0], 0, 1)]))
