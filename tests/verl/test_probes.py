"""A run on two ranks that was killed and resumed: what it leaves behind, and what its probes recorded."""

import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from mcpo_cli.backends.verl import processes
from mcpo_cli.config.load import load
from mcpo_cli.runs.journal import Journal, read_json
from mcpo_cli.tasks.arithmetic import Arithmetic
from tests.verl.conftest import PATIENCE, TOY, Runs, ended, logged, nobody_is_left, phase, status, wait

pytestmark = [pytest.mark.verl, pytest.mark.slow]
STEPS, PROMPTS, G = 4, 6, 4
PROBED = (*TOY, "method=reweighted", "train.steps=4", "probe.panel=6", "cluster.gpus=2")
"""At its defaults this method is MCPO; it also records the weights of its groups."""
PANEL = "probe.panel_every=2"
TRAINED = ("train/", "mastery/", "hinge/", "weight/", "sampling/")


@dataclass(frozen=True)
class Resumed:
    """A run of the settings PROBED and PANEL, killed in its third step and continued to its end."""

    runs: Runs
    folder: Path
    listening: set[str]
    """Addresses that its processes listened on in the third step."""
    state: str
    """Its state after the kill."""


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory, base_policies: Path) -> Iterator[Resumed]:
    with ended(Runs(tmp_path_factory.mktemp("verl"), base_policies)) as runs:
        killed = runs.start("train", *PROBED, PANEL)
        folder = runs.begun("reweighted", killed)
        wait(lambda: status(folder).get("durable_step") == 2 and "step 3 of" in phase(folder), killed)
        addresses = listening(folder)
        os.kill(status(folder)["pid"], signal.SIGKILL)
        assert killed.wait(PATIENCE) != 0
        wait(lambda: nobody_is_left(folder))
        state = runs.json("runs", "show", folder.name)["state"]
        result = runs("train", *PROBED, PANEL)
        assert result.returncode == 0, result.stdout
        yield Resumed(runs, folder, addresses, state)


def listening(folder: Path) -> set[str]:
    """The addresses that the run's processes listen on, without the ranks: torch's own rendezvous knows no address."""
    found = set()
    for process in processes.marked(str(folder)):
        with suppress(psutil.Error):
            if "WorkerDict" not in process.name():
                connections = process.net_connections("tcp")
                found |= {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    return found


def test_a_run_on_two_ranks_is_killed_resumed_exported_and_evaluated(resumed: Resumed) -> None:
    runs, folder = resumed.runs, resumed.folder
    assert resumed.listening
    assert resumed.listening <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert resumed.state == "interrupted"
    assert [row["step"] for row in Journal(folder).steps()] == [1, 2, 3, 4]
    assert read_json(folder / "attempt_2" / "status.json")["start_step"] == 2
    assert _prompts(folder) == [problem.text for problem in Arithmetic(max_ops=2).training(0, 0, 32)]
    assert all("hinge/tokens_active" in row["metrics"] for row in _with_mastered(folder))
    assert [step for step, _ in logged(runs.home, folder, "train/accuracy")] == [1, 2, 3, 4]

    exported = runs.json("export", folder.name, "--step", "2")["folder"]
    newest = folder / "attempt_2" / "policy"
    benchmark = ("--benchmarks", "arithmetic", "--limit", "6", "max_tokens=20", "grading.timeout=60")
    for model in (exported, folder.name):
        result = runs.json("evaluate", model, *benchmark)
        assert result["benchmarks"].keys() == {"k2-3", "k5-6", "k7-8"}
    assert (newest / "model.safetensors").stat().st_size == (Path(exported) / "model.safetensors").stat().st_size


def _prompts(folder: Path) -> list[str]:
    """Of all steps, in order: a resumed run goes on where the stream was."""
    return [row["prompt"] for row in Journal(folder).groups()]


def _with_mastered(folder: Path) -> list[Any]:
    found = [row for row in Journal(folder).steps() if row["metrics"]["mastery/mastered"] > 0]
    assert found
    return found


def test_probes_under_verl(resumed: Resumed) -> None:
    """Their records are the local backend's, and nothing that is trained knows of them.

    Beside the run with probes: one without, and one of the local backend.
    """
    runs, probed = resumed.runs, Journal(resumed.folder)
    bare, local = (
        trained(runs, *others) for others in (("probe.every=0", "probe.panel_every=0"), (PANEL, "backend=local"))
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
    # The sampler's log-probabilities are rounded as its batches happen to be.
    for mine, theirs in zip(of(probed, "sanity/"), of(bare, "sanity/"), strict=True):
        assert mine == pytest.approx(theirs, abs=1e-6)
    assert probed.groups() == bare.groups()
    assert probed.mini_batches() == bare.mini_batches()
    assert probed.eval() == bare.eval()
    # Otherwise the comparison says little.
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
    # The attempt that was killed picked the cohort, the next one rolled it again.
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
    # The local backend measures something there that verl's trainer has from elsewhere.
    assert of_mini_batches(verl) == of_mini_batches(local) - {"sanity/logp_difference"}
    names = {name for row in local.steps() for name in row["metrics"]}
    assert names <= {name for row in verl.steps() for name in row["metrics"]}
    assert len(verl.mini_batches()) == STEPS * 2
    # With the anchor that was rolled out the first gradient step of each global step feels nothing.
    first = [row["sums"] for row in verl.mini_batches() if row["mini_batch"] == 1]
    assert {sums["hinge/prompts_felt"][0] for sums in first} == {0}
    assert max(row["metrics"]["sanity/logp_difference"] for row in verl.steps()) < 1e-4
