"""The tasks of docs/write-a-task.md, saved as described, keep the contract like shipped ones; broken ones fail."""

import re
from pathlib import Path

import pytest

from mcpo_cli import tasks
from mcpo_cli.commands import components
from mcpo_cli.errors import Findings, McpoError
from mcpo_cli.tasks import drawn
from mcpo_cli.testing import TASK_CHECKS, check_task
from mcpo_cli.testing.tasks import Checked
from tests.conftest import forget_plugins

PAGES = Path(__file__).parents[2] / "docs"


def told() -> dict[str, str]:
    """The source of each task of the page, by its name."""
    page = (PAGES / "write-a-task.md").read_text(encoding="utf-8")
    sources = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    return {re.findall(r'    name = "(\w+)"', source)[0]: source for source in sources}


BROKEN = {
    "a tier's name": ('("short", "long")', '("short", "lo/ng")', "names and settings"),
    "few problems": ('rng.choice("abcde")\n', "'a'\n", "enough different problems"),
    "another source of chance": ('rng.choice("abcde")\n', 'random.choice("abcde")\n', "the same seed gives"),
    "the order of a set": ('rng.choice("abcde")\n', 'rng.choice([*{"a", "b", "c", "d"}])\n', "the same seed gives"),
    "a prompt without the question": (
        "    def draw_of_tier",
        "    @property\n    def own_template(self) -> str:\n        return 'How many?'\n\n    def draw_of_tier",
        "prompts tell problems apart",
    ),
    "a split by chance": (
        "    def draw_of_tier",
        "    def holds_out(self, problem: Problem) -> bool:\n        return random.random() < 0.5\n\n"
        "    def draw_of_tier",
        "training and held out problems are apart",
    ),
    "a gold that the grader refuses": ("str(string.count(letter))", "'two'", "correct answers are graded correct"),
    "a grader that takes anything": ("answer.strip() == gold", "answer", "wrong answers are graded wrong"),
    "a grader that raises": ("not answer.strip().isdecimal()", "int(answer) < 0", "every response gets a verdict"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["arithmetic", "countdown", "palindrome", "sums", "word_problems"])
def test_shipped_tasks_pass(name: str) -> None:
    assert [outcome for outcome in check_task(tasks.get(name)) if not outcome.passed] == []


@pytest.mark.slow
@pytest.mark.parametrize("what", BROKEN)
def test_the_check_finds_what_is_broken(what: str, plugin_folder: Path) -> None:
    old, new, failing = BROKEN[what]
    source = told()["letters"]
    assert source.count(old) == 1
    if what == "few problems":
        source = source.replace('rng.choices("abcde", k=rng.randint(low, high))', "'ab' * rng.randint(low, high)")
    (plugin_folder / "letters.py").write_text(source.replace(old, new), encoding="utf-8")
    forget_plugins()
    (check,) = (one for name, one in TASK_CHECKS.items() if name.startswith(failing))
    task = tasks.get("letters")
    with pytest.raises((AssertionError, McpoError)):
        check(Checked(task))


@pytest.mark.slow
def test_a_small_task_has_one_message_a_cause_and_fixes_that_work(
    plugin_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few problems are left for training, and few are held out: two causes, although several checks need them."""
    monkeypatch.setattr(drawn, "PATIENCE", 1_000)
    low = 'low, high = (4, 6) if tier == "short" else (7, self.longest)'
    source = told()["letters"].replace(low, "low, high = 4, 5").replace('("abcde"', '("ab"')
    (plugin_folder / "letters.py").write_text(source, encoding="utf-8")
    forget_plugins()
    with pytest.raises(Findings) as raised:
        components.check(kind="task", name="letters", as_json=False, debug=False)
    fixes = re.findall(r"fix: (\S+=\d+)", capsys.readouterr().out)
    assert [fix.partition("=")[0] for fix in fixes] == ["train.prompts", "eval.problems"]
    outcomes = {one["name"]: one for one in raised.value.data["checks"]}
    assert sum(not one["passed"] and one["checked"] for one in outcomes.values()) == 2
    components.check(kind="task", name="letters", options=fixes, as_json=False, debug=False)
