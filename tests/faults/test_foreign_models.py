"""Model folders by other people: refused with a message, in time, without running the model's own code."""

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
"""Within this time every folder here is refused."""
Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("original") / "model")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "model"))


def reconfigured(folder: Path, file: str = "config.json", **values: object) -> None:
    """Change values of a JSON file; None removes one."""
    path = folder / file
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def values_of(file: str) -> Callable[..., Change]:
    return lambda **values: lambda at: reconfigured(at, file, **values)


config, tokens, generation = map(values_of, ("config.json", "tokenizer_config.json", "generation_config.json"))


def file(name: str, content: bytes | str) -> Change:
    return lambda at: (at / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def link(name: str, target: str) -> Change:
    """A link in place of a file, whose content is then at the target."""

    def make(at: Path) -> None:
        if (at / name).exists():
            (at / name).rename(at / target)
        (at / name).symlink_to(at / target)

    return make


def tokenizer(change: Callable[[dict[str, Any]], object]) -> Change:
    def make(at: Path) -> None:
        content = json.loads((at / "tokenizer.json").read_text())
        change(content)
        (at / "tokenizer.json").write_text(json.dumps(content))

    return make


def word(number: object) -> Change:
    return tokenizer(lambda it: it["model"]["vocab"].update({"x": number}))


def sparse(name: str, size: int, header: bytes = b"") -> Change:
    """A file that takes no room on the disk but would take all memory."""

    def make(at: Path) -> None:
        with (at / name).open("wb") as file:
            file.write(header)
            file.truncate(size)

    return make


def removed(*patterns: str) -> Change:
    return lambda at: [path.unlink() for pattern in patterns for path in at.glob(pattern)]


def all_of(*changes: Change) -> Change:
    return lambda at: [change(at) for change in changes]


WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def resaved(*shards: dict[str, str]) -> Change:
    """The weights once more: for each file, its tensors and what they are made from."""

    def make(at: Path) -> None:
        tensors = load_file(at / WEIGHTS)
        for number, names in enumerate(shards):
            save_file({key: tensors[source] for key, source in names.items()}, at / f"model-{number}.safetensors")

    return make


def index(**files: object) -> Change:
    """An index in place of the one file."""
    return all_of(removed(WEIGHTS), file(INDEX, json.dumps({"weight_map": files})))


def sharded(at: Path, *, lost: int = 0, moved: bool = False, twice: bool = False, beside: bool = False) -> None:
    """Two shards. lost: tensors that the index leaves out; moved, twice: a tensor is elsewhere, or in both of them."""
    names = sorted(load_file(at / WEIGHTS))
    first, second = {name: name for name in names[:3]}, {name: name for name in names[3 - twice :]}
    places = dict.fromkeys(first, "model-0.safetensors") | dict.fromkeys(second, "model-1.safetensors")
    if moved:
        places[names[0]] = "model-1.safetensors"
    resaved(first, second)(at)
    (at / INDEX).write_text(json.dumps({"weight_map": {name: places[name] for name in names[lost:]}}))
    if not beside:
        (at / WEIGHTS).unlink()


def weights(tensors: object, data: bytes = b"1234") -> Change:
    """A safetensors file with this header."""
    content = tensors if isinstance(tensors, bytes) else json.dumps(tensors).encode()
    return file(WEIGHTS, struct.pack("<Q", len(content)) + content + data)


def tensor(**values: object) -> Change:
    return weights({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **values}})


TWICE = {name: {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]} for name in "ab"}
DOUBLES = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
ATTACKS: dict[str, tuple[Change, str]] = {
    # Files that libraries would read instead, besides, or without end.
    "an adapter beside the weights": (file("adapter_config.json", "{}"), "adapter_config.json"),
    "a tokenizer for another package": (file("tekken.json", "{}"), "tekken.json"),
    "a file without end": (lambda at: (at / "added_tokens.json").symlink_to("/dev/zero"), "added_tokens.json"),
    "a pipe": (lambda at: os.mkfifo(at / "special_tokens_map.json"), "special_tokens_map.json"),
    "a link to another folder": (link("tokenizer.json", "../other.json"), "tokenizer.json"),
    "weights in another folder by a link": (link(WEIGHTS, "../w.safetensors"), WEIGHTS),
    "weights in another folder": (all_of(link(WEIGHTS, "../w"), index(a="../w")), ""),
    "templates in another folder": (
        all_of(file("../x.jinja", "x"), lambda at: (at / "additional_chat_templates").symlink_to(at.parent)),
        "x.jinja",
    ),
    "a vocabulary of 10 GB": (sparse("vocab.json", 10**10), "vocab.json"),
    "weights that are a folder": (all_of(removed(WEIGHTS), lambda at: (at / WEIGHTS).mkdir()), ""),
    # Code, and files by other names.
    "a kernel of the hub": (config(attn_implementation="owner/kernel"), "owner/kernel"),
    "a kernel inside": (config(text_config={"_experts_implementation": "owner/kernel"}), "owner/kernel"),
    "code inside": (config(text_config=[{"auto_map": {"AutoModel": "x.Y"}}]), "auto_map"),
    "code of a configuration": (config(auto_map={"AutoConfig": "own.Own"}), "auto_map"),
    "code of a tokenizer": (tokens(auto_map={"AutoTokenizer": ["own.Own", None]}), ""),
    "weights by another name": (config(transformers_weights="x.safetensors"), "transformers_weights"),
    "a tokenizer by another name": (tokens(fast_tokenizer_files=["tokenizer.5.json"]), "fast_tokenizer_files"),
    # A fact in two places: releases of transformers take different ones.
    "two formats": (config(dtype="float32", torch_dtype="bfloat16"), "two values of dtype"),
    "two end tokens": (file("special_tokens_map.json", '{"eos_token": {"content": "7"}}'), "two values of eos_token"),
    "two numbers of a token": (
        tokens(added_tokens_decoder={"3": {"content": "<eos>"}}),
        "two values of the number of '<eos>', 0 and 3",
    ),
    # Weights in several files.
    "an index beside the weights": (file(INDEX, '{"weight_map": {"a": "b.safetensors"}}'), "b.safetensors"),
    "weights of an older save": (lambda at: sharded(at, beside=True), "model.safetensors is beside"),
    "weights of two makers": (resaved({"model.norm.weight": "model.norm.weight"}), "model-0.safetensors"),
    "a consolidated copy": (
        lambda at: shutil.copyfile(at / WEIGHTS, at / "consolidated.safetensors"),
        "consolidated.safetensors",
    ),
    "an index that leaves out a tensor": (lambda at: sharded(at, lost=1), "lacks 1 tensors"),
    "a tensor that is in another shard": (lambda at: sharded(at, moved=True), "but in model-1.safetensors"),
    "a tensor in two shards": (lambda at: sharded(at, twice=True), "is in model-0.safetensors, but in model-1"),
    "an index of numbers": (index(a=1), "weight_map"),
    "a shard that is missing": (all_of(link(WEIGHTS, "w.safetensors"), index(a="w.safetensors", b="v")), ""),
    "no weights": (removed(WEIGHTS), "0 of 1"),
    "a pointer in place of weights": (file(WEIGHTS, "version https://git-lfs"), "safetensors"),
    "a GGUF that lies about its tensors": (
        all_of(removed(WEIGHTS), file("x.gguf", b"GGUF" + struct.pack("<IQQ", 3, 2**63 - 1, 2**63 - 1))),
        "",
    ),
    # Headers of weights.
    "40 GB that are not there": (sparse(WEIGHTS, 40_000_000_100, struct.pack("<Q", 40_000_000_000)), WEIGHTS),
    "offsets below 0": (tensor(data_offsets=[-(10**9), 0]), WEIGHTS),
    "offsets of 10^30": (tensor(data_offsets=[10**30, 10**30]), WEIGHTS),
    "more data than there is": (tensor(shape=[1000], data_offsets=[0, 4000]), WEIGHTS),
    "a shape of 10^30": (tensor(shape=[10**30]), WEIGHTS),
    "a shape that is infinite": (
        weights(b'{"a": {"dtype": "F32", "shape": [1e999], "data_offsets": [0, 4]}}'),
        WEIGHTS,
    ),
    "no tensors": (weights({"__metadata__": {}}), WEIGHTS),
    "two tensors in one place": (weights(TWICE), WEIGHTS),
    "1 000 000 brackets": (weights(b"[" * 1_000_000), WEIGHTS),
    "bytes that are not UTF-8": (weights(b'{"\xff": 1}'), WEIGHTS),
    # Values.
    "no configuration": (removed("config.json"), "config.json"),
    "a configuration of 100 000 brackets": (file("config.json", "[" * 100_000), ""),
    "no window": (config(max_position_embeddings=None), "max_position_embeddings"),
    "a window of 10^30 tokens": (config(max_position_embeddings=10**30), ""),
    "a window without end": (config(max_position_embeddings=float("inf")), ""),
    "a limit that is text": (tokens(model_max_length="512"), "limit of tokens must be a number"),
    "a format that is none": (config(dtype="float8_e4m3fn"), "float8_e4m3fn"),
    "a format that is a list": (config(dtype=[1]), ""),
    "no end token": (
        all_of(config(eos_token_id=None), generation(eos_token_id=None), tokens(eos_token=None)),
        "generation_config.json",
    ),
    "an end token that is no token": (generation(eos_token_id=[0, 99_999]), "99999"),
    **{f"an end token of {value}": (generation(eos_token_id=value), "") for value in ([[1]], 10**30, -5, 1.5, [True])},
    # Tokenizers.
    "no tokenizer": (removed("tokenizer*"), "tokenizer.json"),
    "no vocabulary": (file("tokenizer.json", "{}"), "no vocabulary"),
    "a tokenizer of NUL bytes": (file("tokenizer.json", bytes(10_000)), ""),
    "a token of number -1": (word(-1), "number -1"),
    "a token of number true": (word(True), "True"),
    "2^30 letters of one": (
        tokenizer(lambda it: it.update(normalizer={"type": "Sequence", "normalizers": [DOUBLES] * 30})),
        "letters of one",
    ),
    "10^7 letters before each text": (
        tokenizer(lambda it: it.update(normalizer={"type": "Prepend", "prepend": "a" * 10**7})),
        "letters of one",
    ),
}
"""A change of a sound folder, and a part of the message where the reader of files alone says it."""


@pytest.mark.parametrize(("change", "named"), ATTACKS.values(), ids=ATTACKS)
def test_what_libraries_would_read_differently_or_not_at_all(change: Change, named: str, folder: Path) -> None:
    """Refused in training, dry runs and evaluation, and soon."""
    ran, began = folder.parent / "it ran", time.monotonic()
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\nclass Own: pass\n")
    change(folder)
    for read in (lambda: examine("m", folder), lambda: resolve(str(folder)))[not named :]:
        with pytest.raises(McpoError) as caught:
            read()
        assert named in caught.value.message, caught.value
        assert caught.value.code in ("unsafe", "bad_model")
    with suppress(McpoError):
        fingerprint(folder)
    assert time.monotonic() - began < SECONDS
    assert not ran.exists()


UNREADABLE: dict[str, Change] = {
    "a class that is a number": tokens(tokenizer_class=5),
    "a normalizer that is a number": tokenizer(lambda it: it.update(normalizer=5)),
    "a template of other bytes": file("chat_template.jinja", b"\xff{{ messages }}"),
    "a template that is a number": tokens(chat_template=7),
}


@pytest.mark.parametrize("change", UNREADABLE.values(), ids=UNREADABLE)
def test_tokenizers_that_libraries_do_not_read(change: Change, folder: Path) -> None:
    change(folder)
    with refused("bad_model", "model: "):
        prompt_ids(load(folder), [{"role": "user", "content": "1 + 2 ="}])


@pytest.mark.parametrize("change", [sharded, lambda at: None], ids=["shards", "one file"])
def test_whole_folders_are_read(change: Change, folder: Path, original: Path) -> None:
    """Also from the hub's cache, whose files are links to a folder beside those of all commits."""
    blobs, snapshot = folder.parent / "models--a--b" / "blobs", folder.parent / "models--a--b" / "snapshots" / "0123"
    change(folder)
    snapshot.mkdir(parents=True)
    folder.rename(blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    assert examine("m", snapshot).weights.keys() == examine("m", original).weights.keys()
    assert resolve(str(snapshot)).digest == resolve(str(blobs)).digest


def test_an_adapter_alone_names_its_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-0.6B"}')
    with refused("bad_model", "LoRA adapter of Qwen/Qwen3-0.6B"):
        resolve(str(tmp_path))


def test_named_templates_change_the_digest(folder: Path) -> None:
    before = resolve(str(folder)).digest, fingerprint(folder)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "default.jinja").write_text("{{ messages[0].content }}")
    after = resolve(str(folder)).digest, fingerprint(folder)
    assert resolve(str(folder)).chat_template
    assert not {*before} & {*after}
