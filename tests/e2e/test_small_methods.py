"""A method with a state, and one with a pass before each gradient, train on the local engine, also after a stop."""

import dataclasses
from pathlib import Path

import pytest

from mcpo_cli.backends.local import BACKEND
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import Interrupted
from mcpo_cli.methods import Method
from mcpo_cli.runs.attempts import Attempt, resume_step
from mcpo_cli.runs.journal import Journal
from tests.engine import records, spec_of
from tests.methods import Centred, Remembering

pytestmark = pytest.mark.slow
METHODS = (Remembering(), Centred())


def train(home: Path, spec: RunSpec, steps: int | None = None) -> None:
    """One attempt, asked to stop after `steps` if given."""
    run_dir = home / "runs" / spec.run_id
    attempt = Attempt(run_dir, spec, resume_step(run_dir, spec, BACKEND.kept(run_dir)))
    try:
        BACKEND.run(spec, attempt, lambda: len(Journal(run_dir).steps()) == steps)
    except Interrupted:
        attempt.end("interrupted")
    else:
        attempt.end("done")


@pytest.fixture(scope="module", params=METHODS, ids=lambda method: method.name)
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, base_policies: Path
) -> tuple[Path, RunSpec]:
    """Home and settings of an uninterrupted run."""
    home, method = tmp_path_factory.mktemp("home"), request.param
    (home / "cache").symlink_to(base_policies)
    assert isinstance(method, Method)
    spec = dataclasses.replace(spec_of("mcpo"), method=method)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MCPO_HOME", str(home))
        train(home, spec)
    return home, spec


def test_a_run_that_was_stopped_continues_with_the_same_bits(
    whole: tuple[Path, RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    home, spec = whole
    expected = records(home, spec)
    assert len(expected["steps"]) == spec.train.steps
    # Not in each step: rollouts of a prompt with equal rewards have no gradient.
    assert any(metrics["train/grad_norm"] > 0 for _, metrics in expected["steps"])
    again = home / "again"
    again.mkdir()
    (again / "cache").symlink_to(home / "cache")
    monkeypatch.setenv("MCPO_HOME", str(again))
    train(again, spec, steps=3)
    assert len(Journal(again / "runs" / spec.run_id).steps()) == 3
    train(again, spec)
    assert len(Journal(again / "runs" / spec.run_id).attempts()) == 2
    assert records(again, spec) == expected
