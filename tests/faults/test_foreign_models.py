"""Model folders by other people: refused with a message, without running the model's own code."""

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mcpo_cli.errors import McpoError
from mcpo_cli.model_facts import examine, resolve
from mcpo_cli.model_files import fingerprint
from tests.errors import refused
from tests.models import untrained

SECONDS = 30.0
"""CPU time within which every folder here is refused."""


def reconfigured(folder: Path, file: str = "config.json", **values: object) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def pointing_outside(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    index = {"weight_map": {"a": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


MODELS: dict[str, Callable[[Path], object]] = {
    "a configuration of 100 000 brackets": lambda at: (at / "config.json").write_text("[" * 100_000),
    "a tokenizer of NUL bytes": lambda at: (at / "tokenizer.json").write_bytes(bytes(10_000)),
    "a header of 2^63 bytes": lambda at: (at / "model.safetensors").write_bytes(b"\xff" * 7 + b"\x7f" + b"{}"),
    "weights in another folder": pointing_outside,
    "a GGUF of NUL bytes": lambda at: ((at / "model.safetensors").unlink(), (at / "x.gguf").write_bytes(bytes(1000))),
    "sizes that are texts": lambda at: reconfigured(at, hidden_size="64", num_hidden_layers=[2]),
    "10^12 layers": lambda at: reconfigured(at, num_hidden_layers=10**12),
    "a window of 10^30 tokens": lambda at: reconfigured(at, max_position_embeddings=10**30),
    "a configuration with code": lambda at: reconfigured(at, auto_map={"AutoConfig": "own.Own"}),
    "a tokenizer with code": lambda at: reconfigured(
        at, "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Own", None]}
    ),
    "weights that are a folder": lambda at: ((at / "model.safetensors").unlink(), (at / "model.safetensors").mkdir()),
    "a window without end": lambda at: reconfigured(at, max_position_embeddings=float("inf")),
    "a format that is a list": lambda at: reconfigured(at, dtype=[1]),
    **{
        f"an end token of {value}": lambda at, value=value: reconfigured(
            at, "generation_config.json", eos_token_id=value
        )
        for value in ([[1]], "a", 10**30, -5, 1.5, {}, [True])
    },
    "a GGUF that lies about its tensors": lambda at: (
        (at / "model.safetensors").unlink(),
        (at / "x.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2**63 - 1, 2**63 - 1)),
    ),
}


@pytest.mark.parametrize("change", MODELS.values(), ids=MODELS)
def test_models(change: Callable[[Path], object], tmp_path: Path) -> None:
    """Bad folders are refused without running the model's own code."""
    folder, ran = untrained(tmp_path / "model"), tmp_path / "it ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\nclass Own: pass\n")
    change(folder)
    began = time.process_time()
    with pytest.raises(McpoError):
        resolve(str(folder))
    assert time.process_time() - began < SECONDS
    assert not ran.exists()


def header(tensors: object, data: bytes = b"1234") -> bytes:
    """A safetensors file."""
    content = tensors if isinstance(tensors, bytes) else json.dumps(tensors).encode()
    return struct.pack("<Q", len(content)) + content + data


def entry(**values: object) -> bytes:
    """A file with a tensor of one number and with changed entries of the header; None leaves an entry out."""
    found = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **values}
    return header({"a": {name: value for name, value in found.items() if value is not None}})


def of_40_gb(path: Path) -> None:
    """A file whose header takes no room on the disk but would take all memory."""
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 40_000_000_000))
        file.truncate(40_000_000_100)


HEADERS: dict[str, bytes | Callable[[Path], None]] = {
    "40 GB that are not there": of_40_gb,
    "offsets below 0": entry(data_offsets=[-(10**9), 0]),
    "offsets of 10^30": entry(data_offsets=[10**30, 10**30]),
    "offsets that are missing": entry(data_offsets=None),
    "more data than there is": entry(shape=[1000], data_offsets=[0, 4000]),
    "a shape of 10^30": entry(shape=[10**30]),
    "a shape below 0": entry(shape=[-1, -1]),
    "a shape that is infinite": header(b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}'),
    "no tensors": header({"__metadata__": {}}),
    "two tensors in one place": header({name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}),
    "1 000 000 brackets": header(b"[" * 1_000_000),
    "bytes that are not UTF-8": header(b'{"\xff": 1}'),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The parts of a model that are read before torch is imported."""
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 64}')
    (tmp_path / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}}')
    return tmp_path


@pytest.mark.parametrize("content", HEADERS.values(), ids=HEADERS)
def test_headers_of_weights(content: bytes | Callable[[Path], None], folder: Path) -> None:
    path, began = folder / "model.safetensors", time.process_time()
    content(path) if callable(content) else path.write_bytes(content)
    with refused("bad_model", "model.safetensors"):
        examine("m", folder)
    assert fingerprint(folder)
    assert time.process_time() - began < SECONDS
