"""Tests of declared claims: planted effects are found, no others are, and claims that cannot be tested say so."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcpo_study.analysis import EXPERIMENTS
from scipy import stats as scipy_stats

from mcpo_cli.config.claims import Claim, Precondition
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.home import run_dir
from mcpo_cli.measures.frames import Runs
from mcpo_cli.report import claim_tests, claims_file
from mcpo_cli.report.artifacts import registry
from mcpo_cli.report.builder import ArtifactBuilder
from mcpo_cli.report.claim_tests import ClaimTest
from mcpo_cli.report.claims_table import claims_table, verdict_grid, verdict_of
from mcpo_cli.statistics import stats
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.words import CLAIM_WORDS
from tests import fakes, rows
from tests.errors import refused
from tests.fakes import TIERS, write_runs

GREATER = Claim("id", "", "table1", "scores.pass@1", "MCPO", "greater", baseline="DAPO")
LESS = dataclasses.replace(GREATER, relation="less")
WITHIN = dataclasses.replace(GREATER, relation="within", margin=0.02)
WITH_MARGIN = dataclasses.replace(GREATER, margin=0.01)
HOLM = dataclasses.replace(GREATER, decide="holm")
UP, CLOSE, FAR = [0.05, 0.06, 0.055, 0.062], [0.003, -0.002, 0.004, -0.001], [0.03, -0.02, 0.04, -0.01]


def outcome(claim: Claim, values: list[float] | np.ndarray) -> ClaimTest:
    return claim_tests.of_values(claim, "toy-s", "drift", {"": list(values)} if len(values) else {})


def verdict(claim: Claim, values: list[float] | np.ndarray) -> str:
    return claim_tests.as_family([outcome(claim, values)])[0].verdict


@pytest.mark.parametrize(
    ("claim", "values", "expected"),
    [
        (GREATER, UP, "supported"),
        (GREATER, [-value for value in UP], "contradicted"),
        (GREATER, [0.05, -0.04, 0.02, -0.03], "unresolved"),
        (LESS, [-value for value in UP], "supported"),
        (LESS, UP, "contradicted"),
        (WITHIN, CLOSE, "supported"),
        (WITHIN, UP, "contradicted"),
        (WITHIN, [-value for value in UP], "contradicted"),
        (WITHIN, [0.05, -0.04, 0.02, -0.03], "unresolved"),
        (GREATER, [0.05], "not testable"),
        (GREATER, [], "not testable"),
        (WITH_MARGIN, CLOSE, "no difference"),
        (WITH_MARGIN, FAR, "unresolved"),
        (WITH_MARGIN, [0.003, 0.0035, 0.004, 0.0032], "supported"),
        (WITH_MARGIN, [-0.003, -0.0035, -0.004, -0.0032], "contradicted"),
    ],
)
def test_planted_effects_get_their_verdict(claim: Claim, values: list[float], expected: str) -> None:
    assert verdict(claim, values) == expected


def test_what_cannot_be_tested_says_why() -> None:
    one, two, none = outcome(GREATER, [0.05]), outcome(GREATER, [0.05, 0.05]), outcome(GREATER, [])
    assert (one.why, one.effect.mean, one.effect.n) == ("1 seed", 0.05, 1)
    assert (two.why, math.isnan(two.p_values.p)) == ("2 seeds", True)
    assert (none.why, none.effect.n) == ("no such records", 0)
    assert math.isnan(none.effect.mean)
    # None of them counts in the family.
    found = claim_tests.as_family([one, outcome(GREATER, UP), none, two])
    assert found[1].adjusted.p == found[1].p_values.p


@pytest.mark.parametrize(("claim", "value"), [(GREATER, 0.1), (LESS, 0.1), (WITHIN, 0.01), (WITHIN, 0.0)])
def test_identical_values_have_no_variance_to_test_by(claim: Claim, value: float) -> None:
    found, other = claim_tests.as_family([outcome(claim, [value] * 3), outcome(GREATER, UP)])
    assert (found.verdict, found.why) == ("not testable", stats.IDENTICAL)
    assert (found.effect.mean, found.effect.n) == (pytest.approx(value), 3)
    assert math.isnan(found.p_values.p)
    assert math.isnan(found.effect.low)
    assert other.adjusted.p == other.p_values.p


def test_identical_values_on_the_reference_are_no_effect() -> None:
    same = claim_tests.as_family([outcome(GREATER, [0.0] * 3)])[0]
    assert (same.verdict, same.p_values.p) == ("unresolved", stats.paired_t([0.0] * 3).p)


def test_what_runs_cannot_test_gets_no_p_whatever_they_show() -> None:
    claim = dataclasses.replace(GREATER, untested="by construction, an identity")
    found, other = claim_tests.as_family([outcome(claim, UP), outcome(GREATER, UP)])
    assert (found.verdict, found.why, math.isnan(found.p_values.p), found.holds) == (
        "not testable",
        claim.untested,
        True,
        False,
    )
    assert found.effect.mean == pytest.approx(np.mean(UP))
    assert other.adjusted.p == other.p_values.p


PARTS = {"easy": UP, "middle": [value + 0.01 for value in UP], "hard": [0.02, -0.01, 0.03, 0.01]}


def of_parts(claim: Claim, values: dict[str, list[float]]) -> ClaimTest:
    return claim_tests.as_family([claim_tests.of_values(claim, "toy-s", "drift", values)])[0]


def test_a_claim_of_every_part_is_as_good_as_its_worst_part() -> None:
    found = of_parts(GREATER, PARTS)
    assert (found.verdict, found.part) == ("unresolved", "hard")
    assert found.p_values.p == pytest.approx(scipy_stats.ttest_1samp(PARTS["hard"], 0).pvalue)
    assert {part: effect.mean for part, effect in found.parts.items()} == {
        part: pytest.approx(np.mean(values)) for part, values in PARTS.items()
    }
    assert of_parts(GREATER, {"easy": UP, "middle": PARTS["middle"]}).verdict == "supported"


def test_one_part_contradicts_a_claim_of_every_part_after_correction() -> None:
    down = [-value for value in UP]
    found = of_parts(GREATER, {"easy": UP, "middle": UP, "hard": down})
    assert (found.verdict, found.part) == ("contradicted", "hard")
    assert found.p_values.p == pytest.approx(3 * scipy_stats.ttest_1samp(down, 0).pvalue)


VALUES = st.lists(st.floats(-1, 1), min_size=3, max_size=8).filter(lambda values: np.std(values) > 1e-6)


@given(VALUES, st.floats(-0.5, 0.5))
def test_without_a_margin_p_is_that_of_the_t_test(values: list[float], reference: float) -> None:
    expected = scipy_stats.ttest_1samp(values, reference).pvalue
    for claim in (GREATER, LESS):
        found = outcome(dataclasses.replace(claim, reference=reference), values)
        assert found.p_values.p == pytest.approx(expected, abs=1e-9)
        above = found.effect.mean > reference
        assert found.direction == (1 if above else -1) or found.p_values.p == pytest.approx(1)


@given(VALUES, st.floats(0.01, 0.5))
def test_with_a_margin_p_is_that_of_two_one_sided_tests(values: list[float], margin: float) -> None:
    def p(bound: float, alternative: str) -> float:
        return scipy_stats.ttest_1samp(values, bound, alternative=alternative).pvalue

    inside = max(p(-margin, "greater"), p(margin, "less"))
    outside = min(p(-margin, "less"), p(margin, "greater"))
    found = outcome(dataclasses.replace(WITHIN, margin=margin), values)
    assert found.p_values.p == pytest.approx(min(1, 2 * min(inside, outside)), abs=1e-9)
    assert found.p_values.p_equivalent == pytest.approx(inside, abs=1e-9)


def test_the_declared_rule_decides_and_is_printed() -> None:
    """p is .03 twice: decided by itself, each is supported; as a family of two, none is."""
    values = [0.028, 0.058, 0.038, 0.098]
    found, registered = (claim_tests.as_family([outcome(claim, values)] * 2)[0] for claim in (GREATER, HOLM))
    assert found.p_values.p == registered.p_values.p == pytest.approx(scipy_stats.ttest_1samp(values, 0).pvalue)
    assert ALPHA / 2 < found.p_values.p < ALPHA
    assert [one.verdict for one in (found, registered)] == ["supported", "unresolved"]
    grid = verdict_grid([found, registered])
    assert [row[grid.header.index("decided by")] for row in grid.rows] == ["p", "p Holm"]


def test_every_part_must_be_without_a_difference() -> None:
    for far, expected in ((CLOSE, "no difference"), (FAR, "unresolved")):
        test = of_parts(WITH_MARGIN, {"a": CLOSE, "b": far})
        assert test.verdict == expected
    assert verdict_of(of_parts(WITH_MARGIN, {"": CLOSE})) == "no difference larger than 0.01 (Holm)"


@pytest.mark.slow
def test_an_interaction_is_a_difference_of_differences(mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hinge lifts by .1 alone and by .25 with the reweight, which alone lifts by .05: .15 more than a sum."""
    plan = from_suite("table2", ["scale=smoke", "model=toy-s", "seed=0,1,2,3,4,5", "eval.problems=50"], "")
    lifts = {"DAPO w/o filter": 0.0, "w/o ReWeight": 0.1, "w/o Hinge-KL": 0.05, "MCPO": 0.3}
    runs = tuple(run for run in plan.runs if run.arm in lifts)
    for arm, lift in lifts.items():
        monkeypatch.setattr(fakes, "TIERS", dict.fromkeys(TIERS, 0.3 + lift))
        write_runs(Plan("", "", tuple(run for run in runs if run.arm == arm)))
    claim = next(
        one for one in claims_file.read(EXPERIMENTS / "paper-claims" / "claims.yaml") if one.id == "complementarity"
    )
    assert claim.weights == {"MCPO": 1, "w/o Hinge-KL": -1, "w/o ReWeight": -1, "DAPO w/o filter": 1}
    assert claim.tested == "scores.pass@1: (MCPO - w/o Hinge-KL) - (w/o ReWeight - DAPO w/o filter) > 0"
    (found,) = claim_tests.of_claims([claim], {"table2": Runs(Plan("table2", "", runs))})
    assert found.effect.mean == pytest.approx(0.15, abs=0.04)
    assert found.verdict == "supported"


def test_an_arm_on_both_sides_of_an_interaction_cancels() -> None:
    """(A - B) - (C - B) is A - C."""
    claim = dataclasses.replace(GREATER, arm="A", baseline="B", beyond=("C", "B"))
    assert claim.weights == {"A": 1, "B": 0, "C": -1}


def test_the_artifact_says_what_it_tested_on_what(mcpo_home: Path) -> None:
    artifact = registry()["claims"]
    assert set(artifact.needs) == {"table1", "table2", "mastery"}
    plans = {
        suite: from_suite(suite, ["scale=smoke", "seed=0,1,2"], f"mcpo reproduce {suite}") for suite in artifact.needs
    }
    for plan in plans.values():
        write_runs(Plan("", "", tuple(run for run in plan.runs if not run_dir(run.spec.run_id).exists())))
    built = ArtifactBuilder(plans, mcpo_home / "reports", "smoke").build("claims")
    found = {(row["claim"], row["model"]): row for row in built.to_json()["rows"] if row["block"] == "test"}
    assert found["policy-shift", "toy-s"]["why"] == "no such records"
    assert found["pass@1", "toy-m"]["seeds"] == 3
    parts = dict(part.rsplit(" ", 1) for part in found["pass@1", "toy-m"]["parts"].split("; "))
    assert found["pass@1", "toy-m"]["part"] in parts
    assert list(parts) == list(TIERS)
    assert found["quarter-mastered", "toy-s"]["p"] is None
    assert found["quarter-mastered", "toy-s"]["verdict"] == "not testable"


def test_a_margin_of_a_third_of_what_there_is_makes_a_verdict_vacuous() -> None:
    values = [0.001, -0.001, 0.0005, -0.0004]
    for control, vacuous in ((0.06, True), (0.061, False), (-0.05, True), (math.nan, False)):
        (found,) = claim_tests.as_family([dataclasses.replace(outcome(WITHIN, values), control=control)])
        assert (found.verdict, found.vacuous) == ("supported", vacuous)


def entropies(first: float, last: float, arm: str, runs: Plan) -> None:
    """Runs of one arm whose entropy goes from `first` to `last`, and by a tenth further with each seed."""
    for run in runs.runs:
        if run.arm != arm:
            continue
        steps, rise = run.spec.train.steps, (last - first) * (1 + 0.1 * run.spec.seed)
        groups = [rows.group(i + 1, 0.5, f"{i}", entropy=first + rise * i / (steps - 1)) for i in range(steps)]
        counts = [row for step in eval_steps(run.spec) for row in rows.evaluation(step, {tier: [4] for tier in TIERS})]
        rows.journal(run.spec, {"groups": groups, "eval": counts}, [{}] * steps)


@pytest.mark.parametrize(
    ("last", "expected"), [(0.2, "not testable"), (0.8, "supported")], ids=["entropy falls", "entropy rises"]
)
def test_a_claim_about_what_does_not_occur_is_not_testable_here(mcpo_home: Path, last: float, expected: str) -> None:
    """Figure 6: the entropy rises less under MCPO. If DAPO's does not rise, it cannot rise less."""
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0,1,2,3", "train.steps=5", "eval.problems=1"], "")
    entropies(0.4, last, "DAPO", plan)
    entropies(0.4, 0.45, "MCPO", plan)
    claim = Claim("moderate", "", "table1", "entropy.rise", "MCPO", "less", baseline="DAPO")
    claim = dataclasses.replace(claim, requires=Precondition("entropy.rise", above=0.0))
    (found,) = claim_tests.of_claims([claim], {"table1": Runs(plan)})
    assert found.verdict == expected
    if expected == "not testable":
        assert found.why == "entropy.rise of DAPO must be above 0, and is -0.23"
        assert math.isnan(found.p_values.p)
        assert found.effect.n == 4


@pytest.mark.slow
def test_committed_verdicts_stand_beside_those_of_a_readers_runs(mcpo_home: Path, tmp_path: Path) -> None:
    """Two runs give no verdict, six do; the rows per run have the numbers behind the verdict."""
    path = tmp_path / "mine.yaml"
    path.write_text(
        "claims: [{id: moderate, claim: it rises less, suite: table1, statistic: entropy.rise, arm: MCPO, "
        "baseline: DAPO, relation: less}]"
    )
    settings = ["scale=smoke", "model=toy-s", "train.steps=5", "eval.problems=1"]
    built = {}
    for seeds in ("0,1,2,3,4,5", "0,1"):
        plan = from_suite("table1", [*settings, f"seed={seeds}"], "")
        for arm, last in (("DAPO", 0.8), ("MCPO", 0.45)):
            entropies(0.4, last, arm, plan)
        built[seeds] = claims_table(path).build({"table1": Runs(plan)})
        (tmp_path / "results").mkdir(exist_ok=True)
        built[seeds].data.to_csv(tmp_path / "results/mine.csv", index=False)
    many, few = built.values()
    (test,) = many.data[many.data["block"] == "test"].to_dict("records")
    runs = many.data[many.data["block"] == "run"]
    rise = {arm: runs[runs["arm"] == arm].set_index("seed")["entropy.rise"] for arm in ("MCPO", "DAPO")}
    assert test["value"] == pytest.approx((rise["MCPO"] - rise["DAPO"]).mean())
    assert len(set(runs["run_id"])) == len(runs) == 12
    header, row = few.grids[0].header, few.grids[0].rows[0]
    shown = dict(zip(header, row, strict=True))
    assert shown["toy-s drift"] == "not testable: 2 seeds"
    assert shown["toy-s drift, committed runs"] == "supported (Holm), 6 seeds"
    assert few.sentence.endswith("Of 1 tests that stay open here, 1 are decided by committed runs.")
    assert "committed" not in many.sentence
    (tmp_path / "results/mine.csv").write_text("a,b\n1,2\n")
    with refused("bad_input", "mine.csv"):
        claims_table(path).build({"table1": Runs(plan)})


@pytest.mark.parametrize("name", ["claims", "open-claims"])
def test_committed_verdicts_follow_from_their_rows_per_run(name: str) -> None:
    """Each verdict on the paper's claims, computed again from the committed number of each run."""
    table = pd.read_csv(EXPERIMENTS / "paper-claims" / "results" / f"{name}.csv", low_memory=False)
    tests, runs = table[table["block"] == "test"].set_index("claim"), table[table["block"] == "run"]
    declared = claims_file.read(EXPERIMENTS / "paper-claims" / f"{name}.yaml")
    again = claim_tests.as_family(
        [_from_rows(_then(claim, tests), runs[runs["suite"] == claim.suite]) for claim in declared]
    )
    assert len(again) == len(tests)
    for one in again:
        row = tests.loc[one.claim.id]
        verdict = row["verdict"] if row["verdict"] in CLAIM_WORDS else "not testable"
        assert (one.verdict, one.holds, one.effect.n) == (verdict, row["holds"] in (True, "True"), row["seeds"])
        got, expected = (one.effect.mean, one.p_values.p, one.adjusted.p), (row["value"], row["p"], row["p_holm"])
        assert got == pytest.approx(tuple(map(float, expected)), rel=1e-6, nan_ok=True), one.claim.id


def _then(claim: Claim, tests: pd.DataFrame) -> Claim:
    """The claim with the names that its numbers had when the verdicts were committed."""
    row = tests.loc[claim.id]
    needed = claim.requires and dataclasses.replace(claim.requires, statistic=row["requires"].partition(":")[0])
    return dataclasses.replace(claim, statistic=row["statistic"], requires=needed)


def _from_rows(claim: Claim, runs: pd.DataFrame) -> ClaimTest:
    """The test of a claim, by the columns `STATISTIC` or `STATISTIC, PART` of the rows of one model and regime."""
    by_arm = {arm: runs[runs["arm"] == arm].set_index(["base_seed", "seed"]) for arm in claim.arms}
    values = {}
    for column in runs.columns:
        if column == claim.statistic or column.startswith(f"{claim.statistic}, "):
            contrast = sum(sign * by_arm[arm][column] for arm, sign in claim.weights.items()).dropna()
            if len(contrast):
                values[column.removeprefix(claim.statistic).removeprefix(", ")] = contrast.tolist()
    needed = claim.requires
    met = needed is None or by_arm[claim.required_arm][needed.statistic].mean() > needed.above
    return claim_tests.of_values(claim, "toy-s", "drift", values, "" if met else "it did not occur")
