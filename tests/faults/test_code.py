"""Files that come from elsewhere run no code: no pickle, no YAML object, no module of a model's folder."""

import hashlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mcpo_cli.backends.local import checkpoint as local
from mcpo_cli.backends.verl import checkpoint, checks, overrides
from mcpo_cli.config.load import load
from mcpo_cli.config.yaml_files import read_yaml
from mcpo_cli.errors import ConfigError
from mcpo_cli.model_facts import resolve
from tests.faults import codescan
from tests.faults.conftest import Faults
from tests.models import untrained

BAD = [
    "import pickle",
    "from pickle import load",
    "import joblib",
    "torch.load(path)",
    "torch.load(path, weights_only=False)",
    "torch.load(path, weights_only=flag)",
    "np.load(path, allow_pickle=True)",
    "pd.read_pickle(path)",
    "yaml.load(text, Loader=yaml.UnsafeLoader)",
    "eval(text)",
    "exec(text)",
    "os.system(f'rm {path}')",
    "subprocess.run('ls', shell=True)",
    "subprocess.run(command, shell=True)",
    "subprocess.run(f'ls {path}')",
    "subprocess.Popen(' '.join(words))",
    "AutoTokenizer.from_pretrained(folder)",
    "AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)",
    "LLM(model=folder)",
    "tar.extractall(folder)",
    "app.run(host='0.0.0.0')",
]


@pytest.mark.parametrize("source", BAD)
def test_the_scan_finds(source: str) -> None:
    assert codescan.findings(source)


def test_no_module_can_run_what_it_reads() -> None:
    modules = codescan.modules()
    assert {path.name for path in modules} >= {"export.py", "model_facts.py", "load.py", "ui.py", "frames.py"}
    found = {path: codescan.findings(path.read_text(encoding="utf-8")) for path in modules}
    assert {path: said for path, said in found.items() if said} == {}


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """The file that is there once a payload has run."""
    path = tmp_path / "it ran"
    pickled = tmp_path / "trap.pt"
    torch.save(Payload(path), pickled)
    torch.load(pickled, weights_only=False)
    assert path.exists(), "the payload does not work"
    path.unlink()
    return path


def test_a_pickle_among_the_shards_of_a_checkpoint_does_not_run(trap: Path, tmp_path: Path, faults: Faults) -> None:
    root = tmp_path / "checkpoints"
    actor = checkpoint.folder(root, 2) / "actor"
    untrained(actor / "huggingface")
    torch.save({"model.norm.weight": Payload(trap)}, actor / "model_world_size_1_rank_0.pt")
    checkpoint.seal(root, 2)
    (spec,) = load(["scale=verl-cpu"])
    with pytest.raises(ConfigError, match=r"model_world_size_1_rank_0\.pt.* other than weights"):
        checkpoint.export(root, 2, tmp_path / "policy", spec)
    assert not trap.exists()
    assert not (tmp_path / "policy").exists()
    faults("a pickle that would run code, in place of weights")


LOADING = """
import sys, torch
from types import SimpleNamespace
# verl itself is not needed: `patches` only replaces some of its functions.
distributed = SimpleNamespace(initialize_global_process_group_ray=print)
utils = SimpleNamespace(distributed=distributed, torch_functional=SimpleNamespace(logprobs_from_logits_v2=print))
sys.modules |= {"verl": SimpleNamespace(utils=utils), "verl.utils": utils}
import mcpo_cli.backends.verl.patches
print(torch.load(sys.argv[1], weights_only=False))
"""


@pytest.mark.slow
def test_what_verl_loads_by_itself_does_not_run_either(trap: Path, tmp_path: Path, faults: Faults) -> None:
    """verl says weights_only=False; the environment that it is started with overrules that, but for what it needs."""
    (spec,) = load(["scale=verl-cpu"])
    environment = {**os.environ, **overrides.environment(spec)}
    assert "mcpo_cli.backends.verl.patches" in environment["VERL_USE_EXTERNAL_MODULES"].split(",")

    def loaded(content: object) -> "subprocess.CompletedProcess[str]":
        torch.save(content, tmp_path / "extra.pt")
        command = [sys.executable, "-c", LOADING, str(tmp_path / "extra.pt")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    numpy_state = ("MT19937", np.zeros(624, dtype=np.uint32), 624, 0, 0.0)
    state = {"cpu": torch.get_rng_state(), "numpy": numpy_state, "random": random.getstate()}
    whole = loaded({"rng": state, "lr_scheduler": {"last_epoch": 3}})
    assert "'last_epoch': 3" in whole.stdout, whole.stderr
    assert loaded({"rng": Payload(trap)}).returncode != 0
    assert not trap.exists()
    faults("a pickle that would run code, in place of weights")


def test_a_pickle_in_place_of_a_checkpoint_of_ours_does_not_run(trap: Path, tmp_path: Path, faults: Faults) -> None:
    folder = tmp_path / "step_000002"
    folder.mkdir()
    torch.save({"x": Payload(trap)}, folder / "policy.safetensors")
    digest = hashlib.sha256((folder / "policy.safetensors").read_bytes()).hexdigest()
    manifest = {"step": 2, "cursor": 0, "sha256": {"policy.safetensors": digest}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(Exception, match=r"(?i)header"):
        local.load(folder)
    assert not trap.exists()
    faults("a pickle that would run code, in place of weights")


def test_a_model_of_pickles_is_refused(trap: Path, tmp_path: Path, faults: Faults) -> None:
    folder = untrained(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Payload(trap)}, folder / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"pytorch_model\.bin is a pickle, which can run code and is never loaded"):
        resolve(str(folder))
    assert not trap.exists()
    faults("a pickle that would run code, in place of weights")


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    path, made = tmp_path / "suite.yaml", tmp_path / "made"
    path.write_text(f"arms: !!python/object/apply:os.mkdir ['{made}']\n")
    with pytest.raises(ConfigError, match="is not YAML"):
        read_yaml(path)
    assert not made.exists()


def own_code(folder: Path, ran: Path, file: str) -> None:
    """Make the model in `folder` ask for a module of its own, which leaves a trace when it is imported."""
    asked: dict[str, dict[str, Any]] = {
        "config.json": {"model_type": "own", "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"}},
        "tokenizer_config.json": {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}},
    }
    content = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps({**content, **asked[file]}))
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\nclass Own: pass\n")


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_the_code_of_a_model_is_never_run(tmp_path: Path, file: str, faults: Faults) -> None:
    folder, ran = untrained(tmp_path / "model"), tmp_path / "it ran"
    own_code(folder, ran, file)
    with pytest.raises(ConfigError, match=f"its {file} requires the model's own code"):
        resolve(str(folder))
    assert not ran.exists()
    faults("a model that asks for code of its own")


def test_verl_is_not_started_with_a_model_of_own_code(tmp_path: Path, faults: Faults) -> None:
    folder = untrained(tmp_path / "model")
    (spec,) = load(["scale=verl-cpu", f"model.path={folder}"])
    own_code(folder, tmp_path / "it ran", "config.json")
    with pytest.raises(ConfigError, match="the model's own code"):
        list(checks._model(spec))
    faults("a model that asks for code of its own")


def test_verl_is_told_to_run_no_code_of_a_model() -> None:
    (spec,) = load(["scale=paper"])
    table = overrides.table(spec, overrides.planned(spec, Path("/home")))
    told = {key: value for key, value in table.items() if key.endswith("trust_remote_code")}
    assert told == {"data.trust_remote_code": False, "actor_rollout_ref.model.trust_remote_code": False}
