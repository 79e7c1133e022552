"""The probes that read gradients and mini-batches, on rows with findings computed by hand."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli import measures, methods, tasks
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.measures import Finding
from tests.rows import Row, group
from tests.rows import journal as write

G = 4
EDGE = math.sqrt(3) / 4


def finding(
    probe: str,
    folder: Path,
    rows: Mapping[str, Sequence[Row]],
    metrics: Sequence[Mapping[str, float]] = (),
    method: str = "dapo",
) -> Finding:
    """The finding of `probe` in a journal of these rows; `metrics` of steps 1, 2, ..."""
    spec = RunSpec(methods.get(method), tasks.get("arithmetic"), train=Train(prompts=8, mini_batch=4, rollouts=G))
    asked, journal = measures.get(probe), write(spec, rows, metrics, folder)
    assert not asked.lacks(journal)
    result = asked.measure(spec, journal)
    assert set(result.values) >= set(asked.shows) or not result.values
    return result


def gradient(step: int, p: float, norm: float, **products: float) -> dict[str, Any]:
    return {"step": step, "prompt": "", "p": p, "norm": norm, **products}


def mini_batch(
    step: int, number: int, policy_loss: float, felt: int, hinge_loss: float, mastered: int = 4
) -> dict[str, Any]:
    """Mastered prompts of 25 tokens each, 10 of them active in a prompt on which the hinge is active."""
    tokens, active = 25.0 * mastered, 10.0 * felt
    sums = {"train/policy_loss": [policy_loss, 1.0], "train/hinge_loss": [hinge_loss, 1.0]}
    sums |= {"hinge/prompts_felt": [float(felt), float(mastered)], "hinge/tokens_active": [active, tokens]}
    sums |= {"hinge/drift_sum": [0.02 * active, 0.0]}
    return {"step": step, "mini_batch": number, "sums": sums}


MINI_BATCHES = [
    mini_batch(1, 1, 1.0, 0, 0.0),
    mini_batch(1, 2, 2.0, 1, 0.1),
    mini_batch(1, 3, 3.0, 2, 0.2),
    mini_batch(2, 1, 1.0, 0, 0.0),
    mini_batch(2, 2, 2.0, 3, 0.3),
    mini_batch(2, 3, 3.0, 0, 0.0),
]


def test_the_hinge_by_hand(tmp_path: Path) -> None:
    """Losses 1, 2, 3 have variance 1; with the hinge 1.21 in the first step and 1.03 in the second."""
    found = finding("hinge", tmp_path, {"mini_batches": MINI_BATCHES}, method="mcpo")
    expected = {
        "prompts_felt": 0.25,
        "tokens_active": 0.1,
        "drift": 0.002,
        "penalty": 0.1,
        "on": 0.5,
        "switched_on": 0.5,
    }
    expected |= {"switched_off": 0.25, "variance_policy": 1.0, "variance_added": 0.12}
    assert {name: found.values[name] for name in expected} == pytest.approx(expected)
    # Two steps are too few for an interval.
    assert "prompts_felt_low" not in found.values
    first, second, third = found.tables["mini_batches"]
    assert (first["on"], first["prompts_felt"], first["penalty"]) == (0, 0, 0)
    assert second["on"] == 1
    assert (third["on"], third["prompts_felt"]) == (0.5, 0.25)
    # 2.1 and 2.3 in the two steps, without the hinge 2 in both.
    assert (second["variance_policy"], second["variance_added"]) == (0, pytest.approx(0.02))


def test_prompts_count_once_each_however_many_a_mini_batch_holds(tmp_path: Path) -> None:
    """Active on 2 of 4, 0 of 1, and 0 of 0 prompts: 2 of 5 prompts, but the penalty is a mean of three."""
    alone, nobody = (mini_batch(step, 1, 1.0, 0, 0.0, mastered=mastered) for step, mastered in ((2, 1), (3, 0)))
    rows = [mini_batch(1, 1, 1.0, 2, 0.3), alone, nobody]
    spec = RunSpec(methods.get("mcpo"), tasks.get("arithmetic"))
    found = measures.get("hinge").measure(spec, write(spec, {"mini_batches": rows}, folder=tmp_path))
    assert found.values["prompts_felt"] == pytest.approx(0.4)
    assert found.values["tokens_active"] == pytest.approx(20 / 125)
    assert found.values["penalty"] == pytest.approx(0.1)
    assert "switched_on" not in found.values


def test_weights_by_hand(tmp_path: Path) -> None:
    """W = sqrt(p(1 - p)), measured .1 above it at p = 1/4 and exactly elsewhere."""
    rows = [
        gradient(1, 0.25, 3.0, weight=EDGE + 0.1, residual=0.5),
        gradient(2, 0.25, 1.0, weight=EDGE + 0.1, residual=0.1),
        gradient(1, 0.5, 2.0, weight=0.5, residual=0.0),
        gradient(2, 0.75, 2.0, weight=EDGE, residual=0.0),
        gradient(2, 1.0, 5.0),
    ]
    metrics = [{"weight/share_minority": 0.6, "weight/effective_sample": 16.0}, {"weight/share_minority": 0.8}]
    found = finding("weights", tmp_path, {"gradients": rows}, metrics)
    expected = {"prompts": 4, "deviation": 0.05, "residual": 0.15}
    expected |= {"share_minority": 0.7, "effective_sample": 16, "effective_share": 0.5}
    assert {name: found.values[name] for name in expected} == pytest.approx(expected)
    quarter, half, three = found.tables["curve"]
    assert (quarter["p"], quarter["prompts"]) == (0.25, 2)
    assert quarter["measured"] == pytest.approx(EDGE + 0.1)
    assert (half["measured"], half["analytic"]) == (0.5, 0.5)
    assert three["analytic"] == pytest.approx(EDGE)


def test_gradients_by_hand(tmp_path: Path) -> None:
    """Step 1: v = (2, 0), (0, 2), so U = (1, 1), and M = (-1, 0). Step 2: the same with M = (1, 1)."""
    update = [gradient(1, 0.25, 2.0, with_update=2.0, with_mastered=-2.0)]
    update += [gradient(1, 0.75, 2.0, with_update=2.0, with_mastered=0.0)]
    kept = [gradient(1, 1.0, 1.0, with_update=-1.0, with_mastered=1.0)]
    later = [gradient(2, 0.25, 2.0, with_update=2.0, with_mastered=2.0)]
    later += [gradient(2, 0.75, 2.0, with_update=2.0, with_mastered=2.0)]
    later += [gradient(2, 1.0, math.sqrt(2), with_update=2.0, with_mastered=2.0)]
    groups = [group(step, p) for step in (1, 2) for p in (0.25, 0.75, 1.0, 0.0)]
    found = finding("gradient", tmp_path, {"groups": groups, "gradients": update + kept + later})
    # trace = (4 + 4 - 2 * 2) / 1 = 4, signal = 2 - 4 / 2 = 0.
    expected = {"steps": 2, "cosine_mastered": (1 - math.sqrt(0.5)) / 2, "harmful_steps": 0.5, "signal_to_noise": 0.0}
    expected |= {"norm_minority": 2, "norm_majority": 2, "norm_mastered": (1 + math.sqrt(2)) / 2}
    assert {name: found.values[name] for name in expected} == pytest.approx(expected)
    first, second = found.tables["steps"]
    assert (first["prompts"], first["mastered"]) == (2, 1)
    assert first["cosine_mastered"] == pytest.approx(-math.sqrt(0.5))
    assert second["cosine_mastered"] == pytest.approx(1)


def test_signal_to_noise_counts_the_prompts_that_bear_a_gradient(tmp_path: Path) -> None:
    """v = 3 and 1, U = 2, trace 2, signal 4 - 1; 3 of 4 kept prompts have a gradient, so 3 of a mini-batch of 4."""
    rows = [gradient(1, p, v, with_update=2 * v, with_mastered=v) for p, v in ((0.5, 3.0), (0.75, 1.0))]
    rows.append(gradient(1, 1.0, 1.0, with_update=2.0, with_mastered=1.0))
    groups = [group(1, p) for p in (0.25, 0.5, 0.5, 1.0)] + [group(1, 0.0, kept=False)]
    found = finding("gradient", tmp_path, {"groups": groups, "gradients": rows})
    assert found.values["signal_to_noise"] == pytest.approx(3 * 3 / 2)
