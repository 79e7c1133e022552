"""Comparisons of runs whose scores are set by hand: equal cost, families, verdicts, several base policies."""

from dataclasses import replace

import pandas as pd
import pytest

from mcpo_cli.analysis import comparison
from mcpo_cli.analysis.comparison import Choice, compare
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.errors import ConfigError, McpoError
from tests.fakes import write_runs


@pytest.fixture
def runs(mcpo_home: object) -> Runs:
    """Three seeds of table1 on one model."""
    plan = from_suite("table1", ["scale=smoke", "model=toy-s"], "mcpo reproduce table1")
    write_runs(plan)
    return Runs(plan)


def set_scores(runs: Runs, monkeypatch: pytest.MonkeyPatch, arms: dict[str, list[tuple[int, float, float]]]) -> None:
    """Give every run of an arm evaluations (step, rollouts, score), and seed s the score plus s / 100."""
    rows = [
        {"arm": cell.arm, "model": "toy-s", "base_seed": cell.spec.seed_of_base, "seed": cell.spec.seed, "tier": tier}
        | {"step": step, "cost/rollouts": rollouts}
        | dict.fromkeys(("pass@1", "best@8", "pass@8"), score + cell.spec.seed / 100 * (cell.arm == "MCPO"))
        for cell in runs.cells
        for tier in ("k2-3", "k7-8")
        for step, rollouts, score in arms[cell.arm]
    ]
    monkeypatch.setattr(Runs, "scores", lambda self, k: pd.DataFrame(rows))


def test_equal_steps_and_equal_rollouts_by_hand(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """DAPO samples twice as much a step: MCPO's end is as many rollouts as DAPO's middle, half way from .2 to .4."""
    points = {
        "DAPO": [(0, 0.0, 0.1), (1, 200.0, 0.2), (3, 600.0, 0.4)],
        "MCPO": [(0, 0.0, 0.1), (3, 400.0, 0.25)],
    }
    set_scores(runs, monkeypatch, points)
    found = compare(runs, Choice())
    assert found.axes == ["steps", "rollouts"]
    assert found.where == {("steps", "toy-s"): 3.0, ("rollouts", "toy-s"): 400.0}
    means = {one.at: one.effect.mean for one in found.headline}
    # Seeds 0, 1, 2 add .00, .01, .02 to MCPO.
    assert means == pytest.approx({"steps": 0.25 + 0.01 - 0.4, "rollouts": 0.25 + 0.01 - 0.3})
    by_seed = next(one.by_seed for one in found.headline if one.at == "rollouts")
    assert by_seed == pytest.approx((-0.05, -0.04, -0.03))
    # The t statistics are .14 and .04 over .01 / sqrt(3); Holm doubles the smaller p.
    assert [one.effect.p for one in found.headline] == pytest.approx([0.0016965, 0.0202041], rel=1e-3)
    assert [one.p_holm for one in found.headline] == pytest.approx([0.003393, 0.0202041], rel=1e-3)
    assert [one.verdict for one in found.headline] == ["below (Holm)", "below (Holm)"]


def test_nothing_is_extrapolated_and_a_choice_moves_the_headline(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"DAPO": [(0, 0.0, 0.1), (3, 600.0, 0.4)], "MCPO": [(0, 0.0, 0.1), (3, 400.0, 0.25)]}
    set_scores(runs, monkeypatch, points)
    found = compare(runs, Choice(baseline="MCPO", metric="best@8", at=("rollouts",)))
    assert (found.axes, found.baseline, found.metric) == (["rollouts"], "MCPO", "best@8")
    assert {one.arm for one in found.headline} == {"DAPO"}
    curves = found.curves
    assert curves["x"].max() == 400
    assert curves[(curves["arm"] == "DAPO") & (curves["x"] == 400)]["value"].tolist() == pytest.approx([0.3] * 3)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(baseline="DAP"), "--baseline DAP: did you mean 'DAPO'?"),
        (Choice(metric="pass@3"), "--metric pass@3"),
        (Choice(at=("rollout",)), "--at rollout: did you mean 'rollouts'?"),
    ],
)
def test_an_unknown_choice_names_the_nearest_one(runs: Runs, choice: Choice, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compare(runs, choice)
    assert message in caught.value.message


def test_a_cost_that_runs_did_not_record_is_refused_by_name_and_left_out_by_default(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = runs.scores(8)
    monkeypatch.setattr(Runs, "scores", lambda self, k: scores.assign(**{"cost/rollouts": float("nan")}))
    assert compare(runs, Choice()).axes == ["steps"]
    with pytest.raises(McpoError, match="not all runs of table1 recorded their rollouts"):
        compare(runs, Choice(at=("rollouts",)))


def test_arms_with_other_seeds_are_refused(mcpo_home: object) -> None:
    plan = from_suite("table1", ["scale=smoke", "model=toy-s"], "mcpo reproduce table1")
    write_runs(plan)
    lacking = Plan("table1", "fix", tuple(cell for cell in plan.cells if (cell.arm, cell.spec.seed) != ("MCPO", 2)))
    with pytest.raises(McpoError, match="not all runs were evaluated with the same seeds and problems"):
        compare(Runs(lacking), Choice())


def test_base_policies_and_seeds_are_pairs_and_their_variances_are_told_apart(mcpo_home: object) -> None:
    plan = from_suite("table1", ["scale=smoke", "model=toy-s", "base_seed=0,1"], "mcpo reproduce table1")
    write_runs(plan)
    found = compare(Runs(plan), Choice())
    assert {one.effect.n for one in found.headline} == {6}
    assert set(found.components["toy-s", "MCPO"].parts) == {"seed", "problem", "rest", "base"}


def test_a_verdict_says_whether_it_holds_for_the_family() -> None:
    effect = comparison.stats.paired_t([0.1, 0.11, 0.12])
    one = comparison.Difference("steps", "m", "a", "average", "pass@1", effect, (), p_holm=0.01)
    assert one.verdict == "above (Holm)"
    assert replace(one, p_holm=0.2).verdict == "above"
    assert replace(one, effect=comparison.stats.paired_t([0.1, -0.11, 0.12])).verdict == "open"
