"""Logs and sides of a comparison, of made-up samples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.compare.log import Log, Side, checked


def log(path: str, samples: Mapping[str, Any] | pd.DataFrame, **facts: str) -> Log:
    """A log with these columns, of the benchmark `b` if they name none, whose benchmarks all have these facts."""
    table = pd.DataFrame({"benchmark": "b", **samples})
    return checked(Path(path), table, dict.fromkeys(table["benchmark"].unique(), facts))


def side(name: str, samples: Mapping[str, Any] | pd.DataFrame, **facts: str) -> Side:
    """A side of one such log."""
    return Side(name, (log(name, samples, **facts),))
