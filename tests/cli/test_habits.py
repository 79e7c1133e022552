"""Words that people type by habit are accepted, or found; tests/messages.snap has the answers to others."""

from pathlib import Path

import pytest

from mcpo_cli.config.plan import expanded, from_overrides
from tests.cli.conftest import InProcess


def test_a_file_of_settings_and_a_method_s_name_are_overrides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("method: {name: mcpo, delta: [0.01, 0.05]}\ntrain: {lr: 1.0e-3, betas: [0.9, 0.95]}\nseed: 3\n")
    runs = from_overrides(expanded([str(path), "train.lr=2e-3"])).runs
    assert [run.arm for run in runs] == ["mcpo delta=0.01", "mcpo delta=0.05"]
    assert {(run.spec.train.lr, run.spec.train.betas, run.spec.seed) for run in runs} == {(2e-3, (0.9, 0.95), 3)}
    assert expanded(["grpo", "seed=1"]) == ["method=grpo", "seed=1"]
    assert expanded(["table1", "seed=1"]) == ["table1", "seed=1"]


def test_settings_that_cannot_be_meant_are_warned_of(here: InProcess) -> None:
    assert "warning: train.lr=1:" in here("train", "train.lr=1", "--dry-run").stderr
    assert "warning" not in here("train", "scale=smoke", "--dry-run").stderr
