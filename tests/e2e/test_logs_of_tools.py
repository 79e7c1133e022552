"""Logs written by the tools themselves, for models of known accuracy: read and compared, with a correct verdict."""

import json
import os
import random
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from mcpo_cli.compare.comparison import Question
from mcpo_cli.compare.log import Log, Side, checked
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.readers import Options, read
from tests import models

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TOOLS = ROOT / ".venv-tools" / "bin" / "python"
"""lm-evaluation-harness and inspect_ai, which require other versions of packages than mcpo is tested with."""
SHARES = {"good": 0.9, "weak": 0.5, "weak-again": 0.5}
"""Probability of a correct answer of each model."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the problems that both tools are given."""
    if not TOOLS.exists():
        pytest.skip("needs lm-evaluation-harness and inspect_ai: make setup-tools (which needs PyPI)")
    problems = [{"question": f"{a} + {b} =", "answer": str(a + b)} for a in range(2, 12) for b in range(2, 12)]
    (tmp_path / "problems.jsonl").write_text("".join(json.dumps(one) + "\n" for one in problems))
    return tmp_path


def tool(folder: Path, *words: str) -> str:
    """The output of a process in the tools' environment, without a hub and with its cache next to its results."""
    own = {"HF_HOME": str(folder / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [TOOLS, *words], cwd=folder, env={**os.environ, **own}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def verdicts(sides: Sequence[Side]) -> dict[str, str]:
    """The verdict on each side against `weak`."""
    found = of_logs(sides, Question("weak")).differences
    return dict(zip(found["arm"], found["verdict"], strict=True))


RIGHT = {"good": "better", "weak-again": "undecided"}


def test_lm_evaluation_harness(folder: Path) -> None:
    tool(folder, str(HERE / "tool_lm_eval.py"), *(f"{name}={share}" for name, share in SHARES.items()))
    logs = {name: read(folder / name, Options()) for name in SHARES}
    assert verdicts([Side(name, tuple(found)) for name, found in logs.items()]) == RIGHT
    for name, (log,) in logs.items():
        (results,) = (folder / name).rglob("results_*.json")
        document = json.loads(results.read_text())
        reported = document["results"]["sums"]["exact_match,none"]
        assert document["groups"]["arithmetic"]["exact_match,none"] == reported
        assert log.samples["benchmark"].unique().tolist() == ["sums"]
        assert log.samples["correct"].mean() == pytest.approx(reported, abs=1e-12)
        assert len(log.samples) == 100
        facts = log.facts["sums"]
        assert (facts["lm_eval"], facts["task version"], facts["examples"]) == ("0.4.13", "3.0", "0")
        assert json.loads(facts["generation"])["temperature"] == 1.0
        assert (log.samples["response"] == log.samples["gold"]).tolist() == (log.samples["correct"] == 1).tolist()


def test_inspect_ai(folder: Path) -> None:
    script, runs = str(HERE / "tool_inspect.py"), {**SHARES, "broken": -1.0}
    tool(folder, script, "write", *(f"{name}={share}" for name, share in runs.items()))
    (whole,) = (folder / "good").glob("*.eval")
    (folder / "cut.eval").write_bytes(whole.read_bytes()[:-200])
    said = tool(folder, script, "read", sysconfig.get_path("purelib"), *runs, "cut.eval")
    *found, broken, cut = map(json.loads, said.splitlines())
    logs = {name: _log(one) for name, one in zip(SHARES, found, strict=True)}
    assert verdicts([Side(name, (log,)) for name, log in logs.items()]) == RIGHT
    assert {len(log.samples) for log in logs.values()} == {200}  # two epochs
    assert logs["good"].facts["sums"]["inspect_ai"] == "0.3.285"
    assert json.loads(logs["good"].facts["sums"]["generation"])["temperature"] == 0.5
    (document,) = (folder / "weak-again").glob("*.json")
    (mean,) = [one["metrics"]["mean"]["value"] for one in json.loads(document.read_text())["results"]["scores"]]
    assert logs["weak-again"].samples["correct"].mean() == pytest.approx(mean, abs=1e-12)
    assert broken["code"] == cut["code"] == "bad_data"
    assert "'error'" in broken["message"]
    assert "cannot be read" in cut["message"]


@pytest.mark.parametrize("version", [1, 2])
def test_logs_of_inspect_ai_of_2024(folder: Path, version: int) -> None:
    """Version 1 (May 2024) has one score a sample and one scorer; version 2 names them, and has a transcript."""
    scores = [("q1", 1, "C", "2"), ("q1", 2, "I", "3"), ("q2", 1, "C", "4")]
    samples = [
        {"id": name, "epoch": epoch, "input": "1 + 1 =", "target": "2", "messages": [], "metadata": {},
         "output": {"model": "m", "choices": [{"message": {"role": "assistant", "content": answer}}]}}
        | ({"score": {"value": value, "answer": answer}} if version == 1 else
           {"scores": {"match": {"value": value, "answer": answer}}, "transcript": {"events": [], "content": {}}})
        for name, epoch, value, answer in scores
    ]  # fmt: skip
    metrics = {"accuracy": {"name": "accuracy", "value": 0.5, "options": {}}}
    of_scorer = {"scorer": {"name": "match", "params": {}}, "metrics": metrics}
    scored = {"total_samples": 2, "scores": [{"name": "match", "scorer": "match", "params": {}, "metrics": metrics}]}
    document = {
        "version": version, "status": "success",
        "eval": {"task": "sums", "task_version": 0, "task_id": "a", "run_id": "b", "created": "2024-05-10T10:00:00",
                 "dataset": {"name": "sums"}, "model": "openai/m", "task_args": {}, "model_args": {},
                 "config": {"epochs": 2}, "packages": {"inspect_ai": "0.3.9"}},
        "plan": {"name": "plan", "steps": [{"solver": "generate", "params": {}}], "config": {}},
        "results": of_scorer if version == 1 else scored, "stats": {}, "samples": samples,
    }  # fmt: skip
    (folder / "old.json").write_text(json.dumps(document, indent=2))
    said = tool(folder, str(HERE / "tool_inspect.py"), "read", sysconfig.get_path("purelib"), "old.json")
    log = _log(json.loads(said))
    columns = ["problem", "sample", "correct", "response", "answer"]
    expected = [[name, epoch, float(value == "C"), answer, answer] for name, epoch, value, answer in scores]
    assert log.samples[columns].to_numpy().tolist() == expected
    assert (log.model, log.facts["sums"]["inspect_ai"], log.facts["sums"]["metric"]) == ("openai/m", "0.3.9", "match")


def _log(document: Mapping[str, Any]) -> Log:
    return checked(Path(document["path"]), pd.DataFrame(document["samples"]), document["facts"], document["model"])


def test_trl(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs TRL: make setup")
    rewards = {name: _trained(tmp_path / name, name, share) for name, share in SHARES.items()}
    logs = {name: read(tmp_path / name, Options()) for name in SHARES}
    for name, (log,) in logs.items():
        assert log.samples["correct"].tolist() == rewards[name]
        assert set(log.samples.groupby("problem", observed=True).size()) == {8}
        assert log.facts == {"completions": {"metric": "reward", "step": "1"}}
    assert verdicts([Side(name, tuple(found)) for name, found in logs.items()]) == RIGHT


def _trained(folder: Path, name: str, share: float) -> list[float]:
    """Train one step with TRL; returns the rewards, which are random with that probability."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    coins, tossed = random.Random(name), list[float]()

    def reward(completions: list[str], **_: Any) -> list[float]:
        tossed.extend(float(coins.random() < share) for _ in completions)
        return tossed[-len(completions) :]

    model = models.existing(folder / "model", chat=False)
    config = GRPOConfig(
        output_dir=str(folder),
        max_steps=1,
        per_device_train_batch_size=128,
        num_generations=8,
        max_completion_length=4,
        log_completions=True,
        logging_steps=1,
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        bf16=False,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(model),
        reward_funcs=reward,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": [f"{number} + 2 =" for number in range(16)]}),
        processing_class=AutoTokenizer.from_pretrained(model, padding_side="left"),
    )
    trainer.train()
    return tossed
