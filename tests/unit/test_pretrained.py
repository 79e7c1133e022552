"""Existing models: the content of their files, errors in them, the resulting settings, and what a run writes."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from mcpo_cli import architecture, pretrained
from mcpo_cli.config import model_settings as existing_settings
from mcpo_cli.config.load import from_dict, load
from mcpo_cli.config.schema import Model, RunSpec
from mcpo_cli.errors import ConfigError
from mcpo_cli.evaluation import scope
from mcpo_cli.model_facts import ModelFacts
from mcpo_cli.model_files import fingerprint
from mcpo_cli.pretrained.write import OLDEST, write
from tests.errors import refused
from tests.models import existing

FAMILIES = ["llama", "qwen2", "qwen3", "mistral"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {family: existing(tmp_path_factory.mktemp("original") / family, family) for family in FAMILIES}


@pytest.fixture
def folder(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["llama"], tmp_path / "tiny"))


def of(folder: Path, *overrides: str) -> RunSpec:
    (spec,) = load(["backend=verl", f"model.path={folder}", *overrides])
    return spec


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({key: value for key, value in {**content, **changes}.items() if value is not ...}))


def checked(model: Model, longest: int, *, chat: bool = False) -> ModelFacts:
    return pretrained.check(model, pretrained.folder(model), longest=longest, chat=chat)


def complaint(model: Model, longest: int = 64, chat: bool = True) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(model, longest, chat=chat)
    assert caught.value.fix or "config.json" in caught.value.message, "every error says how to fix it"
    return str(caught.value)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_each_family_passes(originals: dict[str, Path], family: str) -> None:
    found = checked(of(originals[family]).model, 64, chat=True)
    stored = AutoModelForCausalLM.from_pretrained(originals[family])
    assert found.folder == originals[family]
    assert architecture.tensors(found.architecture).keys() == found.weights.keys()
    assert found.architecture.sizes == {
        "hidden": 32,
        "layers": 2,
        "heads": 4,
        "kv_heads": 2,
        "head_dim": 8,
        "mlp": 64,
        "vocabulary": stored.config.vocab_size,
        "tied": stored.config.tie_word_embeddings,
        "rope_theta": stored.config.rope_parameters["rope_theta"],
    }
    assert (found.architecture.qkv_bias, found.architecture.qk_norm) == (family == "qwen2", family == "qwen3")
    assert (found.window, found.chat_template) == (128, True)


def test_settings_come_from_the_folder(folder: Path) -> None:
    model = of(folder).model
    assert (model.name, model.hidden, model.layers, model.vocabulary) == ("tiny", 32, 2, 263)
    assert model.digest == fingerprint(folder)
    assert from_dict(of(folder).to_dict()) == of(folder), "a record is read as it was written"


def test_a_name_on_the_command_line_holds_and_a_size_turns_reading_off(folder: Path) -> None:
    assert of(folder, "model.name=mine").model.name == "mine"
    model = of(folder, "model.hidden=64").model
    assert (model.hidden, model.layers, model.name) == (64, 2, "toy-s")
    assert "model.hidden=64 but 32 in the file" in complaint(model)


@pytest.mark.parametrize("scale", ["one-gpu", "paper"])
def test_a_folder_is_not_the_model_that_a_scale_chooses(folder: Path, scale: str) -> None:
    (spec,) = load([f"scale={scale}", f"model.path={folder}"])
    own = of(folder).model
    assert spec.scale == scale
    assert (spec.model.name, spec.model.hidden, spec.model.layers) == (own.name, own.hidden, own.layers)


@pytest.mark.parametrize(
    ("words", "scale"),
    [
        ("model=qwen3-0.6b", "one-gpu"),
        ("model=qwen3-8b", "paper"),
        ("model=qwen2.5-0.5b", "laptop"),
        ("model=qwen3-0.6b backend=local task=sums", "laptop"),
        ("model.path={folder} task=sums", "laptop"),
        ("model.path={folder} backend=verl", "one-gpu"),
        ("model=toy-m", "toy"),
    ],
)
def test_an_existing_model_never_gets_the_settings_of_the_toy_scale(folder: Path, words: str, scale: str) -> None:
    (spec,) = load(words.format(folder=folder).split())
    assert (spec.scale, spec.train.lr < 1e-4) == (scale, scale != "toy")


def test_a_wrong_value_is_answered_with_that_of_the_scale(folder: Path) -> None:
    with refused("bad_input") as error:
        load(["scale=one-gpu", "train.lr=abc"])
    assert error.value.fix == "train.lr=1e-06  (the value of scale=one-gpu)"


def test_folders_of_one_path_with_other_content_are_other_models(folder: Path) -> None:
    first = of(folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] += 1e-3
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert of(folder).run_id != first.run_id
    assert "its files changed" in complaint(first.model)


def test_a_hub_model_that_cannot_be_asked_for_its_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise ConfigError("A/B: not in the cache", fix="hf download A/B")

    monkeypatch.setattr(existing_settings, "configuration", refuse)
    with refused("bad_input") as caught:
        load(["backend=verl", "model.path=A/B"])
    assert str(caught.value.fix).startswith("hf download A/B; or set model.hidden=... model.layers=...")


def test_more_rows_than_tokens_are_padding_and_fewer_are_an_error(tmp_path: Path) -> None:
    padded = existing(tmp_path / "padded", "qwen2", rows=320)
    found = checked(of(padded).model, 64)
    assert found.architecture.vocabulary - found.tokens == 57
    few = existing(tmp_path / "few", rows=200)
    assert "263 tokens, but the embedding only 200 rows" in complaint(of(few).model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gpt_neox"}, "model_type 'gpt_neox'"),
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "rope type 'longrope'"),
        ({"rope_parameters": ..., "rope_scaling": {"type": "dynamic", "factor": 2}}, "rope type 'dynamic'"),
        ({"rope_parameters": 7}, "cannot be read"),
        ({"mlp_bias": True}, "biases in the feed-forward blocks"),
        ({"attention_bias": True}, "a bias in the output projection"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"quantization_config": {"quant_method": "fp8"}}, "weights quantised by fp8"),
        ({"num_hidden_layers": "two"}, "num_hidden_layers='two'"),
        ({"intermediate_size": ...}, "no intermediate_size"),
        ({"intermediate_size": 60}, "its shape is 60 x 32 by config.json, 64 x 32 by the files"),
        ({"max_position_embeddings": 32}, "a context of 32 tokens"),
        ({"max_position_embeddings": 10**8}, "a window of 100000000 tokens"),
        ({"num_hidden_layers": 5_000_000}, "num_hidden_layers=5000000"),
        ({"num_hidden_layers": 9_000}, "9000 layers"),
        ({"num_hidden_layers": 1}, "9 tensors of its weight files differ from its config.json"),
        ({"num_key_value_heads": 3}, "no multiple of its 3"),
        ({"rms_norm_eps": "1e-6"}, "rms_norm_eps='1e-6'"),
        ({"rms_norm_eps": 0}, "rms_norm_eps=0"),
        ({"attention_bias": "no"}, "attention_bias='no'"),
        ({"layer_types": 2}, "layer_types"),
        ({"layer_types": ["full_attention"]}, "for each of 2 layers"),
        ({"quantization_config": "int8"}, "quantization_config='int8'"),
        ({"quantization_config": {}}, "weights quantised by an unknown method"),
        ({"rope_theta": 5.0}, "two values of rope_theta"),
        ({"rope_parameters": {"rope_theta": float("inf")}}, "rope_theta=inf"),
        ({"rope_parameters": {"rope_type": "linear", "factor": "2"}}, "factor='2'"),
        ({"partial_rotary_factor": 0.5}, "a rotation of parts of a head"),
    ],
)
def test_what_its_config_asks_for(folder: Path, changes: dict[str, Any], message: str) -> None:
    edit(folder / "config.json", **changes)
    with refused("no_room" if "a context" in message else "bad_model", message):
        checked(of(folder).model, 64, chat=True)


def test_a_stored_copy_of_a_tied_output_layer_is_no_contradiction(tmp_path: Path) -> None:
    """Several published models have one; only other weights contradict config.json."""
    folder = existing(tmp_path / "tied", "qwen3", tie_word_embeddings=True)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    checked(of(folder).model, 64)
    pretrained._facts.cache_clear()
    tensors["lm_head.weight"] *= 2
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    said = "1 tensors of its weight files differ from its config.json, lm_head.weight first"
    assert said in complaint(of(folder).model)


@pytest.mark.parametrize("layout", ["rope_theta", "rope_parameters", "both"])
def test_every_layout_of_the_rotary_embedding(folder: Path, layout: str) -> None:
    rope = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}
    older = {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}}
    changes: dict[str, Any] = {
        "rope_theta": older,
        "rope_parameters": {"rope_parameters": rope},
        "both": {"rope_parameters": rope, **older},
    }
    edit(folder / "config.json", rope_parameters=...)
    edit(folder / "config.json", **changes[layout])
    found = checked(of(folder).model, 64).architecture
    assert (found.rope_type, found.rope_theta, found.rope["factor"]) == ("linear", 5e5, 2.0)


@pytest.mark.parametrize(
    ("family", "changes", "window"),
    [
        ("mistral", {"sliding_window": 16}, 16),
        ("mistral", {"sliding_window": None}, 0),
        ("mistral", {"sliding_window": ...}, 4096),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 16}, 0),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "layer_types": ...}, 16),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention"] * 2}, 0),
    ],
)
def test_a_sliding_window_matters_below_the_longest_sequence(
    originals: dict[str, Path], tmp_path: Path, family: str, changes: dict[str, Any], window: int
) -> None:
    folder = Path(shutil.copytree(originals[family], tmp_path / "windowed"))
    edit(folder / "config.json", **changes)
    model = of(folder).model
    assert checked(model, 16).architecture.sliding_window == window
    if window == 16:
        assert "attends to the last 16 tokens only" in complaint(model, longest=17)


def test_a_model_from_scratch_has_no_folder() -> None:
    with refused("contradiction"):
        scope.subject("toy-s", "")


# --- models that a run writes, for older releases of transformers -----------------------------------------------------


ROPES: dict[str, dict[str, Any]] = {
    "qwen3": {"rope_type": "default", "rope_theta": 1e6},
    "llama": {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "mistral": {"rope_type": "linear", "rope_theta": 2e4, "factor": 2.0},
    "qwen2": {"rope_type": "default", "rope_theta": 3e4},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each family, of a model with a special token of its own, as a run writes it."""
    folder = tmp_path_factory.mktemp("written")
    for family, rope in ROPES.items():
        source = existing(folder / "sources" / family, family, rope_parameters=rope)
        tokenizer: Any = AutoTokenizer.from_pretrained(source)
        tokenizer.add_special_tokens({"extra_special_tokens": ["<answer>"]})
        (folder / family).mkdir()
        write(folder / family, AutoModelForCausalLM.from_pretrained(source), tokenizer)
    return folder


@pytest.mark.parametrize("family", ROPES)
def test_both_layouts_are_written(family: str, written: Path) -> None:
    """The keys of 4.57: rope_theta beside rope_scaling without it, a class that it has, special tokens by its name."""
    files = (written / family / name for name in ("config.json", "tokenizer_config.json"))
    config, settings = (json.loads(path.read_text()) for path in files)
    rope = ROPES[family]
    scaling = None if rope["rope_type"] == "default" else {key: rope[key] for key in rope if key != "rope_theta"}
    assert (config["rope_theta"], config.get("rope_scaling")) == (rope["rope_theta"], scaling)
    assert config["rope_parameters"] == rope
    assert settings["tokenizer_class"] in ("PreTrainedTokenizerFast", "Qwen2Tokenizer")
    assert settings["additional_special_tokens"] == ["<answer>"]
    assert "extra_special_tokens" not in settings


READ = """
import sys, transformers
for folder in sys.argv[1:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = tokenizer("12+3=", return_tensors="pt").input_ids
    special = sorted({*tokenizer.all_special_tokens} - {"<answer>"})
    print(model.config.model_type, ids.tolist(), model(ids).logits[0, -1].tolist(), special)
print(transformers.__version__)
"""


@pytest.mark.slow
def test_this_release_and_the_oldest_read_what_was_written(written: Path, tmp_path: Path) -> None:
    """The oldest is fetched from the package index, beside the packages of these tests."""
    wanted = [f"transformers=={OLDEST}.*", "huggingface_hub<1.0", "tokenizers>=0.22,<0.23"]
    options = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", *options, *wanted], check=True, timeout=600)

    def read(folders: list[Path], path: str) -> tuple[list[str], str]:
        command, environment = [sys.executable, "-c", READ, *map(str, folders)], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
        *lines, version = done.stdout.splitlines()
        return lines, version

    originals, _ = read([written / "sources" / family for family in ROPES], "")
    now, _ = read([written / family for family in ROPES], "")
    older, version = read([written / family for family in ROPES], str(tmp_path))
    assert version.startswith(OLDEST)
    assert originals == now == older
