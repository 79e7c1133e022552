"""Plug-ins in a folder: found, named in records, and harmless if they are broken."""

import hashlib
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mcpo_cli import data, doctor, grading, measures, methods, plugins, tasks
from mcpo_cli.config import load, plan, presets
from mcpo_cli.grading import Grade, Pool
from mcpo_cli.home import run_dir
from mcpo_cli.measures import summary
from mcpo_cli.plugins import Plugin
from mcpo_cli.report import artifacts
from mcpo_cli.runs import provenance
from mcpo_cli.runs.journal import Journal
from mcpo_cli.testing import CHECKS
from mcpo_cli.testing.outcomes import outcomes
from tests.conftest import forget_plugins
from tests.errors import refused
from tests.fakes import write_run

SOFT = """\
from dataclasses import dataclass

from mcpo_cli.methods.grpo import Grpo


@dataclass(frozen=True)
class Soft(Grpo):
    name = "soft"
    strength: float = 0.5
"""
PROBE = """\
from mcpo_cli.measures import Finding, Measure

MEASURE = Measure("length", "How long?", ("groups",), ("length",), lambda spec, journal: Finding({"length": 1.0}))
"""
FIGURE = """\
import pandas as pd

from mcpo_cli.render.product import Artifact, Product

ARTIFACT = Artifact(
    "arms", "Arms", "Ours", ("mine",), lambda runs: Product("Arms", "Here.", pd.DataFrame({"arm": ["A", "B"]}))
)
"""
MINE = """\
title: Mine against plain
arms:
  A: [method=dapo]
  B: [method=mcpo]
sweep:
  seed: [0, 1]
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def sha256(path: Path) -> str:
    """The hash of a file without comments and docstrings; of Python files without empty lines."""
    if path.suffix != ".py":
        return hashlib.sha256(path.read_bytes()).hexdigest()
    lines = path.read_text(encoding="utf-8").split("\n")
    return hashlib.sha256("\n".join(line for line in lines if line).encode()).hexdigest()


def test_what_a_folder_declares_is_found(plugin_folder: Path) -> None:
    soft, probe = write(plugin_folder / "soft.py", SOFT), write(plugin_folder / "length.py", PROBE)
    assert methods.get("soft", strength=2).label == "soft"
    assert load.load(["method.strength=3", "method=soft"])[0].identity()["method"]["strength"] == 3.0
    assert measures.get("length").question == "How long?"
    assert methods.registry().plugins == {"soft": Plugin("soft.py", "", sha256(soft))}
    assert measures.registry().plugins == {"length": Plugin("length.py", "", sha256(probe))}
    assert tasks.registry().plugins == data.registry().plugins == grading.registry().plugins == {}


@pytest.mark.parametrize(
    ("source", "line", "said"),
    [
        ("import os\nimport nothing_of_that_name", 2, "ModuleNotFoundError: No module named 'nothing_of_that_name'"),
        ("x = (", 1, r"SyntaxError: '\(' was never closed"),
        ("class Own(BaseException):\n    pass\n\nraise Own('not caught')", 4, "Own: not caught"),
        ("\ndef fails():\n    return {}['key']\n\nfails()", 3, "KeyError: 'key'"),
    ],
)
def test_a_broken_file_is_one_message_and_stops_nothing_else(
    plugin_folder: Path, capsys: pytest.CaptureFixture[str], source: str, line: int, said: str
) -> None:
    broken = write(plugin_folder / "broken.py", source)
    write(plugin_folder / "soft.py", SOFT)
    assert {"soft", "mcpo"} <= methods.registry().keys()
    assert "mastery" in measures.registry()
    assert "arithmetic" in tasks.registry()
    told = capsys.readouterr().err
    assert re.fullmatch(rf"warning: plug-in {re.escape(str(broken))}:{line}: {said}.*; it is left out\n", told)
    assert plugins.problems() == [told.removeprefix("warning: ").rstrip()]


FAILING = """
from dataclasses import dataclass

from mcpo_cli.methods import Clipped, GroupRelative


@dataclass(frozen=True)
class Failing(Clipped, GroupRelative):
    name = "failing"

    def divisor(self, reward_PG, p_P1):
        return {}["key"]
"""


def test_an_error_inside_a_method_names_its_line(plugin_folder: Path) -> None:
    file = write(plugin_folder / "failing.py", FAILING)
    (found,) = outcomes({"signals": CHECKS["signals of every group"]}, methods.get("failing"))
    assert found.detail == f"{file}:12: KeyError: 'key'"


def test_a_probe_that_returns_no_finding_is_refused(plugin_folder: Path, mcpo_home: Path) -> None:
    write(plugin_folder / "bare.py", PROBE.replace('Finding({"length": 1.0})', "1.0"))
    (run,) = plan.from_overrides(["method=mcpo"]).runs
    write_run(run.spec)
    with refused("bad_function", "the probe length returned float"):
        summary.measure(measures.get("length"), run, Journal(run_dir(run.spec.run_id)))


def test_a_file_that_declares_nothing_is_told_what_it_lacks(plugin_folder: Path) -> None:
    write(plugin_folder / "nameless.py", FAILING.replace('    name = "failing"\n', ""))
    (line,) = [line for line in doctor.examine() if line.name == "nameless.py"]
    assert (line.state, line.fix[:20]) == ("wrong", "give its class a nam")


def test_the_measure_of_the_documentation_is_found_and_computes(plugin_folder: Path, mcpo_home: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "probes.md").read_text(encoding="utf-8")
    write(plugin_folder / "wobble.py", page.partition("```python\n")[2].partition("```")[0])
    (run,) = plan.from_overrides(["method=mcpo"]).runs
    write_run(run.spec)
    found = measures.get("wobble").measure(run.spec, Journal(run_dir(run.spec.run_id)))
    assert set(found.values) == {"deviation"}


def test_what_a_plug_in_prints_stays_out_of_standard_output(
    plugin_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(plugin_folder / "soft.py", f"print('imported')\n{SOFT}")
    assert "soft" in methods.registry()
    assert capsys.readouterr() == ("", "imported\n")


def test_ctrl_c_while_a_plug_in_is_imported_is_the_users(plugin_folder: Path) -> None:
    write(plugin_folder / "slow.py", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        methods.registry()


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (SOFT.replace("strength: float = 0.5", "strength: float"), "missing 1 required|non-default argument"),
        (SOFT.replace("0.5", "object()"), "not JSON serializable"),
        (SOFT.replace("name =", "name: str ="), "name is an option: write name: ClassVar"),
        (re.sub("@dataclass.*", "", SOFT), "strength is an option only below @dataclass"),
        (SOFT.replace("strength: float", "clip_high"), "Soft.clip_high has no type, so the option keeps its default"),
        (SOFT.replace("float = 0.5", "list[str] = None"), "no setting has the type list"),
        (SOFT.replace("float = 0.5", "int | str = 1"), "no setting has the type int | str"),
        (SOFT.replace("float = 0.5", "int = 0.5"), "method.strength=0.5: must be an integer"),
        (SOFT.replace("methods.grpo import Grpo", "methods import Method").replace("(Grpo)", "(Method)"), "abstract"),
        (PROBE.replace("lambda spec, journal", "lambda journal"), "too many positional arguments"),
        ("MEASURE = 3", "MEASURE must be a Measure, not int"),
        ("from .soft import Soft", "cannot import another"),
        ("import mcpo_cli.plugin_files.soft", "cannot import another"),
        (FIGURE.replace('"mine"', '"nothing"'), "needs suites that do not exist: nothing"),
    ],
)
def test_what_cannot_be_used_is_left_out_with_the_reason(plugin_folder: Path, source: str, said: str) -> None:
    write(plugin_folder / "made.py", source)
    write(plugin_folder / "suites" / "mine.yaml", MINE)
    found = [methods.registry(), measures.registry(), artifacts.registry()]
    assert not {"soft", "arms"} & {name for one in found for name in one}
    (problem,) = plugins.problems()
    assert re.search(said, problem)


def test_an_option_without_a_type_is_named(plugin_folder: Path) -> None:
    write(plugin_folder / "soft.py", SOFT.replace(": float", ""))
    assert "soft" in methods.registry()
    assert plugins.problems() == [
        "Soft.strength has no type: an option is strength: float = 0.5, another constant strength: ClassVar"
    ]


def test_a_secret_in_an_error_is_not_shown(
    plugin_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "abcdefgh12345678")
    write(plugin_folder / "leak.py", "import os\nraise ValueError(os.environ['HF_TOKEN'])")
    methods.registry()
    told = capsys.readouterr().err
    assert "ValueError" in told
    assert "abcdefgh12345678" not in told


def test_a_name_that_is_taken_twice_names_both_files(plugin_folder: Path) -> None:
    mine = write(plugin_folder / "mine.py", SOFT.replace('"soft"', '"grpo"'))
    with refused("duplicate_name", str(mine), "methods/grpo.py"):
        methods.registry()


def test_two_folders_with_a_file_of_one_name(plugin_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, other = write(plugin_folder / "soft.py", SOFT), plugin_folder.with_name("other")
    write(other / "soft.py", SOFT.replace('"soft"', '"softer"'))
    monkeypatch.setattr("mcpo_cli.plugin_files.__path__", [str(plugin_folder), str(other), "/nowhere/at/all"])
    assert "soft" in methods.registry()
    assert "softer" not in methods.registry()
    fix = f"mv {other / 'soft.py'} {other / 'soft_other.py'}"
    assert plugins.problems() == [
        "MCPO_PLUGINS: there is no folder /nowhere/at/all",
        f"plug-in {other / 'soft.py'}: ImportError: {first} has the same name (fix: {fix}); it is left out",
    ]
    subprocess.run(shlex.split(fix), check=True)
    forget_plugins()
    assert {"soft", "softer"} <= methods.registry().keys()


def test_the_identity_of_a_run_names_the_plug_ins_that_decide_it(plugin_folder: Path) -> None:
    soft = write(plugin_folder / "soft.py", SOFT)
    write(plugin_folder / "length.py", PROBE)
    (spec,), (plain,) = load.load(["method=soft"]), load.load(["method=grpo"])
    first = {"name": "soft.py", "version": "", "sha256": sha256(soft)}
    assert spec.identity()["plugins"] == {"method soft": first}
    assert "plugins" not in plain.identity()
    assert "plugins" not in plain.to_dict()
    assert load.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert spec.base_id == plain.base_id, "the base policy does not depend on the method"
    write(soft, f"{SOFT}\nchanged = True\n")
    forget_plugins()
    (changed,), (same,) = load.load(["method=soft"]), load.load(["method=grpo"])
    assert (changed.run_id != spec.run_id, same.run_id) == (True, plain.run_id)
    assert load.from_dict(spec.to_dict()).run_id == spec.run_id, "records of the old one can still be read"
    with refused("unknown_key"):
        load.load(["plugins=1"])


def test_a_task_and_its_grader_decide_the_base_policy_or_the_run(plugin_folder: Path) -> None:
    task = "from mcpo_cli.tasks.chains import Arithmetic\n\n\nclass Chained(Arithmetic):\n    name = 'chained'\n"
    write(plugin_folder / "chained.py", f"{task}    grader = 'strict'\n")
    write(plugin_folder / "strict.py", "def version(): return '1'\n\ndef grade(*_): return None\n")
    (spec,) = load.load(["task=chained"])
    assert spec.plugins.keys() == {"task chained", "grader strict"}
    before = spec.base_id
    write(plugin_folder / "chained.py", f"{task}    grader = 'strict'\n    other = True\n")
    forget_plugins()
    (spec,) = load.load(["task=chained"])
    assert spec.base_id != before


def test_a_worker_refuses_a_plug_in_that_was_changed_after_the_plan(plugin_folder: Path, mcpo_home: Path) -> None:
    soft = write(plugin_folder / "soft.py", SOFT)
    (spec,) = load.load(["method=soft", "scale=smoke"])
    write(mcpo_home / "runs" / spec.run_id / "spec.json", json.dumps(spec.to_dict()))
    write(soft, f"{SOFT}\nchanged = True\n")
    command = [sys.executable, "-m", "mcpo_cli.scheduling.worker", spec.run_id]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "method soft: the plug-in has changed since this run was planned" in done.stderr


def test_provenance_lists_all_plug_ins(plugin_folder: Path, tmp_path: Path) -> None:
    soft, suite = write(plugin_folder / "soft.py", SOFT), write(plugin_folder / "suites" / "mine.yaml", MINE)
    provenance.write(tmp_path / "attempt", ["mcpo"])
    record = json.loads((tmp_path / "attempt" / "provenance.json").read_text())
    assert record["plugins"] == [
        {"name": "soft.py", "version": "", "sha256": sha256(soft)},
        {"name": "suites/mine.yaml", "version": "", "sha256": sha256(suite)},
    ]
    assert record["environment"]["MCPO_PLUGINS"] == str(plugin_folder)


def test_a_suite_by_name_and_by_path(plugin_folder: Path, tmp_path: Path) -> None:
    write(plugin_folder / "suites" / "mine.yaml", MINE)
    path = write(tmp_path / "yours.yaml", MINE)
    named, given = plan.from_suite("mine", ["scale=one-gpu"], ""), plan.from_suite(str(path), ["scale=one-gpu"], "")
    assert [(run.arm, run.spec.seed) for run in named.runs] == [("A", 0), ("A", 1), ("B", 0), ("B", 1)]
    assert (named.suite, given.suite, given.plan_id) == ("mine", "yours", named.plan_id)
    taken = write(tmp_path / "table1.yaml", MINE)
    with refused("duplicate_name", str(taken)):
        plan.from_suite(str(taken), [], "")


def test_a_preset_by_name_and_by_path(plugin_folder: Path, tmp_path: Path) -> None:
    content = "# @package _global_\nregime: odd\ntrain: {lr: 1e-5}\n"
    write(plugin_folder / "conf" / "regime" / "odd.yaml", content)
    model = write(tmp_path / "wide.yaml", "name: wide\nhidden: 128\n")
    (named,) = load.load(["regime=odd"])
    assert (named.regime, named.train.lr) == ("odd", 1e-5)
    both = load.load([f"model=toy-s,{model}", f"regime={plugin_folder / 'conf/regime/odd.yaml'}"])
    assert [(spec.model.name, spec.model.hidden, spec.train.lr) for spec in both] == [
        ("toy-s", 64, 1e-5),
        ("wide", 128, 1e-5),
    ]
    clash = write(plugin_folder / "conf" / "regime" / "drift.yaml", content)
    forget_plugins()
    with refused("duplicate_name", str(clash)):
        presets.groups()


def test_a_grader_of_a_folder_grades_in_its_own_processes(plugin_folder: Path) -> None:
    write(
        plugin_folder / "lower.py",
        "from mcpo_cli.grading.base import Grade\n\nINTEGERS = False\n\n\ndef version():\n    return '1'\n\n\n"
        "def grade(gold, response, extracted):\n"
        "    return Grade('correct' if gold == response.lower() else 'wrong')\n",
    )
    with Pool("lower", workers=1) as pool:
        assert pool.version == "lower 1"
        assert pool.grade([("yes", "YES"), ("yes", "no")]) == [Grade("correct"), Grade("wrong")]
