"""Table 1 from made-up journals, checked against an independent computation from the raw files."""

import csv
import functools
import io
import json
import math
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from statistics import mean, stdev
from unittest import mock

import numpy as np
import pytest
from rliable import metrics
from scipy import stats as scipy_stats

from mcpo_cli.commands import artifact_page, console, reply
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.report import builder
from tests.errors import refused
from tests.fakes import TIERS, build, write_runs

BASELINE = "DAPO"
METRICS = {
    "pass@1": lambda n, c: c / n,
    "best@8": lambda n, c: 1 - (1 - c / n) ** 8,
    "pass@8": lambda n, c: 1 - math.comb(n - c, 8) / math.comb(n, 8),
}


@functools.cache
def _plan(name: str, *overrides: str) -> Plan:
    return from_suite(name, ["scale=smoke", *overrides], f"mcpo reproduce {name}")


def _built(home: Path, name: str, *overrides: str) -> builder.BuiltArtifact:
    plan = _plan(name, *overrides)
    write_runs(plan)
    return build(name, plan, home)


def shown(built: builder.BuiltArtifact, width: int = 100) -> str:
    """The output of `--full` in a terminal of `width` columns."""
    with redirect_stdout(io.StringIO()) as printed, mock.patch.object(console, "width", return_value=width):
        reply.show(artifact_page.page(built, full=True))
    return printed.getvalue()


def words(built: builder.BuiltArtifact) -> str:
    """The same without line breaks."""
    return " ".join(shown(built).split())


@pytest.fixture(scope="module")
def shared_home(module_home: Path) -> Path:
    """A home with the runs and reports of Table 1, for tests that only read it."""
    write_runs(_plan("table1"))
    return module_home


@pytest.fixture(scope="module")
def table(shared_home: Path) -> builder.BuiltArtifact:
    return build("table1", _plan("table1"), shared_home)


def _raw(home: Path, plan: Plan) -> dict[tuple[str, str, str, str], dict[tuple[int, str], float]]:
    """(model, arm, tier, metric) -> (seed, problem) -> value, read without any code of the project."""
    values: dict[tuple[str, str, str, str], dict[tuple[int, str], float]] = defaultdict(dict)
    for run in plan.runs:
        for line in (home / f"runs/{run.spec.run_id}/attempt_1/eval/step_000003.jsonl").read_text().splitlines():
            row = json.loads(line)
            for metric, function in METRICS.items():
                key = (run.spec.model.name, run.arm, row["tier"], metric)
                values[key][run.spec.seed, row["problem"]] = function(row["n"], row["c"])
    return values


def _student(per_seed: list[float]) -> tuple[float, float]:
    half = scipy_stats.t.ppf(0.975, len(per_seed) - 1) * stdev(per_seed) / math.sqrt(len(per_seed))
    return mean(per_seed) - half, mean(per_seed) + half


def _per_seed(values: dict[tuple[int, str], float]) -> list[float]:
    return [mean(value for (seed, _), value in values.items() if seed == wanted) for wanted in (0, 1, 2)]


def test_numbers_agree_with_an_independent_computation(table: builder.BuiltArtifact, shared_home: Path) -> None:
    rows = [row for row in table.to_json()["rows"] if row["at"] == "steps"]
    raw = _raw(shared_home, _plan("table1"))
    per_seed = {key: _per_seed(values) for key, values in raw.items()}
    for model, arm, metric in {(model, arm, metric) for model, arm, _, metric in raw}:
        tiers = [per_seed[model, arm, tier, metric] for tier in TIERS]
        per_seed[model, arm, "average", metric] = [mean(values) for values in zip(*tiers, strict=True)]
    measured = {(r["model"], r["arm"], r["tier"], r["metric"]): r for r in rows if r["block"] == "measured"}
    differences = {(r["model"], r["arm"], r["tier"], r["metric"]): r for r in rows if r["block"] == "difference"}
    assert measured.keys() == per_seed.keys()
    assert differences.keys() == {key for key in per_seed if key[1] != BASELINE}
    for key, row in measured.items():
        assert row["mean"] == pytest.approx(mean(per_seed[key]), abs=1e-9)
        assert 0 <= row["low"] <= row["mean"] <= row["high"] <= 1
        assert (row["seeds"], row["problems"], row["samples"]) == (3, 18 if key[2] == "average" else 6, 8)
    for (model, arm, tier, metric), row in differences.items():
        diff = [
            x - y
            for x, y in zip(per_seed[model, arm, tier, metric], per_seed[model, BASELINE, tier, metric], strict=True)
        ]
        assert row["mean"] == pytest.approx(mean(diff), abs=1e-9)
        assert row["seeds_above"] == sum(value > 1e-12 for value in diff)
        if not any(abs(value) > 1e-12 for value in diff):
            assert (row["verdict"], row["p"], row["p_adjusted"]) == ("identical", None, None)
        elif stdev(diff) > 1e-12:
            assert (row["low"], row["high"]) == pytest.approx(_student(diff), abs=1e-9)
            assert row["p"] == pytest.approx(scipy_stats.ttest_1samp(diff, 0).pvalue, abs=1e-9)
    headline = {key for key, row in differences.items() if row["family"] == "headline"}
    assert headline == {key for key in differences if key[2:] == ("average", "pass@1")}
    assert {row["cost"] for row in measured.values()} == {3}
    others = [row for key, row in differences.items() if key not in headline and row["verdict"] != "identical"]
    _check_holm([(row["p"], row["p_adjusted"]) for row in others])
    # In these runs equal steps are equal rollouts: both axes show one comparison, which counts once.
    at_both = [row for row in table.to_json()["rows"] if row["family"] == "headline"]
    assert len(at_both) == 2 * len(headline)
    for at in ("steps", "rollouts"):
        _check_holm([(row["p"], row["p_adjusted"]) for row in at_both if row["at"] == at])


def test_aggregates_are_those_of_rliable(table: builder.BuiltArtifact, shared_home: Path) -> None:
    raw = _raw(shared_home, _plan("table1"))
    arms = {arm for _, arm, _, _ in raw}
    models = list(dict.fromkeys(model for model, _, _, _ in raw))

    def scores(arm: str) -> np.ndarray:
        """Seeds x (models and tiers), as rliable takes them."""
        return np.array([_per_seed(raw[model, arm, tier, "best@8"]) for model in models for tier in TIERS]).T

    rows = {
        (row["block"], row["arm"]): row
        for row in table.to_json()["rows"]
        if row["block"] in ("mean", "iqm", "better", "mean difference") and row["metric"] == "best@8"
    }
    for arm in arms:
        assert rows["mean", arm]["mean"] == pytest.approx(metrics.aggregate_mean(scores(arm)))
        assert rows["iqm", arm]["mean"] == pytest.approx(metrics.aggregate_iqm(scores(arm)))
        if arm != BASELINE:
            won = metrics.probability_of_improvement(scores(arm), scores(BASELINE))
            assert rows["better", arm]["mean"] == pytest.approx(won)
            diff = (scores(arm) - scores(BASELINE)).mean(axis=1)
            assert (rows["mean difference", arm]["mean"], rows["mean difference", arm]["sd"]) == pytest.approx(
                (diff.mean(), diff.std(ddof=1))
            )


def _check_holm(pairs: list[tuple[float, float]]) -> None:
    running = 0.0
    for rank, (p, adjusted) in enumerate(sorted(pairs)):
        running = max(running, min(1.0, p * (len(pairs) - rank)))
        # Both are rounded to 10 digits, and one of them was multiplied since.
        assert adjusted == pytest.approx(running, abs=1e-10 * len(pairs))


def test_files_hold_the_same_numbers_and_a_rebuild_changes_no_byte(
    table: builder.BuiltArtifact, shared_home: Path
) -> None:
    assert table.paths == tuple(
        shared_home / f"reports/smoke/table1.{suffix}" for suffix in ("csv", "md", "tex", "png", "pdf")
    )
    before = [path.read_bytes() for path in table.paths]
    again = build("table1", _plan("table1"), shared_home)
    assert [path.read_bytes() for path in again.paths] == before
    assert shown(again) == shown(table)

    numbers, markdown, tex = (content.decode() for content in before[:3])
    document, text = table.to_json(), shown(table)
    lines = list(csv.DictReader(numbers.splitlines()))
    assert [float(line["mean"]) for line in lines] == [row["mean"] for row in document["rows"]]
    for row in document["rows"]:
        if row["block"] == "measured" and row["at"] == "steps":
            assert f"{row['mean']:.3f}".lstrip("0") in markdown
            assert f"{row['mean']:.3f}".lstrip("0") in text
        if row["family"] == "headline":
            change = f"{row['mean']:+.3f}".replace("0.", ".", 1)
            assert change in markdown
            assert change in text
            assert change in tex
    for run in _plan("table1").runs:
        assert run.spec.run_id in markdown
        assert run.spec.run_id in text
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_published_numbers_stand_in_a_block_of_their_own(table: builder.BuiltArtifact) -> None:
    label = "published (arXiv 2604.16972, Table 1), not measured here"
    published = [row for row in table.to_json()["rows"] if row["block"] == label]
    assert len(published) == 4 * 6
    assert label in words(table)
    found = {(row["model"], row["arm"], row["tier"], row["metric"]): row["mean"] for row in published}
    assert found["Qwen3-8B-Base", "DAPO", "AIME24", "pass@8"] == 0.6483
    assert found["Qwen3-8B-Base", "MCPO", "AMC23", "pass@1"] == 0.8656
    assert {row["run_ids"] for row in published} == {None}


def test_a_missing_cell_is_an_error_with_the_command_and_no_file(mcpo_home: Path) -> None:
    write_runs(_plan("table1", "seed=0,1"))
    with refused("missing_runs") as caught:
        build("table1", _plan("table1"), mcpo_home)
    assert caught.value.fix == "mcpo reproduce table1 scale=smoke"
    assert not (mcpo_home / "reports").exists()


@pytest.mark.parametrize("seeds", [pytest.param("seed=4", marks=pytest.mark.slow), "seed=4,5"])
def test_fewer_than_three_seeds_claim_no_interval(seeds: str, mcpo_home: Path) -> None:
    built = _built(mcpo_home, "table1", "model=toy-s", seeds)
    rows = [row for row in built.to_json()["rows"] if row["block"] in ("measured", "difference", "iqm", "better")]
    for name in ("low", "high", "p", "p_adjusted"):
        assert {row[name] for row in rows} == {None}
    assert "no interval; at least 3 are needed" in words(built)
    for row in (row for row in rows if row["block"] == "difference"):
        is_identical = row["seeds"] == 2 and row["mean"] == row["seeds_above"] == 0
        assert row["verdict"] == ("identical" if is_identical else "not testable")


def test_runs_of_changed_or_unknown_code_are_marked(mcpo_home: Path) -> None:
    plan = _plan("table1", "model=toy-s")
    for arm, dirty in (("DAPO", None), ("MCPO", True)):
        write_runs(Plan("", "", tuple(run for run in plan.runs if run.arm == arm)), dirty)
    text = words(build("table1", plan, mcpo_home))
    assert "3 of 6 runs were trained from a working tree with uncommitted changes." in text
    assert "3 of 6 runs were trained from a working tree with changes that nothing recorded." in text


@pytest.mark.slow
def test_fewer_samples_than_eight_give_a_smaller_k_and_say_so(mcpo_home: Path) -> None:
    built = _built(mcpo_home, "table1", "model=toy-s", "eval.samples=4")
    assert list(dict.fromkeys(row["metric"] for row in built.to_json()["rows"]))[:3] == ["pass@1", "best@4", "pass@4"]
    assert "k = 4 in place of 8" in words(built)
