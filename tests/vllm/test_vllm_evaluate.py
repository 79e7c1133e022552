"""`mcpo evaluate` with a real vLLM and with transformers: the same policy, problems and protocol."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.vllm
TIERS = ("k2-3", "k5-6", "k7-8")


class Evaluations:
    """`mcpo evaluate` on the arithmetic tiers, in a separate home."""

    def __init__(self, home: Path, policy: Path) -> None:
        self.home, self.policy = home, policy
        self.env = os.environ | {"MCPO_HOME": str(home), "OMP_NUM_THREADS": "1"}

    def __call__(self, engine: str, *settings: str) -> Any:
        words = ["evaluate", str(self.policy), "--benchmarks", "arithmetic", "--limit", "100", "max_tokens=20"]
        command = [sys.executable, "-m", "mcpo_cli.main", *words, f"engine={engine}", *settings, "--json"]
        done = subprocess.run(
            [*command, "compute.tracking_uri=offline"], env=self.env, stdout=subprocess.PIPE, text=True, check=True
        )
        return json.loads(done.stdout)

    def statuses(self, results: Any, tier: str) -> dict[str, list[str]]:
        """The verdicts on each problem's samples."""
        path = self.home / "evals" / results["eval_id"] / "gradings" / str(results["grading"]) / f"{tier}.jsonl"
        return {row["problem"]: row["statuses"] for row in map(json.loads, path.read_text().splitlines())}


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory, policy: Path) -> Evaluations:
    return Evaluations(tmp_path_factory.mktemp("evaluations"), policy)


def test_greedy_evaluations_agree_on_every_problem(evaluations: Evaluations) -> None:
    by = {engine: evaluations(engine, "n=1", "temperature=0") for engine in ("hf", "vllm")}
    assert any(name.startswith("vllm") for name in by["vllm"]["engines"])
    assert by["vllm"]["eval_id"] != by["hf"]["eval_id"]
    right = 0
    for tier in TIERS:
        found = {engine: evaluations.statuses(results, tier) for engine, results in by.items()}
        assert len(found["hf"]) == 100
        assert found["hf"] == found["vllm"]
        right += sum(status == ["correct"] for status in found["hf"].values())
    assert 0 < right < 300, "all right or all wrong would show nothing"
