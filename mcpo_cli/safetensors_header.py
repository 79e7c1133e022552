"""Reads the header of a safetensors file without the library, which imports a framework.

The file begins with the length of the header in 8 bytes, then the header in JSON, then the tensors
(https://github.com/huggingface/safetensors#format). Files may come from anybody, so nothing in a header is believed.
"""

import itertools
import json
import math
from typing import Any, BinaryIO

MOST = 100_000_000
"""The most bytes of a header, as in the library: a file without content on the disk may claim any number."""
PACKED = 2
"""The most numbers in a byte, of all types that there are."""


def read(file: BinaryIO, size: int) -> bytes:
    """The header of an open file of `size` bytes; empty if it has none."""
    length = int.from_bytes(file.read(8), "little")
    return file.read(length) if 0 < length <= min(size - 8, MOST) else b""


def tensors(header: bytes, size: int) -> dict[str, dict[str, Any]]:
    """Type, shape and place of each tensor by its name.

    Raises:
        ValueError: there are none, or their types, shapes or places cannot be in a file of `size` bytes.
    """
    try:
        found = {key: entry for key, entry in json.loads(header).items() if key != "__metadata__"}
        spans = [tuple(entry["data_offsets"]) for entry in found.values()]
        numbers = [number for entry in found.values() for number in (*entry["shape"], *entry["data_offsets"])]
        named = all(isinstance(entry["dtype"], str) for entry in found.values())
        sizes = [math.prod(entry["shape"]) for entry in found.values()]
    except (RecursionError, AttributeError, KeyError, TypeError) as error:
        raise ValueError("this is no header of tensors") from error
    whole = all(type(number) is int and number >= 0 for number in numbers)
    room = size - 8 - len(header)
    if not (found and named and whole and all(len(span) == 2 and span[0] <= span[1] <= room for span in spans)):
        raise ValueError("tensors that cannot be in the file")
    if any(begin < end for (_, end), (begin, _) in itertools.pairwise(sorted(spans))):
        raise ValueError("tensors in the same place")
    if any(count > PACKED * (end - begin) for count, (begin, end) in zip(sizes, spans, strict=True)):
        raise ValueError("tensors that are larger than their places")
    return found
