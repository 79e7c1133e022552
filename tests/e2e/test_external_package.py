"""A third-party package adds a method, a task, a benchmark, a grader, a probe, a figure, a suite and claims.

pip builds and installs it without mcpo's knowledge, and the verbs find it in separate processes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.unit.test_write_a_task import told

pytestmark = pytest.mark.slow
VERSION = "1.2.3"
FILES = {
    "pyproject.toml": f"""\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "their-rl"
version = "{VERSION}"

[project.entry-points."mcpo.methods"]
halved = "their_rl.method"
[project.entry-points."mcpo.tasks"]
reverse = "their_rl.task"
[project.entry-points."mcpo.datasets"]
parity = "their_rl.benchmark"
[project.entry-points."mcpo.graders"]
any_case = "their_rl.grader"
[project.entry-points."mcpo.probes"]
lengths = "their_rl.probe"
broken = "their_rl.broken"
[project.entry-points."mcpo.artifacts"]
their-figure = "their_rl.figure"
[project.entry-points."mcpo.experiments"]
their = "their_rl.experiments"

[tool.setuptools]
packages = ["their_rl", "their_rl.experiments"]

[tool.setuptools.package-data]
"*" = ["*.jsonl", "**/*.yaml"]
""",
    "their_rl/__init__.py": "",
    "their_rl/experiments/__init__.py": "",
    "their_rl/method.py": '''\
"""GRPO with advantages of another size."""

from dataclasses import dataclass, replace

from mcpo_cli.methods.grpo import Grpo


@dataclass(frozen=True)
class Halved(Grpo):
    name = "halved"

    factor: float = 0.5

    def signals(self, step, state):
        signals, state = super().signals(step, state)
        return replace(signals, advantage=self.factor * signals.advantage), state
''',
    "their_rl/task.py": told()["reverse"],
    "their_rl/benchmark.py": '''\
"""Two problems, in a file beside this one."""

from pathlib import Path

from mcpo_cli.data.base import Dataset

DATASET = Dataset(
    "parity", "Odd or even", "benchmark", "", "", str(Path(__file__).with_name("parity.jsonl")), "problem", "answer",
    "CC0", 2, grader="any_case",
)
''',
    "their_rl/parity.jsonl": '{"problem": "Is 1 odd?", "answer": "yes"}\n{"problem": "Is 2 odd?", "answer": "no"}\n',
    "their_rl/grader.py": '''\
"""Text, whatever its case."""

from mcpo_cli.grading.base import Grade


def version():
    return "any_case 7"


def grade(gold, response, extracted):
    return Grade("correct" if gold.lower() in response.lower() else "wrong", response)
''',
    "their_rl/probe.py": '''\
"""How often all rollouts of a prompt agree."""

from mcpo_cli.measures import Finding, Measure


def measure(spec, journal):
    rows = list(journal.rows("groups"))
    return Finding({"groups": float(len(rows))})


MEASURE = Measure("lengths", "How many groups were rolled?", ("groups",), ("groups",), measure)
''',
    "their_rl/broken.py": "import a_library_that_is_not_there\n",
    "their_rl/figure.py": '''\
"""Accuracy in training, an arm a curve; the figure holds a function of this module."""

from mcpo_cli.render.figures import base
from mcpo_cli.render.product import Artifact, Product


def label(value, place):
    return f"{value:.3f}"


def build(data):
    runs = data["theirs"]
    frame = runs.steps()[[*base.KEYS, "step", "train/accuracy"]].rename(columns={"train/accuracy": "accuracy"})

    def draw(axes, here):
        base.curves(axes, here, "accuracy")
        axes.yaxis.set_major_formatter(label)

    return Product("Their accuracy", f"{len(frame)} global steps.", frame, figure=base.panels(frame, draw))


ARTIFACT = Artifact("their-figure", "Their accuracy", "Their figures", ("theirs",), build)
''',
    "their_rl/experiments/suites/theirs.yaml": """\
title: Halved against plain
arms:
  halved: [method=halved, task=reverse]
  plain: [method=grpo, task=reverse]
sweep:
  seed: [0, 1]
""",
    "their_rl/experiments/conf/regime/their-regime.yaml": """\
# @package _global_
regime: their-regime
train: {lr: 1e-4}
""",
    "their_rl/experiments/claims/their-claims.yaml": """\
claims:
  - {id: half, claim: halving helps, suite: theirs, statistic: scores.pass@1, relation: greater, arm: halved,
     baseline: plain}
""",
}
BRIEF = ("scale=smoke", "warmup.target_accuracy=0", "train.steps=2", "eval.problems=3", "compute.tracking_uri=offline")


class Mcpo(Cli):
    """`mcpo` in an environment with the package."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "home")
        self.folder, self.site = folder, folder / "site"
        for name, text in FILES.items():
            path = folder / "project" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*pip, "--target", self.site, folder / "project"], check=True, capture_output=True)
        found = os.pathsep.join(filter(None, [str(self.site), os.environ.get("PYTHONPATH")]))
        self.env |= {"PYTHONPATH": found, "MLFLOW_TRACKING_URI": "offline"}


@pytest.fixture(scope="module")
def mcpo(tmp_path_factory: pytest.TempPathFactory) -> Mcpo:
    return Mcpo(tmp_path_factory.mktemp("external"))


@pytest.fixture(scope="module")
def reproduced(mcpo: Mcpo) -> Mapping[str, Any]:
    """The document of `mcpo reproduce theirs`."""
    document: Mapping[str, Any] = mcpo.json("reproduce", "theirs", *BRIEF)
    return document


def test_the_verbs_see_it(mcpo: Mcpo) -> None:
    planned = mcpo("train", "--dry-run", "theirs", "regime=their-regime", *BRIEF, "--json")
    assert planned.stderr.count("warning") == planned.stderr.count("their_rl/broken.py:1: ModuleNotFoundError") <= 1
    specs = [run["spec"] for run in json.loads(planned.stdout)["runs"]]
    assert {(spec["method"]["name"], spec["task"]["name"], spec["train"]["lr"]) for spec in specs} == {
        ("halved", "reverse", 1e-4),
        ("grpo", "reverse", 1e-4),
    }
    lines = [line for line in mcpo.json("doctor")["lines"] if line["needed_by"] == "plug-in"]
    about, problem = lines
    assert (about["name"], about["state"]) == (f"their-rl {VERSION}", "ok")
    for name in ("method halved", "task reverse", "data parity", "grader any_case", "probe lengths", "their-figure"):
        assert name in about["found"]
    assert "their_rl/broken.py:1: ModuleNotFoundError: No module named 'a_library" in problem["found"]
    listed = {row["name"]: row["source"] for row in mcpo.json("components", "list", "data")["components"]}
    assert listed["parity"] == "parity.jsonl"


def test_runs_write_down_which_plug_in_it_was(mcpo: Mcpo, reproduced: Mapping[str, Any]) -> None:
    run = next(run for run in reproduced["suites"][0]["runs"] if run["arm"] == "halved")
    folder = mcpo.home / "runs" / run["run_id"]
    used = json.loads((folder / "spec.json").read_text())["plugins"]
    assert used.keys() == {"method halved", "task reverse"}
    (record,) = json.loads((folder / "attempt_1" / "provenance.json").read_text())["plugins"]
    assert record == used["method halved"] == used["task reverse"]
    assert (record["name"], record["version"], len(record["sha256"])) == ("their-rl", VERSION, 64)
    # Another file of the package is another plug-in: the same command is another run.
    method = mcpo.site / "their_rl" / "method.py"
    before = method.read_text()
    method.write_text(f"{before}CHANGED = True\n")
    other = mcpo.json("train", "--dry-run", "theirs", *BRIEF)["runs"]
    method.write_text(before)
    same = mcpo.json("train", "--dry-run", "theirs", *BRIEF)["runs"]
    assert run["run_id"] not in [one["run_id"] for one in other]
    assert {one["state"] for one in other if one["arm"] == "halved"} == {"planned"}
    assert (run["run_id"], "done") in [(one["run_id"], one["state"]) for one in same]


def test_reproduce_trains_the_suite_and_builds_what_needs_it(mcpo: Mcpo, reproduced: Mapping[str, Any]) -> None:
    (suite,) = reproduced["suites"]
    assert [run["state"] for run in suite["runs"]] == ["done"] * 4
    assert reproduced["artifacts"].keys() == {"theirs", "their-figure", "their-claims"}
    folder = mcpo.home / "reports" / "smoke"
    assert (folder / "their-figure.png").stat().st_size > 1000
    assert reproduced["artifacts"]["their-figure"]["sentence"] == "8 global steps."
    measured = [row for row in reproduced["artifacts"]["theirs"]["rows"] if row["block"] == "measured"]
    assert {row["arm"] for row in measured} == {"halved", "plain"}
    verdicts = [row for row in reproduced["artifacts"]["their-claims"]["rows"] if row["block"] == "test"]
    assert [row["claim"] for row in verdicts] == ["half"]


def test_report_has_its_tables_and_figures(mcpo: Mcpo, reproduced: Mapping[str, Any]) -> None:
    # Helper processes draw it, and must find the declarations of the package and of a folder.
    (mcpo.home / "reports" / "smoke" / "their-figure.json").unlink()
    (mcpo.folder / "mine").mkdir()
    own = FILES["their_rl/figure.py"].replace('"their-figure"', '"my-figure"')
    (mcpo.folder / "mine" / "figure.py").write_text(own, encoding="utf-8")
    done = mcpo("reproduce", "all", "--built", *BRIEF, MCPO_PLUGINS=os.path.relpath(mcpo.folder / "mine"))
    assert done.returncode == 0, done.stderr
    assert "table1" in done.stderr, "the paper's own runs are not there"
    page = (mcpo.home / "reports" / "smoke" / "report.md").read_text()
    assert "(their-figure.png)" in page
    assert "(my-figure.png)" in page
    assert "theirs: Halved against plain" in page
    assert "Claims of their-claims.yaml" in page
    assert "Of 1 claims on toy-s" in page
    assert "Counted apart: 1 not testable" in page
