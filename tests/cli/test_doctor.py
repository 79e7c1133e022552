"""`mcpo doctor` reports correctly what a machine has or lacks, with the fix of each gap; and verbs without extras."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
import torch
from huggingface_hub import constants

from mcpo_cli import doctor as machine_checks
from mcpo_cli import extras, machine
from mcpo_cli.backends.verl import checks
from mcpo_cli.doctor import Line
from mcpo_cli.machine import Gpu
from mcpo_cli.trackers import resolve
from tests.cli.conftest import InProcess
from tests.errors import refused
from tests.web import Answers, serving

GIB = 2**30
H200 = [Gpu("NVIDIA H200", 141 * GIB, 140 * GIB)]


@pytest.fixture(autouse=True)
def without_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


def lines(document: Mapping[str, Any]) -> dict[tuple[str, str], dict[str, str]]:
    return {(line["needed_by"], line["name"]): line for line in document["lines"]}


def test_a_machine_that_can_train_here(here: InProcess) -> None:
    result = here("doctor")
    assert result.returncode == 0, result.stderr
    document = json.loads(here("doctor", "--json").stdout)
    assert document["ok"] is True
    found = lines(document)
    assert {line["state"] for (needed_by, _), line in found.items() if needed_by == "local"} == {"ok"}
    assert found["local", "Python"]["found"] == ".".join(map(str, sys.version_info[:3]))
    assert found["local", "MLflow store"]["found"] == f"{here.home / 'mlflow.db'} (the first run will create it)"
    assert found["hub", "hub"]["state"] == "missing"
    for name in ("GPUs", "verl", "ray", "limit of open files"):
        assert name in result.stdout
        assert ("verl", name) in found
    assert here.untouched()


def test_a_method_that_is_declared_twice_fails(here: InProcess, plugin_folder: Path) -> None:
    plugin_folder.mkdir(exist_ok=True)
    (plugin_folder / "mine.py").write_text("from mcpo_cli.methods.grpo import Grpo\n\nclass Mine(Grpo): name = 'grpo'")
    result = here("doctor", "--json")
    document = json.loads(result.stdout)
    assert (result.returncode, document["ok"]) == (1, False)
    assert "mine.py" in lines(document)["local", "methods"]["found"]


@pytest.mark.slow
def test_a_home_that_can_be_none_fails_with_the_other_checks_shown(here: InProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    home = str(tmp_path / "file" / "home")
    result = here("doctor", "--json", MCPO_HOME=home)
    assert result.returncode == 1
    document = json.loads(result.stdout)
    assert document["ok"] is False
    assert document["error"]["message"] == "mcpo cannot train here: MCPO_HOME"
    assert lines(document)["local", "MCPO_HOME"]["found"] == f"MCPO_HOME={home}: {tmp_path / 'file'} is not a folder"
    assert "Traceback" not in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("status", "state"), [(200, "ok"), (503, "wrong"), (None, "missing")])
def test_the_hub_that_is_asked(
    here: InProcess, status: int | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Head(Answers):
        def do_GET(self) -> None:
            self.answer(status or 0)

    with serving(Head) as address:
        endpoint = address if status else "http://127.0.0.1:1"
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        line = lines(json.loads(here("doctor", "--json").stdout))["hub", "hub"]
    assert line["state"] == state
    assert endpoint in line["found"] if status else "model=./FOLDER data=./FILE" in line["fix"]


@pytest.mark.parametrize("error", [httpx.InvalidURL("Invalid port: 'abc'"), ImportError("a SOCKS proxy, no socksio")])
def test_an_address_or_a_proxy_that_cannot_be_used_is_a_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(httpx, "head", Mock(side_effect=error))
    (line,) = machine_checks._hub()
    assert (line.state, str(error) in line.found) == ("missing", True)


def stack(monkeypatch: pytest.MonkeyPatch, versions: Mapping[str, str], gpus: list[Gpu]) -> dict[str, Line]:
    """The lines about verl on a machine with these packages and GPUs."""
    monkeypatch.setattr(checks, "installed", versions.get)
    monkeypatch.setattr(machine, "gpus", lambda: gpus)
    return {line.name: line for line in machine_checks.examine() if line.needed_by == "verl"}


def test_versions_are_held_against_verls_pins(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    right = {"verl": "0.9.1", "transformers": "5.9.0", "tensordict": "0.10.0", "TransferQueue": "0.1.11"}
    right |= {"ray": "2.60.0", "numpy": "2.3.5", "torch": "2.11.0+cu130", "vllm": "0.24.0", "flash-attn": "2.8.3"}
    found = stack(monkeypatch, right, H200)
    assert {found[name].state for name in right} == {"ok"}
    assert found["GPUs"].found == "1: NVIDIA H200 (140 of 141 GiB free)"
    wrong = stack(monkeypatch, {**right, "verl": "0.10.0", "torch": "2.13.0", "vllm": "0.27.1"}, H200)
    assert {name for name in right if wrong[name].state == "wrong"} == {"verl", "torch", "vllm"}
    assert wrong["verl"].found == "0.10.0; wanted: ==0.9.1"
    assert "make setup-gpu" in wrong["verl"].fix
    none = stack(monkeypatch, {}, H200)
    assert {none[name].state for name in right} == {"missing"}
    assert not home.exists()


@pytest.fixture
def on_gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Line]]:
    """The lines about verl on a machine with one GPU, and with driver and torch as `make setup-gpu` wants them."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 28, 9))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(machine, "driver", lambda: "580.65.06")
    return lambda **more: stack(monkeypatch, {"torch": "2.11.0", **more}, H200)


def refuse() -> None:
    raise RuntimeError("Error 802: system not yet initialized\nmore")


WITHOUT = f"torch {torch.__version__} is built without"
UNUSABLE = "13.0; torch cannot use the GPUs: Error 802: system not yet initialized"
TORCH: list[tuple[str, Any, str, tuple[str, str], str]] = [
    ("version.cuda", "13.0", "driver", ("ok", "580.65.06"), ""),
    ("version.cuda", "13.0", "CUDA", ("ok", "13.0"), ""),
    ("version.cuda", "13.0", "NCCL", ("ok", "2.28.9"), ""),
    ("version.cuda", "12.8", "CUDA", ("wrong", "12.8; wanted: ==13.*"), "make setup-gpu"),
    ("version.cuda", None, "CUDA", ("missing", f"{WITHOUT} CUDA"), "make setup-gpu"),
    ("cuda.init", refuse, "CUDA", ("wrong", UNUSABLE), "nvidia-smi"),
    ("distributed.is_nccl_available", lambda: False, "NCCL", ("missing", f"{WITHOUT} NCCL"), "make setup-gpu"),
]


@pytest.mark.usefixtures("home")
def test_driver_cuda_and_nccl(on_gpus: Callable[..., dict[str, Line]], monkeypatch: pytest.MonkeyPatch) -> None:
    for path, value, name, found, fix in TORCH:
        with monkeypatch.context() as patch:
            patch.setattr(f"torch.{path}", value)
            line = on_gpus()[name]
        assert (line.state, line.found) == found
        assert fix in line.fix


UNDEFINED = "flash_attn_2_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEa"
UNBUILT, LACKING = "not built for torch 2.11.0", "cannot be imported: No module named"
KERNELS = {
    "": ("ok", "can be imported with torch 2.11.0", ""),
    f"raise ImportError('{UNDEFINED}')": ("wrong", f"{UNBUILT}: {UNDEFINED}", "--force-reinstall"),
    "import flash_attn_2_cuda": ("wrong", f"{LACKING} 'flash_attn_2_cuda'", "--force-reinstall"),
    "import no_einops": ("wrong", f"{LACKING} 'no_einops'", "make setup-gpu"),
}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("source", KERNELS)
def test_whether_flash_attn_was_built_for_this_torch(
    on_gpus: Callable[..., dict[str, Line]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: str
) -> None:
    state, found, fix = KERNELS[source]
    (tmp_path / "flash_attn.py").write_text(f"{source}\n")
    monkeypatch.syspath_prepend(tmp_path)
    everything = on_gpus(**{"flash-attn": "2.8.3.post2"})
    sys.modules.pop("flash_attn", None)
    line = everything["flash-attn kernels"]
    assert (line.state, line.found) == (state, found)
    assert fix in line.fix
    assert everything["flash-attn"].state == "ok"


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda module: module not in extras.EXTRAS)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("ui", "mlflow"),
        ("runs sync", "mlflow"),
        ("train compute.tracking_uri=http://127.0.0.1:1", "mlflow"),
        ("train scale=smoke cluster.loggers=[wandb]", "wandb"),
    ],
)
def test_a_verb_names_the_extra_that_it_needs_before_a_run_starts(here: InProcess, command: str, extra: str) -> None:
    result = here(*command.split())
    assert (result.returncode, f"pip install 'mcpo-cli[{extra}]'" in result.stderr) == (2, True)
    assert not (here.home / "runs").exists()


@pytest.mark.usefixtures("bare")
def test_there_is_no_store_unless_one_is_asked_for(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert resolve("") is None
    assert resolve("offline") is None
    with refused("not_installed"):
        resolve("sqlite:////tmp/elsewhere.db")


@pytest.mark.parametrize(
    ("text", "state"),
    [("from mcpo_cli.main import main", "ok"), ("from mcpo import app", "wrong"), (None, "missing")],
)
def test_doctor_sees_another_program_of_the_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, state: str
) -> None:
    if text:
        (tmp_path / "mcpo").write_text(f"#!/usr/bin/env python\n{text}\n")
        (tmp_path / "mcpo").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (line,) = machine_checks._command()
    assert line.state == state
    assert ("mcpo-lab" in line.fix) == (state != "ok")
