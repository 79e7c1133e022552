"""Files of claims: bad entries are errors with the nearest name, and the paper's claims are complete."""

from pathlib import Path

import pytest
import yaml
from mcpo_study.analysis import EXPERIMENTS

from mcpo_cli.report import claims_file
from tests.errors import refused

ENTRY = {
    **dict.fromkeys(("id", "claim", "where", "quote"), "x"),
    "suite": "table1",
    "statistic": "scores.pass@1",
    "arm": "MCPO",
    "relation": "greater",
}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"statistic": "scores.pas@1"}, "'scores.pass@1'"),
        ({"arm": "MCP"}, "'MCPO'"),
        ({"baseline": "DAPO", "beyond": ["MCPO", "DAPPO"]}, "'DAPO'"),
        ({"baseline": "DAPO", "beyond": ["MCPO"]}, "beyond"),
        ({"suite": "tabel1"}, "'table1'"),
        ({"relation": "grater"}, "'greater'"),
        ({"marign": 0.1}, "'margin'"),
        ({"margin": "wide"}, "margin=wide"),
        ({"relation": None}, "relation"),
        ({"decide": "hol"}, "'holm'"),
        ({"requires": {"statistic": "entropy.ris", "above": 0}}, "'entropy.rise'"),
    ],
)
def test_a_bad_claim_is_an_error_with_the_nearest_name(tmp_path: Path, change: dict[str, object], named: str) -> None:
    entry = {key: value for key, value in {**ENTRY, **change}.items() if value is not None}
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": [entry]}))
    with refused("bad_input", "claims.yaml, claim 1 (x)", named) as caught:
        claims_file.read(path)
    assert caught.value.fix


@pytest.mark.parametrize("claims", [[], None, "x", ["x"]])
def test_a_file_without_claims_is_refused(tmp_path: Path, claims: object) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(yaml.safe_dump({"claims": claims}))
    with refused("bad_input", "claims must be a list of claims"):
        claims_file.read(path)


@pytest.mark.parametrize("place", ["mine.yaml", "suites/mine.yaml"])
def test_a_suite_beside_the_claims_is_found_by_its_name(tmp_path: Path, place: str) -> None:
    file, path = tmp_path / place, tmp_path / "mine-claims.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text("arms: {MCPO: [method=mcpo]}\nsweep: {seed: [0]}\n")
    path.write_text(yaml.safe_dump({"claims": [{**ENTRY, "suite": "mine"}]}))
    assert [claim.suite for claim in claims_file.read(path)] == [str(file)]


AXES = {
    "after 20 steps": "scores.pass@1 at equal steps",
    "at the largest number of rollouts that all arms reach": "scores.pass@1 at equal rollouts",
    "average pass@1": "scores.pass@1",
    "next-step gap": "mastery.gap",
}


@pytest.mark.parametrize("suite", ["headline", "placebo"])
def test_tested_hypotheses_are_those_written_down_before_the_runs(suite: str) -> None:
    every = yaml.safe_load((EXPERIMENTS / suite / "preregistration.yaml").read_text())
    (hypotheses,) = [one["hypotheses"] for one in every if one["suite"] == suite]
    declared = claims_file.read(EXPERIMENTS / suite / f"{suite}-claims.yaml")
    assert [(one.id, one.claim.lower()) for one in declared] == [
        (one["id"], one["claim"].rstrip(".").lower()) for one in hypotheses
    ]
    for claim, hypothesis in zip(declared, hypotheses, strict=True):
        formula, _, where = hypothesis["contrast"].partition(", ")
        assert claim.statistic == AXES[where]
        assert f"{claim.statistic}: {formula} " in claim.tested
        assert claim.suite == suite
        assert f"{claim.margin or abs(claim.reference) or 0:g}".removeprefix("0") in hypothesis["supported if"]
