"""`mcpo probe` on existing runs, on their checkpoints, and on runs that are started for it."""

import json
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from mcpo_cli import measures
from mcpo_cli.config import plan as plans
from mcpo_cli.home import run_dir
from mcpo_cli.runs.journal import JournalWriter
from tests.cli.conftest import InProcess
from tests.rows import reroll
from tests.store_runs import made_up

SMALL = ("scale=smoke", "train.steps=6", "train.prompts=32", "train.rollouts=2", "train.temperature=0.3", "seed=0,1")
"""Two rollouts at a low temperature: some prompts are mastered even by a policy this weak."""
OFFLINE = "compute.tracking_uri=offline"


def finished(*overrides: str, mastered: int) -> str:
    """A done run whose probe resampled one prompt: `mastered` of 4 correct at once, 2 of 4 one step later."""
    (run_id,) = made_up(plans.from_overrides(["scale=smoke", *overrides]))
    writer = JournalWriter(run_dir(run_id) / "attempt_1")
    for step, right in ((1, mastered), (2, 2)):
        writer.rows("rerolls", step, [reroll(step, "a", right, origin=1, n=4)])
    writer.close()
    return run_id


def test_a_finding_comes_from_the_records_of_a_run(here: InProcess) -> None:
    run_id = finished(OFFLINE, mastered=3)
    document = here.json("probe", "mastery", run_id[:20])
    (run,) = document["runs"]
    assert run["run_id"] == run_id
    assert run["values"]["same_policy"] == 0.75
    assert run["values"]["gap_lag_1"] == 0.25
    assert run["records"] == str(run_dir(run_id))
    (arm,) = document["arms"]
    assert (arm["arm"], arm["seeds"], arm["gap_lag_1"]) == ("mcpo", 1, 0.25)
    shown = here("probe", "mastery", run_id)
    # One step is one cluster, which has no interval.
    assert shown.stdout.split().count("0.2500") == 1
    assert measures.get("mastery").question in shown.stderr


def test_a_run_of_its_own_gets_the_settings_of_the_probe(here: InProcess) -> None:
    lags = [0, 1, 5, 10, 20]
    (run,) = here.json("probe", "mastery", "method=dapo", "method.dynamic_sampling=off", "--dry-run")["runs"]
    assert run["spec"]["method"]["dynamic_sampling"] is False
    assert run["spec"]["probe"]["lags"] == lags
    suite = here.json("probe", "mastery", "--dry-run")
    assert suite["suite"] == "mastery"
    assert {tuple(run["spec"]["probe"]["lags"]) for run in suite["runs"]} == {tuple(lags)}
    (own,) = here.json("probe", "mastery", "probe.lags=[0,2]", "--dry-run")["runs"]
    assert own["spec"]["probe"]["lags"] == [0, 2]
    (plain,) = here.json("probe", "histogram", "--dry-run")["runs"]
    assert plain["spec"]["probe"]["lags"] == [0, 1]
    assert not here.home.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("warm_home", "stored")
def test_a_diagnostic_run_its_checkpoints_and_the_store(here: InProcess) -> None:
    document = here.json("probe", "mastery", *SMALL)
    assert [run["seed"] for run in document["runs"]] == [0, 1]
    assert document["arms"][0]["seeds"] == 2
    for run in document["runs"]:
        assert 0 < run["values"]["same_policy"] <= 1
        assert run["values"]["prompts"] >= 1
    # The second time nothing is trained, and the digits are the same.
    assert here.json("probe", "mastery", *SMALL) == document

    client = MlflowClient(f"sqlite:///{here.home / 'mlflow.db'}")
    (experiment,) = (found for found in client.search_experiments() if found.name == "probe-mastery")
    children = client.search_runs([experiment.experiment_id], "tags.`mcpo.run_id` != ''")
    values = {run["run_id"]: run["values"]["same_policy"] for run in document["runs"]}
    assert {run.data.tags["mcpo.run_id"]: run.data.metrics["probe/mastery/same_policy"] for run in children} == values
    assert all(len(client.get_metric_history(run.info.run_id, "probe/mastery/same_policy")) == 1 for run in children)
    (parent,) = {run.data.tags["mlflow.parentRunId"] for run in children}
    saved = Path(client.download_artifacts(parent, "probes/mastery.json", str(here.home)))
    assert {"schema_version": 1, **json.loads(saved.read_text())} == document

    run = document["runs"][0]["run_id"]
    looked = here.json("probe", "mastery", run, "--prompts", "40")
    (found,) = looked["runs"]
    assert found["values"].keys() >= {"same_policy", "gap_lag_1", "selection_estimate"}
    assert [row["step"] for row in found["tables"]["steps"]] == [5, 6]
    assert here.json("probe", "mastery", run, "--prompts", "40") == looked
    checkpoint = max((here.home / "runs" / run / "attempt_1" / "checkpoints").glob("step_*"))
    (found,) = here.json("probe", "mastery", str(checkpoint), "--prompts", "40")["runs"]
    assert [row["step"] for row in found["tables"]["steps"]] == [6]
