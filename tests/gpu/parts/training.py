"""Part E: `mcpo train backend=verl` as users start it: Ray, TransferQueue, a rollout engine, two global steps."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcpo_cli.runs.journal import Journal
from tests.gpu import engines
from tests.gpu.notes import Notes
from tests.gpu.parts.local import COINS
from tests.verl import LEAN

ROOT = Path(__file__).resolve().parents[3]
STEPS = 2
AT_ONCE = ("warmup.target_accuracy=0", *COINS)
"""An untrained policy needs no warm-up, which takes minutes; random rewards give its groups a gradient."""
LEARNS = ("method=mcpo", f"train.steps={STEPS}", "eval.every=2", "compute.tracking_uri=offline", *AT_ONCE)
ON_GPU = ("scale=smoke", "backend=verl", "compute.device=cuda", "cluster.gpu_memory=0.3")
SIZES = ("model.hidden=128", "model.heads=2", "model.head_dim=128")
"""Heads as large as those of existing models, for which GPU kernels are made."""


def measure(notes: Notes, device: str, folder: Path) -> None:
    """Measure one run from its journal."""
    rollout = "vllm" if device == "cuda" and importlib.util.find_spec("vllm") else "transformers"
    if device == "cuda" and rollout == "transformers":
        notes.left_out("sampling with vLLM", "vllm is not installed; transformers stands in")
    taken = engines.seconds(lambda: train(folder, rollout, settings(device, rollout)), device)
    (journal,) = (Journal(run) for run in folder.glob("runs/*"))
    rows = [row["metrics"] for row in journal.steps()]
    meaning = f"of backend=verl, sampled with {rollout}, in the journal"
    notes.figure("global steps", len(rows), "", meaning, at_least=STEPS, at_most=STEPS)
    report(notes, rows, taken)


def settings(device: str, rollout: str) -> tuple[str, ...]:
    """Settings of a toy run on this machine."""
    if device == "cpu":
        return ("scale=verl-cpu",)
    plugin = ("cluster.plugin=tests.verl.cpu",) if rollout == "transformers" else ()
    return (*ON_GPU, *SIZES, *plugin, f"cluster.rollout={rollout}", f"cluster.attention={engines.attention(device)}")


def train(folder: Path, rollout: str, given: tuple[str, ...]) -> None:
    """Run it to its end.

    Raises:
        CalledProcessError: it failed; its output is in the part's log.
    """
    # vLLM must be visible to the run that samples with it.
    lean = {} if rollout == "vllm" else LEAN
    environment = {**os.environ, **lean, "MCPO_HOME": str(folder), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    command = [sys.executable, "-m", "mcpo_cli.main", "train", *given, *LEARNS]
    subprocess.run(command, cwd=folder, env=environment, check=True)


def report(notes: Notes, rows: list[dict[str, Any]], taken: float) -> None:
    """Report the metrics of the steps."""
    last, stepping = rows[-1], sum(row["perf/seconds"] for row in rows)
    notes.figure("seconds of a step", last["perf/seconds"], "s", f"the last of {STEPS}; sampling and update")
    notes.figure("seconds beside the steps", taken - stepping, "s", "Ray and engines start; base policy, evaluation")
    notes.figure("tokens a second", last["perf/tokens_per_second"], "1/s", "sampled tokens over the whole step")
    norm = min(row["train/grad_norm"] for row in rows)
    notes.figure("gradient norm", norm, "", "the smallest of all steps", at_least=1e-9)
    floor = max(row["sanity/noise_floor"] for row in rows)
    meaning = "sanity/noise_floor: largest drift of a token before any weight moved; a run warns above 0.001"
    notes.figure("noise floor", floor, "nats", meaning, at_most=1e-3)
    apart = max(abs(row["sanity/logp_difference"]) for row in rows)
    notes.figure("trainer against sampler", apart, "nats", "sanity/logp_difference, the largest of all steps")
