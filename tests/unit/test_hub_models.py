"""Models of the hub, on a simulated hub: fetched files, records, errors."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest

from tests.models import untrained
from tests.web import Answers, serving

COMMIT = "c0ffee" + "0" * 34
REFUSALS = {"a/gated": (403, "GatedRepo"), "a/gone": (404, "RepoNotFound"), "a/broken": (400, "")}
SCRIPT = """
import json, sys
from mcpo_cli.errors import ConfigError
from mcpo_cli.model_facts import resolve
for model, revision in json.loads(sys.argv[1]):
    try:
        facts = resolve(model, revision)
        print(json.dumps({"name": facts.name, "revision": facts.revision, "digest": facts.digest}))
    except ConfigError as error:
        print(json.dumps({"message": error.message, "fix": error.fix}))
"""


class Hub(Answers):
    """A hub with one model, a/toy, with `files`; `fetched` has the requested ones."""

    files: ClassVar[dict[str, bytes]] = {}
    fetched: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        for repo, (status, code) in REFUSALS.items():
            if repo in path:
                return self.answer(status, X_Error_Code=code)
        if "/tree/" in path:
            listed = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in self.files.items()
            ]
            return self.answer(200, listed)
        if path.startswith("/api/models/a/toy"):
            if not path.endswith(("/a/toy", "/main", COMMIT)):
                return self.answer(404, X_Error_Code="RevisionNotFound")
            siblings = [{"rfilename": name} for name in self.files]
            return self.answer(200, {"id": "a/toy", "sha": COMMIT, "siblings": siblings})
        name = path.removeprefix(f"/a/toy/resolve/{COMMIT}/")
        if name not in self.files:
            return self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=COMMIT)
        self.fetched.add(name)
        tag = hashlib.sha1(self.files[name]).hexdigest()
        return self.answer(200, self.files[name], X_Repo_Commit=COMMIT, ETag=f'"{tag}"')


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = untrained(tmp_path / "toy")
    for name in ("pytorch_model.bin", "modeling_toy.py", "consolidated.safetensors", "README.md"):
        (folder / name).write_bytes(b"not for us")
    monkeypatch.setattr(Hub, "files", {path.name: path.read_bytes() for path in folder.iterdir()})
    Hub.fetched.clear()
    with serving(Hub) as address:
        yield address


def resolve(endpoint: str, cache: Path, *models: tuple[str, str | None], **env: str) -> list[dict[str, str]]:
    """The result of `resolve` for each model, in a process that knows only this hub."""
    env = {**os.environ, "HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_PROGRESS_BARS": "1", **env}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(models)], env=env, capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.slow
def test_a_model_of_the_hub(hub: str, tmp_path: Path) -> None:
    wanted = [("a/toy", None), ("a/toy", COMMIT), ("a/toy", "v9"), *((repo, None) for repo in REFUSALS)]
    main, pinned, no_revision, gated, gone, broken = resolve(hub, tmp_path / "cache", *wanted)

    assert main == {"name": "a/toy", "revision": COMMIT, "digest": pinned["digest"]}
    assert pinned["revision"] == COMMIT
    # Weights, configuration, tokenizer: no pickle, no code.
    assert Hub.fetched == {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert no_revision["message"] == "a/toy@v9: the model has no such revision"
    assert "accept its licence" in gated["message"]
    assert "hf auth login" in gated["fix"]
    assert gone["message"] == "a/gone: the Hugging Face Hub has no such model, or you have no access to it"
    assert "a/broken: not in the cache, and not available from http://127.0.0.1" in broken["message"]

    # Fetched files need no network.
    wanted = [("a/toy", None), ("a/other", None)]
    cached, other = resolve("http://127.0.0.1:9", tmp_path / "cache", *wanted, HF_HUB_OFFLINE="1")
    assert cached == main
    assert "a/other: not in the cache, and not available" in other["message"]
    assert other["fix"] == "run hf download a/other where there is a network, and name that folder instead of a/other"


@pytest.mark.slow
def test_looking_at_a_model_fetches_its_configuration_alone(hub: str, tmp_path: Path) -> None:
    script = "from mcpo_cli.model_facts import configuration; print(configuration('a/toy')['num_hidden_layers'])"
    env = {**os.environ, "HF_ENDPOINT": hub, "HF_HOME": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
    assert Hub.fetched == {"config.json"}
