"""Model folders by other people: refused with a message, without running the model's own code."""

import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from mcpo_cli.errors import McpoError
from mcpo_cli.model_facts import examine, resolve
from mcpo_cli.model_files import fingerprint
from mcpo_cli.tokenization import load, prompt_ids
from tests.errors import refused
from tests.models import untrained

SECONDS = 30.0
"""CPU time within which every folder here is refused."""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("original") / "model")


def reconfigured(folder: Path, file: str = "config.json", **values: object) -> None:
    path = folder / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def pointing_outside(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    index = {"weight_map": {"a": "../model.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def resaved(folder: Path, *shards: dict[str, str], index: dict[str, str] | None = None) -> None:
    """The weights in files: for each, its tensors and what they are made from; with an index if given."""
    tensors = load_file(folder / "model.safetensors")
    for number, names in enumerate(shards):
        save_file({key: tensors[source] for key, source in names.items()}, folder / f"model-{number}.safetensors")
    if index is not None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def sharded(folder: Path, *, lost: int = 0, moved: bool = False, twice: bool = False) -> None:
    """Two shards. lost: tensors that the index leaves out; moved, twice: a tensor is elsewhere, or in both of them."""
    names = sorted(load_file(folder / "model.safetensors"))
    first, second = {name: name for name in names[:3]}, {name: name for name in names[3 - twice :]}
    index = dict.fromkeys(first, "model-0.safetensors") | dict.fromkeys(second, "model-1.safetensors")
    if moved:
        index[names[0]] = "model-1.safetensors"
    resaved(folder, first, second, index={name: index[name] for name in names[lost:]})


def retokenized(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def linked(folder: Path, name: str, target: Path) -> None:
    """The file `name` as a link to `target`, which gets its content if there is none."""
    if not target.exists():
        shutil.copyfile(folder / name, target)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(10**10)


DOUBLES = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "an adapter beside the weights": (lambda at: (at / "adapter_config.json").write_text("{}"), "adapter_config.json"),
    "a tokenizer for another package": (lambda at: (at / "tekken.json").write_text("{}"), "tekken.json"),
    "a file without end": (lambda at: (at / "added_tokens.json").symlink_to("/dev/zero"), "added_tokens.json"),
    "a pipe": (lambda at: os.mkfifo(at / "special_tokens_map.json"), "special_tokens_map.json"),
    "a pipe in place of the configuration": (
        lambda at: ((at / "config.json").unlink(), os.mkfifo(at / "config.json")),
        "config.json",
    ),
    "a link to another folder": (lambda at: linked(at, "tokenizer.json", at.parent / "other.json"), "tokenizer.json"),
    "weights in another folder by a link": (
        lambda at: linked(at, "model.safetensors", at.parent / "w.safetensors"),
        "model.safetensors",
    ),
    "a link to nothing": (lambda at: (at / "vocab.json").symlink_to(at / "nothing"), "vocab.json"),
    "a vocabulary of 10 GB": (lambda at: sparse(at / "vocab.json"), "vocab.json"),
    "a kernel of the hub": (lambda at: reconfigured(at, attn_implementation="owner/kernel"), "owner/kernel"),
    "a kernel inside": (
        lambda at: reconfigured(at, text_config={"_experts_implementation": "owner/kernel"}),
        "owner/kernel",
    ),
    "code inside": (lambda at: reconfigured(at, text_config=[{"auto_map": {"AutoModel": "x.Y"}}]), "auto_map"),
    "weights by another name": (
        lambda at: reconfigured(at, transformers_weights="x.safetensors"),
        "transformers_weights",
    ),
    "a tokenizer by another name": (
        lambda at: reconfigured(at, "tokenizer_config.json", fast_tokenizer_files=["tokenizer.5.json"]),
        "fast_tokenizer_files",
    ),
    "an index beside the weights": (
        lambda at: (at / "model.safetensors.index.json").write_text('{"weight_map": {"a": "b.safetensors"}}'),
        "b.safetensors",
    ),
    "weights of an older save": (
        lambda at: (
            shutil.copyfile(at / "model.safetensors", at / "old"),
            sharded(at),
            (at / "old").rename(at / "model.safetensors"),
        ),
        "model.safetensors is beside",
    ),
    "weights of two makers": (
        lambda at: resaved(at, {"model.norm.weight": "model.norm.weight"}),
        "model-0.safetensors",
    ),
    "a consolidated copy": (
        lambda at: shutil.copyfile(at / "model.safetensors", at / "consolidated.safetensors"),
        "consolidated.safetensors",
    ),
    "an index that leaves out a tensor": (lambda at: sharded(at, lost=1), "lacks 1 tensors"),
    "a tensor that is in another shard": (lambda at: sharded(at, moved=True), "but in model-1.safetensors"),
    "a tensor in two shards": (
        lambda at: sharded(at, twice=True),
        "is in model-0.safetensors, but in model-1.safetensors",
    ),
    "an index of numbers": (
        lambda at: resaved(at, index={"a": 1}),  # type: ignore[dict-item]
        "weight_map",
    ),
    "an end token that is no token": (
        lambda at: reconfigured(at, "generation_config.json", eos_token_id=[0, 99_999]),
        "99999",
    ),
    "a limit that is text": (
        lambda at: reconfigured(at, "tokenizer_config.json", model_max_length="512"),
        "limit of tokens must be a number",
    ),
    "a format that is none": (lambda at: reconfigured(at, dtype="float8_e4m3fn"), "float8_e4m3fn"),
    "templates in another folder": (
        lambda at: (
            (at.parent / "else").mkdir(),
            (at.parent / "else" / "default.jinja").write_text("x"),
            (at / "additional_chat_templates").symlink_to(at.parent / "else"),
        ),
        "default.jinja",
    ),
    "a token of number -1": (
        lambda at: retokenized(at, lambda it: it["model"]["vocab"].update({"x": -1})),
        "number -1",
    ),
    "a token of number 1.5": (lambda at: retokenized(at, lambda it: it["model"]["vocab"].update({"x": 1.5})), "1.5"),
    "a token of number true": (lambda at: retokenized(at, lambda it: it["model"]["vocab"].update({"x": True})), "True"),
    "2^30 letters of one": (
        lambda at: retokenized(
            at, lambda it: it.update(normalizer={"type": "Sequence", "normalizers": [DOUBLES] * 30})
        ),
        "letters of one",
    ),
    "10^7 letters of one": (
        lambda at: retokenized(at, lambda it: it.update(normalizer={**DOUBLES, "content": "a" * 10**7})),
        "letters of one",
    ),
    "10^7 letters before each text": (
        lambda at: retokenized(at, lambda it: it.update(normalizer={"type": "Prepend", "prepend": "a" * 10**7})),
        "letters of one",
    ),
}


@pytest.mark.parametrize(("change", "named"), REFUSED.values(), ids=REFUSED)
def test_what_libraries_would_read_differently(
    change: Callable[[Path], object], named: str, tmp_path: Path, original: Path
) -> None:
    """Refused in training, dry runs and evaluation, and soon: nothing is read without end."""
    folder, began = Path(shutil.copytree(original, tmp_path / "model")), time.monotonic()
    change(folder)
    for read in (lambda: examine("m", folder), lambda: resolve(str(folder))):
        with pytest.raises(McpoError) as caught:
            read()
        assert named in caught.value.message, caught.value
        assert caught.value.code in ("unsafe", "bad_model")
    with suppress(McpoError):
        fingerprint(folder)
    assert time.monotonic() - began < SECONDS


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "a class that is a number": lambda at: reconfigured(at, "tokenizer_config.json", tokenizer_class=5),
    "a normalizer that is a number": lambda at: retokenized(at, lambda it: it.update(normalizer=5)),
    "a template of other bytes": lambda at: (at / "chat_template.jinja").write_bytes(b"\xff{{ messages }}"),
    "a template that is a number": lambda at: reconfigured(at, "tokenizer_config.json", chat_template=7),
}


@pytest.mark.parametrize("change", UNREADABLE.values(), ids=UNREADABLE)
def test_tokenizers_that_libraries_do_not_read(
    change: Callable[[Path], object], tmp_path: Path, original: Path
) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "model"))
    change(folder)
    with refused("bad_model", "model: "):
        prompt_ids(load(folder), [{"role": "user", "content": "1 + 2 ="}])


@pytest.mark.parametrize("change", [sharded, lambda at: None], ids=["shards", "one file"])
def test_whole_folders_are_read(change: Callable[[Path], object], tmp_path: Path, original: Path) -> None:
    """Also from the hub's cache, whose files are links to a folder beside those of all commits."""
    blobs, snapshot = tmp_path / "models--a--b" / "blobs", tmp_path / "models--a--b" / "snapshots" / "0123"
    shutil.copytree(original, blobs)
    change(blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    assert examine("m", snapshot).weights.keys() == examine("m", original).weights.keys()
    assert resolve(str(snapshot)).digest == resolve(str(blobs)).digest


def test_an_adapter_alone_names_its_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-0.6B"}')
    with refused("bad_model", "LoRA adapter of Qwen/Qwen3-0.6B"):
        resolve(str(tmp_path))


def test_named_templates_change_the_digest(tmp_path: Path, original: Path) -> None:
    folder = Path(shutil.copytree(original, tmp_path / "model"))
    before = resolve(str(folder)).digest, fingerprint(folder)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "default.jinja").write_text("{{ messages[0].content }}")
    after = resolve(str(folder)).digest, fingerprint(folder)
    assert not {*before} & {*after}


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
