"""A task that is one new file: found by scanning, chosen by its name, trained and evaluated by the local engine."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mcpo_cli.runs.journal import Journal, read_json

TASK = '''
"""Letters, to be said in reverse."""

import random
from dataclasses import dataclass

from mcpo_cli.data.base import Problem, held_out
from mcpo_cli.seeds import stream
from mcpo_cli.settings import identity
from mcpo_cli.tasks.base import ClosedTask


@dataclass(frozen=True)
class Reversal(ClosedTask):
    name = "reversal"
    words = ("=", *"abcdef")
    title = "letters in reverse"
    tier_names = ("all",)

    length: int = identity(2, ge=1)

    @property
    def prompt_length(self) -> int:
        return self.length + 1

    @property
    def answer_length(self) -> int:
        return self.length + 1

    def training(self, seed, start, count):
        return [self._draw(random.Random(stream(seed, "data", i)), False) for i in range(start, start + count)]

    def demonstrations(self, seed, step, count):
        rng = random.Random(stream(seed, "warmup", step))
        return [self._draw(rng, False) for _ in range(count)]

    def tiers(self, count):
        rng = random.Random(0)
        return {"all": [self._draw(rng, True) for _ in range(count)]}

    def _draw(self, rng, wanted):
        while True:
            letters = rng.choices("abcdef", k=self.length)
            problem = Problem(" ".join([*letters, "="]), " ".join(reversed(letters)))
            if held_out(problem) == wanted:
                return problem
'''
TRAIN = """
import json, sys
import mcpo_cli.tasks

mcpo_cli.tasks.__path__.append(sys.argv[1])
from mcpo_cli.config.load import load
from mcpo_cli.home import run_dir
from mcpo_cli.runs.attempts import state
import pytest

from mcpo_cli.runs.journal import write_json
from mcpo_cli.scheduling.worker import work

settings = ["scale=smoke", "task=reversal", "task.length=3", "warmup.target_accuracy=0", "train.steps=2"]
(spec,) = load([*settings, "compute.tracking_uri=offline"])
write_json(run_dir(spec.run_id) / "spec.json", spec.to_dict())
code = work(spec.run_id, [])
print(json.dumps([code, spec.run_id, spec.identity()["task"], state(run_dir(spec.run_id), spec)]))
"""


@pytest.mark.slow
def test_a_task_that_is_one_file_trains(tmp_path: Path) -> None:
    folder = tmp_path / "tasks"
    folder.mkdir()
    (folder / "reversal.py").write_text(TASK, encoding="utf-8")
    environment = {**os.environ, "MCPO_HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", TRAIN, str(folder)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    code, run_id, identity, state = json.loads(done.stdout.splitlines()[-1])
    assert (code, state) == (0, "done"), done.stderr
    # Of `scale=smoke`, what it changes of arithmetic is not there.
    assert identity == {"name": "reversal", "length": 3}
    run = tmp_path / "runs" / run_id
    journal = Journal(run)
    assert [row["step"] for row in journal.steps()] == [1, 2]
    for row in journal.rows("groups"):
        assert re.fullmatch(r"([a-f] ){3}=", row["prompt"])
    evaluated = list(journal.eval())
    assert {row["tier"] for row in evaluated} == {"all"}
    assert not {row["problem"] for row in evaluated} & {row["prompt"] for row in journal.rows("groups")}
    tokenizer = read_json(journal.attempts()[-1] / "policy" / "tokenizer.json")
    assert tokenizer["model"]["vocab"].keys() == {"<eos>", "_", "=", *"abcdef"}
