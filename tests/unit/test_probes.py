"""The probes of groups, gradients, mini-batches and metrics, on small journals with findings computed by hand."""

import math
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli import measures, methods, tasks
from mcpo_cli.config.schema import RunSpec, Train
from mcpo_cli.measures import Finding
from tests import rows
from tests.rows import Row, group

EDGE = math.sqrt(3) / 4


def find(
    probe: str,
    folder: Path,
    written: Mapping[str, Sequence[Row]],
    metrics: Sequence[Mapping[str, float]] = (),
    method: str = "dapo",
    rollouts: int = 4,
    undefined: Set[str] = frozenset(),
) -> Finding:
    """The finding of `probe` in a journal of these rows by kind, with all that it shows but `undefined`.

    metrics: of the steps 1, 2, ...
    """
    train = Train(prompts=8, mini_batch=4, rollouts=rollouts)
    spec = RunSpec(methods.get(method), tasks.get("arithmetic"), train=train)
    asked, journal = measures.get(probe), rows.journal(spec, written, metrics, folder)
    assert not asked.lacks(journal)
    found = asked.measure(spec, journal)
    assert not found.values or set(asked.shows) - found.values.keys() == undefined
    return found


def assert_values(found: Finding, **expected: float) -> None:
    assert {name: found.values[name] for name in expected} == pytest.approx(expected)


# groups


def of_eight(step: int, right: int, **more: float) -> Row:
    return group(step, right / 8, f"{step} {right}", **more)


def of_groups(probe: str, folder: Path, *groups: Row, rollouts: int = 8) -> Finding:
    return find(probe, folder, {"groups": groups}, rollouts=rollouts)


def numbers(table: Sequence[Mapping[str, Any]], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in table]


def test_histogram(tmp_path: Path) -> None:
    """Step 1: 0, 4, 8 of 8 correct; step 2: 8 of 8 and 3 of 8; p = 3/8 is in the middle third."""
    groups = [of_eight(*each) for each in ((1, 0), (1, 4), (1, 8), (2, 8), (2, 3))]
    found = of_groups("histogram", tmp_path, *groups)
    assert_values(found, prompts=5, accuracy=23 / 40, at_0=0.2, at_1=0.4, middle=0.4)
    # Two steps are too few for an interval.
    assert "at_1_low" not in found.values
    shares = {row["right"]: row["share"] for row in found.tables["bins"]}
    assert shares == pytest.approx({0: 0.2, 1: 0, 2: 0, 3: 0.2, 4: 0.2, 5: 0, 6: 0, 7: 0, 8: 0.4})
    second = [row for row in found.tables["steps"] if row["step"] == 2]
    assert numbers(second, "p", "prompts", "share")[-1] == (1, 1, 0.5)


def test_the_middle_third_includes_its_ends(tmp_path: Path) -> None:
    found = of_groups("histogram", tmp_path, *(group(1, right / 9) for right in (2, 3, 6, 7)), rollouts=9)
    assert found.values["middle"] == 0.5


def test_composition(tmp_path: Path) -> None:
    """p = 1/2 is a minority prompt, 5/8 a majority-correct one."""
    groups = [of_eight(*each) for each in ((1, 8), (1, 4), (2, 5), (2, 0), (2, 0), (2, 7))]
    found = of_groups("composition", tmp_path, *groups)
    columns = ("step", "prompts", "mastered", "majority_correct", "minority", "all_wrong")
    assert numbers(found.tables["steps"], *columns) == [(1, 2, 0.5, 0, 0.5, 0), (2, 4, 0, 0.5, 0, 0.5)]
    assert_values(found, mastered=1 / 6, majority_correct=2 / 6)


def test_entropy(tmp_path: Path) -> None:
    found = of_groups(
        "entropy",
        tmp_path,
        of_eight(1, 8, entropy=0.2, entropy_right=0.2),
        of_eight(1, 4, entropy=0.5, entropy_right=0.3, entropy_wrong=0.7),
        of_eight(2, 2, entropy=0.8, entropy_right=0.5, entropy_wrong=1.0),
        of_eight(2, 0, entropy=1.0, entropy_wrong=1.0),
    )
    assert_values(found, entropy=0.625, right=1 / 3, wrong=0.9, wrong_minus_right=0.45)
    first, second = found.tables["steps"]
    assert (first["entropy"], first["mastered"], first["minority"]) == pytest.approx((0.35, 0.2, 0.5))
    assert "all_wrong" not in first
    assert second["all_wrong"] == 1
    bins = {row["p"]: row for row in found.tables["accuracy"]}
    assert {p: row["prompts"] for p, row in bins.items()} == {
        "0": 1, "(0, 0.25]": 1, "(0.25, 0.5]": 1, "(0.5, 0.75]": 0, "(0.75, 1)": 0, "1": 1
    }  # fmt: skip
    assert bins["(0, 0.25]"]["wrong"] == 1
    assert "right" not in bins["0"]


def test_without_entropies_nothing_is_said(tmp_path: Path) -> None:
    assert of_groups("entropy", tmp_path, of_eight(1, 8), of_eight(2, 3)).values == {}


def test_sanity(tmp_path: Path) -> None:
    metrics = [
        {"sanity/truncated": 0.1, "sanity/duplicates": 0.2, "train/accuracy": 0.5},
        {"sanity/truncated": 0.4, "sanity/logp_difference": 0.01},
        {"sanity/truncated": 0.3, "sanity/duplicates": 0.3},
    ]
    found = find("sanity", tmp_path, {}, metrics, undefined={"bare_right", "duplicates_expected"})
    assert_values(found, truncated=0.8 / 3, truncated_worst=0.4, duplicates=0.25, logp_difference=0.01, warnings=1)
    assert "train/accuracy" not in found.tables["steps"][0]
    (warned,) = found.tables["warnings"]
    assert (warned["metric"], warned["first_step"], warned["steps"]) == ("sanity/truncated", 2, 2)


# gradients and mini-batches


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
    found = find("hinge", tmp_path, {"mini_batches": MINI_BATCHES}, method="mcpo")
    assert_values(found, prompts_felt=0.25, tokens_active=0.1, drift=0.002, penalty=0.1, on=0.5, switched_on=0.5)
    assert_values(found, switched_off=0.25, variance_policy=1.0, variance_added=0.12)
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
    written = [mini_batch(1, 1, 1.0, 2, 0.3), alone, nobody]
    undefined = {"switched_on", "switched_off", "variance_added"}
    found = find("hinge", tmp_path, {"mini_batches": written}, method="mcpo", undefined=undefined)
    assert_values(found, prompts_felt=0.4, tokens_active=20 / 125, penalty=0.1)


def test_weights_by_hand(tmp_path: Path) -> None:
    """W = sqrt(p(1 - p)), measured .1 above it at p = 1/4 and exactly elsewhere."""
    written = [
        gradient(1, 0.25, 3.0, weight=EDGE + 0.1, residual=0.5),
        gradient(2, 0.25, 1.0, weight=EDGE + 0.1, residual=0.1),
        gradient(1, 0.5, 2.0, weight=0.5, residual=0.0),
        gradient(2, 0.75, 2.0, weight=EDGE, residual=0.0),
        gradient(2, 1.0, 5.0),
    ]
    metrics = [{"weight/share_minority": 0.6, "weight/effective_sample": 16.0}, {"weight/share_minority": 0.8}]
    found = find("weights", tmp_path, {"gradients": written}, metrics)
    assert_values(found, prompts=4, deviation=0.05, residual=0.15)
    assert_values(found, share_minority=0.7, effective_sample=16, effective_share=0.5)
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
    found = find("gradient", tmp_path, {"groups": groups, "gradients": update + kept + later})
    # trace = (4 + 4 - 2 * 2) / 1 = 4, signal = 2 - 4 / 2 = 0.
    assert_values(found, steps=2, cosine_mastered=(1 - math.sqrt(0.5)) / 2, harmful_steps=0.5, signal_to_noise=0.0)
    assert_values(found, norm_minority=2, norm_majority=2, norm_mastered=(1 + math.sqrt(2)) / 2)
    first, second = found.tables["steps"]
    assert (first["prompts"], first["mastered"]) == (2, 1)
    assert first["cosine_mastered"] == pytest.approx(-math.sqrt(0.5))
    assert second["cosine_mastered"] == pytest.approx(1)


def test_signal_to_noise_counts_the_prompts_that_bear_a_gradient(tmp_path: Path) -> None:
    """v = 3 and 1, U = 2, trace 2, signal 4 - 1; 3 of 4 kept prompts have a gradient, so 3 of a mini-batch of 4."""
    written = [gradient(1, p, v, with_update=2 * v, with_mastered=v) for p, v in ((0.5, 3.0), (0.75, 1.0))]
    written.append(gradient(1, 1.0, 1.0, with_update=2.0, with_mastered=1.0))
    groups = [group(1, p) for p in (0.25, 0.5, 0.5, 1.0)] + [group(1, 0.0, kept=False)]
    found = find("gradient", tmp_path, {"groups": groups, "gradients": written})
    assert_values(found, signal_to_noise=3 * 3 / 2)
