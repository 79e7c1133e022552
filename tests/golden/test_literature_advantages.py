"""Advantages of the method zoo: numbers worked out by hand or by the authors' released functions, on fixture F1."""

import dataclasses
import math
from typing import Any

import pytest
import torch

from mcpo_cli.literature_methods.batches import answer_entropy, beta_shape
from mcpo_cli.literature_methods.histories import Spo, smoothed
from mcpo_cli.methods import get, registry
from tests.golden.literature import F1, LENGTH, advantages, f1, near, signals, step

NOTHING = [0.0, 0.0, 0.0, 0.0]


def of_pairs(*pairs: tuple[float, float]) -> list[list[float]]:
    """The advantage of a correct and of an incorrect rollout for each group of F1."""
    return [[right if c else wrong for c in group] for (right, wrong), group in zip(pairs, F1, strict=True)]


PAIRS: list[tuple[str, dict[str, Any], list[tuple[float, float]]]] = [
    ("grpo", {}, [(1.732051, -0.577350), (0.577350, -1.732051), (0, 0), (0, 0)]),
    ("grpo", {"ddof": 1}, [(1.5, -0.5), (0.5, -1.5), (0, 0), (0, 0)]),
    ("mcpo", {}, [(1.732051, -0.577350), (0.666667, -2), (0, 0), (0, 0)]),
    ("dr_grpo", {}, [(0.75, -0.25), (0.25, -0.75), (0, 0), (0, 0)]),
    ("rloo", {}, [(1, -0.333333), (0.333333, -1), (0, 0), (0, 0)]),
    ("reinforce_pp", {}, [(1.157072, -0.841507)] * 4),
    (
        "reinforce_pp",
        {"baseline": "group"},
        [(2.398107, -0.589699), (0.904204, -2.083601), (0.157253, 0), (0, 0.157253)],
    ),
    ("lite_ppo", {}, [(1.5, -0.5), (0.5, -1.5), (0, 0), (0, 0)]),
    ("lite_ppo", {"ddof": 1}, [(1.452369, -0.484123), (0.484123, -1.452369), (0, 0), (0, 0)]),
    ("ngrpo", {}, [(1.224745, -0.816497), (0.5, -2), (0, 0), (0, -0.5)]),
    ("ngrpo", {"ddof": 1}, [(1.095445, -0.730297), (0.447214, -1.788854), (0, 0), (0, -0.447214)]),
    ("qae", {}, [(2.309401, 0), (0, -2.309401), (0, 0), (0, 0)]),
    ("bnpo", {}, [(0.742179, -0.247393), (0.247393, -0.742179), (0, 0), (0, 0)]),
    ("passk", {"k": 2}, [(1, -0.333333), (0, 0), (0, 0), (0, 0)]),
    ("psr_nsr", {}, [(0.1, -1)] * 4),
    ("psr_nsr", {"positive": 1, "negative": 0}, [(1, 0)] * 4),
    ("max_rl", {}, [(3, -1), (0.333333, -1), (0, 0), (0, 0)]),
    ("topr", {}, [(1, -1)] * 4),
    ("topr", {"baseline": -0.5}, [(1.5, -0.5)] * 4),
    ("real", {}, [(4, -2), (2, -4), (0, 0), (0, 0)]),
    ("dro", {}, [(0.75, -0.25), (0.25, -0.75), (0, 0), (0, 0)]),
    ("opo", {}, [(0.8, -0.2), (0.4, -0.6), (0, 0), (0, 0)]),
    ("vespo", {}, [(1.732051, -0.577350), (0.577350, -1.732051), (0, 0), (0, 0)]),
]


@pytest.mark.parametrize(("name", "options", "pairs"), PAIRS, ids=lambda value: str(value)[:24])
def test_right_and_wrong_of_each_group(name: str, options: dict[str, Any], pairs: list[tuple[float, float]]) -> None:
    for found, expected in zip(advantages(get(name, **options)), of_pairs(*pairs), strict=True):
        assert found == near(expected)


def test_gpg_counts_live_rollouts_and_verl_counts_rewards() -> None:
    of = step([F1[0], F1[1], F1[3]])
    assert advantages(get("gpg"), of)[:2] == [near([1.125, -0.375, -0.375, -0.375]), near([0.375] * 3 + [-1.125])]
    assert advantages(get("gpg", count="nonzero"), of)[0] == near([2.25, -0.75, -0.75, -0.75])
    assert advantages(get("gpg", count="nonzero"), of)[1] == near([0.75] * 3 + [-2.25])
    assert advantages(get("gpg"), of)[2] == NOTHING
    assert advantages(get("gpg"), step([F1[3], F1[3]])) == [NOTHING, NOTHING]


def test_quantile_baselines() -> None:
    of = step([(1, 1, 0, 0)])
    assert advantages(get("qae"), of) == [near([2, 2, 0, 0])]
    assert advantages(get("qae", quantile=0.6), of) == [near([0, 0, -2, -2])]
    # The released code interpolates: the baseline of [0, 0, 1, 1] at K = .4 is .2.
    assert advantages(get("qae", interpolation="linear"), of) == [near([1.6, 1.6, -0.4, -0.4])]


@pytest.mark.parametrize("quantile", [0.2, 0.4, 0.6, 0.8])
def test_quantile_baseline_is_0_up_to_p_of_1_minus_k_then_1(quantile: float) -> None:
    for right in range(1, 5):
        ((first, *_, last),) = advantages(get("qae", quantile=quantile), step([[1] * right + [0] * (5 - right)]))
        below = right / 5 <= 1 - quantile + 1e-12
        assert (first > 0, last < 0) == (below, not below)


@pytest.mark.parametrize(
    ("options", "scarce", "common"),
    [({}, 2.5, 0), ({"scale_by": "mad"}, 1000, 0), ({"scale_by": "mad", "rescale": True}, 5000, 0)],
)
def test_median_baseline_of_binary_rewards(options: dict[str, Any], scarce: float, common: float) -> None:
    of = step([(1, 0, 0, 0, 0), (1, 1, 1, 0, 1)])
    assert advantages(get("mc_grpo", **options), of) == [
        near([scarce, common, common, common, common]),
        near([common, common, common, -scarce, common]),
    ]


def test_median_baseline_of_graded_rewards_leaves_the_pivot_out() -> None:
    of = step([(0, 0, 0, 1, 1)], [(0, 0.2, 0.5, 0.6, 1)])
    assert advantages(get("mc_grpo", scale_by="mad"), of) == [near([-1.661130, -0.996678, 0, 0.332226, 1.661130])]
    found = signals(get("mc_grpo"), of)
    assert found.advantage.tolist() == [near([-1.453095, -0.871857, 0, 0.290619, 1.453095])]
    assert found.counts_PG is not None
    assert found.counts_PG.tolist() == [[True, True, False, True, True]]
    assert found.has_gradient_PG.tolist() == [[True, True, False, True, True]]


def test_one_rollout_at_the_median_does_not_count() -> None:
    found = signals(get("mc_grpo"), step([(1, 0, 0, 0, 0), (1, 1, 1, 1, 1)]))
    assert found.counts_PG is not None
    assert found.counts_PG.tolist() == [[True, False, True, True, True], [False, True, True, True, True]]


def test_beta_weights() -> None:
    assert [float(value) for value in beta_shape(f1().p_P)] == near([1.033333, 1.033333])
    p_P = torch.tensor([1, 2, 3, 4]) / 8
    assert [float(value) for value in beta_shape(p_P.double())] == near([1.755208, 2.661458])
    found = advantages(get("bnpo"), step([[1] * c + [0] * (8 - c) for c in (1, 2, 3, 4)]))
    assert [group[0] for group in found] == near([0.698523, 0.458272, 0.380638, 0.355026])
    assert [group[-1] for group in found] == near([-0.099789, -0.152757, -0.228383, -0.355026])


@pytest.mark.parametrize("groups", [[(1, 0)], [(1, 0), (0, 1)], [(1, 1), (0, 0)]])
def test_beta_weight_is_1_without_a_fit(groups: list[tuple[int, int]]) -> None:
    """One prompt, no variance, or more variance than any Beta distribution has: the advantage is that of dr_grpo."""
    assert advantages(get("bnpo"), step(groups)) == advantages(get("dr_grpo"), step(groups))


def test_beta_of_three_halves_is_grpo_up_to_8_over_pi() -> None:
    """p = 1/4, 1/2, 3/4 fit Beta(3/2, 3/2), whose density is 8/pi sqrt(p(1 - p))."""
    of = step([(1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 0)])
    assert [float(value) for value in beta_shape(of.p_P)] == near([1.5, 1.5])
    grpo_PG = signals(get("grpo"), of).advantage
    assert torch.allclose(signals(get("bnpo"), of).advantage, grpo_PG * math.pi / 8, atol=1e-12)


PASSK = [(1, -0.142857), (0.522233, -0.174078), (0.277350, -0.166410), (0.120386, -0.120386), (0, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize(("right", "pair"), list(enumerate(PASSK, 1)))
def test_pass_at_4_of_8(right: int, pair: tuple[float, float]) -> None:
    ((first, *_, last),) = advantages(get("passk"), step([[1] * right + [0] * (8 - right)]))
    assert (first, last) == near(pair)


def test_copo_entropies_weights_and_global_advantages() -> None:
    method, of = get("copo"), f1()
    assert of.answer_PG is not None
    assert answer_entropy(of.answer_PG).tolist() == near([1.5, 0.811278, 0, 1.5])
    weight_P = torch.tensor([0.924142, 0.280172, 0.006693, 0.924142]).double()
    for options, expected in (
        ({}, [-0.632456, 0.632456, 1.264911, -1.264911]),
        ({"consistency": True}, [-0.758576, 0.289849, 1.505327, -1.036600]),
        ({"ddof": 1}, [-0.547723, 0.547723, 1.095445, -1.095445]),
    ):
        columns = signals(get("copo", **options), of).columns
        assert columns["batch"][:, 0].tolist() == near(((1 - weight_P) * torch.tensor(expected)).tolist())
    grpo_PG = signals(get("grpo"), of).advantage
    assert torch.allclose(signals(method, of).columns["local"], grpo_PG * weight_P[:, None], atol=1e-6)


def test_copo_blends() -> None:
    of, grpo_PG = f1(), signals(get("grpo")).advantage
    soft, zero, forced, none, batch = (
        signals(get("copo", blend=blend), of) for blend in ("soft", "soft-zero", "forced", "none", "global")
    )
    wrong_PG = ~of.correct_PG
    # A wrong answer sees the global loss alone, in full.
    in_full_PG = batch.columns["batch"]
    assert torch.equal(zero.columns["batch"][wrong_PG], in_full_PG[wrong_PG])
    assert torch.equal(zero.columns["batch"][~wrong_PG], soft.columns["batch"][~wrong_PG])
    assert torch.equal(forced.columns["batch"][2:], in_full_PG[2:])
    assert torch.equal(forced.columns["batch"][:2], soft.columns["batch"][:2])
    assert torch.equal(none.advantage, grpo_PG)
    assert not batch.columns["local"].any()
    assert soft.has_gradient_PG.all()
    # Without another prompt there is no global part.
    alone = signals(get("copo"), step([F1[0]], answer_PG=torch.tensor([[7, 3, 3, 5]])))
    assert not alone.columns["batch"].any()
    assert alone.columns["local"].all()


def test_unlikely_right_answers_are_worth_more() -> None:
    expected = {
        (0, "code"): [
            [1.732051, -0.577350, -0.577350, -0.577350],
            [0.310460, 0.776151, 0.620920, -1.707531],
            [-1.341641, 1.341641, -0.447214, 0.447214],
            NOTHING,
        ],
        (1, "code"): [
            [1.5, -0.5, -0.5, -0.5],
            [0.268866, 0.672166, 0.537733, -1.478765],
            [-1.161895, 1.161895, -0.387298, 0.387298],
            NOTHING,
        ],
    }
    for (ddof, convention), groups in expected.items():
        found = advantages(get("unlikeliness", ddof=ddof, convention=convention))
        assert [near(group) for group in groups] == found
    assert advantages(get("unlikeliness", convention="paper"))[1] == near([0.290910, 0.789613, 0.623379, -1.703902])
    assert advantages(get("unlikeliness", mastered="zero"))[2] == NOTHING
    assert advantages(get("unlikeliness", mastered="zero"))[1] == advantages(get("unlikeliness"))[1]


def entropies(*groups: tuple[tuple[float, ...], ...], right: tuple[bool, ...]) -> Any:
    length_PG = torch.tensor([[len(row) for row in group] for group in groups])
    T = int(length_PG.max())
    rows = [[[*row, *[9.0] * (T - len(row))] for row in group] for group in groups]
    return step([[int(c)] * 2 for c in right], length_PG=length_PG, entropy_PGT=torch.tensor(rows, dtype=torch.float64))


def test_zero_variance_groups_follow_the_entropy() -> None:
    of = entropies(((0.2, 0.6, 1.0), (0.4, 0.1)), ((0.2, 0.6, 1.0), (0.4, 0.1)), right=(True, False))
    found = signals(get("rl_zvp"), of).advantage
    assert found[0].tolist() == [near([0.02, 0.06, 0.10]), near([0.04, 0.01, 0])]
    assert found[1].tolist() == [near([-0.08, -0.04, 0]), near([0, -0.03, 0])]
    unscaled = signals(get("rl_zvp", entropy_scaling=False), of).advantage
    assert unscaled[:, 0].tolist() == [near([0.1] * 3), near([-0.1] * 3)]
    assert not signals(get("rl_zvp", learns_from="right"), of).has_gradient_PG[1].any()
    assert not signals(get("rl_zvp", learns_from="wrong"), of).has_gradient_PG[0].any()
    # Equal entropies blame no token of a wrong response, but at the next gradient step they may differ.
    level = entropies(((0.5, 0.5), (0.4,)), right=(False,))
    assert not signals(get("rl_zvp"), level).has_gradient_PG.any()
    assert signals(get("rl_zvp", entropy="current"), level).has_gradient_PG.all()


def test_top_entropy_keeps_the_tokens_above_the_quantile() -> None:
    """The .8-quantile of [.2, .6, 1, .4, .1] is .68."""
    of = entropies(((0.2, 0.6, 1.0), (0.4, 0.1)), right=(True,))
    of = step([(1, 0)], length_PG=of.length_PG, entropy_PGT=of.entropy_PGT)
    assert signals(get("top_entropy"), of).advantage.tolist() == [[[0, 0, 1], [0, 0, 0]]]
    assert signals(get("top_entropy", share=1.0), of).advantage.tolist() == [[[1, 1, 1], [-1, -1, 0]]]


def test_entropy_bonus_is_at_most_half_the_advantage() -> None:
    """By hand: alpha .4, kappa 2, A = +-1, H = .5, 3, 2, .1."""
    of = step([(1, 0)], entropy_PGT=torch.tensor([[[0.5, 3.0], [2.0, 0.1]]], dtype=torch.float64))
    assert signals(get("entropy_bonus"), of).advantage.tolist() == [[near([1.2, 1.5]), near([-0.5, -0.96])]]
    dead = step([(1, 1)], entropy_PGT=of.entropy_PGT)
    assert not signals(get("entropy_bonus"), dead).advantage.any()


def test_sharpening_lifts_unlikely_right_answers() -> None:
    found = advantages(get("sharpen"))
    assert found[0] == near([2.044762, -0.577350, -0.577350, -0.577350])
    assert found[1] == near([0.577350, 0.872662, 0.626121, -1.732051])
    assert found[2:] == [NOTHING, NOTHING]


def test_shortest_rollouts_are_kept() -> None:
    found = signals(get("gfpo", keep=2))
    assert found.advantage.tolist() == [near([1, 0, 0, -1]), NOTHING, NOTHING, NOTHING]
    assert found.counts_PG is not None
    assert found.counts_PG.sum(-1).tolist() == [2, 2, 2, 2]
    assert found.counts_PG[0].tolist() == [True, False, False, True]
    # Most reward per token: in group 1 the short correct ones; all of its rollouts are correct.
    by_reward = signals(get("gfpo", keep=2, metric="efficiency"))
    assert by_reward.counts_PG is not None
    assert by_reward.counts_PG[:2].tolist() == [[True, True, False, False], [True, True, False, False]]


def test_spo_remembers_by_drift() -> None:
    """a = b = 4, one rollout a visit: (r, D) = (1, 0), (1, .006), (0, .03)."""
    method, state = Spo(), {}
    logp, seen = -1.0, []
    for right, drift in ((1, 0.0), (1, 0.006), (0, 0.03)):
        logp += drift
        of = step(
            [[right]],
            length_PG=torch.tensor([[2]]),
            prompt_P=torch.tensor([7]),
            logp_PGT=torch.full((1, 1, 2), logp).double(),
        )
        before = 0.5 if not state else float(state["a"] / (state["a"] + state["b"]))
        _, state = method.signals(of, state)
        seen.append((right - before, float(state["a"]), float(state["b"])))
    assert seen == [
        near((0.5, 4.84, 3.84)),
        near((0.442396, 5.515880, 3.582847)),
        near((-0.606225, 4.826395, 4.134991)),
    ]
    assert method.kept(torch.tensor([0.0, 0.006, 0.03])).tolist() == near([0.96, 0.933033, 0.875])


def test_spo_compares_with_the_value_before_the_step_and_updates_once() -> None:
    method = get("spo", keep_min=0.875, keep_max=0.875)
    assert method.needs == frozenset()
    state = {
        "prompt": torch.tensor([3, 5]),
        "a": torch.tensor([6.0, 2.0]).double(),
        "b": torch.tensor([2.0, 6.0]).double(),
    }
    state["logp"] = torch.zeros(2).double()
    found, after = method.signals(step([(1, 0), (1, 1), (0, 0)], prompt_P=torch.tensor([5, 9, 5])), state)
    raw = torch.tensor([[0.75, -0.25], [0.5, 0.5], [-0.25, -0.25]]).double()
    assert torch.allclose(found.advantage, (raw - raw.mean()) / raw.std(correction=0))
    assert after["prompt"].tolist() == [3, 5, 9]
    # Prompt 5 came twice in one step: one forgetting, both groups counted. Prompt 3 did not come.
    assert after["a"].tolist() == near([6, 2 * 0.875 + 1, 4 * 0.875 + 2])
    assert after["b"].tolist() == near([2, 6 * 0.875 + 3, 4 * 0.875])
    assert state["a"].tolist() == [6, 2]


def test_dcpo_smooths_over_visits() -> None:
    new, total = torch.tensor([0.0, 1.732051]).double(), torch.tensor([0.8, 1.2]).double()
    assert smoothed(new, total, torch.tensor(4)).tolist() == near([0.2, 1.333013])
    method = get("dcpo")
    first, state = method.signals(step([(1, 0, 0, 0)]), {})
    assert first.advantage.tolist() == [near([1.732051, -0.577350, -0.577350, -0.577350])]
    assert (state["visits"].tolist(), state["count"].tolist(), state["sum"].tolist()) == ([1], [4], [1])
    # Then all correct: alone they would have no gradient. All eight rewards have mean 5/8 and deviation sqrt(15)/8.
    second, _ = method.signals(step([(1, 1, 1, 1)]), state)
    assert second.advantage.tolist() == [near([3 / math.sqrt(15) / 2] * 4)]


def test_dead_groups_stay_dead_unless_the_method_lives_on_them() -> None:
    length_PG = torch.tensor([[1, 2, 3, 4], [4, 3, 2, 1]])
    tokens = torch.ones(2, 4, 4, dtype=torch.float64)
    dead = step(
        [(1, 1, 1, 1), (0, 0, 0, 0)],
        length_PG=length_PG,
        logp_PGT=-tokens * length_PG[..., None],
        entropy_PGT=tokens,
        answer_PG=torch.zeros(2, 4),
        collision_PGT=tokens,
        greedy_reward_P=torch.tensor([0.0, 1.0]),
    )
    lives: dict[str, tuple[bool, bool]] = {
        "ngrpo": (False, True),
        "psr_nsr": (True, True),
        "topr": (True, True),
        "reinforce_pp": (True, True),
        "remax": (True, True),
        "unlikeliness": (True, False),
        "copo": (True, True),
        "spo": (True, True),
        "rl_zvp": (True, False),
        "grpo_lambda": (True, False),
        "gdpo": (True, True),
    }  # (p = 1, p = 0); the entropies are all alike, so rl_zvp has no wrong token to blame
    for name, kind in registry().items():
        method = kind()
        found = signals(method, dead).advantage.flatten(1).any(-1).tolist()
        assert tuple(found) == lives.get(name, (False, False)), name
        kept = (bool(method.keeps(1.0)), bool(method.keeps(0.0)))
        assert method.uses_dead_groups or all(kept[place] for place in (0, 1) if found[place]), name


def test_gdpo_normalises_each_channel_and_then_the_batch() -> None:
    expected = [
        [1.639705, -1.443872, -0.770894, 0.575061],
        [1.443872, 0.770894, 0.097916, -2.312683],
        [0, 0, 0, 0],
        [-1.009467, -0.336489, 0.336489, 1.009467],
    ]
    assert advantages(get("gdpo")) == [near(row) for row in expected]
    # Without lengths, over tokens: what REINFORCE++ makes of GRPO's advantages in the place of rewards.
    of = f1()
    normal_PG = signals(get("grpo"), of).advantage
    whitened = signals(get("reinforce_pp"), dataclasses.replace(of, reward_PG=normal_PG)).advantage
    assert torch.allclose(signals(get("gdpo", brevity=0.0, whiten="tokens"), of).advantage, whitened)


def test_remax_subtracts_the_reward_of_the_greedy_response() -> None:
    """By hand, with greedy rewards 1, 0, 1, 0.5: a group that is all right keeps its gradient where that is 0.5."""
    of = step([(1, 0, 0, 0), (1, 1, 1, 0), (1, 1, 1, 1), (1, 1, 1, 1)])
    of = dataclasses.replace(of, greedy_reward_P=torch.tensor([1.0, 0.0, 1.0, 0.5]))
    expected = [[0, -1, -1, -1], [1, 1, 1, 0], [0, 0, 0, 0], [0.5, 0.5, 0.5, 0.5]]
    assert advantages(get("remax"), of) == [near(row) for row in expected]
    kept = signals(get("remax"), of).has_gradient_PG
    assert kept.tolist() == [[value != 0 for value in row] for row in expected]


def test_token_baselines_weigh_rewards_by_uncertainty() -> None:
    """By hand: W of the first rollout .5, 1, 1.5, of the second 1, 3; rewards 1 and 0, and a tail of one token."""
    half, length_PG = math.log(0.5), torch.tensor([[3, 2]])
    logp_PGT = torch.tensor([[[half, half, half], [half, half, 0.0]]]).double()
    collision_PGT = torch.tensor([[[0.5, 0.5, 0.5], [1.0, 2.0, 0.0]]]).double()
    of = step([(1, 0)], length_PG=length_PG, logp_PGT=logp_PGT, collision_PGT=collision_PGT)
    found = signals(get("otb"), of).advantage
    assert found.tolist() == [[near([1 - 1 / 3, 1 - 1 / 4, 1]), near([-1 / 3, -1 / 4, 0])]]
    dead = step([(1, 1)], length_PG=length_PG, logp_PGT=logp_PGT, collision_PGT=collision_PGT)
    assert not signals(get("otb"), dead).advantage.any()


def test_only_the_best_prompts_pay_for_length() -> None:
    """By hand: of two prompts the one with p = 3/4 pays; its right answers have lengths 1, 2, 3: z = +-sqrt(3/2), 0."""
    of = step(F1[:2], length_PG=torch.tensor(LENGTH[:2]))
    found = advantages(get("grpo_lambda", alpha=0.2), of)
    assert found[0] == near(advantages(get("grpo"), of)[0])
    z = math.sqrt(1.5)
    reward = torch.tensor([1 - 0.2 / (1 + math.exp(z)), 0.9, 1 - 0.2 / (1 + math.exp(-z)), 0.0]).double()
    assert found[1] == near(((reward - reward.mean()) / reward.std(correction=0)).tolist())
    # A tie takes both in.
    tied = step([F1[1], F1[1]], length_PG=torch.tensor([LENGTH[1], LENGTH[1]]))
    assert advantages(get("grpo_lambda", alpha=0.2), tied) == [near(found[1])] * 2
