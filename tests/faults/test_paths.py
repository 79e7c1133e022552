"""Names lead to no other folder: what stands on a command line, in a record, in an archive or in a model's index."""

import json
from pathlib import Path

import pytest

from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError, RunFailed
from mcpo_cli.evaluation import gradings
from mcpo_cli.home import is_plain, run_dir
from mcpo_cli.model_facts import resolve
from mcpo_cli.runs import catalog
from mcpo_cli.runs.journal import write_json
from tests.cli.conftest import InProcess
from tests.fakes import write_run
from tests.faults.conftest import Faults
from tests.models import untrained

OUTSIDE = ("../../outside", "/etc", "..", ".", "", "a/../../outside", "runs/../..")


@pytest.fixture
def spec(mcpo_home: Path) -> RunSpec:
    """A run that is done, and beside its home a folder that looks like one."""
    (found,) = load(["scale=smoke", "compute.tracking_uri=offline"])
    write_run(found)
    write_json(run_dir(found.run_id) / "spec.json", found.to_dict())
    return found


VERBS = {
    "runs show": ["runs", "show", "{}"],
    "export": ["export", "{}"],
    "probe": ["probe", "sanity", "{}"],
    "grade": ["grade", "{}"],
    "plan": ["plan", "{}"],
    "ablate": ["ablate", "{}"],
    "probe of a suite": ["probe", "sanity", "{}", "seed=0"],
    "reproduce": ["reproduce", "{}"],
    "data audit": ["data", "audit", "{}/x"],
    "benchmarks": ["evaluate", "{run}", "--benchmarks", "{}"],
    "benchmarks of a plan": ["plan", "scale=paper", "task.benchmarks=['{}']"],
    "a model's name": ["plan", "model.name='{}'"],
    "a preset": ["plan", "scale='{}'"],
}


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
@pytest.mark.parametrize("name", ["../../outside", "../runs", "/etc/passwd"])
def test_no_name_on_the_command_line_leads_elsewhere(
    spec: RunSpec,
    mcpo_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    name: str,
    faults: Faults,
) -> None:
    before = present(mcpo_home)
    here = InProcess(mcpo_home, monkeypatch, capsys)
    result = here(*(word.replace("{run}", spec.run_id).replace("{}", name) for word in words))
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("error:") == 1
    assert present(mcpo_home) == before
    faults("a name on the command line that leads to another folder")


def present(home: Path) -> list[Path]:
    """What stands in the home and beside it."""
    return sorted([*home.rglob("*"), *home.parent.iterdir(), *home.parent.parent.iterdir()])


def test_plain_names() -> None:
    assert all(map(is_plain, ("train", "table1", "why-reweight", "a b", "ö", "...", "k2-3")))
    assert not any(map(is_plain, OUTSIDE))


@pytest.mark.parametrize("suite", OUTSIDE)
def test_a_suite_of_a_record_leads_nowhere(spec: RunSpec, mcpo_home: Path, suite: str) -> None:
    write_json(run_dir(spec.run_id) / "origin.json", {"suite": suite, "arm": "mcpo", "command": "mcpo train"})
    said: list[str] = []
    assert list(catalog.runs(mcpo_home, said.append)) == []
    assert "names a suite that is not a plain folder name" in said[0]
    with pytest.raises(RunFailed, match="is not a plain folder name"):
        catalog.find(mcpo_home, spec.run_id)


@pytest.mark.parametrize("change", [{"grading": "../../../secret"}, {"benchmarks": {"../../outside": {}}}])
def test_a_grading_from_elsewhere_names_no_other_folder(tmp_path: Path, change: dict[str, object]) -> None:
    folder = tmp_path / "evals" / "foreign"
    (folder / "gradings" / "1").mkdir(parents=True)
    results = {"grading": 1, "benchmarks": {"aime24": {"metrics": {}}}}
    path = folder / "gradings" / "1" / "results.json"
    path.write_text(json.dumps(results))
    assert gradings.all_of(folder)[0]["benchmarks"].keys() == {"aime24"}
    path.write_text(json.dumps({**results, **change}))
    with pytest.raises(ConfigError, match="is not the record of that grading"):
        gradings.all_of(folder)


def test_an_index_of_weights_names_no_other_folder(tmp_path: Path) -> None:
    folder = untrained(tmp_path / "model")
    (folder / "model.safetensors").rename(tmp_path / "model.safetensors")
    index = {"weight_map": {"a": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ConfigError, match=r"names a file outside the folder: \.\./model\.safetensors"):
        resolve(str(folder))
