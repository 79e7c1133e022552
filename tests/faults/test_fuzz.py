"""Random input ends in a result that is in order, or in exit code 2 and one message: no traceback, nothing started.

A few examples of each kind always, hundreds of them with the slow tests.
"""

import contextlib
import dataclasses
import io
import math
import re
import shutil
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from hypothesis import HealthCheck, given, settings

from mcpo_cli import data
from mcpo_cli.config import load, plan
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.evaluation import regrade
from mcpo_cli.home import is_plain
from mcpo_cli.main import main
from tests.cli.conftest import MCPO, Cli
from tests.faults import fuzzing
from tests.faults.conftest import Faults


def examples(quick: int, slow: int) -> pytest.MarkDecorator:
    """So many examples in the quick suite, and so many with the slow tests."""
    return pytest.mark.parametrize("count", [quick, pytest.param(slow, marks=pytest.mark.slow)])


def explore(count: int, strategy: fuzzing.Strategy, test: Callable[[Any], None]) -> int:
    """Call `test` with `count` examples or a few more; how many there were."""
    seen = 0

    @settings(max_examples=count, database=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def one(example: Any) -> None:
        nonlocal seen
        seen += 1
        test(example)

    one()
    return seen


def refused(call: Callable[[], Any]) -> Any:
    """What `call` returns, None where it is a ConfigError with a message."""
    found, message = None, "no error"
    try:
        found = call()
    except ConfigError as error:
        message = error.message
    assert message.strip()
    return found


def in_order(value: Any, hint: Any, metadata: Any) -> bool:
    """Whether a value is of its type, finite, and within the bounds of its field."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    if get_origin(hint) is tuple:
        inner = get_args(hint)[0]
        return isinstance(value, tuple) and all(in_order(item, inner, {}) for item in value)
    if get_origin(hint) is Mapping:
        return value == {}  # plug-ins, of which there are none
    if hint is float:
        bounds = {"ge": value.__ge__, "gt": value.__gt__, "le": value.__le__, "lt": value.__lt__}
        held = [bounds[name](float(bound)) for name, bound in metadata.items() if name in bounds]
        return isinstance(value, float) and math.isfinite(value) and abs(value) < 1e39 and all(held)
    if hint is int:
        least, most = metadata.get("ge", -math.inf), metadata.get("le", math.inf)
        return type(value) is int and least <= value <= most and abs(value) < 2**31
    return type(value) is hint and (hint is not str or not re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", value))


def wrong(spec: RunSpec) -> list[str]:
    """The settings of a run that are nonsense."""
    found = []

    def look(part: Any, prefix: str) -> None:
        hints = typing.get_type_hints(type(part))
        for field in dataclasses.fields(part):
            value, hint = getattr(part, field.name), hints[field.name]
            if get_origin(hint) is types.UnionType:
                if value is None:
                    continue
                (hint,) = (one for one in get_args(hint) if one is not type(None))
            if dataclasses.is_dataclass(value):
                look(value, f"{prefix}{field.name}.")
            elif not in_order(value, hint, field.metadata):
                found.append(f"{prefix}{field.name}={value!r}")

    look(spec, "")
    return found


def check(specs: list[RunSpec]) -> None:
    """Every run is in order, names a folder, and is the same run when its settings are read back."""
    assert specs
    for spec in specs[:5]:
        assert wrong(spec) == []
        assert is_plain(spec.run_id)
        assert load.from_dict(spec.to_dict()).run_id == spec.run_id


@pytest.mark.slow
@examples(60, 1000)
def test_override_lists(count: int, faults: Faults) -> None:
    loaded = 0

    def one(overrides: list[str]) -> None:
        nonlocal loaded
        if specs := refused(lambda: load.load(overrides)):
            check(specs)
            loaded += 1

    seen = explore(count, fuzzing.overrides(), one)
    assert loaded, "the input is so bad that it tests nothing else"
    faults("random override lists", times=seen)


@examples(25, 250)
def test_command_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, faults: Faults) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("MCPO_HOME", str(home))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)

    def one(words: list[str]) -> None:
        monkeypatch.setattr(sys, "argv", ["mcpo", *words])
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as talk:
            try:
                code: Any = main()
            except SystemExit as end:
                code = end.code
        said = talk.getvalue()
        assert code in (None, 0, 2), said
        if code == 2:
            assert len(re.findall(r"^error: |─ Error ─", said, re.MULTILINE)) == 1, said
        assert "Traceback" not in said
        assert not home.exists()

    faults("random command lines", times=explore(count, fuzzing.command_lines(), one))


@pytest.fixture
def experiments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the suites and presets, in place of those of the package."""
    copy = Path(shutil.copytree(load.EXPERIMENTS, tmp_path / "experiments"))
    monkeypatch.setattr(load, "EXPERIMENTS", copy)
    _forget()
    yield copy
    _forget()


def _forget() -> None:
    """What was read of the other presets."""
    for kept in (load.groups, load.read_default, load._composed):
        kept.cache_clear()


@examples(40, 250)
def test_suites(experiments: Path, count: int, faults: Faults) -> None:
    path = experiments / "suites" / "random.yaml"
    loaded = 0

    def one(content: bytes) -> None:
        nonlocal loaded
        path.write_bytes(content)
        if made := refused(lambda: plan.from_suite("random", [], "mcpo ablate random")):
            check([cell.spec for cell in made.cells])
            loaded += 1

    seen = explore(count, fuzzing.yaml_files(fuzzing.SUITE), one)
    assert loaded, "the input is so bad that it tests nothing else"
    faults("random files of suites", times=seen)


@pytest.mark.slow
@examples(40, 150)
def test_presets(experiments: Path, count: int, faults: Faults) -> None:
    path = experiments / "conf" / "scale" / "random.yaml"
    first = b"# @package _global_\n"
    path.write_bytes(first)
    loaded = 0

    def one(content: bytes) -> None:
        nonlocal loaded
        path.write_bytes(first + content)
        load._composed.cache_clear()
        if specs := refused(lambda: load.load(["scale=random"])):
            check(specs)
            loaded += 1

    seen = explore(count, fuzzing.yaml_files(fuzzing.PRESET), one)
    assert loaded, "the input is so bad that it tests nothing else"
    faults("random files of presets", times=seen)


@pytest.mark.parametrize("content", ["'0'", "?", "- 1", "cluster: '${'", "train: [", "defaults: 3", "0: 1", "\x00"])
def test_a_file_that_is_no_preset(experiments: Path, content: str) -> None:
    (experiments / "conf" / "scale" / "random.yaml").write_text(f"# @package _global_\n{content}\n")
    with pytest.raises(ConfigError, match=r"random") as error:
        load.load(["scale=random"])
    assert error.value.message.strip(": ") == error.value.message
    assert load.load(["scale=smoke"])[0].scale == "smoke"


@examples(60, 600)
def test_data_files(tmp_path: Path, count: int, faults: Faults) -> None:
    write = fuzzing.put(tmp_path, "data")

    def one(file: tuple[str, bytes]) -> None:
        path = write(file)
        for dataset in (data.get("math500"), data.get("dapo_math_17k"), data.get("aime24")):
            loaded = refused(lambda dataset=dataset: data.load(dataset, path))
            if loaded:
                texts = [problem.text for problem in loaded.problems]
                assert all(text.strip() and problem.gold for text, problem in zip(texts, loaded.problems, strict=True))
                assert len(set(texts)) == len(texts)
                assert loaded.rows >= len(texts)
                assert "\n".join(texts).encode()
                assert data.load(dataset, path).digest == loaded.digest

    faults("random data files", times=explore(count, fuzzing.files(fuzzing.PROBLEMS), one))


@examples(60, 400)
def test_answer_files(tmp_path: Path, count: int, faults: Faults) -> None:
    write = fuzzing.put(tmp_path, "answers")

    def one(file: tuple[str, bytes]) -> None:
        path = write(file)
        found = refused(lambda: regrade.read(path))
        assert found is None or all(type(answer.gold) is str and type(answer.text) is str for answer in found)
        assert found != []

    faults("random files of answers", times=explore(count, fuzzing.files(fuzzing.ANSWERS), one))


@pytest.mark.slow
def test_real_processes(tmp_path: Path, faults: Faults) -> None:
    """A sample as a shell would start them, bytes that are no UTF-8 among them, and files to grade and to audit."""
    cli, write = Cli(tmp_path / "home"), fuzzing.put(tmp_path, "file")

    def ended(words: list[str], codes: tuple[int, ...]) -> None:
        argv = [*MCPO, *(word.replace("\0", "").encode("utf-8", "surrogatepass") for word in words)]
        done = subprocess.run(argv, env=cli.env, cwd=tmp_path, capture_output=True, check=False, timeout=600)
        said = done.stderr.decode(errors="replace")
        assert done.returncode in codes, said
        assert "Traceback" not in said
        assert not (cli.home / "runs").exists()

    def graded(file: tuple[str, bytes]) -> None:
        # 1: an answer that the grader could not judge, or what an audit found.
        ended(["grade", str(write(file)), "--grader", "exact", "--workers", "1", "--json"], (0, 1, 2))
        ended(["data", "audit", str(write(file)), "--json"], (0, 1, 2))

    seen = explore(5, fuzzing.command_lines(), lambda words: ended(words, (0, 2)))
    seen += 2 * explore(2, fuzzing.files(fuzzing.ANSWERS), graded)
    faults("random input to real processes", times=seen)
