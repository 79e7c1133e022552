"""Models of the hub, on a simulated hub: fetched files, records, and what is said without a network."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from huggingface_hub import constants

from mcpo_cli.errors import ConfigError
from mcpo_cli.model_facts import configuration, resolve
from tests.models import untrained
from tests.web import Answers, hub_at, serving

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the hub, with files that mcpo does not read."""
    folder = untrained(tmp_path_factory.mktemp("hub") / "toy")
    for name in ("pytorch_model.bin", "modeling_toy.py", "consolidated.safetensors", "README.md"):
        (folder / name).write_bytes(b"not for us")
    return folder


@pytest.fixture
def hub(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The hub of the test, with an empty cache."""
    monkeypatch.setattr(Hub, "files", {path.name: path.read_bytes() for path in folder.iterdir()})
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
