"""Our overrides against verl's own configuration: it knows every key and accepts every value."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from packaging.requirements import Requirement

from mcpo_cli.backends.verl import checks, overrides
from mcpo_cli.config.load import load
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.config.schema import RunSpec
from mcpo_cli.settings import flat

pytestmark = pytest.mark.verl
HOME = Path("/a home/with 'quotes'/mcpo")
SCALES = ("paper", "one-gpu", "verl-cpu")


def composed(words: list[str]) -> Any:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=words)


def words(spec: RunSpec) -> list[str]:
    return overrides.overrides(spec, overrides.table(spec, overrides.planned(spec, HOME)))


@pytest.mark.parametrize("method", ["dapo", "grpo", "mcpo"])
@pytest.mark.parametrize("scale", SCALES)
def test_verl_has_every_key_and_takes_every_value_as_it_was_meant(scale: str, method: str) -> None:
    (spec,) = load([f"scale={scale}", f"method={method}"])
    config = composed(words(spec))
    table = overrides.table(spec, overrides.planned(spec, HOME))
    rows = {key.lstrip("+"): value for key, value in table.items() if "hydra." not in key}
    assert {key: OmegaConf.select(config, key) for key in rows} == rows
    OmegaConf.resolve(config)


@pytest.mark.parametrize("more", [(), ("cluster.deterministic=true", "cluster.eager=true")], ids=["plain", "same bits"])
@pytest.mark.parametrize("scale", SCALES)
def test_verl_finds_no_contradiction(scale: str, more: tuple[str, ...]) -> None:
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    (spec,) = load([f"scale={scale}", *more])
    config = composed(words(spec))
    assert not need_critic(config)
    assert not need_reference_policy(config)
    validate_config(config, use_reference_policy=False, use_critic=False)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    assert actor.engine.strategy == "fsdp2"
    assert actor.engine.full_determinism == spec.cluster.deterministic
    assert actor.optim.clip_grad == spec.train.grad_clip
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    # vLLM's kernels for it need a GPU.
    invariant = spec.cluster.deterministic and scale != "verl-cpu"
    assert (rollout.val_kwargs.n, rollout.full_determinism) == (spec.eval.samples, invariant)


def test_verl_takes_settings_of_its_own() -> None:
    own = "actor_rollout_ref.rollout.max_num_seqs=512"
    added = "+actor_rollout_ref.rollout.engine_kwargs.vllm.max_logprobs=3"
    (spec,) = load(["scale=paper", f"cluster.verl=['{own}','{added}']"])
    rollout = composed(words(spec)).actor_rollout_ref.rollout
    assert (rollout.max_num_seqs, rollout.engine_kwargs.vllm.max_logprobs) == (512, 3)


def test_verls_own_list_of_its_keys_is_what_it_composes() -> None:
    package = find_spec("verl")
    assert package
    assert package.origin
    listed = read_yaml(Path(package.origin).parent / checks.REFERENCE)
    there: Any = OmegaConf.to_container(composed([]))
    # The choice of an engine, which is not a key of a group.
    assert set(flat(there)) - set(flat(listed)) == {"model_engine"}
    assert set(flat(listed)) <= set(flat(there))


def test_the_versions_are_those_of_verls_metadata() -> None:
    from importlib.metadata import requires

    stated = [Requirement(line) for line in requires("verl") or []]
    core = {found.name: found.specifier for found in stated if found.marker is None}
    for package in ("transformers", "tensordict", "ray", "numpy"):
        assert str(core[package]) == str(Requirement(package + checks.CORE[package]).specifier)
    for package, extra in {"torch": "vllm", "vllm": "vllm", "TransferQueue": "verl-core"}.items():
        wanted = {**checks.CORE, **checks.GPU}[package]
        found = [entry for entry in stated if entry.name == package and entry.marker]
        assert [
            str(entry.specifier) for entry in found if entry.marker and entry.marker.evaluate({"extra": extra})
        ] == [str(Requirement(package + wanted).specifier)]
    (attention,) = {str(entry.specifier) for entry in stated if entry.name == "flash-attn"}
    # Our range is wider, for the builds that support CUDA 13.
    assert checks.fits(attention.removeprefix("=="), checks.GPU["flash-attn"])
