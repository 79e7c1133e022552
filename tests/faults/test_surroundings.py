"""Commands on a machine with a full disk, a lost terminal, other users, a foreign folder or little memory."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpo_cli.backends.verl import launch
from mcpo_cli.backends.verl.overrides import Paths
from mcpo_cli.config.load import load
from mcpo_cli.runs import catalog
from tests.cli.conftest import MCPO, Cli, InProcess

PLAN, LIST = ["train", "--dry-run", "scale=smoke", "--json"], ["runs", "list", "--json"]
WRONG = ["train", "--dry-run", "nope=1"]


def run(
    words: list[str], home: Path, before: Callable[[], object] = lambda: None, **more: str
) -> "subprocess.CompletedProcess[bytes]":
    """`mcpo` in a process in which `before` is called first."""
    env = Cli(home).env | more
    return subprocess.run([*MCPO, *words], env=env, preexec_fn=before, capture_output=True, check=False, timeout=600)


def full(number: int) -> None:
    """Put a standard file on a full disk."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def unread(number: int) -> None:
    """Connect a standard file to a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, number)


@pytest.mark.slow
@pytest.mark.parametrize("words", [PLAN, ["--help"], ["components", "show", "method", "mcpo"]], ids=" ".join)
def test_stdout_on_a_full_disk(words: list[str], tmp_path: Path) -> None:
    done = run(words, tmp_path, lambda: full(1))
    assert done.returncode == 1, done.stderr
    assert done.stderr.count(b"error: ") == 1
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_messages_that_cannot_be_shown_change_no_result(tmp_path: Path) -> None:
    whole, done = run(PLAN, tmp_path), run(PLAN, tmp_path, lambda: full(2))
    wrong = run([*WRONG, "--json"], tmp_path, lambda: full(1))
    assert (whole.returncode, done.returncode, wrong.returncode) == (0, 0, 2)
    assert done.stdout == whole.stdout
    assert run(["--help"], tmp_path, lambda: unread(1)).stderr == b"", "as with `mcpo --help | head -0`"
    trained = run(
        ["train", "scale=smoke", "warmup.target_accuracy=0", "compute.tracking_uri=offline", "--json"],
        tmp_path,
        lambda: full(2),
    )
    assert [one["state"] for one in json.loads(trained.stdout)["runs"]] == ["done"]


STRANGE = {
    "ASCII only": {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "an unknown locale": {"LC_ALL": "xx_YY.nonsense", "LANG": "?"},
    "no columns, home folder or search path": {"COLUMNS": "0", "LINES": "0", "HOME": "/nonexistent/home", "PATH": ""},
    "an unknown time zone, and assertions off": {"TZ": "Mars/Olympus", "PYTHONOPTIMIZE": "2"},
}


@pytest.mark.slow
@pytest.mark.parametrize("more", STRANGE.values(), ids=STRANGE)
def test_a_strange_environment(more: dict[str, str], tmp_path: Path) -> None:
    """A plan has the same runs in every environment, and an invalid setting gives the same error."""
    done, wrong = run(PLAN, tmp_path / "ü", **more), run(WRONG, tmp_path, **more)
    assert (done.returncode, wrong.returncode) == (0, 2), done.stderr + wrong.stderr
    expected = [spec.run_id for spec in load(["scale=smoke"])]
    assert [one["run_id"] for one in json.loads(done.stdout)["runs"]] == expected


MEMORY = [
    ("train scale=smoke --dry-run", 200, 0),
    ("train scale=smoke", 195, 1),
    ("runs list", 200, 0),
    ("compare a.jsonl b.jsonl", 60, 1),
    ("grade g.jsonl --workers 1", 60, 1),
    ("grade g.jsonl --workers 1", 1500, 0),
    ("components check data d.jsonl", 1500, 0),
]
"""A command, the largest memory that it may map, and its exit code."""


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "mebibytes", "code"), MEMORY)
def test_little_memory(verb: str, mebibytes: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `ulimit -v` and clusters set it; also below the limit of grading processes."""
    monkeypatch.chdir(tmp_path)
    samples = "".join(json.dumps({"problem": f"p{i}", "correct": i % 2}) + "\n" for i in range(6))
    answer = json.dumps({"gold": "42", "response": "\\boxed{42}", "problem": "6 x 7", "answer": "42"}) + "\n"
    for name, content in {"a": samples, "b": samples, "g": answer, "d": answer}.items():
        Path(f"{name}.jsonl").write_text(content)
    limit = mebibytes << 20
    done = run(verb.split(), tmp_path / "home", lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert done.returncode == code, done.stderr
    assert b"bug in mcpo" not in done.stderr
    assert done.stderr.count(b"error: ") == (code > 0)
    assert "done" not in [one.state for one in catalog.runs(tmp_path / "home")]


@pytest.mark.parametrize("home", ["/dev/null", "/proc/self/mcpo", "~nobody-at-all/x", "/dev/full/x"])
def test_an_impossible_home(home: str, here: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCPO_HOME", home)
    for words in (["train", "scale=smoke", "--dry-run", "--json"], LIST):
        done = here(*words)
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("words", [["train", "scale=smoke", "train.steps=1"], ["grade", "answers.jsonl"], ["doctor"]])
def test_nothing_is_imported_from_the_current_folder(words: list[str], tmp_path: Path) -> None:
    """A colleague's folder may contain modules named like libraries."""
    here, trace = tmp_path / "here", tmp_path / "it ran"
    here.mkdir()
    for name in ("mlflow", "torch", "numpy", "yaml", "hydra", "sympy", "sitecustomize", "mcpo_cli", "loky", "json"):
        (here / f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write(__name__ + chr(10))\n")
    (here / "answers.jsonl").write_text(json.dumps({"gold": "\\frac{1}{2}", "response": "\\boxed{0.5}"}) + "\n")
    command = [MCPO[0], "-P", *MCPO[1:], *words, *(["warmup.target_accuracy=0"] if words[0] == "train" else [])]
    env = Cli(tmp_path / "home").env
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert not trace.exists(), trace.read_text()


def test_a_planted_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user can guess its name: a link there must not empty another folder."""
    monkeypatch.setattr(launch.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    precious = tmp_path / "precious"
    (tmp_path / "tmp").mkdir()
    precious.mkdir()
    (precious / "file").write_text("x")
    (found,) = load(["scale=verl-cpu"])
    paths = Paths(tmp_path / "run", tmp_path / "run" / "attempt_1", "model")
    with launch._ray(found, paths) as variables:
        name = Path(variables["RAY_TMPDIR"])
    name.symlink_to(precious)
    with pytest.raises(OSError, match="File exists"), launch._ray(found, paths):
        pass
    assert (precious / "file").exists()


def test_modules_of_the_current_folder_are_not_imported(tmp_path: Path) -> None:
    """`python -m` would import them before the installed ones."""
    (tmp_path / "typer.py").write_text("open('it ran', 'w')")
    command = [sys.executable, "-m", "mcpo_cli", "--version"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, (tmp_path / "it ran").exists()) == (0, False), done.stderr
