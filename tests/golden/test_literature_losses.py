"""Losses of the method zoo on fixture F2: values and gradients that equal verl's, TRL's or the authors' functions."""

import math
from typing import Any

import pytest
import torch

from mcpo_cli.literature_methods.likelihoods import covariance
from mcpo_cli.methods import get, reduce, registry
from mcpo_cli.testing import mini_batch
from mcpo_cli.testing import step as random_step
from tests.golden.literature import ADVANTAGE, DRIFT, f2, loss, near, prepared, signals, step

GRPO = [-0.092098, -0.061735, 0, 0.160503, 0.131409, -0.075816, 0.042508, 0.035863, 0.056244]
DAPO = [-0.122797, -0.082313, 0, 0.142669, 0.116808, -0.033696, 0.056678, 0.047817, 0.074992]
GSPO = [0, 0, 0, 0.145229, 0.145229, -0.075816, 0.044096, 0.044096, 0.044096]
CISPO = [-0.122797, -0.082313, -0.165758, 0.142669, 0.116808, -0.033696, 0.056678, 0.047817, 0.074992]
TIGHT = [-0.122797, -0.088889, -0.133333, 0.133333, 0.116808, -0.044444, 0.056678, 0.047817, 0.066667]
GOLDEN: list[tuple[str, dict[str, Any], float, list[float]]] = [
    ("grpo", {}, 0.096879, GRPO),
    ("dapo", {"aggregation": "token-mean"}, 0.057936, DAPO),
    ("dapo", {}, 0.090212, GRPO),
    ("dr_grpo", {}, 0.018795, [-0.034537, -0.023151, 0, 0.040126, 0.032852, -0.009477, 0.015941, 0.013449, 0.021092]),
    ("gpg", {}, 0.009444, [-1 / 9] * 3 + [1 / 9] * 2 + [-1 / 18] + [1 / 18] * 3),
    ("gspo", {}, 0.096830, GSPO),
    ("gspo", {"clip_low": 0.05, "clip_high": 0.05}, 0.084430, GSPO),
    ("luspo", {}, 0.151664, [0, 0, 0, 0.290459, 0.290459, -0.075816, 0.132288, 0.132288, 0.132288]),
    ("gmpo", {}, 0.079695, [-0.089078] * 3 + [0.145229] * 2 + [-0.075816] + [0.044096] * 3),
    (
        "gmpo",
        {"clip_low": 0.2, "clip_high": 0.2},
        0.096930,
        [-0.083333, -0.083333, 0, 0.145229, 0.145229, -0.075816, 0.044096, 0.044096, 0.044096],
    ),
    ("cispo", {}, -0.069383, CISPO),
    ("cispo", {"ratio_min": 0.8, "ratio_max": 1.2}, -0.049152, TIGHT),
    (
        "sapo",
        {},
        0.036502,
        [-0.091843, -0.060710, -0.117094, 0.156987, 0.131314, -0.072956, 0.042504, 0.035672, 0.054388],
    ),
    ("vespo", {}, -0.102973, [-0.085313] * 3 + [0.135750] * 2 + [-0.066539] + [0.063865] * 3),
    (
        "kl_cov",
        {"share": 0.25},
        0.036067,
        [-0.111686, -0.082313, -0.165758, 0.142669, 0.127919, -0.033696, 0.056678, 0.047817, 0.074992],
    ),
]


@pytest.mark.parametrize(("name", "options", "value", "gradient"), GOLDEN, ids=lambda value: str(value)[:30])
def test_value_and_gradient(name: str, options: dict[str, Any], value: float, gradient: list[float]) -> None:
    assert loss(get(name, **options)) == near([value, *gradient])


def test_sums_of_tokens() -> None:
    assert loss(get("grpo", aggregation="seq-mean-token-sum"))[0] == near(0.150357)
    assert loss(get("rloo", ratio="sequence-sum"))[0] == near(0.109811)


# As disco's own signals would have it for one group with two right and two wrong rollouts: G/#right and -G/#wrong.
PAIR = (2.0, -2.0, 2.0, -2.0)


def test_disco_as_one_group() -> None:
    found = signals(get("disco"), step([(1, 0, 1, 0)]))
    assert found.advantage.tolist() == [list(PAIR)]
    batch = f2(advantage=PAIR)
    logl = [-1 / 6] * 3 + [0.246375] * 2 + [-0.5] + [0.169083] * 3
    assert loss(get("disco"), batch) == near([0.296051, *logl])
    ratio = [-0.184195, -0.123470, -0.248637, 0.335558, 0.274732, -0.303265, 0.162326, 0.136948, 0.214778]
    assert loss(get("disco", score="lratio", tau=1.0), batch) == near([0.263746, *ratio])
    assert loss(get("disco", negatives="mean"), batch)[0] == near(0.295)


def test_the_constraint_dwarfs_the_objective_at_once() -> None:
    """d = -|d|/10: K = .023 is far above 1e-4."""
    batch = f2([[-abs(d) / 10 for d in row] for row in DRIFT], PAIR)
    gradient = [-2.711111] * 3 + [-2.299227] * 2 + [-3.044444] + [-2.374589] * 3
    assert loss(get("disco"), batch) == near([0.262035, *gradient])
    without = loss(get("disco", beta=0.0), batch)
    excess = 0.023 - 1e-4
    assert loss(get("disco"), batch)[0] - without[0] == pytest.approx(1e3 / 2 * excess**2, abs=1e-9)


def test_disco_of_several_groups_divides_by_all_prompts() -> None:
    """A dead group next to the live one halves the objective; without the constraint it has no gradient itself."""
    of, method = step([(1, 0, 1, 0), (1, 1, 1, 1)]), get("disco", beta=0.0, score="lratio", negatives="mean")
    found = signals(method, of)
    assert found.advantage.tolist() == [list(PAIR), [0, 0, 0, 0]]
    assert found.has_gradient_PG.tolist() == [[True] * 4, [False] * 4]
    assert signals(get("disco"), of).has_gradient_PG.all()
    # #right = 2 and G = 4: a token of a right rollout has the gradient -ratio/(#right P |y|), with P = 2.
    batch = mini_batch(method, random_step((2, 4)), signals(method, random_step((2, 4))))
    (gradient_BT,) = torch.autograd.grad(reduce(method.token_loss(batch), batch.mask_BT), batch.logp_BT)
    right_B, ratio_BT = batch.advantage_BT[:, 0] > 0, batch.log_ratio_BT.exp()
    expected_BT = -ratio_BT / (2 * 2 * batch.length_B[:, None]) * batch.mask_BT
    assert torch.allclose(gradient_BT[right_B], expected_BT[right_B].detach())
    assert not gradient_BT[4:].any()


def test_drpo_weighs_right_answers_by_brevity() -> None:
    of = step([(1, 0, 1, 0)], length_PG=torch.tensor([[3, 2, 1, 3]]))
    found = signals(get("drpo"), of)
    assert (found.advantage[0, ::2] / 4).tolist() == near([0.075858, 0.924142])
    assert found.advantage[0, 1::2].tolist() == [-2, -2]
    assert loss(get("drpo", beta=0.0), f2(advantage=found.advantage[0].tolist()))[0] == near(0.592950)


def test_copo_adds_two_surrogates() -> None:
    weight, batch_wide = (0.9, 0.2, 0.2, 0.9), (-0.5, 0.8, 0.8, -0.5)
    columns = {
        "local": [w * A for w, A in zip(weight, ADVANTAGE, strict=True)],
        "batch": [(1 - w) * A for w, A in zip(weight, batch_wide, strict=True)],
    }
    gradient = [-0.078283, -0.055561, 0.006216, 0.032101, -0.057820, -0.112208, 0.042508, 0.035863, 0.056244]
    assert loss(get("copo"), f2(columns=columns)) == near([-0.313607, *gradient])


def test_rl_zvp_follows_the_entropies_of_now() -> None:
    """By hand: alpha .1, an all-right sequence, an all-wrong one, one of a mixed group, an all-wrong one; ratio 1."""
    H_BT = torch.tensor([[0.2, 0.6, 1.0], [0.4, 0.1, 9.0], [0.7, 9.0, 9.0], [1.0, 0.2, 0.6]])
    batch = f2([[0.0] * 3] * 4, columns={"side": [1, -1, 0, -1]}).replace(entropy_BT=H_BT)
    A = [0.02, 0.06, 0.10, 0, -0.03, 0.5, 0, -0.08, -0.04]
    expected = [-a / (4 * n) for a, n in zip(A, [3, 3, 3, 2, 2, 1, 3, 3, 3], strict=True)]
    assert loss(get("rl_zvp", entropy="current"), batch)[1:] == near(expected)
    # Those of the rollout policy are in the advantages already.
    assert loss(get("rl_zvp"), batch) == near(loss(get("grpo"), f2([[0.0] * 3] * 4)))
    unscaled = loss(get("rl_zvp", entropy="current", entropy_scaling=False), batch)[1:]
    assert unscaled == near([-0.1 / 12] * 3 + [0.1 / 8] * 2 + [-0.5 / 4] + [0.1 / 12] * 3)


def test_covariances_and_what_clip_cov_may_drop() -> None:
    batch, method = f2(), get("clip_cov", cov_low=0.1, share=0.25)
    cov_BT = covariance(batch)
    expected = [0.492222, -0.607778, 0.392222, -0.842222, 1.057778, -0.303889, -0.106111, -0.321111, 0.153889]
    assert cov_BT[batch.mask_BT].tolist() == near(expected)
    dropped = set()
    for seed in range(30):
        kept_N = prepared(method, batch, seed).columns["kept"][batch.mask_BT]
        assert int((kept_N == 0).sum()) == 2
        dropped |= set((kept_N == 0).nonzero().squeeze(-1).tolist())
    # Token 3 is clipped already; 1, 5 and 9 are the candidates.
    assert dropped == {0, 4, 8}
    everything = prepared(get("clip_cov", cov_low=0.1, share=1.0), batch)
    gradient = list(DAPO)
    for place in dropped:
        gradient[place] = 0
    assert loss(get("clip_cov"), everything)[1:] == near(gradient)
    assert prepared(get("clip_cov"), batch).columns["kept"][batch.mask_BT].tolist() == [1, 1, 1, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("q", "low", "high"), [(0.9, 0.768742, 1.187184), (0.1, 0.5, 2), (0.01, 0.5, 5), (0.0001, 0.5, 10)]
)
def test_dcpo_bounds_widen_for_unlikely_tokens(q: float, low: float, high: float) -> None:
    batch = f2().replace(logp_old_BT=torch.full((4, 3), math.log(q), dtype=torch.float64))
    found = get("dcpo").bounds(batch)
    assert [float(bound_BT[0, 0]) for bound_BT in found] == near([low, high])


def test_dcpo_clips_at_its_bounds() -> None:
    """Token 3 of F2 (q = e^-.9, ratio e^.4, A > 0): its bound is 1/2 + 1/2 sqrt(1 + .8 e^.9) = 1.359972."""
    bound = 0.5 + 0.5 * math.sqrt(1 + 0.8 * math.exp(0.9))
    assert math.exp(0.4) > bound > 1.2
    assert loss(get("dcpo"))[3] == 0
    assert loss(get("dcpo", clip_high=0.5))[3] == near(-math.exp(0.4) / 12)


RATIOS = (
    "grpo",
    "gspo",
    "gmpo",
    "cispo",
    "sapo",
    "vespo",
    "gpg",
    "rloo",
    "copo",
    "dual_clip",
    "dppo",
    "ipo",
    "m2po",
    "dro",
    "topr",
    "fipo",
    "real",
)


@pytest.mark.parametrize("name", RATIOS)
def test_gradients_agree_at_a_ratio_of_1(name: str) -> None:
    """For equal aggregation and equal A: methods differ in the ratio only after the first gradient step."""
    fixed = name in ("gspo", "gmpo", "real")
    method = get(name) if fixed else get(name, aggregation="seq-mean-token-mean")
    columns = {"local": [0.25 * A for A in ADVANTAGE], "batch": [0.75 * A for A in ADVANTAGE]}
    at_rest = f2([[0.0] * 3] * 4, columns=columns if name == "copo" else None)
    expected = [-A / (4 * n) for A, n in zip(ADVANTAGE, (3, 2, 1, 3), strict=True) for _ in range(n)]
    assert loss(method, at_rest)[1:] == near(expected)


def test_sapo_at_a_ratio_of_1_has_the_value_of_its_gate() -> None:
    values = [-2 * A / (1.0 if A > 0 else 1.05) / 4 for A in ADVANTAGE]
    assert loss(get("sapo"), f2([[0.0] * 3] * 4))[0] == near(sum(values))


def test_one_token_a_sequence_makes_gspo_grpo() -> None:
    one = f2([[d[0], 0, 0] for d in DRIFT])
    short = one.replace(mask_BT=torch.arange(3) < torch.ones(4, 1))
    for name, other in (("gspo", "grpo"), ("luspo", "gspo")):
        clip = {"clip_low": 0.15, "clip_high": 0.12}
        assert loss(get(name, **clip), short) == near(loss(get(other, **clip), short))


def test_gmpo_without_clipping_is_gspo_without_clipping() -> None:
    assert loss(get("gmpo", clip_low=9.0, clip_high=9.0)) == near(loss(get("gspo", clip_low=0.99, clip_high=9.0)))


EXACT_SCALE = sorted(set(registry()) - {"copo", "disco", "drpo", "clip_cov", "kl_cov", "dro", "grpo_kl"})


@pytest.mark.parametrize("name", EXACT_SCALE)
def test_the_policy_term_is_homogeneous_in_the_advantage(name: str) -> None:
    method = get(name)
    columns = {column: [0.0] * 4 for column in method.columns}
    once, twice = (loss(method, f2(advantage=[k * A for A in ADVANTAGE], columns=columns)) for k in (1, 2))
    assert twice == near([2 * value for value in once])
