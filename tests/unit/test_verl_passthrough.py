"""`cluster.verl`: verl's own settings, passed on, or refused with the setting of mcpo that decides them."""

import importlib.util
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from mcpo_cli.backends.verl import BACKEND, checks, overrides
from mcpo_cli.config.load import load
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.errors import ConfigError
from tests.errors import refused

HOME = Path("/home")
ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"


@pytest.fixture(autouse=True)
def _package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def complaint(*own: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        BACKEND.check_spec(run(*own))
    return caught.value


def test_they_come_last_as_they_are_and_are_shown() -> None:
    own = (f"{ROLLOUT}.max_num_seqs=512", f"+{ROLLOUT}.engine_kwargs.vllm.max_logprobs=[1, 2]")
    spec = run(*own)
    assert words(spec)[-2:] == list(own)
    assert overrides.preview(spec, HOME)["config"]["actor_rollout_ref"]["rollout"]["max_num_seqs"] == "512"


def test_they_are_part_of_what_names_a_run() -> None:
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
def test_what_cannot_be_passed_on_is_refused(own: list[str], said: str) -> None:
    assert said in complaint(*own).message


def test_a_key_that_verl_lacks_is_refused_with_the_nearest() -> None:
    assert "did you mean 'actor_rollout_ref.rollout.max_num_seqs'" in complaint(f"{ROLLOUT}.max_nun_seqs=512").message
    moved = complaint(f"{ROLLOUT}.pad_to_length=true")
    assert moved.fix == f"""cluster.verl='["{ACTOR}.pad_to_length=true"]'"""
    opened = complaint(f"{ROLLOUT}.engine_kwargs.vllm.swap_space=1")
    assert opened.fix is not None
    assert opened.fix.startswith(f"""cluster.verl='["+{ROLLOUT}.engine_kwargs.vllm.swap_space=1"]'""")


def test_without_verl_its_keys_are_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert words(run("no.such_key=1"))[-1] == "no.such_key=1"


def test_another_backend_refuses_them() -> None:
    with refused("contradiction", "backend=local"):
        load(["cluster.verl=['a.b=1']"])
