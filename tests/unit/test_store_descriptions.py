"""What MLflow's UI shows: names, notes, tags, averages, results."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow import MlflowClient

from mcpo_cli.config import plan as plans
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.report.build import upload_artifacts
from mcpo_cli.trackers import descriptions, views
from mcpo_cli.trackers.connection import NOTE
from mcpo_cli.trackers.follower import following_plan
from mcpo_cli.trackers.mlflow import Store
from mcpo_cli.trackers.results import log_artifacts
from mcpo_cli.trackers.rows import averages
from tests.store_runs import complete, free_port, plan, runs, spec

BOTH = Plan("table1", "mcpo reproduce table1", (PlannedRun("DAPO", spec(0, "dapo")), PlannedRun("MCPO", spec(0))))


specs = st.builds(
    lambda seed, method, steps, regime: replace(spec(seed, method, steps), regime=regime),
    st.integers(0, 2),
    st.sampled_from(["dapo", "mcpo"]),
    st.sampled_from([4, 6]),
    st.sampled_from(["drift", "skills-drift"]),
)


@given(st.lists(specs, min_size=1, max_size=8, unique_by=lambda one: one.run_id))
def test_runs_share_a_series_exactly_if_they_differ_in_the_seed_alone(drawn: list[plans.RunSpec]) -> None:
    made = plan(*drawn)
    series = descriptions.series(made)
    for one in drawn:
        for other in drawn:
            alike = replace(one, seed=0) == replace(other, seed=0)
            assert (series[one.run_id] == series[other.run_id]) == alike


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20), st.integers(0, 20)), min_size=1))
def test_averages_are_means_over_tiers_of_means_over_problems(problems: list[tuple[str, int, int]]) -> None:
    rows = [{"tier": tier, "n": n, "c": min(n, c)} for tier, n, c in problems]
    k = min(8, *(row["n"] for row in rows))
    chances = {
        "pass_at_1": lambda n, c: c / n,
        f"pass_at_{k}": lambda n, c: 1 - math.comb(n - c, k) / math.comb(n, k),
        f"best_at_{k}": lambda n, c: 1 - (1 - c / n) ** k,
    }
    found = averages(rows)
    assert found.keys() == {f"eval/average/{name}" for name in chances}
    for name, chance in chances.items():
        tiers = [[chance(row["n"], row["c"]) for row in rows if row["tier"] == tier] for tier in "abc"]
        means = [sum(tier) / len(tier) for tier in tiers if tier]
        assert found[f"eval/average/{name}"] == pytest.approx(sum(means) / len(means))


def test_several_runs_end_with_the_command_that_shows_their_charts(store: Store, home: Path) -> None:
    complete(spec(0, "dapo"))
    complete(spec(0))
    notes: list[str] = []
    with following_plan(plan(spec(0)), notes.append, lambda: False):
        pass
    assert notes == []
    with following_plan(BOTH, notes.append, lambda: False):
        pass
    assert notes == ["charts of these runs: mcpo ui"]


def test_views_name_the_columns_that_are_compared_and_find_the_runs_of_a_plan(store: Store, home: Path) -> None:
    for seed in (0, 1):
        complete(spec(seed))
    store.ingest(plan(spec(0), spec(1)))
    (run,) = [run for run in runs(store).values() if "mcpo.plan_id" in run.data.tags]
    client, experiment, parent = MlflowClient(store.uri), run.info.experiment_id, run.info.run_id
    shared = client.get_experiment(experiment).tags
    assert shared[views.KIND] == "custom_model_development"
    assert views.address(experiment) == store.newest() == f"#/experiments/{experiment}/runs?viewStateShareKey=mcpo"
    table = json.loads(json.loads(shared[f"{views.VIEW}{views.TABLE}"])["state"])
    children = client.search_runs([experiment], "tags.arm != ''")
    for child in children:
        columns = {f"tags.`{name}`" for name in child.data.tags}
        assert {*table["selectedColumns"]} - columns == {"tags.`verdict`"}
        assert (child.data.tags["before"], child.data.tags["change"]) == ("0.500", "+0.000")
    state = json.loads(shared[f"{views.VIEW}{parent}"])
    assert len(client.search_runs([experiment], state["searchFilter"])) == len(children) == 2
    assert state["groupBy"]["groupByKeys"] == [{"mode": "tag", "groupByData": "series"}]


def test_a_parent_says_what_its_arms_differ_in_and_what_came_out(store: Store, home: Path) -> None:
    complete(spec(0, "dapo"))
    complete(spec(0))
    (home / "table1.csv").write_text("1")
    log_artifacts(
        store, BOTH, [home / "table1.csv"], {"average/pass@1": 2.0}, "MCPO against DAPO in pass@1: better", "MCPO wins."
    )
    client, parent = MlflowClient(store.uri), runs(store, "table1")[f"table1 {BOTH.plan_id}"]
    assert parent.data.metrics["average/pass_1"] == 2
    assert [file.path for file in client.list_artifacts(parent.info.run_id, "reports")] == ["reports/table1.csv"]
    assert parent.data.params["method.name"] == "DAPO: dapo; MCPO: mcpo"
    assert parent.data.params["method.hinge"] == "DAPO: -; MCPO: True"
    assert not parent.data.params.keys() & {"train.lr", "seed", "model.name"}
    assert "MCPO wins.\n\n" in parent.data.tags[NOTE]
    assert client.get_run(parent.info.run_id).data.tags["verdict"] == "MCPO: better"
    # Descriptions by mcpo are replaced, those by people are not.
    log_artifacts(store, BOTH, [], {}, "worse", "MCPO loses.")
    note = client.get_run(parent.info.run_id).data.tags[NOTE]
    assert "MCPO loses." in note
    assert client.get_run(parent.info.run_id).data.tags["verdict"] == "worse"
    assert "MCPO wins." not in note
    client.set_tag(parent.info.run_id, NOTE, "mine")
    log_artifacts(store, BOTH, [], {}, "better", "MCPO wins.")
    assert client.get_run(parent.info.run_id).data.tags[NOTE] == "mine"


@pytest.mark.parametrize("uri", ["http://127.0.0.1:{port}", "offline"])
def test_results_are_published_without_a_store_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], uri: str
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri.format(port=free_port()))
    (home / "table1.csv").write_text("1")
    upload_artifacts([(BOTH, [])], [home / "table1.csv"])
    assert ("warning: the MLflow store" in capsys.readouterr().err) == (uri != "offline")
