"""Methods in TRL's trainer (examples/trl_mcpo.py): loss and gradient equal those of the local engine on one batch."""

import copy
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from mcpo_cli import methods
from mcpo_cli.backends.local import tree
from mcpo_cli.backends.local.generate import Rollouts
from mcpo_cli.backends.local.policy import Policy
from mcpo_cli.backends.local.update import GradedBatch, Updater
from mcpo_cli.config.load import load
from mcpo_cli.methods import Method, Step, reduce
from mcpo_cli.runs import bases
from mcpo_cli.seeds import stream
from mcpo_cli.tasks import closed

pytestmark = pytest.mark.slow
SPEC = load(["scale=smoke", "seed=0"])[0]
PROMPTS, ROLLOUTS, PART = 8, 4, 8
"""Sizes of a generation batch, which has two mini-batches of two parts of PART sequences."""
REFUSED = {"grpo_kl": "reference_policy", "otb": "collision", "remax": "greedy_reward"}
"""Methods that need inputs that the example does not compute."""
METHODS: dict[str, dict[str, Any]] = {name: {} for name in methods.registry() if name not in REFUSED} | {
    "mcpo": {"anchor": "previous_step"},
    "mcpo_extended": {"target_active": 0.1},
    "passk": {"k": 2},
}


def right(completions: list[str], gold: list[str], **_: Any) -> list[float]:
    return [float(text.split() == answer.split()) for text, answer in zip(completions, gold, strict=True)]


def trainer(method: Method, folder: Path, **settings: Any) -> Any:
    """TRL's trainer of a base policy in double precision, on problems of the toy task."""
    from datasets import Dataset
    from trl import GRPOConfig

    from examples.trl_mcpo import MethodTrainer

    base = bases.shipped_base(SPEC)
    problems = closed(SPEC.task).training(0, 0, PROMPTS)
    rows = {"prompt": [problem.text for problem in problems], "gold": [problem.gold for problem in problems]}
    given: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": PART,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": PROMPTS * ROLLOUTS // PART,
        "num_generations": ROLLOUTS,
        "max_completion_length": 24,
        "learning_rate": 1e-3,
        "max_steps": 4,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
        "shuffle_dataset": False,
    }
    return MethodTrainer(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64),
        reward_funcs=[right],
        train_dataset=Dataset.from_dict(rows),
        args=GRPOConfig(**given | settings),
        processing_class=AutoTokenizer.from_pretrained(base),
        method=method,
    )


def of(name: str) -> Method:
    return methods.get(name, **{**METHODS[name], "dynamic_sampling": False})


@pytest.fixture(scope="module")
def sampled(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Any, dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """A trainer, its samples, and the weights before and after an optimizer step."""
    found = trainer(of("grpo"), tmp_path_factory.mktemp("trl"))
    found.model.train()
    batch = found._generate_and_score_completions([row for row in found.train_dataset for _ in range(ROLLOUTS)])
    before = copy.deepcopy(found.model.state_dict())
    rng = torch.Generator().manual_seed(0)
    after = {
        key: value + 2e-3 * torch.randn(value.shape, generator=rng, dtype=value.dtype) for key, value in before.items()
    }
    accuracy_P = found.reward_B.view(-1, ROLLOUTS).mean(-1)
    assert ((accuracy_P > 0) & (accuracy_P < 1)).any()
    assert (accuracy_P == 1).any()
    return found, batch, before, after


@pytest.mark.parametrize("name", sorted(METHODS))
def test_loss_and_gradient_are_ours(name: str, sampled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs, batch, before, after = sampled
    method = of(name)
    monkeypatch.setattr(theirs, "method", method)
    monkeypatch.setattr(theirs, "memory", {})
    theirs.model.load_state_dict(before)
    previous = copy.deepcopy(theirs.model) if "previous_policy" in method.needs else None
    monkeypatch.setattr(theirs, "previous", previous)
    policy = Policy(copy.deepcopy(theirs.model), torch.device("cpu"))
    theirs.begin_global_step(batch)
    updater, graded = ours(method, policy, batch, theirs.reward_B.view(-1, ROLLOUTS))
    theirs.model.load_state_dict(after)
    policy.model.load_state_dict(after)
    some = False
    for window in torch.arange(PROMPTS).split(PROMPTS // 2):
        theirs.begin_mini_batch(torch.arange(PROMPTS * ROLLOUTS).view(PROMPTS, ROLLOUTS)[window].flatten())
        parts = [theirs._compute_loss(theirs.model, {"index": index}) for index in theirs.index.chunk(theirs.parts)]
        found, own = sum(parts), graded.select(window)
        total = own.total(24)
        if method.prepares:
            own = updater.prepared(own, total, stream(theirs.args.seed, "method", theirs._step), False)
        tokens = updater.tokens(own, total)
        expected = reduce(method.token_loss(tokens), tokens.mask_BT)
        # TRL's output layer and the norms of transformers compute in single precision.
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, check_dtype=False)
        weights, names = dict(theirs.model.named_parameters()), list(policy.named_parameters())
        gradients = torch.autograd.grad(found, [weights[key] for key in names])
        for gradient, wanted in zip(gradients, torch.autograd.grad(expected, policy.parameters()), strict=True):
            assert (gradient - wanted).norm() <= 1e-3 * wanted.norm() + 1e-6
            some |= bool(wanted.any())
        if previous is not None:
            updater.previous.load_weights(policy.weights())
    assert some


def ours(method: Method, policy: Policy, batch: dict[str, Tensor], reward_PG: Tensor) -> tuple[Updater, GradedBatch]:
    """The same rollouts in the local engine, under weights that have not moved yet."""
    shape = (-1, ROLLOUTS)
    mask_BT = batch["completion_mask"].bool()
    rows = zip(batch["prompt_ids"], batch["prompt_mask"].bool(), strict=True)
    prompts = [ids[seen][None] for ids, seen in rows][::ROLLOUTS]
    rollouts = Rollouts(
        prompt_PS=tree.stack(prompts),
        token_PGT=batch["completion_ids"].unflatten(0, shape),
        length_PG=mask_BT.sum(-1).view(shape),
        ended_PG=torch.ones_like(reward_PG).bool(),
        logp_PGT=torch.zeros(mask_BT.shape, dtype=torch.float64).unflatten(0, shape),
        entropy_PGT=torch.zeros(mask_BT.shape, dtype=torch.float64).unflatten(0, shape),
    )
    with torch.no_grad():
        found = policy.log_probs_and_entropies(rollouts.prompt_PS, rollouts.token_PGT, rollouts.mask_PGT)
        logp_PGT, entropy_PGT = (values_PGT.where(rollouts.mask_PGT, 0.0) for values_PGT in found)
    rollouts = Rollouts(**{**vars(rollouts), "logp_PGT": logp_PGT, "entropy_PGT": entropy_PGT})
    answers = [
        tuple(row[:length].tolist()) for row, length in zip(batch["completion_ids"], mask_BT.sum(-1), strict=True)
    ]
    numbers = torch.tensor([sorted({*answers}).index(answer) for answer in answers]).view(shape)
    problems = closed(SPEC.task).training(0, 0, PROMPTS)
    prompt_P = torch.tensor([zlib.crc32(problem.text.replace(" _", "").encode()) for problem in problems])
    given = {"logp_PGT": logp_PGT, "entropy_PGT": entropy_PGT, "answer_PG": numbers}
    step = Step(reward_PG, reward_PG >= 1, rollouts.length_PG, prompt_P, 24, **given)
    signals, _ = method.signals(step, {})
    updater = Updater(policy, method, SPEC.train, SPEC.compute, 0)
    return updater, GradedBatch(rollouts, reward_PG >= 1, signals, torch.arange(PROMPTS), rollouts.drawn_PG)


@pytest.mark.parametrize("name", ["mcpo", "mcpo_extended"])
def test_it_trains(name: str, tmp_path: Path) -> None:
    found = trainer(of(name), tmp_path)
    before = copy.deepcopy(found.model.state_dict())
    found.train()
    assert any(not torch.equal(value, before[key]) for key, value in found.model.state_dict().items())
    reports = [entry for entry in found.state.log_history if "train/approx_kl" in entry]
    # Two optimizer steps share one generation batch: the second is off-policy.
    assert reports[1]["train/approx_kl"] > 0
    assert bool(found.memory) == (name == "mcpo_extended")


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("grpo", {"beta": 0.1}, "beta: part of TRL's loss"),
        ("grpo", {"per_device_train_batch_size": 1}, "whole groups"),
        ("dapo", {}, "dynamic_sampling=False"),
        *((name, {}, f"{name} needs {need}") for name, need in REFUSED.items()),
    ],
)
def test_what_would_be_another_loss_is_refused(name: str, settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    method = methods.get(name)
    with pytest.raises(ValueError, match=words):
        trainer(method, tmp_path, **settings)
