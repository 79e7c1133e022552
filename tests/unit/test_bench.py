"""`make bench` writes its numbers to the home that it is started with."""

import json
import os
from pathlib import Path

import pytest


@pytest.mark.slow
def test_numbers_outlive_homes_of_what_is_measured(home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from benchmarks import __main__ as bench  # loads TRL: a second, which only this slow test needs

    def measured() -> float:
        os.environ["MCPO_HOME"] = str(tmp_path / "temporary")
        return 1.5

    monkeypatch.setenv("MCPO_HOME", str(home))  # put back at the end
    monkeypatch.setattr(bench, "MEASURED", {"it": measured})
    bench.main()
    assert json.loads((home / "reports" / "bench.json").read_text())["it"] == 1.5
