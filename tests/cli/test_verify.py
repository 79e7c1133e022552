"""`mcpo verify`: training a finished run again gives its records, and every change in them is found."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mcpo_cli.runs import folders
from mcpo_cli.runs.journal import checksum, read_json, seal, write_json
from tests.cli.conftest import Cli, InProcess

pytestmark = pytest.mark.slow
STEPS = 4
SETTINGS = (
    f"method=dapo method.dynamic_sampling=false train.steps={STEPS} train.prompts=16 train.rollouts=4 "
    "train.mini_batch=8 train.lr=1e-3 eval.problems=8 eval.samples=2 eval.every=2 compute.checkpoint_every=1 "
    "compute.checkpoints=9 compute.checkpoints_after=9 compute.tracking_uri=offline"
).split()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, base_policies: Path) -> Path:
    """A home with one finished run; each test gets a copy."""
    home = tmp_path_factory.mktemp("trained")
    (home / "cache").symlink_to(base_policies)
    done = Cli(home)("train", *SETTINGS)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def folder(trained: Path, home: Path) -> Path:
    """The run's folder, in the home of this test."""
    shutil.copytree(trained, home, symlinks=True)
    (run,) = (home / "runs").iterdir()
    return run


def content(folder: Path) -> dict[str, str]:
    return {str(path): checksum(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def found(here: InProcess, folder: Path, *words: str, **env: str) -> dict[str, Any]:
    """The first difference that `mcpo verify` names."""
    result = here("verify", folder.name, *words, "--json", **env)
    document: dict[str, Any] = json.loads(result.stdout)
    assert (result.returncode, document["error"]["code"], document["same"]) == (5, "differs", False)
    assert document["error"]["fix"].startswith(f"mcpo verify {folder.name} --at")
    first: dict[str, Any] = document["first_difference"]
    return first


def edit(folder: Path, file: str, change: Callable[[dict[str, Any]], None], row: int = 0) -> None:
    """Change a row of a file and renew the checksums, like somebody who wants to hide the change."""
    attempt = folder / "attempt_1"
    lines = (attempt / file).read_text(encoding="utf-8").splitlines()
    values = json.loads(lines[row])
    change(values)
    lines[row] = json.dumps(values)
    (attempt / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    seal(attempt)


def test_a_run_is_what_training_it_again_gives(folder: Path, here: InProcess, home: Path) -> None:
    before = content(folder)
    document = here.json("verify", folder.name, "--steps", "2", "--seed", "3")
    assert document["same"]
    assert document["seed"] == 3
    assert len(document["asked"]) == document["steps_to_train"] == 2
    assert document["first_difference"] is None
    assert [stretch["start"] for stretch in document["stretches"]] == [step - 1 for step in document["asked"]]
    for stretch in document["stretches"]:
        assert stretch["comparison"] == "bits"
        *_, last = stretch["steps"]
        assert last["asked"]
        assert last["weights_compared"]
        # More than the weights and their two moments.
        assert last["values"] > 3 * 100_000
    assert content(folder) == before
    assert [path.name for path in home.iterdir() if path.name.startswith(".verify")] == []


def test_a_bundle_is_trained_from_its_base_policy(folder: Path, here: InProcess, home: Path, tmp_path: Path) -> None:
    file, other = tmp_path / "run.mcpo", tmp_path / "other"
    here("runs", "bundle", folder.name, str(file))
    other.mkdir()
    (other / "cache").symlink_to(home / "cache")
    assert here("runs", "unbundle", str(file), MCPO_HOME=str(other)).returncode == 0
    planned = here.json("verify", folder.name, "--at", "2", "--dry-run")
    assert (planned["asked"], planned["steps_to_train"], planned["seed"]) == ([2], 2, None)
    assert planned["recorded_seconds"] > 0
    document = here.json("verify", folder.name, "--at", "2")
    (stretch,) = document["stretches"]
    assert [(step["step"], step["weights_compared"]) for step in stretch["steps"]] == [(0, False), (1, True), (2, True)]
    theirs = other / "runs" / folder.name
    edit(theirs, "metrics.jsonl", lambda row: row.update(weights="0" * 64), row=0)
    assert found(here, theirs, "--at", "2") | {"repeated": ""} == {
        "step": 1, "records": "metrics", "row": 0, "column": "weights", "recorded": "0" * 64, "repeated": ""
    }  # fmt: skip


def test_a_changed_checkpoint_is_found_by_what_leads_to_it_and_by_what_follows(folder: Path, here: InProcess) -> None:
    place = folder / "attempt_1" / "checkpoints" / "step_000002"
    tensors = load_file(place / "policy.safetensors")
    name = sorted(tensors)[0]
    tensors[name].view(-1)[7] += 0.25
    save_file(tensors, place / "policy.safetensors")
    about = read_json(place / folders.MANIFEST)
    about["sha256"]["policy.safetensors"] = checksum(place / "policy.safetensors")
    write_json(place / folders.MANIFEST, about)
    first = found(here, folder, "--at", "2")
    assert (first["step"], first["records"]) == (2, "checkpoint")
    assert first["column"].startswith(f"policy/{name}[")
    assert first["recorded"] == pytest.approx(first["repeated"] + 0.25)
    assert found(here, folder, "--at", "3")["step"] == 3


def test_other_kernels_agree_within_the_tolerance(folder: Path, home: Path) -> None:
    """Another instruction set simulates another CPU: its kernels add in another order."""
    edit(folder, "metrics.jsonl", lambda row: row["metrics"].update({"train/entropy": 0.9}), row=3)
    result = Cli(home)("verify", folder.name, "--at", "3,4", "--json", ATEN_CPU_CAPABILITY="default")
    document = json.loads(result.stdout)
    only = torch.backends.cpu.get_cpu_capability() == "DEFAULT"
    for stretch in document["stretches"]:
        assert stretch["comparison"] == ("bits" if only else "tolerance")
        assert "kernels" in stretch["why"]
    first = document["first_difference"]
    assert (first["step"], first["column"]) == (4, "train/entropy"), "step 3 agrees"


def test_an_unfinished_run_is_refused(folder: Path, here: InProcess) -> None:
    path = folder / "attempt_1" / "eval" / "step_000004.jsonl"
    path.unlink()
    seal(folder / "attempt_1")
    assert "evaluation at step 4" in here.refused("bad_input", "verify", folder.name)


def test_the_digest_covers_names_types_shapes_and_bits() -> None:
    from mcpo_cli.backends.local.checkpoint import digest

    one = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3])}
    assert digest(one) == digest(dict(reversed(one.items())))
    others = [
        {"a": torch.tensor([1.0, -2.0]), "b": torch.tensor([3])},
        {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor([3])},
        {"c": torch.tensor([1.0, 2.0]), "b": torch.tensor([3])},
        {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3], dtype=torch.int32)},
    ]
    assert len({digest(one), *map(digest, others)}) == 5
    expected = hashlib.sha256(b"a torch.float32 (2,)" + bytes.fromhex("0000803f00000040")).hexdigest()
    assert digest({"a": torch.tensor([1.0, 2.0])}) == expected
