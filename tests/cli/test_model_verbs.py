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


def test_a_dry_run_of_an_evaluation_names_the_source_of_a_model_that_is_not_here(here: InProcess) -> None:
    wheel = preset_model("smollm2-135m").path
    for model, source in {"smollm2-135m": wheel, "nobody/no-such-model": "nobody/no-such-model"}.items():
        assert here.json("evaluate", model, "--dry-run")["fetched_from"] == source
        assert source in here("evaluate", model, "--dry-run").stdout
    assert here.untouched()
