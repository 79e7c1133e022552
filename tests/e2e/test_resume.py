"""The same spec gives the same numbers bit for bit: after SIGKILL at any moment, after a stop, and without probes."""

import dataclasses
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mcpo_cli.backends.local import BACKEND
from mcpo_cli.errors import Interrupted
from mcpo_cli.methods import Method
from mcpo_cli.runs.attempts import Attempt, resume_step, state
from mcpo_cli.runs.journal import Journal
from tests.engine import METHODS, NO_PROBES, PROBES, records, spec_of, trained, work
from tests.methods import Centred, Remembering

pytestmark = pytest.mark.slow

KILLS = [
    ("dapo", "sampling", 4),
    ("mcpo", "gradient step", 5),
    ("mcpo", "gradient measurement", 2),
    ("dapo", "evaluation", 5),
    ("mcpo", "checkpoint write", 5),
    ("dapo", "checkpoint rename", 2),
]


Undisturbed = dict[str, tuple[Path, dict[str, Any]]]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    """Home and records of an uninterrupted run of each method; they start from the shipped base policy."""
    found = {}
    for method in METHODS:
        home = tmp_path_factory.mktemp(method)
        assert work(home, spec_of(method)) == 0
        found[method] = home, records(home, spec_of(method))
    return found


def test_runs_learn_something_to_compare(uninterrupted: Undisturbed) -> None:
    for _, expected in uninterrupted.values():
        # Not in each step: with a base policy this weak, maybe no prompt has a gradient, or none is mastered.
        assert any(metrics["train/grad_norm"] > 0 for _, metrics in expected["steps"])
        assert all(len(expected[kind]) == 4 for kind in ("groups", "mini_batches"))
        assert expected["gradients"]
        assert any(row["origin"] not in (0, row["step"]) for rows in expected["rerolls"].values() for row in rows)
        assert {row["p"] for rows in expected["gradients"].values() for row in rows} == {0.5, 1.0}
    assert any(metrics.get("hinge/tokens_active", 0) > 0 for _, metrics in uninterrupted["mcpo"][1]["steps"])


@pytest.mark.parametrize("method", METHODS)
def test_probes_change_nothing_that_is_trained(method: str, uninterrupted: Undisturbed, tmp_path: Path) -> None:
    """A run with all probes at every step and one without any have equal weights, groups, evaluations and metrics."""
    _, expected = uninterrupted[method]
    spec = spec_of(method, NO_PROBES)
    assert work(tmp_path, spec) == 0
    found = records(tmp_path, spec)
    assert not found["rerolls"]
    assert not found["gradients"]
    for kind in ("groups", "eval", "mini_batches", "policy"):
        assert found[kind] == expected[kind]
    assert _trained(found["steps"]) == _trained(expected["steps"])


def _trained(steps: Sequence[tuple[int, dict[str, float]]]) -> list[tuple[int, dict[str, float]]]:
    """The metrics that probes do not measure."""
    return [
        (step, {name: value for name, value in metrics.items() if not name.startswith(("probe/", "gradient/"))})
        for step, metrics in steps
    ]


def test_killed_while_the_base_policy_is_made(tmp_path: Path) -> None:
    """Another process makes it again, and trains the same run from it."""
    brief = ["task.max_ops=2", "warmup.probe_prompts=64", "warmup.batch=32", "warmup.target_accuracy=0.03"]
    spec = spec_of("mcpo", [*PROBES, *brief], made=True)
    homes = tmp_path / "undisturbed", tmp_path / "killed"
    assert work(homes[1], spec, "warm-up", 20) == -signal.SIGKILL
    assert state(homes[1] / "runs" / spec.run_id, spec) == "interrupted"
    assert [work(home, spec) for home in homes] == [0, 0]
    first, again = (records(home, spec) for home in homes)
    assert first == again


@pytest.mark.parametrize(("method", "point", "call"), KILLS)
def test_killed_and_started_again(
    method: str, point: str, call: int, uninterrupted: Undisturbed, tmp_path: Path
) -> None:
    _, expected = uninterrupted[method]
    spec = spec_of(method)
    folder = tmp_path / "runs" / spec.run_id
    assert work(tmp_path, spec, point, call) == -signal.SIGKILL
    assert state(folder, spec) == "interrupted"
    assert work(tmp_path, spec) == 0
    assert state(folder, spec) == "done"
    assert len(Journal(folder).attempts()) == 2
    assert records(tmp_path, spec) == expected


@pytest.mark.parametrize("method", [Remembering(), Centred()], ids=lambda method: method.name)
def test_a_run_with_a_state_or_with_a_pass_before_each_gradient_continues_after_a_stop(
    method: Method, mcpo_home: Path
) -> None:
    spec = dataclasses.replace(spec_of("mcpo"), method=method)
    journal = trained(mcpo_home / "whole", spec)
    # Not in each step: rollouts of a prompt with equal rewards have no gradient.
    assert any(row["metrics"]["train/grad_norm"] > 0 for row in journal.steps())
    folder = mcpo_home / "stopped" / "runs" / spec.run_id
    first = Attempt(folder, spec, 0)
    with pytest.raises(Interrupted):
        BACKEND.run(spec, first, lambda: len(Journal(folder).steps()) == 3)
    first.end("interrupted")
    assert len(Journal(folder).steps()) == 3
    second = Attempt(folder, spec, resume_step(folder, spec, BACKEND.kept(folder)))
    BACKEND.run(spec, second, lambda: False)
    second.end("done")
    assert records(mcpo_home / "stopped", spec) == records(mcpo_home / "whole", spec)
