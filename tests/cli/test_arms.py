"""Arms are named by their differences: the same runs have the same arms, whatever words choose them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from mcpo_cli import api
from mcpo_cli.config import arm_names
from mcpo_cli.config.plan import from_overrides, from_suite
from tests.cli.conftest import InProcess
from tests.store_runs import made_up

SMALL = ("scale=smoke", "eval.problems=4")
SWEEP = ("method.delta=0.01,0.05", "seed=0,1,2", *SMALL)


@pytest.fixture(autouse=True)
def without_store(here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "offline")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("method=dapo,mcpo", "seed=0,1"), ["dapo", "mcpo"]),
        (("method.delta=0.01,0.05",), ["mcpo delta=0.01", "mcpo delta=0.05"]),
        (("method=dapo,mcpo", "train.lr=1e-3,5e-4"),
         [f"{one} lr={lr}" for one in ("dapo", "mcpo") for lr in (1e-3, 5e-4)]),
        # The name of a preset stands for its changes; model and regime have their own columns.
        (("scale=smoke,toy", "regime=drift,over-driven"), ["mcpo scale=smoke", "mcpo scale=toy"]),
        (("task=sums,arithmetic",), ["mcpo task=sums", "mcpo task=arithmetic"]),
        (("model=toy-s,toy-m", "base_seed=0,1", "seed=0,1"), ["mcpo"]),
        (("train.lr=1e-3,1e-4", "warmup.lr=2e-3,1e-3"),
         [f"mcpo warmup.lr={first} train.lr={lr}" for lr in (0.001, 0.0001) for first in (0.002, 0.001)]),
    ],
)  # fmt: skip
def test_an_arm_has_the_method_and_the_swept_settings(words: tuple[str, ...], expected: list[str]) -> None:
    runs = from_overrides(words).runs
    assert list(dict.fromkeys(run.arm for run in runs)) == expected
    for run in runs:
        assert arm_names.label(run.arm, run.spec) is None


def test_a_reward_of_ones_own_is_named_by_its_setting_and_changed_code_by_its_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def score(problem, response, gold):\n    return 1.0\n")
    plain, own = (from_overrides([*words, *SMALL]).runs[0].spec for words in ([], ["train.reward=./mine.py:score"]))
    assert arm_names.names([None, None], [plain, own]) == ["mcpo reward=verdict", "mcpo reward=./mine.py:score"]
    other = {use: replace(plugin, sha256="0123456789abcdef" * 4) for use, plugin in own.plugins.items()}
    first, second = arm_names.names([None, None], [own, replace(own, plugins=other)])
    assert second == "mcpo sha256=01234567"
    assert re.fullmatch("mcpo sha256=[0-9a-f]{8}", first)


def test_a_sweep_in_a_suite_splits_its_arms_and_keeps_their_names() -> None:
    plan = from_suite("table1", ["train.lr=1e-3,2e-3", "model=toy-s", *SMALL], "")
    assert list(dict.fromkeys(run.arm for run in plan.runs)) == [
        "DAPO lr=0.001", "DAPO lr=0.002", "MCPO lr=0.001", "MCPO lr=0.002",
    ]  # fmt: skip
    assert {arm_names.label(run.arm, run.spec) for run in plan.runs} == {"DAPO", "MCPO"}


@pytest.mark.slow
def test_a_sweep_is_compared_by_its_words_by_its_ids_and_in_python(here: InProcess) -> None:
    ids = made_up(from_overrides(SWEEP))
    by_words, by_ids = (here.json("compare", *words)["comparisons"] for words in (SWEEP, ids))
    rows = [[row for row in one["differences"] if row["family"] == "headline"] for (one,) in (by_words, by_ids)]
    assert rows[0] == rows[1]
    assert {(row["arm"], row["seeds"]) for row in rows[0]} == {("mcpo delta=0.05", 3)}
    found = api.compare(*SWEEP).headline
    assert found["difference"].tolist() == pytest.approx([row["difference"] for row in rows[0]])
    assert set(api.frames(*ids).scores()["arm"]) == {"mcpo delta=0.01", "mcpo delta=0.05"}


@pytest.mark.slow
def test_runs_that_do_not_pair_are_refused_with_those_that_do(here: InProcess) -> None:
    dapo = made_up(from_overrides(["method=dapo", "seed=0,1,2", *SMALL]))
    mcpo = made_up(from_overrides(["method=mcpo", "seed=0,1", *SMALL]))
    message = here.refused("nothing_pairs", "compare", *dapo, *mcpo)
    assert "dapo: 0, 1, 2; mcpo: 0, 1" in message
    assert message.endswith(f"fix: mcpo compare {' '.join([*dapo[:2], *mcpo])}")
    other = made_up(from_overrides(["method=dapo", "seed=0,1", "scale=smoke", "eval.problems=6"]))
    here.refused("nothing_pairs", "compare", *mcpo, *other)
