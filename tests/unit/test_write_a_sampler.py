"""The sampler of docs/write-a-sampler.md, saved as described, passes the conformance kit and trains."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mcpo_cli.commands.components import app
from mcpo_cli.runs.journal import Journal
from mcpo_cli.testing import SAMPLER_CHECKS
from tests.cli.conftest import Cli

PAGE = (Path(__file__).parents[2] / "docs" / "write-a-sampler.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_sampler_of_the_page_passes_and_trains(plugin_folder: Path, mcpo_home: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (plugin_folder / "second_chance.py").write_text(source, encoding="utf-8")
    (lines,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    folder, *verbs = [line.partition("#")[0].removeprefix("$ ").split() for line in lines.splitlines()]
    assert folder == ["export", "MCPO_PLUGINS=$PWD/my_samplers"]
    (_, family, *check), (_, *train) = verbs
    assert family == "components"
    outcomes = json.loads(CliRunner().invoke(app, [*check, "--json"]).stdout)["checks"]
    assert [one["name"] for one in outcomes] == list(SAMPLER_CHECKS)
    assert all(one["passed"] for one in outcomes)
    more = ("method=grpo", "train.steps=4", "train.temperature=0.3", "compute.tracking_uri=offline")
    done = Cli(mcpo_home)(*train, *more, MCPO_PLUGINS=str(plugin_folder))
    assert done.returncode == 0, done.stderr
    (run,) = (mcpo_home / "runs").iterdir()
    groups = Journal(run).groups()
    hard = {row["prompt"] for row in groups if row["step"] == 1 and row["p"] == 0}
    assert hard & {row["prompt"] for row in groups if row["step"] == 3}, (
        "none of the prompts that nobody solved is back"
    )
    spec = json.loads((run / "spec.json").read_text(encoding="utf-8"))
    assert spec["sampler"] == {"name": "my_second_chance", "wait": 2}
    assert list(spec["plugins"]) == ["sampler my_second_chance"]
