"""`mcpo schema`: a file is valid by the schema if and only if `mcpo` takes it."""

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from omegaconf import OmegaConf

from mcpo_cli.analysis import claims
from mcpo_cli.config import plan
from mcpo_cli.config.load import CONF, load
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.errors import ConfigError
from mcpo_cli.study import EXPERIMENTS
from tests.cli.conftest import InProcess
from tests.errors import refused

FILES = {
    "suite": sorted(EXPERIMENTS.glob("suites/*.yaml")),
    "preset": sorted([*CONF.glob("regime/*.yaml"), *CONF.glob("scale/*.yaml")]),
    "model": sorted(CONF.glob("model/*.yaml")),
    "claims": [EXPERIMENTS / f"{name}.yaml" for name in ("claims", "method-claims", "headline-claims", "forgetting")],
}


def printed(here: InProcess, kind: str) -> Draft202012Validator:
    """A validator of the schema that `mcpo schema KIND` prints."""
    schema = json.loads(here("schema", kind).stdout)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def complaints(validator: Draft202012Validator, data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(data)]


def test_every_shipped_file_is_what_its_schema_says(here: InProcess) -> None:
    for kind, paths in FILES.items():
        assert paths
        validator = printed(here, kind)
        for path in paths:
            data = OmegaConf.to_container(OmegaConf.load(path))
            assert complaints(validator, data) == [], path


WRONG = {
    "suite": [
        "{}",
        "arms: {}",
        "arms: {a: method=mcpo}",
        "arms: {a: [mthod=mcpo]}",
        "arms: {a: [method=mcpo]}\ntitel: x",
        "arms: {a: [method=mcpo]}\nsmallest_effect: 0",
        "arms: {a: [method=mcpo]}\ntable: 3",
    ],
    "preset": [
        "train: {steps: 0}",
        "train: {stepss: 3}",
        "train: {betas: [0.9]}",
        "train: {lr: fast}",
        "seed: -1",
        "seed: a",
        "compute: {memory_limit: -1}",
        "cluster: {gpu_memory: 1}",
    ],
}
"""Values that mcpo refuses next to any others."""
RIGHT = {
    "suite": ["arms: {a: [method=mcpo]}", "arms: {a: []}\nsmallest_effect: 0.01\nsweep: {seed: [0, 1]}"],
    "preset": ["train: {steps: 1}", "base_seed: null", "base_seed: 3", "method: {delta: 0.02}", "probe: {lags: [0]}"],
}


@pytest.mark.parametrize("kind", WRONG)
def test_schema_and_mcpo_agree(kind: str, here: InProcess, tmp_path: Path) -> None:
    def accepted(text: str, number: int) -> bool:
        path = tmp_path / f"mine{number}.yaml"
        path.write_text(text if kind == "suite" else f"# @package _global_\n{text}")
        try:
            if kind == "suite":
                plan.from_suite(str(path), [], "")
            else:
                load([f"regime={path}"])
        except ConfigError:
            return False
        return True

    validator = printed(here, kind)
    for number, text in enumerate([*WRONG[kind], *RIGHT[kind]]):
        path = tmp_path / "data.yaml"
        path.write_text(text)
        assert accepted(text, number) == (text in RIGHT[kind]), text
        assert (complaints(validator, read_yaml(path)) == []) == (text in RIGHT[kind]), text


def test_schema_and_mcpo_agree_about_claims(here: InProcess, tmp_path: Path) -> None:
    (entry, *_) = read_yaml(EXPERIMENTS / "claims.yaml")["claims"]
    validator = printed(here, "claims")
    changes: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"relation": "more"}, False),
        ({"statistic": "pas@1"}, False),
        ({"suite": "tabel1"}, False),
        ({"margin": "x"}, False),
        ({"foo": 1}, False),
    ]
    for change, good in changes:
        data = {"claims": [{**entry, **change}]}
        path = tmp_path / "mine.yaml"
        path.write_text(json.dumps(data))
        assert (complaints(validator, data) == []) == good, change
        if good:
            assert len(claims.read(path)) == 1
        else:
            with pytest.raises(ConfigError):
                claims.read(path)
    for further, good in ((["more"], True), ("more", False), ([1], False)):
        data = {"claims": [entry], "further": further}
        path.write_text(json.dumps(data))
        assert (complaints(validator, data) == []) == good
        if good:
            assert [file.name for file in claims.results(path)] == ["mine.csv", "more.csv"]
        else:
            with refused("bad_input", "further"):
                claims.results(path)


def test_a_setting_says_what_it_means_and_what_it_is_by_default(here: InProcess) -> None:
    steps = printed(here, "preset").schema["properties"]["train"]["properties"]["steps"]
    assert steps == {
        "type": "integer",
        "minimum": 1,
        "maximum": 1_000_000,
        "description": "Global steps, one rollout batch each.",
        "default": 20,
    }
