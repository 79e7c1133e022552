"""Rows of measurements: flat, with the machine beside the numbers; the newest row of a case is the one that counts."""

import json
from pathlib import Path

import pytest

from benchmarks import rows


def test_rows_are_appended_with_the_machine_beside_the_numbers(tmp_path: Path) -> None:
    file = tmp_path / "results" / "made-up.jsonl"
    for seconds in (1.23456, 0.98765):
        rows.record("step", {"model": "toy-s", "tokens": 16}, {"cpu_seconds": seconds}, file)

    first, second = map(json.loads, file.read_text().splitlines())
    assert (first["measure"], first["model"], first["tokens"]) == ("step", "toy-s", 16)
    assert (first["cpu_seconds"], second["cpu_seconds"]) == (1.235, 0.9877)
    assert first["cores"] >= 1
    assert {"date", "commit", "processor", "instructions", "load", "memory_gb", "torch"} <= first.keys()


def test_a_case_must_not_hide_a_fact_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cores"):
        rows.record("step", {"cores": 64}, {"seconds": 1.0}, tmp_path / "rows.jsonl")
    assert not (tmp_path / "rows.jsonl").exists()
