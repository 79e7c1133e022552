"""`mcpo compare`: a user's suite in every verb that shows it, and the completions of its words."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from mcpo_cli.commands.completion import completing
from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.statistics.power import STAGES, look_level
from tests import fakes
from tests.cli.conftest import InProcess
from tests.fakes import write_runs

SUITE = {
    "title": "Does the hinge pay?",
    "table": True,
    "baseline": "plain",
    "metric": "best@8",
    "arms": {"hinged": ["method=mcpo"], "plain": ["method=mcpo", "method.hinge=false"]},
    "sweep": {"model": ["toy-s"], "seed": [0, 1, 2]},
}


@pytest.fixture
def suite(plugin_folder: Path) -> Path:
    path = plugin_folder / "suites" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(SUITE, sort_keys=False))
    return path


@pytest.mark.slow
@pytest.mark.usefixtures("suite", "warm_home", "stored")
def test_a_suite_of_ones_own_through_all_verbs(here: InProcess) -> None:
    """Trained by `ablate`, compared by name and by run ids, in `reproduce`, on MLflow's parent run."""
    from mlflow import MlflowClient

    settings = ("scale=smoke", "eval.problems=6")
    trained = here("ablate", "mine", *settings)
    assert trained.returncode == 0, trained.stderr
    assert "hinged against plain in best@8" in trained.stdout

    (one,) = here.json("compare", "mine", *settings)["comparisons"]
    headline = [row for row in one["differences"] if row["family"] == "headline"]
    assert [(row["arm"], row["at"], row["metric"]) for row in headline] == [
        ("hinged", "steps", "best@8"),
        ("hinged", "rollouts", "best@8"),
    ]
    assert {(row["seeds"], row["over"]) for row in headline} == {(3, "seeds")}
    kinds = {name.rpartition(".")[2] for name in one["files"]}
    assert kinds == {"csv", "json", "html", "md", "tex", "svg", "png", "pdf"}

    by_id = here.json("compare", *(run["run_id"] for run in one["runs"]), "--baseline", "plain", "--metric", "best@8")
    mine = next(row for row in by_id["comparisons"][0]["differences"] if row["family"] == "headline")
    assert (mine["difference"], mine["p"]) == (headline[0]["difference"], headline[0]["p"])

    made = here.json("reproduce", "mine", *settings)
    table = next(row for row in made["artifacts"]["mine"]["rows"] if row["family"] == "headline")
    assert (table["mean"], table["p"]) == pytest.approx((headline[0]["difference"], headline[0]["p"]))
    assert "Does the hinge pay?" in made["artifacts"]["mine"]["title"]

    client = MlflowClient(f"sqlite:///{here.home / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("mine")
    parents = [
        run for run in client.search_runs([experiment.experiment_id]) if "mlflow.parentRunId" not in run.data.tags
    ]
    values = parents[0].data.metrics
    assert values["difference/best_at_8/steps/toy-s/hinged"] == pytest.approx(headline[0]["difference"])
    assert {name.partition("/")[0] for name in values} <= {"difference", "system"}


@pytest.mark.slow
@pytest.mark.parametrize("gap", [0.0, 0.25])
def test_until_decided_stops_at_a_verdict_and_says_what_it_spent(
    gap: float, here: InProcess, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs of all stages exist already; the arms differ by nothing or by a quarter."""
    plan = from_suite(str(suite), ["scale=smoke", f"seed={','.join(map(str, range(STAGES[-1])))}"], "")
    for arm in ("hinged", "plain"):
        write_runs(Plan("", "", tuple(run for run in plan.runs if run.arm == arm)))
        monkeypatch.setitem(fakes.TIERS, "k7-8", fakes.TIERS["k7-8"] + 2 * gap)
    result = here("ablate", str(suite), "scale=smoke", "--until", "decided", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    (decision,) = document["decisions"]
    assert decision["verdict"] == ("worse" if gap else "undecided")
    assert document["seeds"] == (STAGES[0] if gap else STAGES[-1])
    assert decision["level"] == look_level(STAGES.index(document["seeds"]) + 1, len(STAGES))
    assert (decision["p_adjusted"] <= decision["level"]) == bool(gap)
    assert f"spent: {2 * document['seeds']} runs of {document['seeds']} seeds" in result.stderr


def test_plan_says_what_seeds_find_in_units_of_the_spread_and_of_the_metric(here: InProcess) -> None:
    relative = here.json("compare", "table1", "scale=smoke", "model=toy-s", "--plan")
    assert relative["differences"] == []
    assert relative["in_stages"] == "mcpo ablate table1 scale=smoke model=toy-s --until decided"
    # Cohen's d of a paired t-test at power .8 with 10 pairs.
    assert relative["in_standard_deviations"]["10"] == pytest.approx(0.9960, abs=1e-3)
    write_runs(from_suite("table1", ["scale=smoke", "model=toy-s"], ""))
    (found,) = here.json("compare", "table1", "scale=smoke", "model=toy-s", "--plan")["differences"]
    assert (found["arm"], found["at"], found["seeds"]) == ("MCPO", "steps", 3)
    assert found["sd_low"] < found["sd"] < found["sd_high"]
    shown = here("compare", "table1", "scale=smoke", "model=toy-s", "--plan").stdout
    assert f"a difference of 0.02 takes {found['fewest']} to {found['most']} seeds" in shown
    assert 1 < found["fewest"] < found["most"]


def test_of_several_regimes_each_has_its_files_and_its_name(here: InProcess, tmp_path: Path) -> None:
    words = ("table1", "scale=smoke", "model=toy-s", "seed=0", "regime=drift,over-driven")
    write_runs(from_suite(words[0], list(words[1:]), ""))
    shown = here("compare", *words, "--out", str(tmp_path / "out"), MLFLOW_TRACKING_URI="offline")
    for regime in ("drift", "over-driven"):
        assert f"regime {regime}:" in shown.stdout
        assert (tmp_path / "out" / regime / "comparison.html").is_file()
    assert here.refused("contradiction", "compare", *words, "--benchmark", "k2-3")
    assert here.refused("contradiction", "compare", *words, "--plan", "--gate", "no-worse")


@pytest.mark.slow
@pytest.mark.parametrize("compared", [{"hinged"}, set()], ids=["others", "alone"])
def test_arms_with_equal_settings_are_the_same_runs_and_are_not_compared(
    here: InProcess, tmp_path: Path, compared: set[str]
) -> None:
    """Also where one of them is the baseline; and nothing is left to compare where all arms are one."""
    arms = {"plain": ["method=dapo"], **{name: ["method=mcpo"] for name in compared}, "again": ["method=dapo"]}
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({**SUITE, "arms": arms, "baseline": "again"}, sort_keys=False))
    plan = from_suite(str(path), ["scale=smoke"], "")
    assert plan.same == {"again": "plain"}
    assert "warning: again and plain have equal settings" in here("train", "--dry-run", str(path), "scale=smoke").stderr
    assert len(plan.runs) == 3 * len(compared | {"plain"})
    write_runs(plan)
    (one,) = here.json("compare", str(path), "scale=smoke")["comparisons"]
    assert "again and plain have equal settings" in " ".join(one["sentences"])
    assert {row["arm"] for row in one["differences"]} == compared
    assert one["baseline"] == "plain"


@pytest.mark.parametrize(
    ("kinds", "what", "begun", "offered"),
    [
        (["arm"], ["table2"], "w/o R", ["w/o ReWeight"]),
        (["axis"], [], "r", ["rollouts"]),
        (["suite", "override"], [], "tab", ["table1", "table2"]),
        (["suite", "override"], ["table1"], "tab", []),
        (["kind"], [], "sa", ["sampler"]),
    ],
)
def test_words_complete(kinds: list[str], what: list[str], begun: str, offered: list[str]) -> None:
    context: Any = SimpleNamespace(params={"what": what})
    assert completing(*kinds)(context, begun) == offered
    assert completing("grader", commas=True)(context, "exact,int") == ["exact,integer"]
