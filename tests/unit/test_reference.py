"""`mcpo help` knows every setting that an override may name, and its meaning."""

from mcpo_cli.config import presets, reference
from tests.errors import refused


def test_every_key_has_an_entry_with_a_meaning() -> None:
    entries = reference.entries()
    assert [entry.key for entry in entries if not entry.meaning] == []
    # Options with a single value cannot be set to anything else.
    assert set(presets.keys()) - {entry.key for entry in entries} <= {"method.aggregation", "method.name", "task.name"}
    assert {entry.key for entry in entries} == {*presets.keys(), *presets.groups()}


def test_metrics_stands_for_all_that_a_run_records() -> None:
    settings, words = reference.look_up("metrics")
    assert {"train/entropy", "sanity/truncated"} <= {word.word for word in words}
    assert all("/" in word.word for word in words)
    assert settings == reference.search("metrics")


def test_a_group_stands_for_its_keys() -> None:
    names = presets.keys()
    assert {entry.key for entry in reference.look_up("eval")[0]} == {name for name in names if name[:5] == "eval."}
    with refused("unknown_key", "train.lr") as raised:
        reference.look_up("trian.lr")
    assert raised.value.fix == "mcpo help train.lr"
