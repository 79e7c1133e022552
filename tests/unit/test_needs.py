"""Time, memory and disk of a local run of an existing model; a run that cannot fit is refused."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mcpo_cli.backends import local
from mcpo_cli.config import space, workload
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.machine import GIB
from tests.errors import refused

WEIGHTS = 134_479_872
"""Weights of SmolLM2-135M without norms: 49152 x 576 + 30 x (2 x 576 x 576 + 2 x 576 x 192 + 3 x 576 x 1536)."""


def spec(*words: str) -> RunSpec:
    method = [] if any(word.startswith("method=") for word in words) else ["method=dapo"]
    return load(["model=smollm2-135m", *method, *words])[0]


def test_a_step_of_smollm2_fits_into_the_memory_that_was_measured() -> None:
    # Measured: 2.9 GB at its peak. State 12 bytes a weight, gradients 4.
    needed = space.memory(spec())
    assert 16 * WEIGHTS < needed < 4.5e9


def test_memory_grows_with_what_it_depends_on() -> None:
    base = space.memory(spec())
    anchored = spec("method=mcpo", "method.anchor=previous_step")
    assert space.memory(anchored) - space.memory(spec("method=mcpo")) == 4 * WEIGHTS
    assert space.memory(spec("method=grpo_kl")) - space.memory(spec("method=grpo")) == 4 * WEIGHTS
    assert space.memory(spec("model.lora_rank=8")) < base - 8 * WEIGHTS * 0.8
    assert space.memory(spec("train.max_response=512")) > base
    long = "task=word_problems", "train.max_prompt=400", "train.max_response=100"
    assert space.memory(spec(*long, "compute.micro_batch_tokens=512")) < space.memory(spec(*long))


def test_disk_is_checkpoints_and_the_policy() -> None:
    assert space.disk(spec()) == 4 * WEIGHTS * (2 * 3 + 1)
    assert space.disk(spec("compute.checkpoints=3")) == 4 * WEIGHTS * (4 * 3 + 1)


def test_time_is_proportional_to_steps_and_cores() -> None:
    one = workload.training_seconds(spec("eval.every=1000", "probe.every=0", "probe.panel_every=0", "eval.problems=1"))
    assert workload.training_seconds(spec()) > one
    assert workload.training_seconds(spec("compute.threads=1")) == pytest.approx(2 * workload.training_seconds(spec()))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleNamespace:
    """A machine with 3 GiB of free memory and 3 GiB of free disk."""
    machine = SimpleNamespace(memory=3 * GIB, disk=3 * GIB)
    monkeypatch.setenv("MCPO_HOME", str(tmp_path / "not" / "there"))
    monkeypatch.setattr(local.psutil, "virtual_memory", lambda: SimpleNamespace(available=machine.memory))
    monkeypatch.setattr(local.shutil, "disk_usage", lambda _: SimpleNamespace(free=machine.disk))
    return machine


def test_what_cannot_fit_is_refused(small: Any) -> None:
    with refused("bad_input", "memory", "3.0 GiB") as caught:
        local.check_room(spec())
    assert caught.value.fix is not None
    assert "compute.micro_batch_tokens=512" in caught.value.fix
    small.memory = 8 * GIB
    with refused("bad_input", "3.5 GiB", "disk"):
        local.check_room(spec())
    small.disk = 8 * GIB
    local.check_room(spec())
