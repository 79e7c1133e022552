"""The same recorded batch through the local backend's update and through verl's engine: loss, gradient, metrics."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from mcpo_cli import tasks
from mcpo_cli.backends import measure
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local import tokenizer as tokenizers
from mcpo_cli.backends.local.encoding import encode
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.sampler import Rollouts, sample
from mcpo_cli.backends.local.update import GradedBatch, Updater
from mcpo_cli.backends.measure import Sums
from mcpo_cli.backends.verl.loss import facts
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Model
from mcpo_cli.methods import Method, MiniBatch, get, reduce
from mcpo_cli.tasks.arithmetic import Arithmetic

pytestmark = pytest.mark.verl
P, G, T = 6, 4, 9
METHODS = {
    "grpo": get("grpo"),
    "dapo": get("dapo"),
    "mcpo": get("mcpo"),
    "mcpo without hinge": get("mcpo", hinge=False),
    "mcpo without reweight": get("mcpo", reweight=False),
    "mcpo, other options": get(
        "mcpo", clip_low=0.01, clip_high=0.01, aggregation="token-mean", normalize="all", beta=0.5, degenerate="shaped"
    ),
}
SPLITS: dict[str, dict[str, Any]] = {
    "1": {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1},
    "4": {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 4},
    "all": {"use_dynamic_bsz": True, "max_token_len_per_gpu": 10**6},
    "dynamic": {"use_dynamic_bsz": True, "max_token_len_per_gpu": 80},
}
ACCURACY = (0, 1, 2, 3, 4, 4)
"""Right rollouts of each prompt: every kind there is, mastered twice."""
TOKENIZER = tokenizers.build(Arithmetic().vocabulary)


def policy(noise: float = 0.0) -> Policy:
    """A random policy; with noise, one that has moved on since the batch was sampled."""
    model = policies.build(Model(init_std=0.1), TOKENIZER, 0)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += noise * torch.randn(parameter.shape, generator=generator)
    return Policy(model, torch.device("cpu"))


def graded(rollouts: Rollouts, method: Method) -> GradedBatch:
    """The rollouts with made-up verdicts and a shaped reward."""
    correct_PG = torch.arange(G) < torch.tensor(ACCURACY)[:, None]
    reward_PG = correct_PG.double() - rollouts.length_PG.double() / 40
    return GradedBatch(rollouts, correct_PG, reward_PG, method.advantages(reward_PG, correct_PG))


def local(rollouts: Rollouts, method: Method) -> tuple[float, dict[str, torch.Tensor], Sums, list[int]]:
    """Loss, gradient by name, sums behind the metrics and the prompts that felt the hinge, by the local backend."""
    spec = load(["scale=smoke", "train.grad_clip=1e9"])[0]
    moved, batch, sums = policy(0.02), graded(rollouts, method), Sums()
    updater = Updater(moved, method, spec.train, spec.compute)
    everything = torch.arange(P)
    tokens = updater._tokens(batch, everything, total(rollouts))
    value = float(reduce(method.token_loss(tokens), tokens.mask_BT).detach())
    felt = updater._mini_batch(batch, everything, True, sums).nonzero().flatten().tolist()
    gradient = {name: p.grad for name, p in moved.model.named_parameters() if p.grad is not None}
    # verl's trainer has these from elsewhere.
    for name in ("train/grad_norm", "sanity/logp_difference"):
        sums.pairs.pop(name)
    return value, gradient, sums, felt


def row(method: Method, sums: Sums, felt: list[int]) -> Any:
    """What is recorded of the gradient step."""
    return measure.mini_batch_row(1, 1, sums, method, ACCURACY.count(G), len(felt))


def total(rollouts: Rollouts) -> MiniBatch:
    return MiniBatch(P * G, int(rollouts.length_PG.sum()), ACCURACY.count(G) * G)


def record(rollouts: Rollouts, folder: Path) -> None:
    """What verl's engine needs of the batch, and the policy that is trained on it."""
    policy(0.02).save(folder / "model", TOKENIZER)
    lengths = rollouts.length_PG.flatten().tolist()

    def cut(name: str) -> list[torch.Tensor]:
        values = getattr(rollouts, name).flatten(0, 1)
        return [value[:length] for value, length in zip(values, lengths, strict=True)]

    methods = [
        (label, method, {"advantage_B": graded(rollouts, method).advantage_PG.flatten().float()})
        for label, method in METHODS.items()
    ]
    rows = [facts(p, ACCURACY[p] == G, total(rollouts)) for p in range(P) for _ in range(G)]
    torch.save(
        {
            "prompts": list(rollouts.prompt_PS.repeat_interleave(G, 0)),
            "responses": cut("token_PGT"),
            "old_log_probs": cut("logp_PGT"),
            "facts": torch.tensor(rows),
            "methods": methods,
            "splits": SPLITS,
        },
        folder / "batch.pt",
    )


def start(folder: Path, ranks: int, rank: int, port: int) -> "subprocess.Popen[str]":
    variables = {"RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    environment = {
        **os.environ,
        **{name: str(value) for name, value in variables.items()},
        "VERL_USE_EXTERNAL_MODULES": "tests.verl.cpu",
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "tests.verl.engine_process", str(folder)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.fixture(scope="module")
def rollouts() -> Rollouts:
    spec = load(["scale=smoke"])[0]
    prompt_PS = encode(TOKENIZER, tasks.closed(spec.task).training(0, 0, P), T).prompt_PS
    return sample(policy(), prompt_PS, G, T, 1.0, TOKENIZER.eos_token_id, seed=3)


@pytest.fixture(scope="module", params=[1, 2], ids=["one rank", "two ranks"])
def found(request: pytest.FixtureRequest, rollouts: Rollouts, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What verl's engine computes, by method and split."""
    folder = tmp_path_factory.mktemp("engine")
    record(rollouts, folder)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [start(folder, request.param, rank, port) for rank in range(request.param)]
    for process in processes:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said
    return torch.load(folder / f"ranks_{request.param}.pt", weights_only=False)


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("label", METHODS)
def test_same_loss_gradient_and_metrics_as_the_local_backend(
    found: Any, rollouts: Rollouts, label: str, split: str
) -> None:
    value, gradient, sums, felt = local(rollouts, METHODS[label])
    theirs, their_gradient, their_sums, their_felt = found[label, split]
    assert theirs == pytest.approx(value, abs=1e-5)
    assert their_gradient.keys() == gradient.keys()
    for name, mine in gradient.items():
        assert float((their_gradient[name] - mine).norm()) <= 1e-4 * float(mine.norm()), name
    # The local backend leaves out sequences whose loss is zero, which count for nothing in these either.
    assert their_sums.means() == pytest.approx(sums.means(), rel=1e-4)
    assert their_felt == felt
    mine, yours = row(METHODS[label], sums, felt), row(METHODS[label], their_sums, their_felt)
    assert yours.pop("d_counts", None) == mine.pop("d_counts", None)
    assert yours == pytest.approx(mine, rel=1e-4)


def test_the_batch_clips_and_feels_the_hinge(rollouts: Rollouts) -> None:
    """Otherwise the comparison says little."""
    sums, felt = local(rollouts, METHODS["mcpo, other options"])[2:]
    metrics = sums.means()
    assert 0 < metrics["hinge/tokens_active"] < 1
    assert metrics["hinge/penalty"] > 0
    assert felt
    assert min(metrics["train/clip_high"], metrics["train/clip_low"]) > 0
