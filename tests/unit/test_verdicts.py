"""The verdicts of claims beyond plain tests: rules, margins, preconditions."""

import dataclasses
import math
from pathlib import Path

import pandas as pd
import pytest
from mcpo_study.analysis import EXPERIMENTS
from scipy import stats as scipy_stats

from mcpo_cli.config.claims import Claim, Precondition
from mcpo_cli.config.eval_schedule import eval_steps
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.measures.frames import Runs
from mcpo_cli.report import claim_tests, claims_file
from mcpo_cli.report.claim_tests import ClaimTest, as_family, of_values
from mcpo_cli.report.claims_table import claims_table, verdict_grid, verdict_of
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.words import CLAIM_WORDS
from tests import rows
from tests.errors import refused
from tests.fakes import TIERS

GREATER = Claim("id", "", "table1", "scores.pass@1", "MCPO", "greater", baseline="DAPO")
WITHIN = dataclasses.replace(GREATER, relation="within", margin=0.02)
HOLM = dataclasses.replace(GREATER, decide="holm")


def plain(claim: Claim, values: list[float]) -> ClaimTest:
    return of_values(claim, "toy-s", "drift", {"": values})


def test_the_declared_rule_decides_and_is_printed() -> None:
    """p is .03 twice: decided by itself, each is supported; as a family of two, none is."""
    values = [0.028, 0.058, 0.038, 0.098]
    found, registered = (as_family([plain(claim, values)] * 2)[0] for claim in (GREATER, HOLM))
    assert found.p_values.p == registered.p_values.p == pytest.approx(scipy_stats.ttest_1samp(values, 0).pvalue)
    assert ALPHA / 2 < found.p_values.p < ALPHA
    assert [one.verdict for one in (found, registered)] == ["supported", "unresolved"]
    grid = verdict_grid([found, registered])
    assert [row[grid.header.index("decided by")] for row in grid.rows] == ["p", "p Holm"]


@pytest.mark.parametrize(
    ("values", "margin", "expected"),
    [
        ([0.003, -0.002, 0.004, -0.001], 0.01, "no difference"),
        ([0.003, -0.002, 0.004, -0.001], 0.0, "unresolved"),
        ([0.03, -0.02, 0.04, -0.01], 0.01, "unresolved"),
        ([0.003, 0.0035, 0.004, 0.0032], 0.01, "supported"),
        ([-0.003, -0.0035, -0.004, -0.0032], 0.01, "contradicted"),
    ],
)
def test_a_margin_makes_no_difference_a_verdict(values: list[float], margin: float, expected: str) -> None:
    (found,) = as_family([plain(dataclasses.replace(GREATER, margin=margin), values)])
    assert found.verdict == expected
    if expected == "no difference":
        assert verdict_of(found) == "no difference larger than 0.01 (Holm)"


def test_every_part_must_be_without_a_difference() -> None:
    close, far = [0.003, -0.002, 0.004, -0.001], [0.03, -0.02, 0.04, -0.01]
    claim = dataclasses.replace(GREATER, margin=0.01)
    for parts, expected in (({"a": close, "b": close}, "no difference"), ({"a": close, "b": far}, "unresolved")):
        assert as_family([of_values(claim, "toy-s", "drift", parts)])[0].verdict == expected


def entropies(first: float, last: float, arm: str, cells: Plan) -> None:
    """Runs of one arm whose entropy goes from `first` to `last`, and by a tenth further with each seed."""
    for cell in cells.cells:
        if cell.arm != arm:
            continue
        steps, rise = cell.spec.train.steps, (last - first) * (1 + 0.1 * cell.spec.seed)
        groups = [rows.group(i + 1, 0.5, f"{i}", entropy=first + rise * i / (steps - 1)) for i in range(steps)]
        counts = [row for step in eval_steps(cell.spec) for row in rows.evaluation(step, {tier: [4] for tier in TIERS})]
        rows.journal(cell.spec, {"groups": groups, "eval": counts}, [{}] * steps)


@pytest.mark.parametrize(
    ("last", "expected"), [(0.2, "not testable"), (0.8, "supported")], ids=["entropy falls", "entropy rises"]
)
def test_a_claim_about_what_does_not_occur_is_not_testable_here(mcpo_home: Path, last: float, expected: str) -> None:
    """Figure 6: the entropy rises less under MCPO. If DAPO's does not rise, it cannot rise less."""
    cells = from_suite("table1", ["scale=smoke", "model=toy-s", "seed=0,1,2,3", "train.steps=5", "eval.problems=1"], "")
    entropies(0.4, last, "DAPO", cells)
    entropies(0.4, 0.45, "MCPO", cells)
    claim = Claim("moderate", "", "table1", "entropy.rise", "MCPO", "less", baseline="DAPO")
    claim = dataclasses.replace(claim, requires=Precondition("entropy.rise", above=0.0))
    runs = Runs(Plan("table1", "", tuple(cell for cell in cells.cells if cell.arm in ("DAPO", "MCPO"))))
    (found,) = claim_tests.of_claims([claim], {"table1": runs})
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
        cells = from_suite("table1", [*settings, f"seed={seeds}"], "")
        for arm, last in (("DAPO", 0.8), ("MCPO", 0.45)):
            entropies(0.4, last, arm, cells)
        two = tuple(cell for cell in cells.cells if cell.arm in ("DAPO", "MCPO"))
        built[seeds] = claims_table(path).build({"table1": Runs(Plan("table1", "", two))})
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
        claims_table(path).build({"table1": Runs(Plan("table1", "", two))})


@pytest.mark.parametrize("name", ["claims", "open-claims"])
def test_committed_verdicts_follow_from_their_rows_per_run(name: str) -> None:
    """Each verdict on the paper's claims, computed again from the committed number of each run."""
    table = pd.read_csv(EXPERIMENTS / "paper-claims" / "results" / f"{name}.csv", low_memory=False)
    tests, runs = table[table["block"] == "test"].set_index("claim"), table[table["block"] == "run"]
    declared = claims_file.read(EXPERIMENTS / "paper-claims" / f"{name}.yaml")
    again = as_family([_from_rows(_then(claim, tests), runs[runs["suite"] == claim.suite]) for claim in declared])
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
    return of_values(claim, "toy-s", "drift", values, "" if met else "it did not occur")
