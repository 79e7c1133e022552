"""Existing models train like models from scratch, to the same bits, also after a kill; with LoRA and own functions."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from mcpo_cli.backends import feasible
from mcpo_cli.config import cost
from mcpo_cli.config.plan import from_overrides
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs import bases
from mcpo_cli.runs.attempts import state
from mcpo_cli.runs.journal import Journal
from tests.e2e.test_literature_training import PROBES
from tests.engine import PROBES as ALL_PROBES
from tests.engine import records, spec_of, trained, work
from tests.models import existing

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("home")]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunSpec, dict[str, Any]]:
    """Home, spec and records of a run whose model was made from scratch."""
    home, spec = tmp_path_factory.mktemp("scratch"), spec_of("mcpo")
    assert work(home, spec) == 0
    return home, spec, records(home, spec)


def of_folder(folder: Path, *more: str) -> RunSpec:
    """The spec of `scratch`, with its model loaded from `folder`."""
    return spec_of("mcpo", [*ALL_PROBES, f"model.path={folder}", *more])


def test_a_model_from_scratch_trains_to_the_same_bits_when_it_is_loaded_as_one_that_exists(
    scratch: tuple[Path, RunSpec, dict[str, Any]], tmp_path: Path
) -> None:
    """A loaded model gets its prompts through a tokenizer, and its responses are decoded."""
    home, spec, expected = scratch
    found = of_folder(bases.cached_base(home, spec))
    assert found.run_id != spec.run_id
    assert work(tmp_path, found) == 0
    assert records(tmp_path, found) == expected


@pytest.mark.parametrize(
    ("more", "point", "call"),
    [("model.lora_rank=4", "checkpoint rename", 2), ("compute.dtype=bfloat16", "gradient step", 5)],
)
def test_killed_and_started_again(
    more: str, point: str, call: int, scratch: tuple[Path, RunSpec, dict[str, Any]], tmp_path: Path
) -> None:
    spec = of_folder(bases.cached_base(scratch[0], scratch[1]), more)
    assert work(tmp_path / "whole", spec) == 0
    assert work(tmp_path, spec, point, call) == -signal.SIGKILL
    folder = tmp_path / "runs" / spec.run_id
    assert state(folder, spec) == "interrupted"
    assert work(tmp_path, spec) == 0
    assert len(Journal(folder).attempts()) == 2
    assert records(tmp_path, spec) == records(tmp_path / "whole", spec)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with grouped heads, a tokenizer of bytes and a chat template."""
    return existing(tmp_path_factory.mktemp("model"))


def short(home: Path, *words: str) -> tuple[RunSpec, Journal]:
    """Spec and journal of a whole run of a random model, with 6 prompts x 5 rollouts and random rewards."""
    small = "scale=laptop train.reward=random train.steps=2 train.prompts=6 train.mini_batch=3 train.rollouts=5"
    quick = "train.lr=1e-3 eval.problems=4 eval.samples=2 compute.threads=1 train.max_prompt=100 train.max_response=8"
    settings = {word.partition("=")[0]: word for word in [*small.split(), *quick.split(), *PROBES, *words]}
    spec = from_overrides(list(settings.values())).runs[0].spec
    feasible.check([cost.estimate(spec)], to_start=True)
    journal = trained(home, spec)
    assert state(journal.run_dir, spec) == "done"
    return spec, journal


@pytest.mark.parametrize(
    "words",
    [
        "task=sums task.style=chat task.system=Add. train.max_prompt=200 train.max_response=22 model.path={long}",
        "task=sums task.style=plain task.examples=0 model.path={folder}",
        "task=arithmetic task.max_ops=2 train.max_response=16 model.path={folder}",
        "task=sums model.path={folder} model.lora_rank=2",
        "task=word_problems task.examples=1 train.max_prompt=400 train.max_response=40 model.path={long}",
    ],
)
def test_every_way_of_asking_trains(words: str, folder: Path, home: Path, tmp_path: Path) -> None:
    long = existing(tmp_path / "long", "qwen3", max_position_embeddings=1024)
    _, journal = short(home, "method=grpo", *words.format(folder=folder, long=long).split())
    assert sum(row["metrics"]["train/grad_norm"] > 0 for row in journal.steps()) >= 1
    policy = journal.attempts()[-1] / "policy"
    assert not [name for name in load_file(policy / "model.safetensors") if "lora" in name]
    assert AutoModelForCausalLM.from_pretrained(policy).state_dict()


def test_weights_that_nothing_trains_stay_under_lora(home: Path, folder: Path) -> None:
    _, journal = short(home, "method=grpo", "task=sums", f"model.path={folder}", "model.lora_rank=3", "train.steps=1")
    policy = journal.attempts()[-1] / "policy"
    before, after = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (folder, policy))
    changed = {name for name in before if not before[name].equal(after[name])}
    assert changed
    assert all(name.endswith("_proj.weight") for name in changed)
    shutil.rmtree(journal.run_dir)


MINE = """\
def vowels(problem, response, gold):
    assert problem.startswith("What is") or problem.endswith("=")
    return sum(letter in "aeiou0123456789" for letter in response) / 8


def ends(problem, response, gold):
    return len(response) % 2 == 0
"""


def test_a_chat_model_is_rewarded_and_graded_by_functions(home: Path, tmp_path: Path) -> None:
    rows = [{"problem": f"What is 1 + {i}?", "answer": i + 1} for i in range(64)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = existing(tmp_path / "model", max_position_embeddings=512)
    (mine := tmp_path / "mine.py").write_text(MINE)
    own = f"train.reward={mine}:vowels task.graded_by={mine}:ends data={tmp_path}/problems.jsonl"
    words = "method=grpo train.overlong_cache=0 train.max_prompt=400 compute.sample_groups=6"
    probes = "probe.every=1 probe.panel=2 probe.panel_every=1"
    spec, journal = short(home, f"model.path={model}", *f"{own} {words} {probes}".split())
    assert sorted(spec.plugins) == ["grader mine.py:ends", "reward mine.py:vowels"]
    for row in journal.steps():
        assert row["metrics"]["train/reward"] > 0
    # All groups keep their samples: each response has the reward and the verdict of its function.
    names: dict[str, object] = {}
    exec(MINE, names)
    vowels, ends = names["vowels"], names["ends"]
    assert callable(vowels)
    assert callable(ends)
    samples = [row for row in journal.rows("samples") if row["step"] == 2]
    assert len(samples) == 30
    texts = [row["response"].removesuffix("<|end|>") for row in samples]
    assert any("<|" in text for text in texts)
    assert [row["correct"] for row in samples] == [ends("", text, "") for text in texts]
    mean = sum(vowels("What is", text, "") for text in texts) / 30
    (last,) = [row["metrics"] for row in journal.steps() if row["step"] == 2]
    assert last["train/reward"] == pytest.approx(mean)
    held_out = [row for row in journal.rows("eval") if row["step"] == 2]
    assert {row["tier"] for row in held_out} == {"held_out"}
    assert spec.task.tier_sizes(1) == {"held_out": len(held_out)}
