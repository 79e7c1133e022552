"""Runs of the local engine under samplers: the earlier stream, bit-equal resumption, costs, forks."""

import shutil
import signal
from collections import Counter
from itertools import count
from pathlib import Path

import pytest
import torch

from mcpo_cli.backends.local import train
from mcpo_cli.backends.local.initial_policy import initial_policy
from mcpo_cli.config import forking
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.runs import bases, folders, origins
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import Journal
from mcpo_cli.seeds import stream
from tests.engine import NO_PROBES, records, work

pytestmark = pytest.mark.slow
TINY = (
    "scale=smoke train.steps=4 train.lr=1e-3 compute.checkpoint_every=2 train.prompts=16 "
    "train.mini_batch=8 train.rollouts=2 train.temperature=0.3 train.max_refills=200 eval.problems=8 eval.samples=2 "
    "eval.every=4"
)
STATEFUL = {
    "review": ["sampler=review", "sampler.interval=1", "sampler.share=0.5", "task.pool=48"],
    "mopps": ["sampler=mopps", "sampler.candidates=2", "task.pool=48"],
    "pools": ["sampler=pools", "task.pool=48"],
    "pairing": ["sampler=pairing", "sampler.share=1", "train.rollouts=4", "task.pool=64"],
    "greso": ["sampler=greso", "task.pool=512"],
    "knapsack": ["sampler=knapsack", "train.rollouts=4", "task.pool=32"],
}


def spec_of(*words: str) -> RunSpec:
    method = [] if any(word.startswith("method=") for word in words) else ["method=grpo"]
    own = {word.partition("=")[0] for word in words}
    tiny = [word for word in TINY.split() if word.partition("=")[0] not in own]
    (spec,) = load([*tiny, *NO_PROBES, *method, *words])
    return spec


def shipped() -> Path:
    """The base policy that comes with mcpo."""
    found = bases.shipped_base(spec_of())
    assert found
    return found


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("samplers")


@pytest.fixture(scope="module")
def uninterrupted(home: Path) -> dict[str, dict[str, object]]:
    """Records of an uninterrupted run of each sampler."""
    for words in STATEFUL.values():
        spec = spec_of(*words)
        # A pool of problems is another task, whose warm-up would take most of the time.
        if not (base := bases.cached_base(home, spec)).exists():
            shutil.copytree(shipped(), base)
        assert work(home, spec) == 0
    return {name: records(home, spec_of(*words)) for name, words in STATEFUL.items()}


@pytest.mark.parametrize("words", ["method=dapo", "method=dapo sampler=uniform"])
def test_plain_samplers_sample_what_the_option_did(words: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first step equals the loop from before samplers existed: batches of the stream, each with its own seed."""
    monkeypatch.setenv("MCPO_HOME", str(home))
    spec = spec_of(*words.split())
    attempt = Attempt(home / "scrap" / words.replace(" ", "_"), spec, 0)
    policy, tokenizer = initial_policy(spec, attempt, stop=lambda: False)
    trainer = train.Trainer(spec, attempt, policy, tokenizer)
    trainer.step = 1
    tokens, kept = list[torch.Tensor](), list[bool]()
    for refill in count():
        problems = trainer.problems.training(spec.seed, refill * 16, 16)
        rollouts, judged = trainer.sample_groups(problems, stream(spec.seed, "rollout", 1, refill))
        tokens += list(rollouts.token_PGT)
        p_P = judged.correct_PG.double().mean(-1)
        kept += [not spec.method.dynamic_sampling or 0 < float(p) < 1 for p in p_P]
        if sum(kept) >= 16:
            break
    sampled = trainer.collect()
    assert sampled.batch_index.tolist() == [index for index, one in enumerate(kept) if one][:16]
    assert trainer.cursor == len(kept) == len(sampled.problems)
    for ours, theirs in zip(sampled.rollouts.token_PGT, tokens, strict=True):
        assert torch.equal(ours[:, : theirs.shape[-1]], theirs)


def test_samplers_bring_prompts_back(home: Path, uninterrupted: dict[str, dict[str, object]]) -> None:
    for name, words in STATEFUL.items():
        spec = spec_of(*words)
        rows = Journal(home / "runs" / spec.run_id).groups()
        prompts = {step: [row["prompt"] for row in rows if row["step"] == step and row["kept"]] for step in range(1, 5)}
        assert all(len(set(batch)) == 16 for batch in prompts.values()), f"{name}: a prompt is in a batch twice"
        spent = {row["step"]: row["metrics"]["cost/rollouts"] for row in Journal(home / "runs" / spec.run_id).steps()}
        own = [(row["step"], row.get("rollouts", spec.train.rollouts)) for row in rows]
        rolled = [sum(n for at, n in own if at <= step) for step in range(1, 5)]
        assert [spent[step] for step in range(1, 5)] == rolled, f"{name}: costs are not those of all rollouts"
        if not spec.sampler.filters:
            assert rolled[-1] == 4 * 16 * spec.train.rollouts
        last = folders.load([*folders.checkpoints(home / "runs" / spec.run_id).values()][-1])
        assert last.tensors["sampler"]["number"].dtype == torch.int64


def test_knapsack_allots_the_budget_of_each_step(home: Path, uninterrupted: dict[str, dict[str, object]]) -> None:
    """All problems are new at steps 1 and 2; at 3 and 4 their rollouts differ. All records are of real rollouts."""
    spec = spec_of(*STATEFUL["knapsack"])
    journal = Journal(home / "runs" / spec.run_id)
    for step in range(1, 5):
        here = [row for row in journal.groups() if row["step"] == step]
        counts = [row.get("rollouts", 4) for row in here]
        assert sum(counts) == 64
        assert (set(counts) == {4}) is (step <= 2)
        # A share of the group's own rollouts.
        shares = [
            (row["p"] * n, row["truncated"] * n, row["duplicates"] * n * (n - 1) / 2)
            for row, n in zip(here, counts, strict=True)
        ]
        assert all(value == pytest.approx(round(value), abs=1e-9) for row in shares for value in row)
        assert any(0 < row["p"] < 1 for row in here)
    uneven = {row["prompt"]: row["rollouts"] for row in journal.groups() if row["step"] == 4}
    shown = Counter(row["prompt"] for path in [journal.files("samples")[4]] for row in journal.read(path))
    assert shown == {prompt: uneven[prompt] for prompt in shown}
    assert len(set(shown.values())) > 1


@pytest.mark.parametrize(
    ("name", "point", "call"),
    [
        ("review", "sampling", 4),
        ("pools", "checkpoint write", 2),
        ("knapsack", "gradient step", 7),
    ],
)
def test_killed_and_started_again(
    name: str, point: str, call: int, home: Path, uninterrupted: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    spec = spec_of(*STATEFUL[name])
    shutil.copytree(home / "cache", tmp_path / "cache")
    assert work(tmp_path, spec, point, call) == -signal.SIGKILL
    assert work(tmp_path, spec) == 0
    assert len(Journal(tmp_path / "runs" / spec.run_id).attempts()) == 2
    assert records(tmp_path, spec) == uninterrupted[name]


def test_forks_may_change_the_sampler(home: Path, uninterrupted: dict[str, dict[str, object]]) -> None:
    """The same sampler keeps its memory; another one begins without any, at the same place of the stream."""
    parent = spec_of(*STATEFUL["review"])
    folder = home / "runs" / parent.run_id
    plans = {words: forking.plan(parent, 2, words.split(), "mcpo fork") for words in ("train.lr=2e-3", "sampler=pools")}
    same, other = (plan.runs[0].spec for plan in plans.values())
    assert same.sampler == parent.sampler
    assert other.sampler.name == "pools"
    assert other.task == parent.task
    saved = folders.load(folders.checkpoints(folder)[2])
    for spec, has_memory in ((same, True), (other, False)):
        attempt = Attempt(home / "runs" / spec.run_id, spec, 0)
        origins.copy(folder, 2, attempt)
        (copied,) = (attempt.folder / "checkpoints").iterdir()
        assert ("sampler" in folders.load(copied).tensors) is has_memory
        assert folders.load(copied).cursor == saved.cursor
    plain = forking.plan(parent, 2, ["sampler=uniform"], "mcpo fork").runs[0].spec
    assert plain.sampler.name == "uniform"
    with pytest.raises(ConfigError) as caught:
        forking.plan(parent, 2, ["sampler=review", "method.dynamic_sampling=true"], "mcpo fork")
    assert caught.value.code == "contradiction"
