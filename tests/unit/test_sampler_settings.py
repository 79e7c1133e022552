"""The settings that choose a sampler: ids, spellings, contradictions, arms and forks."""

import dataclasses

import pytest

from mcpo_cli import methods
from mcpo_cli.backends.verl import checks
from mcpo_cli.config import arm_names
from mcpo_cli.config.forking import changed
from mcpo_cli.config.load import from_dict, load
from mcpo_cli.errors import ConfigError
from mcpo_cli.prompt_samplers import Refill, Uniform
from mcpo_cli.prompt_samplers.greso import Greso
from mcpo_cli.prompt_samplers.retention import Review
from tests.errors import refused

IDS = {
    "": "mcpo-toy-s-s0-1d403645be99",
    "method=dapo": "dapo-toy-s-s0-5aa757b35fe5",
    "method=dapo method.dynamic_sampling=false": "dapo-toy-s-s0-4d9399c8e615",
    "method=mcpo method.dynamic_sampling=true": "mcpo-toy-s-s0-f74335595fbf",
    "method=ngrpo method.dynamic_sampling=true task.pool=256": "ngrpo-toy-s-s0-4ed3f5e3bbb1",
    "method=dapo backend=verl scale=paper model=qwen3-8b": "dapo-qwen3-8b-s0-06ee1cddecaa",
}
"""Ids from before samplers had names."""
SPELLINGS = {
    "sampler=uniform": "",
    "method=dapo sampler=refill": "method=dapo",
    "method=dapo sampler=uniform": "method=dapo method.dynamic_sampling=false",
    "method=dapo sampler=uniform method.dynamic_sampling=off": "method=dapo method.dynamic_sampling=false",
    "sampler=refill": "method=mcpo method.dynamic_sampling=true",
}


@pytest.mark.parametrize("words", IDS)
def test_old_ids_stay(words: str) -> None:
    (spec,) = load(words.split())
    assert spec.run_id == IDS[words]
    assert "sampler" not in spec.to_dict()
    assert spec.sampler == (Refill() if spec.method.dynamic_sampling else Uniform())


@pytest.mark.parametrize("words", SPELLINGS)
def test_two_spellings_are_one_spec(words: str) -> None:
    assert load(words.split()) == load(SPELLINGS[words].split())


def test_the_method_follows_the_sampler() -> None:
    (spec,) = load(["method=dapo", "sampler=review"])
    assert spec.method.dynamic_sampling is False
    (spec,) = load(["method=grpo", "sampler=greso", "task.pool=512"])
    assert spec.method.dynamic_sampling is True
    assert dataclasses.replace(load(["method=grpo"])[0], method=methods.get("dapo")).sampler == Refill()


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        ("method=dapo sampler=refill method.dynamic_sampling=false", "method.dynamic_sampling=true, or leave it out"),
        ("sampler=mopps", "task.pool=1024, or sampler=uniform"),
        ("sampler=knapsack", "task.pool=1024, or sampler=uniform"),
        ("sampler=knapsack task.pool=512 sampler.least=17", "sampler.least=16"),
        ("sampler=knapsack task.pool=512 sampler.most=15", "sampler.most=16"),
        ("sampler=knapsack task.pool=512 method=bnpo", "method=grpo, or sampler=uniform"),
    ],
)
def test_contradictions(words: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(words.split())
    assert caught.value.code == "contradiction"
    assert caught.value.fix == fix
    repaired = fix.partition(",")[0]
    load([*(word for word in words.split() if word.partition("=")[0] != repaired.partition("=")[0]), repaired])


def test_verl_refuses_groups_of_different_sizes() -> None:
    (spec,) = load(["sampler=knapsack", "method=grpo", "backend=verl", "scale=paper", "model=qwen3-8b"])
    with refused("bad_input", "sampler=knapsack", "backend=verl samples as many of each"):
        checks.check_spec(spec)


def test_a_record_whose_sampler_and_method_disagree_is_refused() -> None:
    data = load(["sampler=review"])[0].to_dict()
    data["method"]["dynamic_sampling"] = True
    with refused("contradiction", "sampler=review", "method.dynamic_sampling=true"):
        from_dict(data)


def test_arms_are_named_by_their_samplers() -> None:
    specs = load(["method=grpo", "sampler=uniform,review"])
    assert arm_names.names([None, None], specs) == ["grpo", "grpo sampler=review"]
    specs = load(["method=grpo", "sampler=review", "sampler.share=0.25,0.5"])
    assert arm_names.names([None, None], specs) == ["grpo share=0.25", "grpo share=0.5"]
    # As before samplers had names.
    specs = load(["method=dapo", "sampler=uniform,refill"])
    assert arm_names.names([None, None], specs) == ["dapo dynamic_sampling=false", "dapo dynamic_sampling=true"]


def test_forks_keep_what_is_not_changed() -> None:
    (parent,) = load(["method=mcpo", "method.delta=0.02", "sampler=review", "sampler.share=0.5", "task.pool=512"])
    (same,) = changed(parent, ["train.lr=2e-3"])
    assert (same.sampler, same.method, same.task) == (parent.sampler, parent.method, parent.task)
    assert same.train == dataclasses.replace(parent.train, lr=2e-3)
    other, again = changed(parent, ["sampler=greso,review"])
    assert (other.sampler, other.method.dynamic_sampling) == (Greso(), True)
    assert again.sampler == Review(), "a sampler that is named has its own defaults"
    (plain,) = changed(parent, ["method=dapo", "sampler=refill"])
    assert plain.sampler == Refill()
    (follows,) = changed(parent, ["method=dapo"])
    assert (follows.sampler, follows.method.dynamic_sampling) == (parent.sampler, False)
