"""Samplers under verl: the plug-ins of the documentation, killed and resumed, and a filter of several rounds."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from mcpo_cli.backends.drawing import Drawing, TrainingStream
from mcpo_cli.backends.verl import checkpoint
from mcpo_cli.config import load
from mcpo_cli.probes.base import by_step
from mcpo_cli.records import GroupRow
from mcpo_cli.runs.journal import Journal, read_json
from tests.verl.conftest import PATIENCE, ROOT, TOY, Runs, nobody_is_left, phase, wait
from tests.verl.test_rollout_correction import nearly_nothing_is_corrected

pytestmark = [pytest.mark.verl, pytest.mark.slow]


def drawn_as_locally(folder: Path) -> Mapping[int, list[GroupRow]]:
    """The groups of each step, after checking that the local engine draws and keeps the same for equal accuracies."""
    spec = load.from_dict(read_json(folder / "spec.json"))
    stream = TrainingStream(spec.task.problems(spec.train, lambda messages: 1), spec.seed)
    cursor, state = 0, dict[str, Sequence[float]]()
    found = by_step(Journal(folder).groups())
    for step, rows in found.items():
        drawing, drawn = Drawing(spec, stream, step, cursor, state), list[str]()
        while not drawing.is_full:
            problems = drawing.draw()
            drawing.add([row["p"] for row in rows[len(drawn) : len(drawn) + len(problems)]])
            drawn += [problem.text for problem in problems]
        cursor, state = drawing.cursor, dict(drawing.state())
        assert [row["prompt"] for row in rows] == drawn
        assert [index for index, row in enumerate(rows) if row["kept"]] == drawing.batch
    return found


def test_plug_ins_of_the_pages_train_and_a_killed_run_draws_what_it_would_have(runs: Runs) -> None:
    for page, name in (("write-a-sampler", "my_second_chance"), ("write-a-method", "my_dr_grpo")):
        sources = re.findall(r"```python\n(.*?)```", (ROOT / f"docs/{page}.md").read_text(encoding="utf-8"), re.DOTALL)
        (source,) = [one for one in sources if f'= "{name}"' in one]
        (runs.home / "plug-ins").mkdir(exist_ok=True)
        (runs.home / "plug-ins" / f"{name}.py").write_text(source, encoding="utf-8")
    runs.env["MCPO_PLUGINS"] = str(runs.home / "plug-ins")
    chosen = ("method=my_dr_grpo", "sampler=my_second_chance", "task.pool=64")
    settings = (*TOY, *chosen, "train.steps=8", "compute.checkpoint_every=2")
    first = runs.start("train", *settings)
    folder = runs.begun("my_dr_grpo", first)
    wait(lambda: "step 6 of" in phase(folder) or "step 5 of" in phase(folder), first)
    first.kill()
    first.wait(PATIENCE)
    wait(lambda: nobody_is_left(folder))
    again = runs("train", *settings)
    assert again.returncode == 0, again.stdout
    assert checkpoint.newest(folder / "checkpoints") == 8

    # This process has already searched for plug-ins.
    code = f"from pathlib import Path; from {__name__} import drawn_as_locally; drawn_as_locally(Path({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=runs.env, check=True)
    steps = by_step(Journal(folder).groups())
    assert list(steps) == list(range(1, 9))
    hard = {row["prompt"] for row in steps[1] if row["p"] == 0}
    assert hard & {row["prompt"] for row in steps[3]}, "none of the prompts that nobody solved is back"


def test_a_filter_of_several_rounds_throws_away_what_it_would_locally(runs: Runs) -> None:
    sampler = ("sampler=greso", "task.pool=64", "train.steps=4", "train.max_refills=20")
    correction = ("train.correction=sequence-mask", "train.off_policy_mask=0.5")
    result = runs("train", *TOY, "method=grpo", *sampler, *correction)
    assert result.returncode == 0, result.stdout
    folder = runs.folder("grpo")
    steps = drawn_as_locally(folder)
    assert any(len(rows) > 8 and not all(row["kept"] for row in rows) for rows in steps.values())
    for row in Journal(folder).steps():
        assert row["metrics"]["sampling/prompts"] == len(steps[row["step"]])
    nearly_nothing_is_corrected(Journal(folder))
