"""`mcpo runs show` of a run that passed a limit."""

from tests.cli.conftest import InProcess
from tests.store_runs import begin, spec, train


def test_warnings_stay_with_the_run(here: InProcess) -> None:
    attempt = begin(spec())
    train(attempt, range(1, 3), **{"sanity/truncated": 0.1})
    train(attempt, range(3, 5), **{"sanity/truncated": 0.6})
    attempt.end("done")
    (warned,) = here.json("runs", "show", spec().run_id)["warnings"]
    assert (warned["metric"], warned["first_step"], warned["steps"], warned["worst"]) == ("sanity/truncated", 3, 2, 0.6)
    assert "many responses are cut" in here("runs", "show", spec().run_id).stdout


def test_a_sound_run_has_none(here: InProcess) -> None:
    attempt = begin(spec())
    train(attempt, range(1, 5), **{"sanity/truncated": 0.1})
    attempt.end("done")
    assert here.json("runs", "show", spec().run_id)["warnings"] == []
    assert "\nwarnings\n" not in here("runs", "show", spec().run_id).stdout
