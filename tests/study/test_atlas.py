"""The committed rows of the atlas are what the code gives, and its table and figure show them."""

import pandas as pd
import pytest
from mcpo_study.analysis import EXPERIMENTS
from mcpo_study.analysis.atlas import conditions as atlas
from mcpo_study.analysis.atlas import tables

from mcpo_cli.config import plan
from mcpo_cli.methods import get, registry
from tests.study.test_estimators import TRAIN

RESULTS = EXPERIMENTS / "atlas" / "results"
ROWS = pd.read_csv(RESULTS / "atlas.csv", na_values=["nan"], keep_default_na=False)


def test_every_method_and_condition_has_a_row() -> None:
    expected = {
        (name, condition.rollouts, condition.stale, condition.rounding, condition.correction)
        for name in registry()
        for condition in atlas.conditions()
        if atlas.fitting(get(name), TRAIN, condition.rollouts)
    }
    columns = ["arm", "rollouts", "stale", "rounding", "correction"]
    assert sorted(ROWS[columns].itertuples(index=False, name=None)) == sorted(expected)


def test_committed_rows_that_were_counted_are_what_the_code_gives() -> None:
    chosen = ROWS[(ROWS["batches"] == 0) & (ROWS["rollouts"] == 4) & (ROWS["stale"] == 4)]
    assert len(chosen) > 10
    for committed in chosen.to_dict("records"):
        found = atlas.row(get(committed["arm"]), TRAIN, atlas.Condition(4, 4))
        assert found is not None
        for name in ("gain", "cosine_mean", "noise", "cosine"):
            # Pass@4 of four rollouts has no advantage, hence no direction.
            expected = pytest.approx(committed[name], rel=1e-3, abs=1e-3, nan_ok=committed["arm"] == "passk")
            assert found[name] == expected, (committed["arm"], name)


@pytest.mark.slow
def test_committed_rows_of_trained_arms_that_were_counted_are_what_the_code_gives() -> None:
    rows = pd.read_csv(RESULTS / "atlas-suites.csv")
    rows = rows[(rows["batches"] == 0) & (rows["stale"] == 4)]
    assert {*rows["suite"]} == {"methods-ratio", "methods-weights", "methods-baselines", "methods-small-groups"}
    for suite, own in rows.groupby("suite"):
        arms = {run.arm: run.spec for run in plan.from_suite(str(suite), ["seed=0"], "").runs}
        for committed in own.to_dict("records"):
            spec = arms[committed["arm"]]
            found = atlas.row(spec.method, spec.train, atlas.Condition(committed["rollouts"], 4))
            assert found is not None
            assert found["size"] == committed["size"] <= spec.train.rollouts
            assert found["cosine"] == pytest.approx(committed["cosine"], rel=1e-3), committed["arm"]


def test_the_table_has_the_numbers_of_the_rows() -> None:
    grid = tables.grid(ROWS)
    line = dict(zip(grid.header, next(row for row in grid.rows if row[0] == "passk"), strict=True))
    assert line["cos G=2"] == "-"
    row = tables.at(ROWS[ROWS["arm"] == "passk"], 16, 0).iloc[0]
    assert (line["gain"], line["noise"], line["G=16"]) == tuple(
        f"{row[name]:.2f}" for name in ("gain", "noise", "cosine")
    )
    row = tables.at(ROWS[ROWS["arm"] == "passk"], 16, 0, atlas.ROUNDING, "sequence-truncate").iloc[0]
    assert line["sequence TIS"] == f"{row['cosine_mean']:.2f}"
