"""A run on two nodes of a Ray cluster that was killed and resumed: its remains, and the records of its probes."""

import os
import shutil
import signal
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.config.load import load
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.tasks.chains import Arithmetic
from tests.verl.cluster import Cluster
from tests.verl.conftest import PATIENCE, TOY, TRAINED, Runs, ended, logged, nobody_is_left, phase, status, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]
STEPS, PROMPTS, G = 4, 6, 4
ANCHOR = ("method.anchor=previous_step", "method.delta=0")
"""A hinge with a state in the checkpoint, which is active at any change by the last gradient step."""
PROBED = (*TOY, "method=reweighted", *ANCHOR, "train.steps=4", "probe.panel=6")
"""This method is MCPO, which also records the weights of its groups."""
PANEL = "probe.panel_every=2"


@dataclass(frozen=True)
class Resumed:
    """A run with the settings PROBED and PANEL in a cluster, one rank per node, killed in step 3 and continued."""

    runs: Runs
    folder: Path
    actors: list[list[str]]
    """The actors on each node in the third step."""
    state: str
    """The run's state after the kill."""
    cluster_as_before: list[bool]
    """True if the cluster was unused and complete again: after the kill, and at the end."""
    waited: str
    """The phase of the run while the cluster had only one node."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    # Short, because a socket's path has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="mcpo-"))
    found = Cluster(folder)
    try:
        found.start()
        yield found
    finally:
        found.end()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory, base_policies: Path, cluster: Cluster) -> Iterator[Resumed]:
    with ended(Runs(tmp_path_factory.mktemp("verl"), base_policies)) as runs:
        alone = runs.env
        runs.env = alone | cluster.access
        joined = (*PROBED, PANEL, f"cluster.ray_address={cluster.address}", "cluster.nodes=2")
        killed = runs.start("train", *joined)
        folder = runs.begun("reweighted", killed)
        wait(lambda: "Ray cluster" in phase(folder), killed)
        waited = phase(folder)
        cluster.grow()
        wait(lambda: status(folder).get("durable_step") == 2 and "step 3 of" in phase(folder), killed)
        actors = cluster.actors()
        os.kill(status(folder)["pid"], signal.SIGKILL)
        assert killed.wait(PATIENCE) != 0
        wait(lambda: nobody_is_left(folder))
        as_before = [cluster.is_as_before()]
        state = runs.json("runs", "show", folder.name)["state"]
        result = runs("train", *joined)
        assert result.returncode == 0, result.stdout
        as_before.append(cluster.is_as_before())
        runs.env = alone
        yield Resumed(runs, folder, actors, state, as_before, waited)


def test_a_run_joins_a_cluster_and_leaves_nothing_in_it(resumed: Resumed) -> None:
    assert len(resumed.actors) == 2
    assert all(any("WorkerDict" in title for title in node) for node in resumed.actors)
    assert resumed.cluster_as_before == [True, True]
    assert nobody_is_left(resumed.folder)
    assert not list(resumed.folder.glob("attempt_*/ray"))


def test_a_run_waits_for_the_nodes_that_are_missing(resumed: Resumed) -> None:
    assert resumed.waited == "waiting for machines: 1 of 2 GPUs have joined the Ray cluster"


def test_it_was_killed_resumed_exported_and_evaluated(resumed: Resumed) -> None:
    runs, folder = resumed.runs, resumed.folder
    assert resumed.state == "interrupted"
    assert [row["step"] for row in Journal(folder).steps()] == [1, 2, 3, 4]
    assert read_json(folder / "attempt_2" / "status.json")["start_step"] == 2
    assert _prompts(folder) == [problem.text for problem in Arithmetic(max_ops=2).training(0, 0, 32)]
    assert all("hinge/tokens_active" in row["metrics"] for row in _with_mastered(folder))
    assert [step for step, _ in logged(runs.home, folder, "train/accuracy")] == [1, 2, 3, 4]

    exported = runs.json("export", folder.name, "--step", "2")["folder"]
    newest = folder / "attempt_2" / "policy"
    benchmark = ("--benchmarks", "arithmetic", "--limit", "6", "max_tokens=20", "grading.timeout=60")
    result = runs.json("evaluate", exported, *benchmark)
    assert result["benchmarks"].keys() == {"k2-3", "k5-6", "k7-8"}
    assert (newest / "model.safetensors").stat().st_size == (Path(exported) / "model.safetensors").stat().st_size


def _prompts(folder: Path) -> list[str]:
    """The prompts of all steps, in order: a resumed run continues the stream."""
    return [row["prompt"] for row in Journal(folder).groups()]


def _with_mastered(folder: Path) -> list[Any]:
    found = [row for row in Journal(folder).steps() if row["metrics"]["mastery/mastered"] > 0]
    assert found
    return found


def test_probes_under_verl(resumed: Resumed) -> None:
    """Their records equal the local backend's, and training does not depend on them.

    Besides the run with probes: one without, on two ranks of a separate Ray, and one of the local backend.
    """
    runs, probed = resumed.runs, Journal(resumed.folder)
    bare, local = (
        trained(runs, *others)
        for others in (("probe.every=0", "probe.panel_every=0", "cluster.gpus=2"), (PANEL, "backend=local"))
    )
    neither_probes_nor_the_kill_changed_what_is_trained(probed, bare)
    what_was_mastered_is_rolled_again(probed)
    records_are_those_of_the_local_backend(probed, local)


def trained(runs: Runs, *others: str) -> Journal:
    result = runs("train", *PROBED, *others)
    assert result.returncode == 0, result.stdout
    return Journal(runs.home / "runs" / load([*PROBED, *others])[0].run_id)


def neither_probes_nor_the_kill_changed_what_is_trained(probed: Journal, bare: Journal) -> None:
    def of(journal: Journal, *groups: str) -> list[dict[str, float]]:
        rows = [row["metrics"] for row in journal.steps()]
        return [{name: value for name, value in row.items() if name.startswith(groups)} for row in rows]

    assert len(probed.steps()) == STEPS
    assert of(probed, *TRAINED) == of(bare, *TRAINED)
    # Rounding of the sampler's log-probabilities depends on its batches.
    for mine, theirs in zip(of(probed, "sanity/"), of(bare, "sanity/"), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
    assert probed.groups() == bare.groups()
    assert probed.mini_batches() == bare.mini_batches()
    assert probed.eval() == bare.eval()
    # Otherwise the comparison would test little.
    assert of(probed, *TRAINED)[0]["train/grad_norm"] > 0
    assert not bare.rerolls()


def what_was_mastered_is_rolled_again(journal: Journal) -> None:
    rolled = defaultdict[tuple[int, int], list[str]](list)
    for row in journal.rerolls():
        rolled[row["origin"], row["step"]].append(row["prompt"])
        assert 0 <= row["c"] <= row["n"] == G
    mastered = {
        step: [row["prompt"] for row in journal.groups() if row["step"] == step and row["p"] == 1]
        for step in (1, 2, 3, 4)
    }
    panel = [problem.text for problem in Arithmetic(max_ops=2).training(0, 0, PROMPTS)]
    cohorts = {(step, later): mastered[step] for step in mastered for later in (step, step + 1) if later <= STEPS}
    assert rolled == {key: prompts for key, prompts in cohorts.items() if prompts} | {(0, 1): panel, (0, 3): panel}
    # The killed attempt picked the cohort, the next one resampled it.
    assert rolled[2, 3]
    for row in journal.steps():
        again = [each for each in journal.rerolls() if each["step"] == row["step"]]
        assert row["metrics"]["probe/rollouts"] == G * len(again)
        assert row["metrics"]["perf/seconds_probe"] > 0


def shape(rows: list[Any]) -> dict[str, type]:
    return {key: type(value) for row in rows for key, value in row.items()}


def of_mini_batches(journal: Journal) -> set[str]:
    return {name for row in journal.mini_batches() for name in row["sums"]}


def records_are_those_of_the_local_backend(verl: Journal, local: Journal) -> None:
    assert shape(verl.rerolls()) == shape(local.rerolls())
    assert shape(verl.groups()) == shape(local.groups())
    assert shape(verl.mini_batches()) == shape(local.mini_batches())
    # The local backend measures there what verl's trainer gets from elsewhere.
    assert of_mini_batches(verl) == of_mini_batches(local) - {"sanity/logp_difference"}
    # One process trains there; here many processes of Ray do, none of which represents the run.
    names = {name for row in local.steps() for name in row["metrics"] if not name.startswith("system/")}
    assert names <= {name for row in verl.steps() for name in row["metrics"]}
    assert len(verl.mini_batches()) == STEPS * 2
    # Before the very first gradient step there is no drift; later the last step's is active, also the previous step's.
    for journal in (verl, local):
        felt = {(row["step"], row["mini_batch"]): row["sums"]["hinge/prompts_felt"] for row in journal.mini_batches()}
        assert felt[1, 1][0] == 0
        assert max(felt[step, 1][0] for step in range(2, STEPS + 1)) > 0
    # Exactly equal: old log-probabilities are packed like those of the update.
    assert {row["metrics"]["sanity/noise_floor"] for row in verl.steps()} == {0}
    assert max(row["metrics"]["sanity/logp_difference"] for row in verl.steps()) < 1e-4
