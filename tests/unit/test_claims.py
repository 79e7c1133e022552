"""Verdicts on claims: planted effects are found, none are invented, and what cannot be tested says so."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from mcpo_cli.analysis import claims
from mcpo_cli.analysis.artifacts import Workshop, registry
from mcpo_cli.analysis.claims import Claim, Outcome
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.measures import STATISTICS
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.config.yaml_files import read_yaml
from mcpo_cli.errors import ConfigError
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import Attempt, eval_steps
from mcpo_cli.statistics import power
from tests import fakes
from tests.fakes import TIERS, write_runs

GREATER = Claim("id", "", "table1", "pass@1", "MCPO", "greater", baseline="DAPO")
LESS = dataclasses.replace(GREATER, relation="less")
WITHIN = dataclasses.replace(GREATER, relation="within", margin=0.02)


def outcome(claim: Claim, values: list[float] | np.ndarray) -> Outcome:
    return claims.outcome(claim, "toy-s", "", list(values))


def verdict(claim: Claim, values: list[float] | np.ndarray) -> str:
    return claims.verdicts([outcome(claim, values)])[0].verdict


UP = [0.05, 0.06, 0.055, 0.062]


@pytest.mark.parametrize(
    ("claim", "values", "expected"),
    [
        (GREATER, UP, "supported"),
        (GREATER, [-value for value in UP], "contradicted"),
        (GREATER, [0.05, -0.04, 0.02, -0.03], "unresolved"),
        (LESS, [-value for value in UP], "supported"),
        (LESS, UP, "contradicted"),
        (WITHIN, [0.003, -0.002, 0.004, -0.001], "supported"),
        (WITHIN, UP, "contradicted"),
        (WITHIN, [-value for value in UP], "contradicted"),
        (WITHIN, [0.05, -0.04, 0.02, -0.03], "unresolved"),
        (GREATER, [0.05], "not testable"),
        (GREATER, [], "not testable"),
    ],
)
def test_planted_effects_get_their_verdict(claim: Claim, values: list[float], expected: str) -> None:
    assert verdict(claim, values) == expected


def test_what_cannot_be_tested_says_why() -> None:
    one, none = outcome(GREATER, [0.05]), outcome(GREATER, [])
    assert (one.why, one.effect.mean, one.effect.n) == ("one seed", 0.05, 1)
    assert (none.why, none.effect.n) == ("no such records", 0)
    assert math.isnan(none.effect.mean)
    # Neither counts in the family.
    found = claims.verdicts([one, outcome(GREATER, UP), none])
    assert found[1].p_holm == found[1].p


def test_values_without_any_spread_are_tested_all_the_same() -> None:
    assert verdict(GREATER, [0.1, 0.1]) == "supported"
    assert verdict(LESS, [0.1, 0.1]) == "contradicted"
    assert verdict(WITHIN, [0.01, 0.01]) == "supported"
    same = claims.verdicts([outcome(GREATER, [0.0, 0.0])])[0]
    assert (same.verdict, same.p, same.seeds) == ("unresolved", 1.0, None)


VALUES = st.lists(st.floats(-1, 1), min_size=2, max_size=8).filter(lambda values: np.std(values) > 1e-6)


@settings(deadline=None)
@given(VALUES, st.floats(-0.5, 0.5))
def test_without_a_margin_p_is_that_of_the_t_test(values: list[float], reference: float) -> None:
    expected = scipy_stats.ttest_1samp(values, reference).pvalue
    for claim in (GREATER, LESS):
        found = outcome(dataclasses.replace(claim, reference=reference), values)
        assert found.p == pytest.approx(expected, abs=1e-9)
        above = found.effect.mean > reference
        assert found.favours == (above == (claim is GREATER)) or found.p == pytest.approx(1)


@settings(deadline=None)
@given(VALUES, st.floats(0.01, 0.5))
def test_with_a_margin_p_is_that_of_two_one_sided_tests(values: list[float], margin: float) -> None:
    def p(bound: float, alternative: str) -> float:
        return scipy_stats.ttest_1samp(values, bound, alternative=alternative).pvalue

    inside = max(p(-margin, "greater"), p(margin, "less"))
    outside = min(p(-margin, "less"), p(margin, "greater"))
    found = outcome(dataclasses.replace(WITHIN, margin=margin), values)
    assert found.p == pytest.approx(min(1, 2 * min(inside, outside)), abs=1e-9)
    assert found.favours == (inside < outside)


@pytest.mark.parametrize("seeds", [3, 5])
def test_without_an_effect_verdicts_are_wrong_at_the_nominal_rate(seeds: int) -> None:
    """200 repeats of 20 tests on shared seeds, as tests of one table are: each test, and the family after Holm."""
    rng, wrong, single = np.random.default_rng(seeds), [], []
    for _ in range(200):
        values = 0.02 * (rng.normal(size=(1, seeds)) + rng.normal(size=(20, seeds)))
        # On the bound of what is comparable nothing is true or false, either.
        family = [outcome((GREATER, LESS)[i % 2], row) for i, row in enumerate(values[:18])]
        family += [outcome(WITHIN, row + 0.02) for row in values[18:]]
        found = claims.verdicts(family)
        wrong.append(any(one.holds for one in found))
        single.append(found[0].verdict != "unresolved")
        assert all(one.verdict != "unresolved" for one in found if one.holds)
    assert np.mean(wrong) <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 200)
    assert abs(np.mean(single) - 0.05) <= 3 * math.sqrt(0.05 * 0.95 / 200)


@pytest.mark.parametrize(("claim", "true"), [(GREATER, 0.03), (LESS, 0.03), (WITHIN, 0.035), (WITHIN, 0.0)])
def test_planted_effects_are_found_with_the_seeds_that_they_need(claim: Claim, true: float) -> None:
    """200 repeats: the right verdict with a chance of .8, never another; less where two bounds must be rejected."""
    rng, sd = np.random.default_rng(1), 0.02
    bound = abs(true - claim.margin) if claim is WITHIN else true
    seeds = power.seeds_needed(bound, sd)
    assert seeds is not None
    found = [verdict(claim, rng.normal(true, sd, size=seeds)) for _ in range(200)]
    right = "contradicted" if claim is LESS or (claim is WITHIN and true > claim.margin) else "supported"
    assert set(found) <= {right, "unresolved"}
    low = 0.5 if true == 0 else 0.7
    assert low <= found.count(right) / 200 <= 0.92


def test_seeds_needed_are_those_that_find_the_effect_seen() -> None:
    noisy = [0.05, -0.02, 0.04, 0.01]
    found = claims.verdicts([outcome(GREATER, noisy), outcome(GREATER, UP), outcome(GREATER, noisy)])[0]
    assert found.verdict == "unresolved"
    assert found.seeds == power.seeds_needed(0.02, float(np.std(noisy, ddof=1)), 0.8, 0.05)


ENTRY = {
    **dict.fromkeys(("id", "claim", "where", "quote"), "x"),
    "suite": "table1",
    "statistic": "pass@1",
    "arm": "MCPO",
    "relation": "greater",
}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"statistic": "pas@1"}, "unknown statistic 'pas@1': did you mean 'pass@1'?"),
        ({"beside": "same policy acuracy"}, "did you mean 'same-policy accuracy'?"),
        ({"arm": "MCP"}, "unknown arm 'MCP': did you mean 'MCPO'?"),
        ({"baseline": "DAPPO"}, "unknown baseline 'DAPPO': did you mean 'DAPO'?"),
        ({"suite": "tabel1"}, "unknown suite 'tabel1': did you mean 'table1'?"),
        ({"relation": "grater"}, "did you mean 'greater'?"),
        ({"marign": 0.1}, "unknown key 'marign': did you mean 'margin'?"),
        ({"margin": "wide"}, "margin"),
        ({"relation": None}, "relation must be given"),
    ],
)
def test_a_bad_claim_is_an_error_with_the_nearest_name(tmp_path: Path, change: dict[str, object], part: str) -> None:
    entry = {key: value for key, value in {**ENTRY, **change}.items() if value is not None}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [entry]}))
    with pytest.raises(ConfigError) as caught:
        claims.read(path)
    assert "claims.yaml, claim 1 (x)" in caught.value.message
    assert part in caught.value.message
    assert caught.value.fix


def test_an_id_cannot_be_taken_twice(tmp_path: Path) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [ENTRY, ENTRY]}))
    with pytest.raises(ConfigError, match=r"claim 2 .* used twice"):
        claims.read(path)


def test_the_claims_of_the_paper_are_complete() -> None:
    found = claims.read()
    assert 12 <= len(found) <= 20
    places = " ".join(one.where for one in found)
    for place in ("Table 1", "Table 2", *(f"Figure {n}" for n in ("2a", "2b", "3a", "3b", "4", "5a", "5b", "6", "7"))):
        assert place in places
    assert {one.statistic for one in found} | {one.beside for one in found} - {""} == set(STATISTICS)


def table1(*overrides: str) -> Plan:
    return from_suite("table1", ["scale=smoke", "model=toy-s", *overrides], "mcpo reproduce table1")


@pytest.mark.parametrize(("lift", "expected"), [(0.12, "supported"), (-0.08, "contradicted"), (0.0, "unresolved")])
def test_an_effect_planted_in_journals_is_found(
    mcpo_home: Path, monkeypatch: pytest.MonkeyPatch, lift: float, expected: str
) -> None:
    plan = table1("seed=0,1,2,3,4,5", "eval.problems=25")
    for arm, by in (("DAPO", 0.0), ("MCPO", lift)):
        monkeypatch.setattr(fakes, "TIERS", {tier: p + by for tier, p in TIERS.items()})
        write_runs(Plan("", "", tuple(cell for cell in plan.cells if cell.arm == arm)))
    claim = dataclasses.replace(GREATER, statistic="pass@1 by tier")
    found = claims.outcomes([claim], {"table1": Runs(plan)})
    assert [one.part for one in found] == list(TIERS)
    assert [one.verdict for one in found] == [expected] * len(TIERS)
    if lift:
        assert [one.effect.mean for one in found] == pytest.approx([lift] * len(TIERS), abs=0.06)


def _reroll(step: int, origin: int, prompt: str, c: int) -> dict[str, object]:
    return {"step": step, "source": "mastered", "origin": origin, "prompt": prompt, "gold": "", "n": 8, "c": c}


def test_statistics_by_hand(mcpo_home: Path) -> None:
    """A run of three steps with four prompts each: what is mastered at a step is rolled at once and one step later."""
    plan = table1("seed=0", "train.rollouts=8", "eval.problems=1")
    cell = plan.cells[0]
    p = {1: [1, 1, 0, 0.5], 2: [1, 0.625, 0.75, 0], 3: [0.875, 1, 1, 0.25]}
    entropy = {1: 0.2, 2: 0.4, 3: 0.7}
    attempt = Attempt(run_dir(cell.spec.run_id), cell.spec, start_step=0)
    for step, row in p.items():
        groups = [
            {"step": step, "prompt": f"{step}{i}", "p": value, "mean_length": 1.0, "kept": True, "truncated": 0.0}
            | {"duplicates": 0.0, "entropy": entropy[step]}
            for i, value in enumerate(row)
        ]
        attempt.journal.rows("groups", step, groups)
        attempt.journal.step({"step": step, "time": 0.0, "metrics": {}})
    attempt.journal.rows("rerolls", 1, [_reroll(1, 1, "10", 8), _reroll(1, 1, "11", 7)])
    attempt.journal.rows("rerolls", 2, [_reroll(2, 1, "10", 7), _reroll(2, 1, "11", 5), _reroll(2, 2, "20", 8)])
    attempt.journal.rows("rerolls", 3, [_reroll(3, 2, "20", 7)])
    gradients = [(0.5, 0.5), (0.625, 0.48), (0.75, 0.43), (0.875, 0.33), (0.875, 0.31)]
    rows = [{"step": 1, "prompt": f"{i}", "p": p, "weight": w, "norm": 1.0} for i, (p, w) in enumerate(gradients)]
    attempt.journal.rows("gradients", 1, rows)
    for step in eval_steps(cell.spec):
        right = {"k2-3": 8, "k5-6": 2, "k7-8": 1 if step == 3 else 5}
        counts = [{"step": step, "tier": tier, "problem": "a", "n": 8, "c": c} for tier, c in right.items()]
        attempt.journal.rows("eval", step, counts)
    attempt.end("done")
    runs = Runs(Plan("table1", "", (cell,)))
    found = {name: dict(one.measure(runs, cell)) for name, one in STATISTICS.items()}
    middle, hard = 1 - (6 / 8) ** 8, 1 - (7 / 8) ** 8
    assert found.pop("pass@1 by tier") == {"k2-3": 1, "k5-6": 2 / 8, "k7-8": 1 / 8}
    assert found.pop("best@8 by tier") == {"k2-3": 1, "k5-6": middle, "k7-8": hard}
    assert {name: numbers[""] for name, numbers in found.items()} == pytest.approx(
        {
            "pass@1": 11 / 24,
            "best@8": (1 + middle + hard) / 3,
            "mastered share": 5 / 12,
            "mastered share in the end": 2 / 4,
            "all-wrong share": 2 / 12,
            # Cohorts of two and of one prompt; a prompt counts once.
            "next-step accuracy": (7 + 5 + 7) / 24,
            "same-policy accuracy": (8 + 7 + 8) / 24,
            "next-step gap": 4 / 24,
            "next-step floor": 12 / 16,
            "next-step swings": 7 / 8 - 12 / 16,
            "drift's share of the drop": 4 / 5,
            "entropy rise": 0.5,
            # .5 and .625; of nine accuracies three are middling.
            "middling prompts": (2 / 12) / (3 / 9),
            "weight lost towards mastery": (0.48 + 0.43) / 2 - 0.32,
            "weight of majority-correct prompts": (0.48 + 0.43 + 0.33 + 0.31) / 4,
        }
    )


def test_the_artifact_says_what_it_tested_on_what(mcpo_home: Path) -> None:
    artifact = registry()["claims"]
    assert set(artifact.needs) == {"table1", "table2", "mastery"}
    plans = {
        suite: from_suite(suite, ["scale=smoke", "seed=0,1"], f"mcpo reproduce {suite}") for suite in artifact.needs
    }
    for plan in plans.values():
        write_runs(Plan("", "", tuple(cell for cell in plan.cells if not run_dir(cell.spec.run_id).exists())))
    built = Workshop(plans, mcpo_home / "reports", "smoke").build("claims")
    rows = {(row["claim"], row["model"], row["tier"]): row for row in built.to_json()["rows"]}
    assert rows["entropy-explodes", "toy-s", None]["why"] == "no such records"
    assert rows["pass@1", "toy-m", "k7-8"]["seeds"] == 2
    assert rows["quarter-mastered", "toy-s", None]["p"] is not None
    sentence = built.record["sentence"]
    assert sentence.startswith(f"Of {len(rows)} tests of {len(claims.read())} claims on ")
    assert "toy-s (for Qwen3-8B-Base)" in sentence
    for name in claims.VERDICTS:
        count = sum(row["verdict"] == name for row in rows.values())
        assert f"{count} {name}" in sentence
    quotes = {one["quote"] for one in read_yaml(claims.PATH)["claims"]}
    assert all(any(quote in note for note in built.record["notes"]) for quote in quotes)


def test_one_seed_tests_nothing(mcpo_home: Path) -> None:
    plan = table1("seed=0")
    write_runs(plan)
    found = claims.outcomes([one for one in claims.read() if one.suite == "table1"], {"table1": Runs(plan)})
    assert {one.verdict for one in found} == {"not testable"}
    assert {one.why for one in found} == {"one seed", "no such records"}
