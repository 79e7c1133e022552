"""The local engine on a simulated CUDA device: no operation mixes devices, and every number is that of the CPU."""

import math
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from mcpo_cli import methods
from mcpo_cli.backends.local import initial_policy, observe, policy, train
from mcpo_cli.backends.local.precision import product_precision
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import Interrupted
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from tests.devices import SimulatedCuda
from tests.e2e.test_literature_training import OPTIONS
from tests.engine import NO_PROBES, metrics, trained
from tests.models import existing

pytestmark = pytest.mark.slow
SMALL = (
    "scale=laptop train.reward=random train.steps=2 train.prompts=6 train.mini_batch=3 train.rollouts=5 train.lr=1e-3"
)
SHORT = "train.max_prompt=100 train.max_response=8 eval.problems=2 eval.samples=2 compute.threads=1"
MORE = "compute.dtype=float32 compute.checkpoint_every=1 compute.checkpoints=2 compute.checkpoints_after=2"
PROBES = "probe.every=1 probe.prompts=2 probe.panel=2 probe.panel_every=1 probe.gradients_every=1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with grouped heads."""
    return existing(tmp_path_factory.mktemp("model"))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs choose the simulated device."""
    for module in (policy, initial_policy):
        monkeypatch.setattr(module, "device", lambda _: torch.device("cuda"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*CUDA is not available.*")
        yield


def spec_of(folder: Path, *words: str) -> RunSpec:
    given = [*f"{SMALL} {SHORT} {MORE} {PROBES}".split(), f"model.path={folder}", *words]
    return load(list({word.partition("=")[0]: word for word in given}.values()))[0]


def test_the_simulation_refuses_what_cuda_refuses() -> None:
    with SimulatedCuda() as mode:
        here, there = torch.ones(2), torch.ones(2, device=torch.device("cuda"))
        assert str(there.device) == str(there.new_zeros(1).device) == "cuda:0"
        for mixed in (lambda: here + there, lambda: torch.cat([here, there]), lambda: here[there.long()], there.numpy):
            with pytest.raises(RuntimeError, match="cuda"):
                mixed()
        assert (there[here.long()] + torch.tensor(1.0)).is_cuda
        assert not (here + there.cpu()).is_cuda
        assert mode.moves == 1


@pytest.mark.parametrize("name", sorted(methods.registry()))
def test_every_method(name: str, folder: Path, tmp_path: Path, cuda: None) -> None:
    spec = spec_of(folder, f"method={name}", "train.steps=1", "eval.every=1", *NO_PROBES, *OPTIONS.get(name, []))
    with SimulatedCuda() as mode:
        ((_, values),) = metrics(trained(tmp_path, spec))
    assert all(map(math.isfinite, values.values()))
    assert "train/policy_loss" in values
    assert mode.moves > 10


@pytest.mark.parametrize(
    "words",
    [
        "method=mcpo method.anchor=previous_step method.delta=0",
        "method=mcpo model.lora_rank=4",
        "method=dapo method.dynamic_sampling=false task.style=plain task.stop=['12','\\\\n']",
    ],
)
def test_numbers_are_those_of_the_cpu_and_a_run_resumes(
    words: str, folder: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    spec = spec_of(folder, *words.split())
    expected = metrics(trained(tmp_path / "cpu", spec))
    request.getfixturevalue("cuda")
    run_dir = tmp_path / "cuda" / spec.run_id
    asked = iter([False, True])
    with SimulatedCuda():
        attempt = Attempt(run_dir, spec, 0)
        with pytest.raises(Interrupted):
            train.run(spec, attempt, lambda: next(asked))
        attempt.end("interrupted")
    with SimulatedCuda():
        attempt = Attempt(run_dir, spec, 1)
        train.run(spec, attempt, lambda: False)
        attempt.end("done")
        found = metrics(Journal(run_dir))
        # Checkpoints are compared, too.
        observe.observe(spec, Attempt(tmp_path / "looked" / spec.run_id, spec, 0), run_dir, [1, 2], 3)
    for (step, row), (same, wanted) in zip(found, expected, strict=True):
        assert (step, row) == (same, pytest.approx(wanted, rel=1e-3, abs=1e-6))


def test_bfloat16(folder: Path, tmp_path: Path, cuda: None) -> None:
    spec = spec_of(folder, "method=mcpo", "compute.dtype=auto")
    with SimulatedCuda():
        found, _ = initial_policy.initial_policy(spec, Attempt(tmp_path / "a" / spec.run_id, spec, 0), lambda: False)
        assert found.dtype == torch.bfloat16
        with product_precision(found):
            assert torch.get_float32_matmul_precision() == "high"
        assert torch.get_float32_matmul_precision() == "highest"
        assert len(trained(tmp_path / "b", spec).steps()) == 2
