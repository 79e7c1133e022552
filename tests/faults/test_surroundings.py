"""Commands around which something is missing, full, strange or too small: one message each, and the right exit code."""

import contextlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import MCPO
from tests.faults.conftest import Faults

WORDS = {
    "nothing": [],
    "--version": ["--version"],
    "--help": ["--help"],
    "plan --json": ["plan", "scale=smoke", "--json"],
    "runs list --json": ["runs", "list", "--json"],
    "method show": ["method", "show", "mcpo"],
}
WRONG = ["plan", "nope=1"]
TRAIN = ["train", "scale=smoke", "warmup.target_accuracy=0"]


def run(
    words: list[str], home: Path, before: Callable[[], object] = lambda: None, **more: str
) -> "subprocess.CompletedProcess[bytes]":
    """`mcpo` in a process in which `before` is called first."""
    env = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
    env |= {"MCPO_HOME": str(home), "NO_COLOR": "1", **more}
    return subprocess.run([*MCPO, *words], env=env, preexec_fn=before, capture_output=True, check=False, timeout=600)


def full(number: int) -> None:
    """Have a standard file stand on a full disk."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), number)


def unread(number: int) -> None:
    """Have a standard file lead to a pipe whose reader has gone."""
    reader, writer = os.pipe()
    os.close(reader)
    os.dup2(writer, number)


def one_message(done: "subprocess.CompletedProcess[bytes]") -> bool:
    """Whether there is exactly one, and no traceback."""
    return done.stderr.count(b"error: ") == 1 and b"Traceback" not in done.stderr and b"Exception" not in done.stderr


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("lose", [lambda: full(1), lambda: os.close(1)], ids=["full", "closed"])
@pytest.mark.slow
def test_stdout_cannot_be_written(
    words: list[str], lose: Callable[[], None], tmp_path: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    done = run(words, tmp_path, lose)
    assert done.returncode == 1, done.stderr
    assert b"standard output cannot be written" in done.stderr
    faults(f"standard output {request.node.callspec.id.split('-')[0]}", wrong=int(not one_message(done)))


@pytest.mark.slow
@pytest.mark.parametrize("lose", [lambda: full(1), lambda: os.close(1)], ids=["full", "closed"])
def test_an_error_keeps_its_code_where_stdout_is_lost(lose: Callable[[], None], tmp_path: Path, faults: Faults) -> None:
    done = run([*WRONG, "--json"], tmp_path, lose)
    assert done.returncode == 2, done.stderr
    faults("an error whose document cannot be written", wrong=int(not one_message(done)))


@pytest.mark.slow
@pytest.mark.parametrize("lose", [full, os.close, unread], ids=["full", "closed", "unread"])
def test_messages_that_cannot_be_shown_change_no_result(
    lose: Callable[[int], None], tmp_path: Path, faults: Faults
) -> None:
    whole = run(WORDS["plan --json"], tmp_path)
    done = run(WORDS["plan --json"], tmp_path, lambda: lose(2))
    wrong = run(WRONG, tmp_path, lambda: lose(2))
    assert (whole.returncode, done.returncode, wrong.returncode) == (0, 0, 2)
    faults("standard error full, closed or without a reader", times=2, wrong=int(done.stdout != whole.stdout))


@pytest.mark.slow
def test_a_reader_that_has_seen_enough(tmp_path: Path, faults: Faults) -> None:
    """As with `mcpo plan | head -0`: no message, no traceback."""
    done = run(WORDS["--help"], tmp_path, lambda: unread(1))
    assert done.returncode == 1
    faults("standard output without a reader", wrong=int(done.stderr != b""))


@pytest.mark.slow
def test_a_training_whose_messages_cannot_be_shown_goes_on(tmp_path: Path, faults: Faults) -> None:
    done = run([*TRAIN, "compute.tracking_uri=offline", "--json"], tmp_path, lambda: full(2))
    assert done.returncode == 0
    states = [one["state"] for one in json.loads(done.stdout)["runs"]]
    faults("a training whose messages cannot be shown", lost=int(states != ["done"]))


STRANGE = {
    "no UTF-8": {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "an unknown locale": {"LC_ALL": "xx_YY.nonsense", "LANG": "?"},
    "UTF-16": {"PYTHONIOENCODING": "utf-16"},
    "no columns": {"COLUMNS": "0", "LINES": "0"},
    "negative columns": {"COLUMNS": "-5"},
    "10^9 columns": {"COLUMNS": "1000000000"},
    "columns that are no number": {"COLUMNS": "wide"},
    "an unknown terminal": {"TERM": "\x1b[31m", "FORCE_COLOR": "1"},
    "no home folder": {"HOME": "/nonexistent/home"},
    "no home folder at all": {"HOME": ""},
    "no temporary folder": {"TMPDIR": "/nonexistent/tmp"},
    "an unknown time zone": {"TZ": "Mars/Olympus"},
    "a search path with nothing in it": {"PATH": ""},
    "warnings as errors": {"PYTHONWARNINGS": "error::DeprecationWarning"},
    "assertions off": {"PYTHONOPTIMIZE": "2"},
    "debugging": {"PYTHONDEVMODE": "1", "PYTHONWARNINGS": "ignore"},
    "integers of any length": {"PYTHONINTMAXSTRDIGITS": "0"},
    "a variable of 100 KB": {"NONSENSE": "x" * 100_000},
    "a secret of six blanks": {"MY_TOKEN": "      "},
    "a store of 5 000 characters": {"MLFLOW_TRACKING_URI": "sqlite:///" + "x" * 5000},
    "Hydra's error mode": {"HYDRA_FULL_ERROR": "1", "OC_CAUSE": "1"},
}


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The ids of a plan's runs where nothing is strange."""
    return ids(run(WORDS["plan --json"], tmp_path_factory.mktemp("ordinary")).stdout.decode())


def ids(document: str) -> list[str]:
    return [one["run_id"] for one in json.loads(document)["runs"]]


@pytest.mark.slow
@pytest.mark.parametrize("more", STRANGE.values(), ids=STRANGE)
def test_a_strange_environment(
    more: dict[str, str], planned: list[str], tmp_path: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    """A plan has the same runs everywhere, and a wrong setting ends in the same way."""
    done, wrong = run(WORDS["plan --json"], tmp_path / "ü", **more), run(WRONG, tmp_path, **more)
    assert done.returncode == 0, done.stderr
    assert wrong.returncode == 2, wrong.stderr
    text = done.stdout.decode("utf-16" if more.get("PYTHONIOENCODING") == "utf-16" else "utf-8")
    faults(f"an environment with {request.node.callspec.id}", times=2, wrong=int(ids(text) != planned))


def limited(kind: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (most, most))


LIMITS = {
    "16 open files": limited(resource.RLIMIT_NOFILE, 16),
    "no bytes in a file": limited(resource.RLIMIT_FSIZE, 0),
    "a stack of 256 KiB": limited(resource.RLIMIT_STACK, 256 << 10),
    "no core file": limited(resource.RLIMIT_CORE, 0),
    "no locked memory": limited(resource.RLIMIT_MEMLOCK, 0),
    "the lowest priority": lambda: os.nice(19),
    "one core": lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}),
    "no rights for new files": lambda: os.umask(0o777),
}


@pytest.mark.slow
@pytest.mark.parametrize("before", LIMITS.values(), ids=LIMITS)
def test_a_limit_of_the_system(
    before: Callable[[], object], tmp_path: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    done = run(WORDS["runs list --json"], tmp_path, before)
    assert done.returncode in (0, 1), done.stderr
    if done.returncode:
        assert one_message(done), done.stderr
    faults(f"a command with {request.node.callspec.id}")


@pytest.mark.slow
@pytest.mark.parametrize("memory", [40, 90, 200])
def test_too_little_memory(memory: int, tmp_path: Path, faults: Faults) -> None:
    """In MiB. Python itself may not start; whatever starts writes nothing that is taken for a run."""
    limit = memory << 20
    done = run(["train", "scale=smoke"], tmp_path, limited(resource.RLIMIT_AS, limit))
    assert done.returncode != 0
    listed = run(WORDS["runs list --json"], tmp_path)
    states = [one["state"] for one in json.loads(listed.stdout)["runs"]]
    faults("a training with too little memory for its libraries", wrong=states.count("done"))


@pytest.mark.slow
def test_the_current_folder_is_gone(tmp_path: Path, faults: Faults) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()

    def leave() -> None:
        os.chdir(gone)
        with contextlib.suppress(OSError):
            gone.rmdir()

    done = run(WORDS["plan --json"], tmp_path, leave)
    assert done.returncode in (0, 2), done.stderr
    env = {key: value for key, value in os.environ.items() if key != "MCPO_HOME"} | {"PYTHONSAFEPATH": "1"}
    gone.mkdir()
    command = [sys.executable, "-m", "mcpo_cli.main", "runs", "list"]
    homeless = subprocess.run(command, env=env, preexec_fn=leave, capture_output=True, check=False, timeout=600)
    assert homeless.returncode in (0, 2), homeless.stderr
    assert b"Traceback" not in homeless.stderr
    faults("a current folder that is gone", times=2, wrong=int(b"bug in mcpo" in done.stderr + homeless.stderr))


@pytest.mark.slow
@pytest.mark.parametrize("home", ["/dev/null", "/proc/self/mcpo", "/dev/full/x", "~nobody-at-all/x", "a\nb", "\udcff"])
def test_a_home_that_cannot_be(home: str, tmp_path: Path, faults: Faults) -> None:
    place = home if home.startswith(("/", "~")) else f"{tmp_path}/{home}"
    done = run(["train", "scale=smoke", "--dry-run", "--json"], Path(place))
    listed = run(WORDS["runs list --json"], Path(place))
    assert done.returncode in (0, 2), done.stderr
    assert listed.returncode in (0, 2), listed.stderr
    harm = b"Traceback" in done.stderr + listed.stderr or b"bug in mcpo" in done.stderr + listed.stderr
    faults("a home that is a device, a process, a line break or no text", times=2, wrong=int(harm))
