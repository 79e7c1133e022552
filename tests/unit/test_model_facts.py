"""The facts that `resolve` reads from a model's own files, also on a simulated hub, and messages without a network."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from mcpo_cli.errors import ConfigError
from mcpo_cli.model_facts import configuration, resolve
from tests.models import untrained
from tests.web import Answers, hub_at, serving


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("original") / "toy")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "toy"))


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({key: value for key, value in {**content, **changes}.items() if value is not None}))


def test_facts_of_a_folder(folder: Path) -> None:
    facts = resolve(str(folder))
    assert (facts.name, facts.folder, facts.revision) == (str(folder), folder.resolve(), None)
    assert facts.parameters == sum(p.numel() for p in AutoModelForCausalLM.from_pretrained(folder).parameters())
    assert (facts.dtype, facts.window, facts.chat_template) == ("float32", 128, False)
    assert (facts.stop_ids, facts.stop_tokens) == ((0,), ("<eos>",))
    assert len(facts.digest) == 12


def test_the_digest_is_that_of_the_content(folder: Path, tmp_path: Path) -> None:
    digest = resolve(str(folder)).digest
    (folder / "README.md").write_text("# A model")
    (folder / "training_args.bin").write_bytes(b"\x80")
    moved = folder.rename(tmp_path / "elsewhere")
    assert resolve(str(moved)).digest == digest

    edit(moved / "generation_config.json", top_k=20)
    other = resolve(str(moved)).digest
    tensors = load_file(moved / "model.safetensors")
    tensors["model.norm.weight"] *= 2
    save_file(tensors, moved / "model.safetensors", metadata={"format": "pt"})
    assert len({digest, other, resolve(str(moved)).digest}) == 3


@pytest.mark.parametrize(
    ("named", "stop_ids"),
    [(3, (0, 3)), ([4, 0, 5], (0, 4, 5)), ([], (0,)), (None, (0, 7))],
    ids=["one", "several", "none", "not said: config.json's"],
)
def test_stop_ids_are_the_tokenizers_and_the_generation_configs(
    folder: Path, named: object, stop_ids: tuple[int, ...]
) -> None:
    edit(folder / "config.json", eos_token_id=7)
    edit(folder / "generation_config.json", eos_token_id=named)
    facts = resolve(str(folder))
    assert facts.stop_ids == stop_ids
    assert facts.stop_tokens == tuple(facts.tokenizer.convert_ids_to_tokens(list(stop_ids)))


@pytest.mark.parametrize(
    ("positions", "limit", "window"), [(64, None, 64), (64, 32, 32), (64, 10**30, 64), (None, 50, 50)]
)
def test_the_window_is_the_least_limit(folder: Path, positions: int | None, limit: int | None, window: int) -> None:
    edit(folder / "config.json", max_position_embeddings=positions)
    edit(folder / "tokenizer_config.json", model_max_length=limit)
    assert resolve(str(folder)).window == window


def test_the_number_format_is_the_configs_or_else_the_weights(folder: Path) -> None:
    tensors = {key: value.bfloat16() for key, value in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert resolve(str(folder)).dtype == "float32"
    edit(folder / "config.json", dtype=None)
    assert resolve(str(folder)).dtype == "bfloat16"


# --- models of the hub ------------------------------------------------------------------------------------------------


COMMIT = "c0ffee" + "0" * 34


class Hub(Answers):
    """A hub with one model, a/toy, with `files`; `fetched` has the requested ones."""

    files: ClassVar[dict[str, bytes]] = {}
    fetched: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if "/tree/" in path:
            listed = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.files.items()
            ]
            return self.answer(200, listed)
        if path.startswith("/api/models/a/toy"):
            siblings = [{"rfilename": name} for name in self.files]
            return self.answer(200, {"id": "a/toy", "sha": COMMIT, "siblings": siblings})
        name = path.removeprefix(f"/a/toy/resolve/{COMMIT}/")
        if name not in self.files:
            return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        self.fetched.add(name)
        tag = hashlib.sha1(self.files[name]).hexdigest()
        return self.answer(200, self.files[name], X_Repo_Commit=COMMIT, ETag=f'"{tag}"')


@pytest.fixture
def hub(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub of the test, with files that mcpo does not read, and an empty cache."""
    others = ("pytorch_model.bin", "modeling_toy.py", "consolidated.safetensors", "README.md")
    files = {path.name: path.read_bytes() for path in original.iterdir()} | dict.fromkeys(others, b"not for us")
    monkeypatch.setattr(Hub, "files", files)
    Hub.fetched.clear()
    with serving(Hub) as address:
        hub_at(address, monkeypatch, tmp_path / "cache")
        yield


@pytest.mark.usefixtures("hub")
def test_a_model_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    main, pinned = resolve("a/toy"), resolve("a/toy", COMMIT)
    assert (main.name, main.revision, main.digest) == ("a/toy", COMMIT, pinned.digest)
    assert pinned.revision == COMMIT
    # Weights, configuration, tokenizer: no pickle, no code.
    assert Hub.fetched == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    # Fetched files need no network.
    hub_at("http://127.0.0.1:9", monkeypatch)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert resolve("a/toy") == main
    with pytest.raises(ConfigError, match="a/other: not in the cache, and not available") as caught:
        resolve("a/other")
    assert (
        caught.value.fix == "run hf download a/other where there is a network, and name that folder instead of a/other"
    )


@pytest.mark.usefixtures("hub")
def test_looking_at_a_model_fetches_its_configuration_alone() -> None:
    assert configuration("a/toy")["num_hidden_layers"] == 2
    assert Hub.fetched == {"config.json"}
