"""Gates: the rules by hand, policies, and the noise floor."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from mcpo_cli import api
from mcpo_cli.compare import rules
from mcpo_cli.compare.comparison import Comparison, Question, compare, differences_of
from mcpo_cli.compare.gate import Gate, judge
from mcpo_cli.compare.noise_floor import noise_floor
from mcpo_cli.compare.rules import GatePolicy, Rule
from mcpo_cli.compare.scores import MEAN, Arm, Scores, Slice
from mcpo_cli.errors import ConfigError
from mcpo_cli.render.product import Row
from mcpo_cli.statistics.stats import Floats, Student
from tests.errors import refused

TRIALS = 1000
SLACK = 0.06
"""Most of TRIALS that may end in an error of level .05: its 95 % interval reaches to .064."""


COMPARED = compare(
    [Slice([Arm(name, {"b": Scores(("0",), ("0", "1"), *np.ones((3, 1, 2), int))}) for name in ("base", "new")])],
    Question(),
)
"""Any comparison: simulations put their differences into it."""


def row(difference: float, error: float = 0.01, df: float = 99) -> Row:
    p = float(2 * scipy_stats.t.sf(abs(difference / error), df)) if error else float("nan")
    return {
        "difference": difference,
        "student": Student(difference, error, df, 100),
        "p": p,
        "problems": 100,
        "why": "",
        "identical": not error,
        "share": True,
    }


@pytest.mark.parametrize(
    ("rule", "difference", "holds", "broken"),
    [
        # t = -1.5 of 0: not found worse. t = -2.5: found worse, p .014.
        ("no-worse", -0.015, True, False),
        ("no-worse", -0.025, False, True),
        # 1.7 errors above -.02 suffice one-sided (t > 1.66); to be broken it takes 1.984 below.
        ("no-worse:0.02", -0.003, True, False),
        ("no-worse:0.02", -0.004, False, False),
        ("no-worse:0.02", -0.039, False, False),
        ("no-worse:0.02", -0.040, False, True),
        ("better", 0.0199, True, False),
        ("better", 0.0198, False, False),
        ("better", -0.0199, False, True),
        ("better:0.01", 0.0299, True, False),
        ("better:0.01", -0.0099, False, True),
        ("equivalent:0.02", 0.003, True, False),
        ("equivalent:0.02", -0.004, False, False),
        ("equivalent:0.02", 0.040, False, True),
        ("equivalent:0.02", -0.040, False, True),
    ],
)
def test_rules_by_hand(rule: str, difference: float, holds: bool, broken: bool) -> None:
    p_holds, p_broken = Rule.parse(rule).judge(row(difference))
    assert (p_holds <= 0.05 and not broken, p_broken <= 0.05) == (holds, broken)


def test_equal_scores_hold_only_where_enough_problems_are_equal() -> None:
    """A loss of .01 changes at least one problem of 100: all 299 are as before with a chance of .99**299 = .0496."""
    same = row(0.0, error=0.0)
    assert Rule.parse("no-worse").judge(same) == (0.0, 1.0)
    assert Rule.parse("no-worse:0.01").judge(same)[0] == pytest.approx(0.99**100)
    assert "299 of them" in rules.too_few(Rule.parse("no-worse:0.01"), same)
    assert Rule.parse("equivalent:0.01").judge(same | {"problems": 299})[0] == pytest.approx(0.0495, abs=1e-4)
    assert not min(Rule.parse("better").judge(same)) <= 0.05


def arm(name: str, *benchmarks: Floats) -> Arm:
    """An arm with one sample per cell. benchmarks: scores by seed and problem, with names of the given place."""
    made = {}
    for place, score_SP in enumerate(benchmarks):
        seeds, problems = score_SP.shape
        names = tuple(f"{name}{seed}" for seed in range(seeds)), tuple(map(str, range(problems)))
        made[f"b{place}"] = Scores(*names, np.ones(score_SP.shape, int), score_SP, score_SP**2)
    return Arm(name, made)


def gate(base: Arm, new: Arm, required: dict[str, str], advisory: dict[str, str] | None = None) -> Gate:
    return judge(compare([Slice([base, new])], Question()), GatePolicy(required, advisory or {}))


def test_a_gate_is_as_its_worst_required_rule_and_adjusts_only_what_breaks() -> None:
    base = np.arange(100.0)[None] % 2
    # 7 and 9 problems of 100 are lost: t has p .0075 and .0023, an exact test of the signs 2 / 2^7 and 2 / 2^9.
    lost = [np.where(np.arange(100) < 2 * number, 0.0, base) for number in (7, 9)]
    olds, news = arm("base", base, base), arm("new", *lost)
    alone = gate(olds, news, {"b0": "no-worse"}, {"b1": "no-worse", "b7": "better"})
    assert (alone.outcome, alone.missing) == ("broken", ["b7"])
    both = gate(olds, news, {"each": "no-worse"})
    assert [line.outcome for line in both.lines] == ["broken", "broken"]
    assert [line.p_broken for line in both.lines] == pytest.approx([2 / 2**7, 2 * 2 / 2**9])
    assert both.sentence.startswith("gate broken: b0 no-worse (new -.070 [-.121, -.019]), b1 no-worse (new -.090")
    assert gate(olds, news, {"b0": "no-worse:0.1"}).outcome == "undecided"
    assert gate(olds, news, {"b0": "no-worse:0.12"}).outcome == "holds"
    with refused("unknown_name", "b7"):
        gate(olds, news, {"b7": "better"})


def test_a_policy_of_a_file_and_of_words(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("required:\n  mean: better\n  gsm8k: no-worse:0.01\nadvisory:\n  aime: no-worse\n")
    read = rules.policy(str(file))
    assert (read.required, read.advisory) == ({"mean": "better", "gsm8k": "no-worse:0.01"}, {"aime": "no-worse"})
    assert rules.policy("mean=better,gsm8k=no-worse:0.01").required == read.required
    assert rules.policy("no-worse:0.01") == GatePolicy({"": "no-worse:0.01"})


def test_wrong_rules(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text("advisory:\n  mean: better\n")
    with refused("bad_data", "required"):
        rules.policy(str(file))
    wrong = {"equivalent": "out_of_bounds", "no-worse:x": "out_of_bounds", "a=better,a=better": "duplicate_name"}
    for text, code in wrong.items():
        with refused(code, text):
            rules.policy(text)
    file.write_text("required:\n  mean: beter:0.1\n")
    with pytest.raises(ConfigError) as error:
        rules.policy(str(file))
    assert error.value.fix == f"mean: better:0.1 in {file}"


def binary(random: np.random.Generator, level_P: Floats, seeds: int, run_sd: float = 0.0) -> Floats:
    """One sample of each problem by models that differ from each other by `run_sd` logits."""
    logit_SP = level_P + run_sd * random.normal(size=(seeds, 1))
    return (random.random(logit_SP.shape) < 1 / (1 + np.exp(-logit_SP))).astype(float)


def compared(base: Arm, new: Arm) -> Comparison:
    """The differences of two arms, without the rest of a comparison, which takes most of the time."""
    rows = differences_of(new, base, Question(), MEAN, "both")
    return replace(COMPARED, slices=[Slice([base, new])], differences=rows, students=tuple(rows["student"]))


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "benchmarks"), [(1, 1), (3, 1), (1, 4)])
def test_the_baseline_against_itself_breaks_at_most_the_level(seeds: int, benchmarks: int) -> None:
    random, broken = np.random.default_rng(1), 0
    for _ in range(TRIALS):
        levels = [random.normal(size=100) for _ in range(benchmarks)]
        sides = [arm(name, *(binary(random, level_P, seeds) for level_P in levels)) for name in ("base", "new")]
        broken += judge(compared(*sides), GatePolicy({"each": "no-worse"})).outcome == "broken"
    assert broken <= SLACK * TRIALS


@pytest.mark.slow
def test_the_noise_floor_is_the_share_of_gates_that_new_runs_of_the_baseline_break() -> None:
    """Runs differ by .5 logits, which a gate of one new run does not count: it is broken far more often than 5 %."""
    random, policy = np.random.default_rng(0), GatePolicy({"": "no-worse"})
    broken, floors = [], []
    for _ in range(200):
        level_P = random.normal(size=200)
        sides = (arm(name, binary(random, level_P, seeds, 0.5)) for name, seeds in (("base", 5), ("new", 1)))
        found = compared(*sides)
        noise = noise_floor(found, policy, Question())
        assert noise
        assert (noise.gates, noise.part, noise.repeats) == (5, 1, 5)
        broken.append(judge(found, policy).outcome == "broken")
        floors.append(noise.broken / noise.gates)
    assert np.mean(broken) > 0.2
    assert np.mean(floors) == pytest.approx(np.mean(broken), abs=0.07)


def test_in_python_the_answer_of_a_gate_is_part_of_the_comparison(tmp_path: Path) -> None:
    for name, right in (("base", 60), ("new", 30)):
        rows = "".join(f"q{at},{int(at < right)}\n" for at in range(100))
        (tmp_path / f"{name}.csv").write_text("problem,correct\n" + rows)
    base, new = tmp_path / "base.csv", tmp_path / "new.csv"
    found = {rule: api.compare(base, new, gate=rule).gate for rule in ("no-worse", "better", "")}
    assert [gate and gate.outcome for gate in found.values()] == ["broken", "broken", None]
    assert api.compare(new, base, gate="better").gate.outcome == "holds"


def test_one_log_has_no_noise_floor_and_many_have_few_gates() -> None:
    random = np.random.default_rng(0)
    for seeds, gates in ((1, None), (2, 2), (9, 100)):
        base, new = (arm(name, binary(random, np.zeros(20), seeds)) for name in ("base", "new"))
        found = noise_floor(compare([Slice([base, new])], Question()), GatePolicy({"": "no-worse"}), Question())
        assert (found and found.gates) == gates
