"""Before a run of verl starts: what is missing, said once, with what mends it."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from mcpo_cli import machine
from mcpo_cli.backends.verl import checks
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data import files
from mcpo_cli.errors import ConfigError
from mcpo_cli.machine import Gpu
from tests.models import existing

GIB = 2**30
INSTALLED = {
    "verl": "0.9.1",
    "torch": "2.11.0+cu130",
    "transformers": "5.9.0",
    "tensordict": "0.10.0",
    "TransferQueue": "0.1.11",
    "ray": "2.60.0",
    "numpy": "2.3.5",
    "vllm": "0.24.0",
    "flash-attn": "2.8.3",
}
CONFIG = {
    "hidden_size": 4096,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "max_position_embeddings": 32768,
}


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class Memory(NamedTuple):
    total: int


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Place":
    return Place(tmp_path, monkeypatch)


class Place:
    """A machine on which `scale=paper` could start, with what a test takes away from it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        monkeypatch.setenv("MCPO_HOME", str(folder / "home"))
        self.packages(INSTALLED)
        self.gpus([Gpu("H100", 80 * GIB, 79 * GIB)] * 8)
        self.disk(1000)
        self.memory(1000)
        self.model(CONFIG)
        self.data = folder / "data"
        self.data.mkdir()
        self.problems("dapo_math_17k", 200)
        for name, count in {"aime24": 30, "aime25": 30, "amc23": 40}.items():
            self.problems(name, count)

    def packages(self, versions: Mapping[str, str]) -> None:
        self.patch.setattr(checks, "installed", versions.get)

    def gpus(self, found: list[Gpu]) -> None:
        self.patch.setattr(machine, "gpus", lambda: found)

    def disk(self, gib: int) -> None:
        self.patch.setattr(shutil, "disk_usage", lambda _: Usage(2 * gib * GIB, gib * GIB, gib * GIB))

    def memory(self, gib: int) -> None:
        self.patch.setattr(psutil, "virtual_memory", lambda: Memory(gib * GIB))

    def model(self, config: Mapping[str, Any]) -> None:
        path = self.folder / "model"
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(config))

    def problems(self, name: str, count: int) -> None:
        rows = [json.dumps({"problem": f"{name} {i}", "answer": i}) + "\n" for i in range(count)]
        (self.data / f"{name}.jsonl").write_text("".join(rows))

    def spec(self, *overrides: str) -> RunSpec:
        (spec,) = load(
            ["scale=paper", f"model.path={self.folder / 'model'}", f"task.data_path={self.data}", *overrides]
        )
        return spec

    def complaint(self, *overrides: str) -> str:
        """The message and its fix."""
        with pytest.raises(ConfigError) as error:
            checks.check(self.spec(*overrides))
        return str(error.value)


def complaints(spec: RunSpec) -> list[str]:
    """What keeps `spec` from being started."""
    try:
        checks.check(spec)
    except ConfigError as error:
        return [str(error)]
    return []


def test_nothing_is_missing(place: Place) -> None:
    assert complaints(place.spec()) == []


def test_a_loggers_package_is_not_installed(place: Place) -> None:
    place.packages({**INSTALLED, "wandb": "0.31.0"})
    assert complaints(place.spec("cluster.loggers=[wandb]")) == []
    message = place.complaint("cluster.loggers=[wandb,trackio]")
    assert "cluster.loggers=trackio: that package is not installed" in message
    assert "fix: pip install trackio, or cluster.loggers=[wandb]" in message


def test_verl_is_not_installed(place: Place) -> None:
    place.packages({})
    assert "needs verl ==0.9.1, which is not installed" in (message := place.complaint())
    assert "fix: make setup-gpu" in message


@pytest.mark.parametrize(
    ("package", "version"),
    [("verl", "0.10.0"), ("transformers", "5.6.0"), ("vllm", "0.27.1"), ("tensordict", "0.11.0")],
)
def test_a_version_that_verl_does_not_take(place: Place, package: str, version: str) -> None:
    place.packages({**INSTALLED, package: version})
    assert f"{package} {version} is installed" in place.complaint()


def test_only_what_a_run_uses_must_be_there(place: Place) -> None:
    place.packages({name: version for name, version in INSTALLED.items() if name not in ("vllm", "flash-attn")})
    assert "needs vllm" in place.complaint()
    place.packages({name: version for name, version in INSTALLED.items() if name != "flash-attn"})
    assert re.search(r"cluster\.attention=sdpa  \(1\.\d times the operations of training\)", place.complaint())
    checks.check(place.spec("cluster.attention=sdpa"))


def test_no_gpu_and_too_few(place: Place) -> None:
    place.gpus([Gpu("H100", 80 * GIB, 79 * GIB)] * 2)
    assert "cluster.gpus=8: this machine has 2 (H100)" in (message := place.complaint())
    assert "fix: cluster.gpus=2" in message
    place.gpus([])
    assert "no NVIDIA GPU" in place.complaint()
    checks.check(place.spec("cluster.ray_address=auto"))
    checks.check(place.spec("cluster.launcher=slurm"))


def test_a_cluster_that_is_somewhere_else_or_nowhere(place: Place) -> None:
    place.gpus([])
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        checks.check(place.spec(f"cluster.ray_address={address}"))
    message = place.complaint(f"cluster.ray_address={address}")
    assert f"cluster.ray_address={address}: no Ray cluster answers" in message
    assert "no Ray cluster answers" in place.complaint("cluster.ray_address=127.0.0.1")


def test_gpus_that_are_too_small_or_in_use(place: Place) -> None:
    place.gpus([Gpu("T4", 16 * GIB, 15 * GIB)] * 8)
    assert "while it trains; T4 has 16 GiB" in place.complaint()
    place.gpus([Gpu("H100", 80 * GIB, 79 * GIB)] * 8)
    assert "while it samples" in place.complaint("cluster.gpu_memory=0.1")
    place.gpus([Gpu("H100", 80 * GIB, 79 * GIB)] * 7 + [Gpu("H100", 80 * GIB, 3 * GIB)])
    assert "only 3 of 80 GiB free" in place.complaint()


def test_more_nodes_than_one_machine(place: Place) -> None:
    assert "fix: cluster.ray_address=HOST:PORT, or cluster.launcher=slurm" in place.complaint("cluster.nodes=2")
    checks.check(place.spec("cluster.nodes=2", "cluster.launcher=slurm"))


def test_too_few_processor_slots(place: Place) -> None:
    # A controller, a task runner, 8 storage units, 3 for each GPU.
    assert "fix: cluster.cpus=34" in place.complaint("cluster.cpus=33")
    checks.check(place.spec("cluster.cpus=34"))


def test_memory_for_what_waits_there(place: Place) -> None:
    place.memory(64)
    assert "keeps 92 GiB in memory; this machine has 64 GiB" in place.complaint()
    checks.check(place.spec("cluster.offload=false"))


def test_disk_for_checkpoints(place: Place) -> None:
    place.disk(200)
    assert "checkpoints need 275 GiB" in (message := place.complaint())
    assert "has 200 GiB left" in message


def test_a_model_that_is_not_there(place: Place) -> None:
    shutil.rmtree(place.folder / "model")
    assert "there is no such folder" in place.complaint()


def test_a_model_that_is_not_what_the_settings_say(place: Place) -> None:
    place.model({**CONFIG, "num_hidden_layers": 40, "tie_word_embeddings": True})
    message = place.complaint()
    assert "model.layers=36 but 40 in the file, model.tied=False but True in the file" in message
    assert "fix: model.layers=40 model.tied=true" in message
    checks.check(place.spec("model.layers=40", "model.tied=true"))


def test_a_model_whose_window_is_too_short(place: Place) -> None:
    place.model({**CONFIG, "max_position_embeddings": 16384})
    assert "a context of 16384 tokens; train.max_prompt + train.max_response is 22528" in (message := place.complaint())
    assert "fix: train.max_response=14336" in message


def test_data_that_are_not_there_or_not_whole(place: Place) -> None:
    (place.data / "dapo_math_17k.jsonl").unlink()
    assert "no dapo_math_17k.jsonl" in place.complaint()
    place.problems("dapo_math_17k", 200)
    place.problems("amc23", 39)
    assert "amc23: 39 problems instead of the published 40" in place.complaint()


def test_without_a_path_the_data_come_from_the_hub(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dataset: Any) -> Path:
        raise ConfigError(f"{dataset.name}: the hub cannot be reached")

    monkeypatch.setattr(files, "fetch", refuse)
    spec = place.spec()
    with pytest.raises(ConfigError, match="dapo_math_17k: the hub cannot be reached"):
        checks.check(replace(spec, task=replace(spec.task, data_path="")))


def test_math_needs_a_model_that_exists(place: Place) -> None:
    (spec,) = load(["scale=paper", "model=toy-s"])
    with pytest.raises(ConfigError, match="built from scratch, but task=math has no closed vocabulary"):
        checks.check(spec)


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["cluster.plugin="], "compute.device=cpu: verl itself does not support this"),
        (["cluster.plugin=no.such.module"], "cluster.plugin=no.such.module: no such module can be imported"),
        (["cluster.plugin=", "compute.device=auto"], "cluster.rollout=transformers: verl itself does not support this"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_processor_needs_a_plugin(overrides: list[str], problem: str) -> None:
    (spec,) = load(["scale=verl-cpu", *overrides])
    with pytest.raises(ConfigError, match=problem):
        checks.check(spec)


def test_a_processor_with_its_plugin_needs_no_gpu(place: Place) -> None:
    place.gpus([])
    place.packages({name: version for name, version in INSTALLED.items() if name not in ("vllm", "flash-attn")})
    assert complaints(load(["scale=verl-cpu"])[0]) == []


@pytest.mark.parametrize("name", ["disco", "drpo", "clip_cov", "kl_cov"])
def test_methods_that_prepare_need_one_mini_batch_a_step(name: str, place: Place) -> None:
    prompts = place.spec().train.prompts
    assert complaints(place.spec(f"method={name}", f"train.mini_batch={prompts}")) == []
    found = place.complaint(f"method={name}", f"train.mini_batch={prompts // 2}")
    assert "between the 2 mini-batches of a step" in found
    assert f"train.mini_batch={prompts}, or backend=local" in found


def test_checking_imports_nothing_heavy(place: Place) -> None:
    code = (
        "import sys\nfrom mcpo_cli import backends\nfrom mcpo_cli.config.load import load\n"
        "from mcpo_cli.errors import ConfigError\n"
        "try: backends.check(load(['scale=paper'])[0])\nexcept ConfigError as error: print(error)\n"
        "print('loaded:', *sorted({'verl', 'ray', 'torch', 'transformers', 'vllm'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=place.folder, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"
    assert "backend=verl needs" in done.stdout


def text_task(folder: Path, *words: str) -> RunSpec:
    (spec,) = load(["scale=verl-cpu", "task=sums", f"model.path={folder}", "cluster.attention=sdpa", *words])
    return spec


def test_stop_strings_that_verl_cannot_end_a_response_at(place: Place, tmp_path: Path) -> None:
    folder = existing(tmp_path / "words")
    for words in (["task.style=plain"], ["task.style=plain", "task.stop=[';','\\n']"], ["task.style=auto"]):
        assert complaints(text_task(folder, *words)) == []
    (message,) = complaints(text_task(folder, "task.style=plain", "task.stop=['\\n','Question:']"))
    assert "task=sums ends responses at 'Question:'; backend=verl" in message
    assert "fix: task.stop=['\\n'], or backend=local" in message


def test_a_chat_needs_a_chat_template(place: Place, tmp_path: Path) -> None:
    with_template, without = existing(tmp_path / "with"), existing(tmp_path / "without", chat=False)
    assert complaints(text_task(with_template, "task.style=chat")) == []
    (message,) = complaints(text_task(without, "task.style=chat"))
    assert "prompts use the chat template, but its tokenizer has none" in message
    assert complaints(text_task(without, "task.style=auto")) == []
