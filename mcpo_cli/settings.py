"""Declares the fields of settings: IDENTITY (changes the result, enters the run id) or RUNTIME (does not)."""

import dataclasses
from dataclasses import field
from typing import Any

IDENTITY, RUNTIME = "identity", "runtime"


def identity(default: Any, **bounds: float) -> Any:
    """A field that changes the result."""
    return field(default=default, metadata={"role": IDENTITY, **bounds})


def runtime(default: Any, **bounds: float) -> Any:
    """A field that does not change the result, only where and how fast it is computed."""
    return field(default=default, metadata={"role": RUNTIME, **bounds})


def plain(value: Any, *, runtime_too: bool = True) -> Any:
    """A dataclass as nested plain data, with or without its RUNTIME fields; any other value unchanged."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return value
    return {
        f.name: plain(getattr(value, f.name), runtime_too=runtime_too)
        for f in dataclasses.fields(value)
        if runtime_too or f.metadata.get("role") != RUNTIME
    }
