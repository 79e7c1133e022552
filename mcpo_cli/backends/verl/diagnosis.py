"""Turns the log of a failed verl run into a few lines: the last errors, the likely cause and its fix."""

import re
from dataclasses import dataclass

PREFIX = re.compile(r"\x1b\[[0-9;]*m|\([\w.]+ pid=[^)]*\)")
"""Colours and process name that Ray puts before a line written by another process."""
ERROR = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit|Died|Failed)(?:\(\w+\))?: \S")
SAID = 3
"""Most lines quoted in an error message."""


@dataclass(frozen=True)
class Cause:
    """A known fault."""

    text: re.Pattern[str]
    """Matches the text that the fault prints."""
    name: str
    fix: str
    """Settings that avoid it."""


CAUSES = (
    Cause(
        re.compile("No available memory for the cache blocks|larger than the available KV cache memory"),
        "out of GPU memory: the weights leave vLLM no room for its key-value cache",
        "raise cluster.gpu_memory or cluster.tensor_parallel",
    ),
    Cause(
        re.compile("is less than desired GPU memory utilization"),
        "out of GPU memory: less is free than cluster.gpu_memory lets vLLM take",
        "lower cluster.gpu_memory, or cluster.offload=true",
    ),
    Cause(
        re.compile("OutOfMemoryError: (?:CUDA|HIP)|(?:CUDA|HIP) out of memory|CUDA error: out of memory"),
        "out of GPU memory",
        "lower cluster.max_tokens_per_gpu (raise cluster.sequence_parallel where it must hold longer sequences) or "
        "cluster.gpu_memory, cluster.offload=true, or raise cluster.gpus",
    ),
    Cause(
        re.compile("node running low on memory|due to memory pressure"),
        "out of memory: Ray ended a process because the machine ran low",
        "lower cluster.max_tokens_per_gpu or cluster.gpus, cluster.offload=false, or a machine with more memory",
    ),
    Cause(
        re.compile(r"\bMemoryError\b|DefaultCPUAllocator: |std::bad_alloc|Cannot allocate memory"),
        "out of memory: the machine, or a process limit (ulimit -v), refused an allocation",
        "lower cluster.max_tokens_per_gpu or cluster.gpus, cluster.offload=false, or a machine with more memory",
    ),
    Cause(
        # The second line holds torch's messages for it.
        re.compile(
            "No space left on device|Disk quota exceeded|File too large"
            "|PytorchStreamWriter failed writing|iostream error|inline_container.cc.*unexpected pos"
        ),
        "a file could not be written: the disk is full, or a quota or limit was reached",
        "make room on that disk",
    ),
    Cause(
        re.compile("InvalidAuthToken|AuthenticationError: "),
        "the Ray cluster asks for a token",
        "RAY_AUTH_MODE=token in the environment, and the cluster's token in ~/.ray/auth_token or RAY_AUTH_TOKEN",
    ),
    # Ray prints the first, and our watch the second, for any process that dies silently. A guess, so it comes last.
    Cause(
        re.compile("killed by the OOM killer|a process of verl died: "),
        "a process died without a message; the kernel may have killed it for lack of memory (see dmesg)",
        "if it was memory: lower cluster.max_tokens_per_gpu or cluster.gpus, cluster.offload=false",
    ),
)
"""In order of priority: the consequences of a fault come after it."""


def cause(text: str) -> Cause | None:
    """The first known fault whose pattern occurs in `text`."""
    return next((known for known in CAUSES if known.text.search(text)), None)


def last_errors(text: str) -> list[str]:
    """The last few distinct error lines of a log, without Ray's prefixes."""
    errors: dict[str, None] = {}
    for raw in reversed(text.splitlines()):
        line = PREFIX.sub("", raw).strip()
        if ERROR.match(line) and "RayTaskError" not in line:
            errors.setdefault(line[:300])
        if len(errors) == SAID:
            break
    return list(reversed(errors))
