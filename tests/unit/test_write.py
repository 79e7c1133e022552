"""What is written reads back under older releases of transformers, whose layout of files differs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer

from mcpo_cli.pretrained.write import OLDEST, write
from tests.models import existing

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
