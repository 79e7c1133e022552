"""Writes values in the grammar of Hydra's overrides, see https://hydra.cc/docs/advanced/override_grammar/basic."""

import re
from typing import Any

BARE = re.compile(r"(?=.*[A-Za-z])(?!(?i:true|false|null|nan|inf)$)[A-Za-z0-9_./:@+-]+")
"""Strings that Hydra's grammar accepts without quotes."""

Value = str | int | float | bool | None | list[Any]


def written(value: Value) -> str:
    """`value` as the right side of an override."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, str) and not BARE.fullmatch(value):
        # A backslash escapes only before a quote.
        return '"' + re.sub(r'(\\*)"', r'\1\1\\"', value) + '"'
    return str(value)
