"""`mcpo model`: presets with their sources, and the messages of fetching one."""

from mcpo_cli.config.load import preset_model
from mcpo_cli.pretrained import fetch
from tests.cli.conftest import InProcess


def test_a_dry_run_fetches_nothing(here: InProcess) -> None:
    result = here("train", "scale=one-gpu", "model=smollm2-135m", "--dry-run", "--verbose")
    assert result.returncode == 0, result.stderr
    planned = fetch.planned_folder(preset_model("smollm2-135m"), here.home)
    assert f"actor_rollout_ref.model.path={planned}" in result.stdout
    assert here.untouched()
