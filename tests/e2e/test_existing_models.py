"""Existing models train like models from scratch, to the same bits, also after a kill; with LoRA."""

import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM

from mcpo_cli.backends import feasible
from mcpo_cli.backends.local import BACKEND
from mcpo_cli.config import cost
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.runs import bases, folders
from mcpo_cli.runs.attempts import Attempt, state
from mcpo_cli.runs.journal import Journal
from tests.e2e.test_literature_training import PROBES
from tests.engine import METHODS, records, spec_of, work
from tests.engine import PROBES as ALL_PROBES
from tests.models import existing

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunSpec, dict[str, Any]]:
    """Home, spec and records of a run whose model was made from scratch."""
    home, spec = tmp_path_factory.mktemp("scratch"), spec_of("mcpo")
    assert work(home, spec) == 0
    return home, spec, records(home, spec)


def of_folder(folder: Path, *more: str) -> RunSpec:
    """The spec of `scratch`, with its model loaded from `folder`."""
    shape = ["train.prompts=32", "train.mini_batch=8", "train.rollouts=2", "train.temperature=0.3"]
    quick = ["scale=smoke", "train.steps=4", "train.lr=1e-3", "compute.checkpoint_every=2"]
    return load([f"model.path={folder}", *quick, *shape, *METHODS["mcpo"], *ALL_PROBES, *more])[0]


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
    ("more", "kills"),
    [
        (["model.lora_rank=4"], {"sampling": 5, "checkpoint rename": 2}),
        (["compute.dtype=bfloat16"], {"gradient step": 5}),
    ],
)
def test_killed_and_started_again(
    more: list[str], kills: dict[str, int], scratch: tuple[Path, RunSpec, dict[str, Any]], tmp_path: Path
) -> None:
    spec = of_folder(bases.cached_base(scratch[0], scratch[1]), *more)
    assert work(tmp_path / "whole", spec) == 0
    for point, call in kills.items():
        killed = tmp_path / point
        assert work(killed, spec, point, call) == -signal.SIGKILL
        folder = killed / "runs" / spec.run_id
        assert state(folder, spec) == "interrupted"
        assert work(killed, spec) == 0
        assert len(Journal(folder).attempts()) == 2
        assert records(killed, spec) == records(tmp_path / "whole", spec)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with grouped heads, a tokenizer of bytes and a chat template."""
    return existing(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module", autouse=True)
def home(module_home: Path) -> Path:
    """One home for all tests, so that base policies are made once."""
    return module_home


def trained(home: Path, *words: str) -> tuple[RunSpec, list[dict[str, float]]]:
    """Spec and metrics of a whole run of a random model, with 6 prompts x 5 rollouts and random rewards."""
    small = "scale=laptop train.reward=random train.steps=2 train.prompts=6 train.mini_batch=3 train.rollouts=5"
    quick = "train.lr=1e-3 eval.problems=4 eval.samples=2 compute.threads=1 train.max_prompt=100 train.max_response=8"
    settings = {word.partition("=")[0]: word for word in [*small.split(), *quick.split(), *PROBES, *words]}
    (spec,) = load(list(settings.values()))
    feasible.check([cost.estimate(spec)], to_start=True)
    attempt = Attempt(home / "runs" / spec.run_id, spec, 0)
    BACKEND.run(spec, attempt, lambda: False)
    attempt.end("done")
    assert state(home / "runs" / spec.run_id, spec) == "done"
    return spec, [row["metrics"] for row in Journal(home / "runs" / spec.run_id).steps()]


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
    spec, steps = trained(home, "method=grpo", *words.format(folder=folder, long=long).split())
    assert sum(metrics["train/grad_norm"] > 0 for metrics in steps) >= 1
    kept = list((home / "runs" / spec.run_id).glob("attempt_*/checkpoints/*"))
    assert not kept, "scale=laptop keeps no checkpoint of a run that is done"
    exported = tmp_path / "exported"
    exported.mkdir()
    policy = folders.final_policy(home / "runs" / spec.run_id)
    assert policy is not None
    folders.copy_policy(policy, exported)
    names = AutoModelForCausalLM.from_pretrained(exported).state_dict().keys()
    assert not [name for name in names if "lora" in name]


def test_weights_that_nothing_trains_stay_under_lora(home: Path, folder: Path) -> None:
    spec, _ = trained(home, "method=grpo", "task=sums", f"model.path={folder}", "model.lora_rank=3", "train.steps=1")
    policy = Journal(home / "runs" / spec.run_id).attempts()[-1] / "policy"
    before, after = (AutoModelForCausalLM.from_pretrained(path).state_dict() for path in (folder, policy))
    changed = {name for name in before if not before[name].equal(after[name])}
    assert changed
    assert all(name.endswith("_proj.weight") for name in changed)
    shutil.rmtree(home / "runs" / spec.run_id)
