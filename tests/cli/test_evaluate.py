"""`mcpo evaluate` and `mcpo grade` as users meet them, also killed, with a tiny untrained model and own problems."""

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from mcpo_cli.config.load import load
from mcpo_cli.data import sets
from tests import models
from tests.cli.conftest import MCPO, InProcess

QUICK = ("n=2", "max_tokens=8", "seed=3", "grading.workers=1")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(models.untrained(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture
def problems(tmp_path: Path) -> str:
    """Two benchmarks; the third problem of the first does not fit into the model's 128 tokens."""
    texts = ["1 + 1 ?", "2 * 3 ?", "9 " * 150]
    for name, golds in (("aime24", (2, 6, 9)), ("amc23", (2.0, 6.0, 9.0))):
        rows = [{"problem": text, "answer": str(gold)} for text, gold in zip(texts, golds, strict=True)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"data.path={tmp_path}"


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_an_evaluation_from_its_protocol_to_a_second_grading(here: InProcess, model: str, problems: str) -> None:
    arguments = ("evaluate", model, "--benchmarks", "aime24,amc23", problems, *QUICK)
    first = here(*arguments, "--json")
    assert first.returncode == 0, first.stderr
    for told in ("temperature 0.7", "top_p 1", "<eos> (0)", "holds 128", "chat template  none", "n=2 instead of 8"):
        assert told in first.stderr
    results = json.loads(first.stdout)
    assert results["label"] == "mean@2, T=0.7, at most 8 tokens"
    assert "2 prompts fill the model's window: their problems count as not solved" in results["shortfalls"]
    for name in ("aime24", "amc23"):
        found = results["benchmarks"][name]
        assert (found["problems"], found["metrics"]["pass_at_1"]) == (3, 0.0)
        assert found["metrics"]["no_room"] == pytest.approx(1 / 3)
        assert found["metrics"]["pass_at_1_problems_high"] > 0.3
    # The same problems with golds written otherwise are the same data.
    assert results["benchmarks"]["aime24"]["digest"] == results["benchmarks"]["amc23"]["digest"]
    logged = mlflow_runs(here.home)
    assert [run.info.status for run in logged] == ["FINISHED"]
    assert logged[0].data.metrics["eval/aime24/pass_at_1"] == 0.0
    assert logged[0].data.params["temperature"] == "0.7"
    assert {one.dataset.digest for one in logged[0].inputs.dataset_inputs} == {
        found["digest"] for found in results["benchmarks"].values()
    }
    again = here.json("grade", results["eval_id"][:8], "--grader", "exact", "--compare", "math_dapo")
    assert again["results"]["grading"] == 2
    assert again["results"]["benchmarks"]["aime24"]["grader"].startswith("exact ")
    assert again["comparisons"]["math_dapo"]["agree"] + again["comparisons"]["math_dapo"]["disagree"] == 12
    kept = json.loads((here.home / "evals" / results["eval_id"] / "gradings" / "1" / "results.json").read_text())
    assert kept["benchmarks"] == results["benchmarks"]
    # An evaluation keeps the grading of its benchmarks' own grader, whatever others were tried later.
    assert here.json(*arguments) == results
    assert sorted(run.data.tags["mcpo.grading"] for run in mlflow_runs(here.home)) == ["1", "2"]
    strict = here.json(*arguments, "grading.refuse_unevaluated=true")
    assert strict["benchmarks"]["aime24"]["grader"].endswith(" refusing unevaluated")


@pytest.mark.slow
def test_an_offline_evaluation_is_brought_to_the_store_later(here: InProcess, model: str, problems: str) -> None:
    offline = "compute.tracking_uri=offline"
    results = here.json("evaluate", model, "--benchmarks", "aime24", problems, *QUICK, offline)
    assert not (here.home / "mlflow.db").exists()
    assert here.json("runs", "sync")["points"][results["eval_id"]] > 0
    assert here.json("runs", "sync")["points"][results["eval_id"]] == 0
    assert len(mlflow_runs(here.home)) == 1


def test_a_dry_run_says_what_is_missing_and_writes_nothing(here: InProcess, model: str, problems: str) -> None:
    document = here.json("evaluate", model, "--benchmarks", "aime24,arithmetic", "--limit", "2", problems, "--dry-run")
    assert document["missing_problems"] == {"aime24": 2, "k2-3": 2, "k5-6": 2, "k7-8": 2}
    assert "at most 2 problems of each benchmark" in document["deviations"]
    assert not any((here.home / "evals").glob("*/*"))


def test_a_dry_run_fetches_no_benchmark(here: InProcess, model: str) -> None:
    document = here.json("evaluate", model, "--benchmarks", "aime24,arithmetic", "--limit", "2", "--dry-run")
    assert document["benchmarks_fetched_from"] == {"aime24": sets.AIME24.origin}
    assert document["missing_problems"] == {"k2-3": 2, "k5-6": 2, "k7-8": 2}


def test_the_policy_of_an_existing_model_is_asked_as_it_was_trained(here: InProcess, tmp_path: Path) -> None:
    policy = models.wordy(tmp_path / "attempt_1" / "policy")
    task = ("task=sums", "task.sorts=[1+1]", "task.examples=1", "train.max_response=6", "train.overlong_cache=0")
    (spec,) = load(["backend=verl", f"model.path={policy}", *task])
    (policy.parent / "spec.json").write_text(json.dumps(spec.to_dict()))
    words = ("evaluate", str(policy), "--benchmarks", "sums", "--limit", "2", "--dry-run")
    planned = here.json(*words)
    assert planned["missing_problems"] == {"1plus1": 2}
    assert planned["protocol"]["model_name"] == spec.run_id
    assert planned["protocol"]["tasks"]["sums"] == {
        "messages": [{"role": "text", "content": "2 + 5 = 7\n{problem} ="}],
        "stops": ["\n"],
        "max_tokens": 6,
    }


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_a_gold_that_no_grader_reads_is_not_scored_0(here: InProcess, model: str, tmp_path: Path) -> None:
    rows = [{"problem": f"{i} + 1 ?", "answer": "\\frac{"} for i in range(3)]
    (tmp_path / "math500.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = here("evaluate", model, "--benchmarks", "math500", f"data.path={tmp_path}", *QUICK)
    assert done.returncode == 1
    assert "6 of 6 answers could not be graded" in done.stderr
    assert "pass@1" not in done.stdout
    assert len(list((here.home / "evals").glob("*/samples/math500/*.json.gz"))) == 3


def mlflow_runs(home: Path) -> list[Any]:
    """The runs of the experiment `evaluate`."""
    client = MlflowClient(f"sqlite:///{home}/mlflow.db")
    experiment = client.get_experiment_by_name("evaluate")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


@pytest.mark.slow
def test_a_file_of_answers_is_graded_and_compared(here: InProcess, tmp_path: Path) -> None:
    lines = [
        {"id": "boxed", "gold": "42", "response": "so it is \\boxed{42}"},
        {"id": "line", "gold": "42", "response": "Answer: 42"},
        {"id": "hedge", "gold": "42", "response": "\\boxed{41} or \\boxed{42}"},
        {"id": "half", "gold": "\\frac12", "prediction": "0.5"},
        {"id": "broken", "gold": "1", "response": "\\boxed{\ud800\x00}"},
    ]
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    document = here.json("grade", str(path), "--workers", "1", "--compare", "math_dapo,exact")
    statuses = {line["name"]: line["status"] for line in document["lines"]}
    assert statuses == {
        "boxed": "correct",
        "line": "correct",
        "hedge": "wrong",
        "half": "correct",
        "broken": statuses["broken"],
    }
    assert statuses["broken"] in ("wrong", "unparsable")
    off = {name: {one["name"] for one in found["disagreements"]} for name, found in document["comparisons"].items()}
    assert off == {"math_dapo": {"boxed", "half"}, "exact": {"half"}}
    shown = here("grade", str(path), "--workers", "1", "--compare", "exact")
    assert shown.returncode == 0, shown.stderr
    assert "exact 1: 2 correct; agrees on 4 of 5, disagrees on 1" in shown.stdout
    assert "no answer that the grader finds" not in shown.stdout
    assert "exact" in here.refused("unknown_name", "grade", str(path), "--workers", "1", "--compare", "exat")
    path.write_text('{"gold": "4", "response": "I do not know"}\n' * 2 + '{"gold": "4", "response": "\\\\boxed{4}"}\n')
    shown = here("grade", str(path), "--workers", "1")
    assert "2 of 3 responses mark no answer that the grader finds, and count as wrong" in shown.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("stored")
def test_a_benchmark_of_ones_own_is_evaluated_under_its_own_name(here: InProcess, model: str, tmp_path: Path) -> None:
    (tmp_path / "any.jsonl").write_text(
        '{"problem": "1 + 1 ?", "answer": "2"}\n{"problem": "2 * 3 ?", "answer": "6"}\n'
    )
    file = tmp_path / "any.jsonl"
    results = here.json("evaluate", model, "--benchmarks", f"additions={file}", *QUICK)
    found = results["benchmarks"]["additions"]
    assert (found["problems"], found["source"]) == (2, "any.jsonl")
    assert found["grader"].startswith("math_verify")
    # The declaration of a known one holds for its copies: AMC23 has integers only.
    (tmp_path / "any.jsonl").write_text('{"problem": "1 + 1 ?", "answer": "two"}\n')
    assert "any.jsonl, row 1" in here.refused("bad_data", "evaluate", model, "--benchmarks", f"amc23={file}", *QUICK)
    for name in ("dapo_math_17k", "arithmetic", "math", "sums", "../additions"):
        words = ("evaluate", model, "--benchmarks", f"{name}={file}", *QUICK)
        assert f"--benchmarks NAME={file}" in here.refused("bad_input", *words)
    assert f"--benchmarks {file}" in here.refused("bad_input", "evaluate", model, f"data={file}")


PROBLEMS = 30
"""Problems of each of three tiers; far more than are sampled before the last signal."""


class Evaluation:
    """`mcpo evaluate` in a home of its own."""

    def __init__(self, here: InProcess, home: Path, model: str) -> None:
        self.here, self.home = here, home
        words = ["evaluate", model, "--benchmarks", "arithmetic", "--limit", str(PROBLEMS), "n=2", "max_tokens=12"]
        self.words = [*words, "compute.tracking_uri=offline", "grading.workers=1"]

    def finish(self) -> Any:
        """The document of an evaluation in this process."""
        done = self.here(*self.words, "--json", MCPO_HOME=str(self.home))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def end_by(self, number: signal.Signals, after: int) -> int:
        """Send the signal `number` once `after` problems are sampled; returns the exit code."""
        env = self.here.env | {"MCPO_HOME": str(self.home)}
        null = subprocess.DEVNULL
        with subprocess.Popen([*MCPO, *self.words], env=env, stdout=null, stderr=null) as process:
            while len(self.paths()) < after:
                assert process.poll() is None, "it ended before it could be killed"
                time.sleep(0.02)
            process.send_signal(number)
            return process.wait(300)

    def paths(self) -> list[Path]:
        """Every whole file of samples."""
        return list(self.home.glob("evals/*/samples/*/*.json.gz"))

    def samples(self) -> dict[str, tuple[int, bytes]]:
        """The same: when each was written, and what is in it."""
        return {
            f"{path.parent.name}/{path.name}": (path.stat().st_mtime_ns, path.read_bytes()) for path in self.paths()
        }


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_as_an_undisturbed_one(here: InProcess, model: str, tmp_path: Path) -> None:
    undisturbed, disturbed = (Evaluation(here, tmp_path / name, model) for name in "ab")
    wanted = undisturbed.finish()
    before: dict[str, tuple[int, bytes]] = {}
    for number, after, code in ((signal.SIGKILL, 3, -signal.SIGKILL), (signal.SIGTERM, 15, 130)):
        assert disturbed.end_by(number, after) == code
        now = disturbed.samples()
        assert before.items() <= now.items(), "a problem was sampled again, or lost"
        before = now
    assert 15 <= len(before) < 3 * PROBLEMS
    found = disturbed.finish()
    after_all = disturbed.samples()
    assert before.items() <= after_all.items()
    assert len(after_all) == 3 * PROBLEMS
    contents = {name: content for name, (_, content) in after_all.items()}
    assert contents == {name: content for name, (_, content) in undisturbed.samples().items()}
    assert found["benchmarks"] == wanted["benchmarks"]
    assert found["eval_id"] == wanted["eval_id"]
