"""Special cases of the methods of the zoo, their weight curves, and the runs that they refuse."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mcpo_cli.config.load import load
from mcpo_cli.methods import get, query_weight, registry
from mcpo_cli.testing import step as random_step
from tests.errors import refused
from tests.golden.literature import signals

REDUCTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("passk", {"k": 1}, "grpo"),
    ("rl_zvp", {"alpha": 0}, "grpo"),
    ("unlikeliness", {"beta": 0}, "grpo"),
    ("gfpo", {"keep": 4}, "grpo"),
    ("copo", {"blend": "none"}, "grpo"),
    ("entropy_bonus", {"alpha": 0}, "grpo"),
    ("top_entropy", {"share": 1.0}, "grpo"),
    ("sharpen", {"bonus": 0}, "grpo"),
    ("mcpo", {"reweight": False}, "grpo"),
    ("drpo", {"brevity": 1e9}, "disco"),
    ("grpo_lambda", {"alpha": 0}, "grpo"),
    *((name, {}, "grpo") for name in ("dual_clip", "dppo", "ipo", "m2po", "fipo", "grpo_kl")),
]


@pytest.mark.parametrize(("name", "options", "other"), REDUCTIONS)
def test_reductions(name: str, options: dict[str, Any], other: str) -> None:
    for seed in range(3):
        of = random_step(seed=seed)
        found, expected = signals(get(name, **options), of).advantage_PG, signals(get(other), of).advantage
        assert torch.allclose(found, expected, atol=1e-8)


WITH_CURVE = sorted(name for name in registry() if not np.isnan(query_weight(name, 0.3)))


VARIANTS = [
    *((name, {}) for name in WITH_CURVE),
    ("mc_grpo", {"scale_by": "none"}),
    ("mc_grpo", {"scale_by": "mad", "rescale": True}),
    ("ngrpo", {"virtual": 3}),
    ("passk", {"k": 1}),
    ("passk", {"k": 9}),
    ("qae", {"quantile": 0.6, "interpolation": "linear"}),
    ("disco", {"negatives": "mean", "score": "lratio"}),
    ("psr_nsr", {"positive": 1.0, "negative": 0.5}),
    ("mcpo_extended", {"reweight_cap": 1.2}),
]


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_weight_curves_are_those_of_the_advantages(name: str, options: dict[str, Any]) -> None:
    """W(p) = mean_j (c_j - p) A_j for every accuracy of nine rollouts."""
    method, G = get(name, **options), 9
    for right in range(G + 1):
        of = random_step((right,), rollouts=G)
        measured = float(((of.correct_PG.double() - of.p_P) * signals(method, of).advantage_PG).mean())
        assert float(query_weight(method, right / G, G)) == pytest.approx(measured, abs=1e-9), right


@pytest.mark.parametrize("name", WITH_CURVE)
def test_curves_take_floats_arrays_and_tensors(name: str) -> None:
    points = [0.0, 0.25, 0.5, 0.75, 1.0]
    for rollouts in (8, math.inf):
        expected = [float(query_weight(name, p, rollouts)) for p in points]
        assert query_weight(name, np.array(points), rollouts).tolist() == pytest.approx(expected)
        tensor = query_weight(name, torch.tensor(points, dtype=torch.float64), rollouts)
        assert tensor.tolist() == pytest.approx(expected)
        assert expected[0] == expected[-1] == 0


CENTRED = ("grpo", "dr_grpo", "rloo", "lite_ppo", "gpg", "bnpo", "passk", "gfpo", "unlikeliness", "max_rl")
rights = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@given(rights, st.integers(0, 1000))
@settings(max_examples=40)
def test_advantages_of_a_group_add_up_to_0_where_the_formula_says_so(right: list[int], seed: int) -> None:
    of = random_step(right, rollouts=5, seed=seed)
    for name in CENTRED:
        options = {"keep": 3} if name == "gfpo" else {}
        assert signals(get(name, **options), of).advantage.sum(-1).abs().max() < 1e-9, name


@given(st.lists(st.integers(0, 5), min_size=2, max_size=6), st.integers(0, 1000))
@settings(max_examples=40)
def test_advantages_that_are_not_centred(right: list[int], seed: int) -> None:
    of = random_step(right, rollouts=5, seed=seed)
    live_P = of.p_P < 1
    # The virtual rollout of maximal reward is above all others, so the real ones are below on the whole.
    assert (signals(get("ngrpo"), of).advantage[live_P].sum(-1) < 0).all()
    whitened_PG = signals(get("reinforce_pp"), of).advantage
    assert (whitened_PG * of.length_PG).sum().abs() < 1e-6
    assert signals(get("spo"), of).advantage.sum().abs() < 1e-9


LIVING = ["copo", "dcpo", "gdpo", "grpo_lambda", "psr_nsr", "reinforce_pp", "remax", "rl_zvp", "spo", "topr"]
LIVING += ["unlikeliness"]


def test_methods_that_learn_from_dead_groups_refuse_to_drop_them() -> None:
    assert sorted(name for name, kind in registry().items() if kind().uses_dead_groups) == LIVING
    for name in LIVING:
        with refused("contradiction", f"method={name}") as caught:
            load([f"method={name}", "method.dynamic_sampling=true", "train.overlong_cache=0"])
        assert caught.value.fix == "method.dynamic_sampling=false"
    # NGRPO's filter keeps the groups that it learns from.
    (spec,) = load(["method=ngrpo", "method.dynamic_sampling=true"])
    share_P = torch.tensor([0, 0.25, 1])
    assert spec.method.keeps(share_P).tolist() == [True, True, False]
    assert get("dapo").keeps(share_P).tolist() == [False, True, False]
    # Without the options that learn from dead groups, these runs are accepted.
    load(["method=unlikeliness", "method.mastered=zero", "method.dynamic_sampling=true"])
    load(["method=copo", "method.blend=none", "method.dynamic_sampling=true"])
