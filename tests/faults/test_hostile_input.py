"""Files and settings made to exhaust or fool what reads them: suites, archives, answers, plug-ins, models."""

import gzip
import json
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpo_cli import data, methods, plugins
from mcpo_cli.config import load
from mcpo_cli.config.yaml_files import read_yaml
from mcpo_cli.errors import ConfigError, McpoError
from mcpo_cli.evaluation import regrade
from mcpo_cli.model_facts import resolve
from mcpo_cli.redaction import redact
from tests.cli.conftest import InProcess
from tests.conftest import forget_plugins
from tests.faults.conftest import Faults
from tests.models import untrained

THOUSAND = list(range(1, 1001))
SECONDS = 30.0
"""Processor time that nothing here may take: what is not stopped takes hours, or all memory."""


def aliases(depth: int, line: str) -> str:
    """Each line repeats the one before ten times."""
    lines = (line.format(this=i, them=",".join([f"*a{i - 1}"] * 10)) for i in range(1, depth))
    return "a0: &a0 {x: 1}\n" + "\n".join(lines)


YAML: dict[str, str | bytes] = {
    "10^9 values by aliases": aliases(10, "a{this}: &a{this} [{them}]"),
    "10^8 values by merge keys": aliases(9, "a{this}: &a{this} {{<<: [{them}]}}"),
    "a list in itself": "a: &a [*a]",
    "a mapping in itself": "arms: &a {x: *a}",
    "a mapping merged with itself": "arms: &a\n  <<: *a",
    "1 500 open brackets": "arms: " + "[" * 1500,
    "20 000 arms": "arms:\n" + "".join(f"  a{i}: [seed={i}]\n" for i in range(20_000)),
    "2 MiB": "# " + "x" * (2 << 20),
    "a tag that runs code": "arms: !!python/object/apply:os.system [exit]",
    "a tag that makes a module": "arms: !!python/module:antigravity x",
    "a date that is none": "arms: {a: [!!timestamp x]}",
    "a truth that is none": "arms: {a: [!!bool perhaps]}",
    "a number that is none": "arms: {a: [!!int '']}",
    "bytes that are none": "arms: {a: [!!binary _]}",
    "a number of 5 000 digits": "arms: {a: [" + "9" * 5000 + "]}",
    "several documents": "arms: {a: []}\n---\narms: {b: []}",
    "UTF-16": "arms: {a: []}".encode("utf-16"),
    "an arm with an escape sequence": 'arms: {"\\e[31m": [seed=0]}',
    "an arm with a line break": 'arms: {"a\\nb": [seed=0]}',
    "an arm that is no text": "arms: {1: [seed=0]}",
    "an arm that is a list": "arms: {a: seed=0}",
    "an override of 3 000 brackets": "arms: {a: ['seed=" + "[" * 3000 + "']}",
    "an override of 50 000 characters": "arms: {a: ['seed=" + "1," * 25_000 + "1']}",
    "a sweep of 10^6 runs": f"arms: {{a: [method=mcpo]}}\nsweep: {{train.steps: {THOUSAND}, seed: {THOUSAND}}}",
    "a sweep of NaN": "arms: {a: [seed=0]}\nsweep: {train.lr: [.nan, .inf]}",
    "an override that refers to itself": "arms: {a: ['seed=${seed}']}",
    "an override that decodes": "arms: {a: ['seed=${oc.decode:${seed}}']}",
}


@pytest.mark.parametrize("content", YAML.values(), ids=YAML)
def test_a_suite_that_is_a_trap(
    content: str | bytes,
    mcpo_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
    faults: Faults,
) -> None:
    suite = mcpo_home / "trap.yaml"
    suite.write_bytes(content if isinstance(content, bytes) else content.encode())
    here = InProcess(mcpo_home, monkeypatch, capsys)
    began = time.process_time()
    done = here("plan", str(suite), "scale=smoke")
    took = time.process_time() - began
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("error:") == 1, done.stderr
    assert len(done.stderr) < 2000
    assert "\x1b" not in done.stderr
    faults(f"a suite with {request.node.callspec.id}", wrong=int(took > SECONDS))


ODD_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path),
    "a link to nothing": lambda path: path.symlink_to("nowhere.yaml"),
}


@pytest.mark.parametrize("make", ODD_FILES.values(), ids=ODD_FILES)
def test_settings_in_something_else_than_a_file(
    make: Callable[[Path], object], tmp_path: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    make(tmp_path / "x.yaml")
    with pytest.raises(ConfigError, match=r"x\.yaml"):
        read_yaml(tmp_path / "x.yaml")
    faults(f"settings in {request.node.callspec.id}")


OVERRIDES = {
    "3 000 open brackets": "seed=" + "[" * 3000,
    "3 000 pairs of brackets": "seed=" + "[" * 3000 + "]" * 3000,
    "3 000 braces": "seed=" + "{a:" * 3000 + "1" + "}" * 3000,
    "300 functions in functions": "seed=" + "sort(" * 300 + "1" + ")" * 300,
    "3 000 interpolations in interpolations": "seed=" + "${" * 3000 + "}" * 3000,
    "100 000 digits": "seed=" + "9" * 100_000,
    "100 000 values": "seed=" + ",".join(["1"] * 100_000),
    "a range of 10^12": "seed=range(0,1000000000000)",
    "a key of 100 000 characters": "x" * 100_000 + "=1",
    "a key of 3 000 points": "a" + ".a" * 3000 + "=1",
    "quotes that do not end": "seed='" + "\\'" * 2000,
}


@pytest.mark.parametrize("word", OVERRIDES.values(), ids=OVERRIDES)
def test_an_override_that_is_a_trap(
    word: str,
    mcpo_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
    faults: Faults,
) -> None:
    here = InProcess(mcpo_home, monkeypatch, capsys)
    began = time.process_time()
    done = here("plan", word)
    took = time.process_time() - began
    assert done.returncode == 2, done.stderr[-500:]
    assert done.stderr.count("error:") == 1
    assert len(done.stderr) < 2000
    faults(f"an override with {request.node.callspec.id}", wrong=int(took > SECONDS))


LINES: dict[str, bytes] = {
    "a line nested 100 000 deep": b"[" * 100_000,
    "an object nested 100 000 deep": b'{"problem":' * 100_000,
    "a number of 100 000 digits": b'{"problem": "x", "answer": ' + b"9" * 100_000 + b"}",
    "NaN for an answer": b'{"problem": "x", "answer": NaN}',
    "an infinite answer": b'{"problem": "x", "answer": 1e999}',
    "half of a surrogate pair": b'{"problem": "\\ud800", "answer": "1"}',
    "NUL bytes": bytes(100_000),
    "a list of lists": b"[[[[1]]]]",
    "keys given twice": b'{"problem": 1, "problem": [1], "answer": {}}',
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_a_data_file_that_is_a_trap(
    line: bytes, tmp_path: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(line + b"\n")
    for read in (lambda: data.load(data.get("math500"), path), lambda: regrade.read(path)):
        with pytest.raises(ConfigError, match=r"data\.jsonl") as error:
            read()
        assert len(error.value.message) < 2000
    faults(f"a data file with {request.node.callspec.id}", times=2)


@pytest.mark.slow
def test_a_compressed_data_file_that_is_a_bomb(tmp_path: Path, faults: Faults) -> None:
    """400 KB on the disk, one line of 400 MiB."""
    path = tmp_path / "data.jsonl.gz"
    with gzip.open(path, "wb") as file:
        for _ in range(400):
            file.write(b" " * (1 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConfigError, match="line 1: more than 64 MiB"):
        data.load(data.get("math500"), path)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    faults("a data file of 400 KB with a line of 400 MiB", wrong=int(grown > 300))


BAD = """\
from dataclasses import dataclass
from mcpo_cli.methods.base import Method
@dataclass(frozen=True)
class Bad(Method):
    name = 'bad'
"""
PLUGINS: dict[str, str | bytes] = {
    "that exits": "raise SystemExit(0)",
    "that divides by zero": "1 / 0",
    "with 5 000 brackets": "x = " + "(" * 5000,
    "with NUL bytes": b"x = 1\0",
    "that is not UTF-8": b"x = '\xff'",
    "that recurses for ever": "def f(): f()\nf()",
    "whose error has an escape sequence": "raise ValueError('\\x1b[2J')",
    "whose error has no text": "raise Exception",
    "whose error quotes a secret": "raise ValueError('password=planted-in-a-plug-in')",
    "that imports what is not there": "import no_such_library_anywhere",
    "whose options are functions": f"{BAD}    option: object = print\n",
    "whose options have no defaults": f"{BAD}    option: int\n",
}


@pytest.mark.parametrize("source", PLUGINS.values(), ids=PLUGINS)
def test_a_plug_in_that_fails(
    source: str | bytes,
    plugin_folder: Path,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
    faults: Faults,
) -> None:
    """It is left out with one message, and hides none of mcpo's methods."""
    (plugin_folder / "bad.py").write_bytes(source if isinstance(source, bytes) else source.encode())
    found = methods.registry()
    (said,) = plugins.problems()
    assert "it is left out" in said
    assert "planted-in-a-plug-in" not in said + capsys.readouterr().err
    faults(f"a plug-in {request.node.callspec.id}", lost=int("mcpo" not in found), wrong=int("bad" in found))


@pytest.mark.parametrize("make", ODD_FILES.values(), ids=ODD_FILES)
def test_a_plug_in_that_is_no_file(
    make: Callable[[Path], object], plugin_folder: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    make(plugin_folder / "odd.py")
    forget_plugins()
    found = methods.registry()
    plugins.present()
    faults(f"a plug-in that is {request.node.callspec.id}", lost=int("mcpo" not in found))


@pytest.mark.parametrize("name", ["mcpo", "grpo"])
def test_a_plug_in_that_takes_a_name(name: str, plugin_folder: Path, faults: Faults) -> None:
    (plugin_folder / "thief.py").write_text(
        "from dataclasses import dataclass\nfrom mcpo_cli.methods.group_relative import GroupRelative\n"
        f"@dataclass(frozen=True)\nclass Thief(GroupRelative):\n    name = '{name}'\n"
    )
    with pytest.raises(ConfigError, match=f"method '{name}' is declared twice"):
        methods.registry()
    faults("a plug-in with the name of a method")


MODELS: dict[str, Callable[[Path], object]] = {
    "a configuration of 100 000 brackets": lambda at: (at / "config.json").write_text("[" * 100_000),
    "a configuration that is a list": lambda at: (at / "config.json").write_text("[]"),
    "a configuration that is a folder": lambda at: ((at / "config.json").unlink(), (at / "config.json").mkdir()),
    "a tokenizer of NUL bytes": lambda at: (at / "tokenizer.json").write_bytes(bytes(10_000)),
    "a header of weights of 2^63 bytes": lambda at: (at / "model.safetensors").write_bytes(
        b"\xff" * 7 + b"\x7f" + b"{}"
    ),
    "a header of weights that is a list": lambda at: (at / "model.safetensors").write_bytes(
        (2).to_bytes(8, "little") + b"[]"
    ),
    "no bytes of weights": lambda at: (at / "model.safetensors").write_bytes(b""),
    "weights that are a link to a device": lambda at: (
        (at / "model.safetensors").unlink(),
        (at / "model.safetensors").symlink_to("/dev/zero"),
    ),
    "a window of 10^30 tokens": lambda at: reconfigured(at, max_position_embeddings=10**30),
    "a window of -1 tokens": lambda at: reconfigured(at, max_position_embeddings=-1),
}


def reconfigured(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("change", MODELS.values(), ids=MODELS)
def test_a_model_folder_that_is_a_trap(
    change: Callable[[Path], object], tmp_path: Path, request: pytest.FixtureRequest, faults: Faults
) -> None:
    folder = untrained(tmp_path / "model")
    change(folder)
    began, message = time.process_time(), ""
    try:
        resolve(str(folder))
    except McpoError as error:
        message = error.message
    assert message, "it was taken"
    faults(f"a model with {request.node.callspec.id}", wrong=int(time.process_time() - began > SECONDS))


TEXTS = {
    "addresses": "://a:" * 100_000,
    "addresses without users": "://" * 200_000,
    "an address of 1 MB": "://a:" + "b" * 1_000_000,
    "planted names of secrets": "password: " * 50_000,
    "names without values": "token" * 100_000,
    "beginnings of web tokens": "eyJaaaaaaaa." * 50_000,
    "beginnings of keys": "-----BEGIN " * 50_000,
    "an open quote": 'token="planted' + "a" * 1_000_000,
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_that_makes_redaction_slow(text: str, request: pytest.FixtureRequest, faults: Faults) -> None:
    """A log may be anybody's; the time goes with its length, not with its square."""
    began = time.process_time()
    clean = redact(text)
    assert len(clean) <= 2 * len(text)
    faults(f"a log of a megabyte of {request.node.callspec.id}", wrong=int(time.process_time() - began > SECONDS))


def test_a_preset_that_is_a_bomb(tmp_path: Path, faults: Faults) -> None:
    """Hydra and OmegaConf would resolve it."""
    path = tmp_path / "preset.yaml"
    path.write_text("# @package _global_\n" + aliases(10, "a{this}: &a{this} [{them}]"))
    with pytest.raises(ConfigError, match="more than 10000 values"):
        load.load([f"scale={path}"])
    faults("a preset with 10^9 values by aliases")
