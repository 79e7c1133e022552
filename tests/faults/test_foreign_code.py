"""Files of others cannot run code, neither by pickle nor by YAML objects nor by modules in a model's folder."""

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

from mcpo_cli.backends.verl import checkpoint, checks, overrides
from mcpo_cli.config.load import load
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.model_facts import resolve
from mcpo_cli.runs import folders
from tests.errors import refused
from tests.faults.test_foreign_models import reconfigured
from tests.models import untrained


class Payload:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """The file that a payload creates; checks that the payload works."""
    path, pickled = tmp_path / "it ran", tmp_path / "trap.pt"
    torch.save(Payload(path), pickled)
    torch.load(pickled, weights_only=False)
    assert path.exists()
    path.unlink()
    return path


def test_a_pickle_among_the_shards_of_a_checkpoint(trap: Path, tmp_path: Path) -> None:
    root = tmp_path / "checkpoints"
    actor = checkpoint.folder(root, 2) / "actor"
    untrained(actor / "huggingface")
    torch.save({"model.norm.weight": Payload(trap)}, actor / "model_world_size_1_rank_0.pt")
    checkpoint.seal(root, 2)
    (spec,) = load(["scale=verl-cpu"])
    with refused("bad_input", "model_world_size_1_rank_0.pt"):
        checkpoint.export(root, 2, tmp_path / "policy", spec)
    assert not trap.exists()
    assert not (tmp_path / "policy").exists()


def test_a_pickle_in_place_of_a_checkpoint_of_the_local_engine(trap: Path, tmp_path: Path) -> None:
    folder = tmp_path / "step_000002"
    folder.mkdir()
    torch.save({"x": Payload(trap)}, folder / "policy.safetensors")
    digest = hashlib.sha256((folder / "policy.safetensors").read_bytes()).hexdigest()
    manifest = {"step": 2, "cursor": 0, "sha256": {"policy.safetensors": digest}}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(Exception, match=r"(?i)header"):
        folders.load(folder)
    assert not trap.exists()


def test_a_model_of_pickles(trap: Path, tmp_path: Path) -> None:
    folder = untrained(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    torch.save({"model.norm.weight": Payload(trap)}, folder / "pytorch_model.bin")
    with refused("bad_model", "pytorch_model.bin"):
        resolve(str(folder))
    assert not trap.exists()


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
def test_what_verl_loads_by_itself(trap: Path, tmp_path: Path) -> None:
    """verl passes weights_only=False; the environment that mcpo starts it with allows only the types it needs."""
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


def test_yaml_makes_no_objects(tmp_path: Path) -> None:
    path, made = tmp_path / "suite.yaml", tmp_path / "made"
    path.write_text(f"arms: !!python/object/apply:os.mkdir ['{made}']\n")
    with refused("bad_input", "suite.yaml"):
        read_yaml(path)
    assert not made.exists()


def test_verl_runs_no_code_of_a_model(tmp_path: Path) -> None:
    folder = untrained(tmp_path / "model")
    (spec,) = load(["scale=verl-cpu", f"model.path={folder}"])
    reconfigured(folder, auto_map={"AutoConfig": "own.Own"})
    with refused("unsafe", "auto_map"):
        list(checks._model(spec))
    (spec,) = load(["scale=paper"])
    table = overrides.table(spec, overrides.planned(spec, Path("/home")))
    told = {key: value for key, value in table.items() if key.endswith("trust_remote_code")}
    assert told == {"data.trust_remote_code": False, "actor_rollout_ref.model.trust_remote_code": False}
