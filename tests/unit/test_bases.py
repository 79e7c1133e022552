"""Base policies that come with mcpo: their list, their use, and their equality with a warm-up here."""

import itertools
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import linalg

from mcpo_cli.backends.local import initial_policy
from mcpo_cli.config import cost, plan
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.home import location
from mcpo_cli.runs import bases, folders
from mcpo_cli.runs.attempts import Attempt
from mcpo_cli.runs.journal import read_json
from mcpo_cli.scheduling.forecast import forecast
from tests.errors import refused

SHIPPED = bases.SHIPPED
SMALL = ("scale=smoke", "warmup.target_accuracy=0", "warmup.max_steps=2", "warmup.probe_prompts=8")


def base(spec: RunSpec) -> Path:
    return initial_policy.base_folder(spec, Attempt(location() / "runs" / spec.run_id, spec, 0), lambda: False)


@pytest.fixture
def comes(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[RunSpec, Path]:
    """A small run, and the folder of its shipped base policy; the cache is empty."""
    monkeypatch.setattr(bases, "SHIPPED", mcpo_home / "bases")
    (spec,) = load(SMALL)
    shipped = mcpo_home / "bases" / spec.base_id
    shipped.parent.mkdir(parents=True)
    shutil.move(base(spec), shipped)
    return spec, shipped


@pytest.mark.usefixtures("mcpo_home")
def test_a_warm_up_that_failed_counts_for_its_own_policy_only() -> None:
    """Also where the model's name has a dot."""
    words = ("scale=smoke", "model.name=mine.v2", "warmup.max_steps=0", "warmup.probe_prompts=8")
    (never,) = load([*words, "warmup.target_accuracy=1"])
    (other,) = load([*words, "warmup.target_accuracy=0"])
    with refused("run_failed", "accuracy 0.00") as caught:
        base(never)
    assert caught.value.fix == "warmup.max_steps=3000"
    with refused("run_failed", "it was tried before"):
        base(never)
    assert base(other).name == other.base_id


def test_the_ones_of_table_1_come_with_mcpo() -> None:
    specs = {run.spec.base_id: run.spec for run in plan.from_suite("table1", [], "mcpo").runs}
    # A changed task, model or warm-up setting changes the ids: then these must be made again.
    assert {folder.name for folder in SHIPPED.iterdir()} == set(specs)
    for base_id, spec in specs.items():
        assert folders.damage(SHIPPED / base_id) is None
        about = read_json(SHIPPED / base_id / folders.MANIFEST)
        assert about["accuracy"] >= spec.warmup.target_accuracy


def test_it_is_copied_instead_of_trained(comes: tuple[RunSpec, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    spec, shipped = comes
    monkeypatch.setattr(initial_policy, "_train", None)
    folder = base(spec)
    assert folder != shipped
    assert folders.damage(folder) is None
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in shipped.iterdir()
    }


def test_a_damaged_one_is_made_here(comes: tuple[RunSpec, Path], capsys: pytest.CaptureFixture[str]) -> None:
    spec, shipped = comes
    right = (shipped / "model.safetensors").read_bytes()
    (shipped / "model.safetensors").write_bytes(right[:-1] + bytes([right[-1] ^ 1]))
    assert (base(spec) / "model.safetensors").read_bytes() == right
    assert "is damaged: its checksum does not match; the base policy is trained here instead" in capsys.readouterr().err


def test_a_run_that_takes_it_is_expected_to_end_sooner(comes: tuple[RunSpec, Path]) -> None:
    spec, _ = comes
    (declined,) = load([*SMALL, "compute.shipped_base=false"])
    sooner, later = (forecast(plan.Plan("", "", (plan.PlannedRun("", each),))).seconds for each in (spec, declined))
    assert later - sooner == pytest.approx(cost.estimate(spec).warmup)


@pytest.mark.slow
def test_a_warm_up_here_gives_the_one_that_comes(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit on the same CPU; on another one rounding differs (experiments/base-policies/022-*).

    A fifth of the time are probes of the accuracy: only the last one and the one before it, which misses, are made.
    """
    (spec,) = load(["model=toy-s", "seed=0", "compute.shipped_base=false"])
    shipped = SHIPPED / spec.base_id
    theirs = read_json(shipped / folders.MANIFEST)
    probe, numbers = initial_policy.measured_accuracy, itertools.count()
    last = theirs["steps"] // spec.warmup.probe_every
    monkeypatch.setattr(
        initial_policy, "measured_accuracy", lambda *given: probe(*given) if next(numbers) >= last - 1 else 0.0
    )
    made = base(spec)
    mine = read_json(made / folders.MANIFEST)
    assert mine["steps"] == theirs["steps"]
    assert mine["accuracy"] == pytest.approx(theirs["accuracy"], abs=1e-3)
    weights, others = (load_file(folder / "model.safetensors") for folder in (made, shipped))
    for name, weight in weights.items():
        assert linalg.norm(weight - others[name]) <= 1e-3 * linalg.norm(others[name])


@pytest.mark.parametrize(("words", "base"), [("seed=0", 0), ("seed=2", 2), ("seed=7", 1), ("seed=9,model=toy-m", 0)])
def test_no_seed_of_scale_smoke_has_a_warm_up(words: str, base: int, mcpo_home: Path) -> None:
    (spec,) = load(["scale=smoke", *words.split(",")])
    assert spec.seed_of_base == base
    assert not bases.makes_base(mcpo_home, spec, set())
