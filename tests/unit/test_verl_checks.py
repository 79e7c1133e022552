"""Checks before a run of verl starts: what is missing is named once, with its fix; and `cluster.verl`."""

import importlib.util
import json
import shutil
import socket
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from mcpo_cli import machine
from mcpo_cli.backends.verl import checks, overrides
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.data import files
from mcpo_cli.errors import ConfigError
from mcpo_cli.machine import Gpu
from tests.errors import refused
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


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Place":
    return Place(tmp_path, monkeypatch)


class Place:
    """A machine on which `scale=paper` could start, and from which a test removes something."""

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
        usage = SimpleNamespace(total=2 * gib * GIB, used=gib * GIB, free=gib * GIB)
        self.patch.setattr(shutil, "disk_usage", lambda _: usage)

    def memory(self, gib: int) -> None:
        self.patch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=gib * GIB))

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
        (message,) = complaints(self.spec(*overrides))
        return message


def complaints(spec: RunSpec) -> list[str]:
    """The messages on everything that keeps `spec` from starting."""
    try:
        checks.check_spec(spec)
        checks.check(spec)
    except ConfigError as error:
        return [str(error)]
    return []


H100 = Gpu("H100", 80 * GIB, 79 * GIB)
WITHOUT_ENGINES = {name: version for name, version in INSTALLED.items() if name not in ("vllm", "flash-attn")}
Change = Callable[[Place], object]
NOTHING: Change = lambda place: None  # noqa: E731
LACKS: list[tuple[Change, str, str, str]] = [
    (NOTHING, "", "", ""),
    (lambda at: at.packages({}), "", "needs verl ==0.9.1, which is not installed", "make setup-gpu"),
    (lambda at: at.packages({**INSTALLED, "transformers": "5.6.0"}), "", "transformers 5.6.0 is", ""),
    (lambda at: at.packages(WITHOUT_ENGINES), "", "needs vllm", ""),
    (lambda at: at.packages(WITHOUT_ENGINES | {"vllm": "0.24.0"}), "", "cluster.attention=sdpa  (1.", ""),
    (lambda at: at.packages(WITHOUT_ENGINES | {"vllm": "0.24.0"}), "cluster.attention=sdpa", "", ""),
    (lambda at: at.gpus([H100] * 2), "", "cluster.gpus=8: this machine has 2 (H100)", "cluster.gpus=2"),
    (lambda at: at.gpus([]), "", "no NVIDIA GPU", ""),
    (lambda at: at.gpus([]), "cluster.ray_address=auto", "", ""),
    (lambda at: at.gpus([]), "cluster.launcher=slurm", "", ""),
    (lambda at: at.gpus([]), "cluster.ray_address=127.0.0.1", "no Ray cluster answers", ""),
    (lambda at: at.gpus([Gpu("T4", 16 * GIB, 15 * GIB)] * 8), "", "while it trains; T4 has 16 GiB", ""),
    (NOTHING, "cluster.gpu_memory=0.1", "while it samples", ""),
    (lambda at: at.gpus([H100] * 7 + [Gpu("H100", 80 * GIB, 3 * GIB)]), "", "only 3 of 80 GiB free", ""),
    (NOTHING, "cluster.nodes=2", "", "cluster.ray_address=HOST:PORT, or cluster.launcher=slurm"),
    (NOTHING, "cluster.nodes=2 cluster.launcher=slurm", "", ""),
    # A controller, a task runner, 8 storage units, 3 for each GPU.
    (NOTHING, "cluster.cpus=33", "", "cluster.cpus=34"),
    (NOTHING, "cluster.cpus=34", "", ""),
    (lambda at: at.memory(64), "", "keeps 92 GiB in memory; this machine has 64 GiB", ""),
    (lambda at: at.memory(64), "cluster.offload=false", "", ""),
    (lambda at: at.disk(200), "", "checkpoints need 275 GiB", ""),
    (lambda at: shutil.rmtree(at.folder / "model"), "", "there is no such folder", ""),
    (
        lambda at: at.model({**CONFIG, "num_hidden_layers": 40, "tie_word_embeddings": True}),
        "model=qwen3-8b",
        "model.layers=36 but 40 in the file, model.tied=False but True in the file",
        "model.layers=40 model.tied=true",
    ),
    (
        lambda at: at.model({**CONFIG, "max_position_embeddings": 16384}),
        "",
        "a context of 16384 tokens; train.max_prompt + train.max_response is 22528",
        "train.max_response=14336",
    ),
    (lambda at: (at.data / "dapo_math_17k.jsonl").unlink(), "", "no dapo_math_17k.jsonl", ""),
    (lambda at: at.problems("amc23", 39), "", "amc23: 39 problems instead of the published 40", ""),
]
"""A change to a machine on which `scale=paper` could start, settings, and parts of the message and of its fix."""


@pytest.mark.parametrize(("change", "overrides", "said", "fix"), LACKS)
def test_what_is_missing_is_one_message(place: Place, change: Change, overrides: str, said: str, fix: str) -> None:
    change(place)
    found = complaints(place.spec(*overrides.split()))
    assert len(found) == bool(said or fix)
    assert all(said in text and (not fix or f"fix: {fix}" in text) for text in found)


def test_a_ray_cluster_that_answers(place: Place) -> None:
    place.gpus([])
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert complaints(place.spec(f"cluster.ray_address=127.0.0.1:{server.getsockname()[1]}")) == []


def test_without_a_path_the_data_come_from_the_hub(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(dataset: Any) -> Path:
        raise ConfigError(f"{dataset.name}: the hub cannot be reached")

    monkeypatch.setattr(files, "fetch", refuse)
    spec = place.spec()
    with refused("bad_input", "dapo_math_17k"):
        checks.check(replace(spec, task=replace(spec.task, data_path="")))


def test_math_needs_a_model_that_exists(place: Place) -> None:
    (spec,) = load(["scale=paper", "model=toy-s"])
    with refused("bad_input", "task=math"):
        checks.check_spec(spec)


@pytest.mark.parametrize(
    ("overrides", "setting"),
    [
        (["cluster.plugin="], "compute.device=cpu"),
        (["cluster.plugin=no.such.module"], "cluster.plugin=no.such.module"),
        (["cluster.plugin=", "compute.device=auto"], "cluster.rollout=transformers"),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_processor_needs_a_plugin(overrides: list[str], setting: str) -> None:
    (spec,) = load(["scale=verl-cpu", *overrides])
    with refused("bad_input", setting):
        checks.check(spec)


def test_a_processor_with_its_plugin_needs_no_gpu(place: Place) -> None:
    place.gpus([])
    place.packages(WITHOUT_ENGINES)
    assert complaints(load(["scale=verl-cpu"])[0]) == []


@pytest.mark.parametrize("name", ["disco", "clip_cov"])
def test_methods_that_prepare_need_one_mini_batch_a_step(name: str, place: Place) -> None:
    prompts = place.spec().train.prompts
    assert complaints(place.spec(f"method={name}", f"train.mini_batch={prompts}")) == []
    found = place.complaint(f"method={name}", f"train.mini_batch={prompts // 2}")
    assert "between the 2 mini-batches of a step" in found
    assert f"train.mini_batch={prompts}, or backend=local" in found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("otb", "needs squared probabilities, which verl does not pass on"),
        ("remax", "needs a greedy response to each prompt"),
    ],
)
def test_what_the_local_backend_alone_gives_to_methods(name: str, said: str, place: Place) -> None:
    assert said in place.complaint(f"method={name}")


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


# --- `cluster.verl`: verl's own settings, or the setting of mcpo that decides them ------------------------------------


HOME = Path("/home")
ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verl's package, with the part of its configuration that the tests need."""
    file = tmp_path / "verl" / checks.REFERENCE
    file.parent.mkdir(parents=True)
    file.write_text(
        "actor_rollout_ref:\n"
        "  rollout:\n    max_num_seqs: 256\n    n: 1\n    engine_kwargs: {vllm: {}}\n"
        "  actor:\n    optim: {lr: 1.0e-6}\n    pad_to_length: false\n"
    )
    found = ModuleSpec("verl", None, origin=str(tmp_path / "verl" / "__init__.py"))
    others = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found if name == "verl" else others(name))


def run(*own: str) -> RunSpec:
    quoted = ",".join(f"'{text}'" for text in own)
    return load(["scale=paper", f"cluster.verl=[{quoted}]"])[0]


def words(spec: RunSpec) -> list[str]:
    return overrides.overrides(spec, overrides.table(spec, overrides.planned(spec, HOME)))


def test_settings_of_verl_come_last_as_they_are_and_are_shown() -> None:
    own = (f"{ROLLOUT}.max_num_seqs=512", f"+{ROLLOUT}.engine_kwargs.vllm.max_logprobs=[1, 2]")
    spec = run(*own)
    assert words(spec)[-2:] == list(own)
    assert overrides.preview(spec, HOME)["config"]["actor_rollout_ref"]["rollout"]["max_num_seqs"] == "512"


def test_settings_of_verl_are_part_of_what_names_a_run() -> None:
    plain, own = load(["scale=paper"])[0], run(f"{ROLLOUT}.max_num_seqs=512")
    assert own.run_id != plain.run_id
    assert own.identity()["cluster"] == {"verl": (f"{ROLLOUT}.max_num_seqs=512",)}


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([f"{ROLLOUT}.n=4"], "mcpo itself sets"),
        # Above and below keys that mcpo sets, and with the sign of an added key.
        ([f"{ACTOR}.optim={{lr: 1}}"], "mcpo itself sets"),
        ([f"{ACTOR}.optim.betas.first=1"], "mcpo itself sets"),
        ([f"+{ROLLOUT}.prompt_length=1"], "mcpo itself sets"),
        (["max_num_seqs"], "is not KEY=VALUE"),
        (["~data.seed=1"], "is not KEY=VALUE"),
        (["trainer=1"], "is not KEY=VALUE"),
        ([f"{ROLLOUT}.max_num_seqs="], "is not KEY=VALUE"),
        ([f"{ROLLOUT}.max_num_seqs=1", f"{ROLLOUT}.max_num_seqs=2"], "given twice"),
    ],
)
@pytest.mark.usefixtures("package")
def test_what_cannot_be_passed_on_is_refused(own: list[str], said: str) -> None:
    (text,) = complaints(run(*own))
    assert said in text


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("max_nun_seqs=512", "did you mean 'actor_rollout_ref.rollout.max_num_seqs'"),
        ("pad_to_length=true", f"""fix: cluster.verl='["{ACTOR}.pad_to_length=true"]'"""),
        ("engine_kwargs.vllm.swap_space=1", f"""fix: cluster.verl='["+{ROLLOUT}.engine_kwargs.vllm.swap_space=1"]'"""),
    ],
)
@pytest.mark.usefixtures("package")
def test_a_key_that_verl_lacks_is_refused_with_the_nearest(key: str, said: str) -> None:
    (text,) = complaints(run(f"{ROLLOUT}.{key}"))
    assert said in text


def test_without_verl_its_keys_are_left_to_verl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert words(run("no.such_key=1"))[-1] == "no.such_key=1"


def test_another_backend_refuses_settings_of_verl() -> None:
    with refused("contradiction", "backend=local"):
        load(["cluster.verl=['a.b=1']"])
