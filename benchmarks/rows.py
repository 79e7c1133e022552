"""The rows that measurements leave: one JSON line for each, with the machine and its load beside the numbers.

A row is flat, so that a file of rows is a table: `measure` says what was measured, the keys of the case say on what,
and numbers end in their units (`seconds`, `cpu_seconds`, `peak_mb`, `gflops`, or `ratio`). Each kind of processor has
a file in `experiments/speed/results`, to which rows are appended; pages quote the newest row of a case
(`make check-findings`). Where other processes are at work, CPU seconds are comparable and seconds are not.
"""

import json
import os
import platform
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from mcpo_cli.runs import provenance

RESULTS = Path(__file__).resolve().parents[1] / "experiments" / "speed" / "results"
Case = Mapping[str, str | int | float]
Measurement = tuple[str, Case, Mapping[str, float]]
"""The arguments of `record`: what was measured, on what, and the numbers by names that end in their units."""
DECISIVE = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
"""Instructions that decide the speed of matrix products."""
PACKAGES = ("torch", "transformers", "mlflow")


def record(measure: str, case: Case, numbers: Mapping[str, float], file: Path | None = None) -> dict[str, Any]:
    """Append a row and return it.

    Args:
        measure: what was measured, such as `step` or `runs list`.
        case: on what, such as `{"model": "smollm2-135m", "tokens": 64, "dtype": "bfloat16"}`.
        numbers: medians, by names that end in their units.
        file: by default that of this kind of processor.

    Raises:
        ValueError: two parts of the row have the same key.
    """
    parts = (machine(), {"measure": measure}, case, {name: _rounded(value) for name, value in numbers.items()})
    if twice := {key for part in parts for key in part if sum(key in other for other in parts) > 1}:
        raise ValueError(f"a row of '{measure}' has two values of {', '.join(sorted(twice))}")
    row = {key: value for part in parts for key, value in part.items()}
    file = file or RESULTS / f"{slug(row['processor'])}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(row) + "\n")
    return row


def machine() -> dict[str, Any]:
    """The keys of every row: when, which code, and on which machine under which load.

    `load` is the number of processes that wanted a core in the last minute, those of the measurement among them.
    """
    code = provenance.code_state()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": f"{provenance.code_name(code)}{'+' if code['diff'] else ''}",
        "processor": provenance.processor(),
        "instructions": " ".join(name for name in DECISIVE if name in provenance.instructions()),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
    }


def slug(processor: str) -> str:
    """The file name of a kind of processor: `AMD EPYC` -> `amd-epyc`."""
    return re.sub(r"[^a-z0-9]+", "-", processor.lower()).strip("-") or "unknown"


def _rounded(value: float) -> float:
    """Four significant digits, which is more than a clock's worth."""
    return float(f"{value:.4g}")
