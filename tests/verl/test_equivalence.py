"""One recorded batch through the local backend's update and through verl's engine: loss, gradient, metrics."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mcpo_cli.backends import measure
from mcpo_cli.backends.local import policy as policies
from mcpo_cli.backends.local.generate import Rollouts, sample
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.update import GradedBatch, Updater
from mcpo_cli.backends.verl import batch as verl_batch
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import Model
from mcpo_cli.methods import Method, Step, TokenBatch, get, reduce
from mcpo_cli.seeds import stream
from tests.methods import Centred, Remembering
from tests.policies import EOS, TOKENIZER, G, T, prompts
from tests.store_runs import free_port
from tests.verl import LEAN, queued
from tests.verl.conftest import PATIENCE

pytestmark = pytest.mark.verl
P = 6
SPEC = load(["scale=smoke", "task.max_ops=2", "train.grad_clip=1e9"])[0]
LIMIT = SPEC.train.max_response
METHODS = {
    "grpo": get("grpo"),
    "dapo": get("dapo"),
    "dapo, weights by the longest response": get("dapo", aggregation="constant"),
    "mcpo": get("mcpo"),
    "mcpo without hinge": get("mcpo", hinge=False),
    "mcpo without reweight": get("mcpo", reweight=False),
    "mcpo, other options": get(
        "mcpo", clip_low=0.01, clip_high=0.01, aggregation="token-mean", normalize="all", beta=0.5, degenerate="shaped"
    ),
    "mcpo, anchored on the step before": get("mcpo", anchor="previous_step"),
    "grpo_kl": get("grpo_kl", kl_beta=0.5),
    "grpo_kl, free where nothing is learned": get("grpo_kl", kl_beta=0.5, kl_estimator="k2", without_advantage="free"),
    # Advantages of tokens, a column of rollouts and one of tokens.
    "remembering": Remembering(),
    "rl_zvp with entropies of now": get("rl_zvp", entropy="current"),
    # A column that is prepared for the mini-batch.
    "centred": Centred(),
}
SPLITS: dict[str, dict[str, Any]] = {
    "1": {"use_dynamic_bsz": False, "micro_batch_size_per_gpu": 1},
    "all": {"use_dynamic_bsz": True, "max_token_len_per_gpu": 10**6},
    "dynamic": {"use_dynamic_bsz": True, "max_token_len_per_gpu": 80},
}
ACCURACY = (0, 1, 2, 3, 4, 4)
"""Correct rollouts of each prompt: every kind, mastered twice."""
UNGRADED = ((2, 3), (4, 0), (1, 1), (1, 2), (1, 3))
"""Rollouts that could not be graded: of a mixed prompt, of a mastered one, and all but one of the second."""
PREVIOUS = 0.015
"""The noise of the policy before the last gradient step."""
REFERENCE = 0.03
"""The noise of the reference policy."""


@dataclass(frozen=True)
class Drawn(Centred):
    """A method that prepares random columns."""

    def prepare(self, batch: TokenBatch, seed: int) -> Mapping[str, Tensor]:
        noise = torch.rand(len(batch.mask_BT), 1, generator=torch.Generator().manual_seed(seed))
        return {name: column * noise for name, column in super().prepare(batch, seed).items()}


def policy(noise: float = 0.0) -> Policy:
    """A random policy; with noise, one that has moved on since the batch was sampled."""
    model = policies.build(Model(init_std=0.1), TOKENIZER, 0)
    generator = torch.Generator().manual_seed(1)
    for parameter in model.parameters():
        parameter.data += noise * torch.randn(parameter.shape, generator=generator)
    return Policy(model, torch.device("cpu"))


def graded(rollouts: Rollouts, method: Method) -> GradedBatch:
    """The rollouts with made-up verdicts and a shaped reward."""
    return queued.graded(rollouts, method, ACCURACY, LIMIT, UNGRADED)


def prepared(rollouts: Rollouts, method: Method) -> tuple[Updater, GradedBatch]:
    """The mini-batch with all its columns, under the policy that has moved on."""
    batch = graded(rollouts, method)
    updater = Updater(policy(0.02), method, SPEC.train, SPEC.compute, SPEC.seed)
    if updater.previous is not None:
        updater.previous = policy(PREVIOUS)
    if updater.reference is not None:
        updater.reference = policy(REFERENCE)
    if method.prepares:
        batch = updater.prepared(batch, batch.total(LIMIT), 0, on_policy=False)
    return updater, batch


def local(rollouts: Rollouts, method: Method) -> tuple[float, dict[str, torch.Tensor], dict[str, list[float]]]:
    """Loss, gradient by name, and the record of the gradient step, by the local backend."""
    updater, batch = prepared(rollouts, method)
    tokens = updater.tokens(batch, batch.total(LIMIT))
    value = float(reduce(method.token_loss(tokens), tokens.mask_BT).detach())
    # Not the first mini-batch, in which the policy would still be the one that sampled.
    found = measure.mini_batch_row(1, 2, updater.mini_batch(graded(rollouts, method), 1, 1))["sums"]
    gradient = {name: p.grad for name, p in updater.policy.model.named_parameters() if p.grad is not None}
    # verl's trainer gets it from elsewhere.
    del found["train/grad_norm"]
    return value, gradient, found


def record(rollouts: Rollouts, folder: Path) -> None:
    """The parts of the batch that verl's engine needs, and the policy that is trained on it."""
    policy(0.02).save(folder / "model", TOKENIZER)
    policy(PREVIOUS).save(folder / "previous_policy", TOKENIZER)
    policy(REFERENCE).save(folder / "reference_policy", TOKENIZER)
    methods = [
        (label, method, queued.through_the_queue(prepared(rollouts, method)[1], method, LIMIT))
        for label, method in METHODS.items()
    ]
    batch = {**queued.sequences(rollouts), "methods": methods, "splits": SPLITS}
    torch.save(batch, folder / "batch.pt")


def of_ranks(rollouts: Rollouts, folder: Path, ranks: int, sharing: int, module: str = "engine_process") -> Any:
    """The results of so many ranks of verl's engine on the recorded batch; `sharing` ranks share each sequence."""
    record(rollouts, folder)
    environment = {
        **os.environ,
        **LEAN,
        "WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "VERL_USE_EXTERNAL_MODULES": "tests.verl.cpu",
        "VERL_PLATFORM": "cpu",
        "VERL_ENGINE_DEVICE": "cuda",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", f"tests.verl.{module}", str(folder), str(sharing)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    processes = [subprocess.Popen(command, env={**environment, "RANK": str(rank)}, **pipes) for rank in range(ranks)]
    for process in processes:
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said
    return torch.load(folder / "found.pt", weights_only=False)


@pytest.fixture(scope="module")
def rollouts() -> Rollouts:
    # Drawn at a temperature other than 1, at which both backends train.
    return sample(policy(), prompts(P), G, T, 1.1, EOS, seed=3)


@pytest.fixture(scope="module")
def ours(rollouts: Rollouts) -> Mapping[str, Any]:
    """The results of the local backend, by method."""
    return {label: local(rollouts, method) for label, method in METHODS.items()}


@pytest.fixture(scope="module", params=[(2, 1), (2, 2)], ids=["two ranks", "two ranks that share each sequence"])
def found(request: pytest.FixtureRequest, rollouts: Rollouts, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of verl's engine, by method and split."""
    return of_ranks(rollouts, tmp_path_factory.mktemp("engine"), *request.param)


@pytest.mark.parametrize("split", [*SPLITS, "bearing"])
@pytest.mark.parametrize("label", METHODS)
def test_same_loss_gradient_and_metrics_as_the_local_backend(
    found: Any, ours: Mapping[str, Any], label: str, split: str
) -> None:
    value, gradient, recorded = ours[label]
    theirs, their_gradient, their_sums = found[label, split]
    assert theirs == pytest.approx(value, abs=1e-5)
    assert their_gradient.keys() == gradient.keys()
    for name, mine in gradient.items():
        assert float((their_gradient[name] - mine).norm()) <= 1e-4 * float(mine.norm()), name
    # The local backend leaves out sequences whose loss is zero, which do not count in these either.
    their_recorded = measure.mini_batch_row(1, 2, their_sums)["sums"]
    assert their_recorded.keys() == recorded.keys()
    for name, pair in recorded.items():
        assert their_recorded[name] == pytest.approx(pair, rel=1e-4), name
    counts = {"hinge/prompts_felt", "hinge/tokens_active"} & recorded.keys()
    assert {name: their_recorded[name] for name in counts} == {name: recorded[name] for name in counts}


def test_the_same_packing_gives_the_same_log_probabilities_and_another_does_not(found: Any) -> None:
    """The reason to compute old log-probabilities per mini-batch: the hinge must not see rounding."""
    assert found["drift float32"]["alike"] == 0
    assert 0 < found["drift float32"]["otherwise"] < 1e-5
    # Another packing changes nothing here: a CPU rounds sums of 64 numbers to bfloat16 alike in any order.
    assert found["drift bfloat16"]["alike"] == 0


@pytest.mark.parametrize("label", METHODS)
def test_gradients_without_the_sequences_that_bear_none(found: Any, label: str) -> None:
    """Leaving these sequences out of verl's update changes only the order of the sum."""
    whole, less = found[label, "dynamic"][1], found[label, "bearing"][1]
    # Ranks that share sequences add up more parts in float32: up to 1.2e-6 was seen.
    limit = 1e-6 if found["sharing"] == 1 else 5e-6
    for name, gradient in whole.items():
        assert float((less[name] - gradient).norm()) <= limit * float(gradient.norm()), name


def test_the_batch_clips_and_feels_the_hinge(ours: Mapping[str, Any]) -> None:
    """Otherwise the comparison would test little."""
    recorded = ours["mcpo, other options"][2]
    share = {name: top / bottom for name, (top, bottom) in recorded.items() if bottom}
    assert 0 < share["hinge/tokens_active"] < 1
    assert share["train/hinge_loss"] > 0
    assert share["hinge/prompts_felt"] > 0
    assert min(share["train/clip_high"], share["train/clip_low"]) > 0


def test_the_small_methods_have_signals_that_are_lost_if_one_is(rollouts: Rollouts) -> None:
    """Each column, and each token's own advantage, changes their loss."""
    for method, columns in ((METHODS["remembering"], ("length", "place")), (METHODS["centred"], ("surprise",))):
        updater, batch = prepared(rollouts, method)
        tokens = updater.tokens(batch, batch.total(LIMIT))

        def loss(changed: TokenBatch, method: Method = method) -> float:
            return float(reduce(method.token_loss(changed), changed.mask_BT).detach())

        whole = loss(tokens)
        mean_B1 = (tokens.advantage_BT * tokens.mask_BT).sum(-1, keepdim=True) / tokens.length_B[:, None]
        assert (loss(tokens.replace(advantage_BT=mean_B1)) == pytest.approx(whole)) == (not method.token_advantages)
        for name in columns:
            if name in method.columns:
                total = dataclasses.replace(tokens.total, sums={**tokens.total.sums, name: 1.0})
                other = tokens.replace(total=total)
            else:
                other = tokens.replace(columns={**tokens.columns, name: tokens.columns[name] * 0 + 1})
            assert loss(other) != pytest.approx(whole)


@pytest.mark.parametrize(
    "method",
    [Drawn(), get("disco"), get("drpo"), get("clip_cov", share=0.2, cov_low=0.0), get("kl_cov", share=0.2)],
    ids=lambda method: str(method.name),
)
def test_what_is_prepared_is_what_the_local_backend_prepares(method: Method, rollouts: Rollouts) -> None:
    """The only mini-batch of a step, under the policy that sampled it, with the random numbers of that step."""
    batch, seed = graded(rollouts, method), stream(SPEC.seed, "method", 5, 0)
    updater = Updater(policy(), method, SPEC.train, SPEC.compute, SPEC.seed)
    expected = updater.prepared(batch, batch.total(LIMIT), seed, on_policy=True).signals
    step = Step(batch.correct_PG.double(), batch.correct_PG, rollouts.length_PG, torch.arange(P), max_response=LIMIT)
    longest = int(rollouts.length_PG.max())
    logp_PGT = rollouts.logp_PGT[..., :longest]
    found = verl_batch.prepare(method, step, batch.signals, batch.used_PG, logp_PGT, batch.total(LIMIT), seed)
    assert found.columns.keys() == expected.columns.keys() == set(method.token_columns)
    for name, column in found.columns.items():
        assert torch.equal(column, expected.columns[name][..., :longest])
    # Columns of zeros would be equal whatever was computed.
    assert any(len(column.unique()) > 1 for column in found.columns.values())
