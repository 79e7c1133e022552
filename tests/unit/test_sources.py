"""An artifact is stale once anything that decides it has changed: the hash covers all files that matter."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import grimp
import pytest

from mcpo_cli.config.plan import Plan, from_suite
from mcpo_cli.report import artifacts, builder
from tests.fakes import write_runs

ROOT = Path(artifacts.__file__).resolve().parents[2]
SMALL = ["scale=smoke", "model=toy-s", "seed=0", "probe.panel_every=1", "probe.gradients_every=1"]
CURVES = ["fig1", "fig4"]
"""Figures that draw a query weight."""
BUILDING = """\
import json, sys
from pathlib import Path
from mcpo_cli.report import artifacts, builder
from mcpo_cli.config.plan import from_suite

names, settings, folder = json.loads(sys.argv[1])
plans = {suite: from_suite(suite, settings, "") for suite in artifacts.suites(names)}
builder = builder.ArtifactBuilder(plans, Path(folder), "smoke")
built = {name: builder.build(name).fresh for name in names}
print(json.dumps([built, {name: getattr(sys.modules[name], "__file__", "") for name in sys.modules}]))
"""


def build(names: list[str], home: Path, code: Path) -> tuple[dict[str, bool], dict[str, str]]:
    """Build in a separate process with the code below `code`: the fresh ones, and the file of each loaded module."""
    command = [sys.executable, "-c", BUILDING, json.dumps([names, SMALL, str(home / "reports")])]
    env = {**os.environ, "PYTHONPATH": str(code), "MCPO_HOME": str(home)}
    done = subprocess.run(command, cwd=code, env=env, capture_output=True, text=True, check=True)
    fresh, loaded = json.loads(done.stdout)
    return fresh, {name: path for name, path in loaded.items() if name.partition(".")[0] == "mcpo_cli"}


def test_no_module_that_artifacts_import_is_left_out() -> None:
    """grimp, which reads imports independently, finds no missing module; training and storage are not included."""
    graph: Any = grimp.build_graph("mcpo_cli", "analysis", cache_dir=None)
    modules = [name for name in graph.modules if not name.endswith("__main__")]  # a program of a study is no artifact
    declared = {name for name in modules if name.startswith(("analysis.", "mcpo_cli.literature_methods."))}
    roots = ["mcpo_cli.report.builder", *declared]
    needed = {module for root in roots for module in (root, *graph.find_upstream_modules(root))}
    own = artifacts.declared().sources.values()
    hashed = {path.resolve() for path in (*builder.code_files(), *(path for files in own for path in files))}
    paths = {module: ROOT / module.replace(".", "/") for module in needed}
    files = {module: {path.with_suffix(".py"), path / "__init__.py"} for module, path in paths.items()}
    assert [module for module, either in files.items() if not either & hashed] == []
    assert {"mcpo_cli.methods.base", "mcpo_cli.runs.journal", "mcpo_cli.measures.summary"} <= needed
    for package in builder.INDEPENDENT:
        assert (ROOT / "mcpo_cli" / package).is_dir()
        assert not [path for path in hashed if path.is_relative_to(ROOT / "mcpo_cli" / package)]


def test_a_study_makes_its_own_artifacts_stale_and_no_table_of_a_user() -> None:
    study = [ROOT / "analysis", ROOT / "experiments"]
    inside = [path for path in builder.code_files() if any(path.resolve().is_relative_to(folder) for folder in study)]
    assert inside == []
    assert ROOT / "analysis" / "paper" / "tables.py" in artifacts.declared().sources["table1"]
    assert "headline" not in artifacts.declared().sources  # a table that no package declares


@pytest.mark.slow
def test_another_query_weight_makes_its_figures_stale_and_a_backend_does_not(
    mcpo_home: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    code = tmp_path_factory.mktemp("code")
    for name in ("mcpo_cli", "analysis", "experiments"):
        shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
    # Runs that suites share are written once.
    runs = {run.spec.run_id: run for suite in artifacts.suites(CURVES) for run in from_suite(suite, SMALL, "").runs}
    write_runs(Plan("", "", tuple(runs.values())), probed=True)
    fresh, loaded = build(CURVES, mcpo_home, code)
    assert fresh == dict.fromkeys(CURVES, False)
    # No module that building loads is left out, not even those that are found by scanning a folder, without an import.
    hashed = {path.resolve().relative_to(ROOT) for path in builder.code_files()}
    assert [name for name, path in loaded.items() if Path(path).relative_to(code) not in hashed] == []
    assert {"mcpo_cli.literature_methods.batches", "mcpo_cli.measures.mastery"} <= loaded.keys()
    with (code / "mcpo_cli/backends/local/train.py").open("a", encoding="utf-8") as file:
        file.write("# not read by any figure\n")
    assert build(CURVES, mcpo_home, code)[0] == dict.fromkeys(CURVES, True)
    formula = code / "mcpo_cli/methods/group_relative.py"
    text = formula.read_text(encoding="utf-8")
    assert text.count("(p * (1 - p)) ** 0.5") == 1
    formula.write_text(text.replace("(p * (1 - p)) ** 0.5", "(p * (1 - p)) ** 0.25"), encoding="utf-8")
    assert build(CURVES, mcpo_home, code)[0] == dict.fromkeys(CURVES, False)
