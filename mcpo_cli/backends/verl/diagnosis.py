"""From what a run of verl printed before it failed to a few lines: what was said last, and what mends it."""

import re
from dataclasses import dataclass

PREFIX = re.compile(r"\x1b\[[0-9;]*m|\([\w.]+ pid=[^)]*\)")
"""What Ray puts before a line that another process wrote: colours, and its name."""
ERROR = re.compile(r"(?:[\w.]+\.)?\w*(?:Error|Exception|Interrupt|Exit|Died|Failed)(?:\(\w+\))?: \S")
SAID = 3
"""Lines of an error message."""


@dataclass(frozen=True)
class Cause:
    """A fault that is known by its text; fix: settings that avoid it."""

    text: re.Pattern[str]
    name: str
    fix: str


CAUSES = (
    Cause(
        re.compile("No available memory for the cache blocks|larger than the available KV cache memory"),
        "out of GPU memory: vLLM has no room for its cache beside the weights",
        "raise cluster.gpu_memory or cluster.tensor_parallel",
    ),
    Cause(
        re.compile("is less than desired GPU memory utilization"),
        "out of GPU memory: less of it is free than vLLM is to take",
        "lower cluster.gpu_memory, or cluster.offload=true",
    ),
    Cause(
        re.compile("OutOfMemoryError: (?:CUDA|HIP)|(?:CUDA|HIP) out of memory|CUDA error: out of memory"),
        "out of GPU memory",
        "lower cluster.max_tokens_per_gpu or cluster.gpu_memory, cluster.offload=true, or raise cluster.gpus",
    ),
    Cause(
        re.compile("node running low on memory|due to memory pressure"),
        "out of memory: Ray ended a process because the machine had too little left",
        "lower cluster.max_tokens_per_gpu or cluster.gpus, cluster.offload=false, or a machine with more memory",
    ),
    Cause(
        re.compile(r"\bMemoryError\b|DefaultCPUAllocator: |std::bad_alloc|Cannot allocate memory"),
        "out of memory: the machine, or a limit that is set for its processes (ulimit -v), gave no more",
        "lower cluster.max_tokens_per_gpu or cluster.gpus, cluster.offload=false, or a machine with more memory",
    ),
    Cause(
        # The second line: how torch says so.
        re.compile(
            "No space left on device|Disk quota exceeded|File too large"
            "|PytorchStreamWriter failed writing|iostream error|inline_container.cc.*unexpected pos"
        ),
        "a file could not be written: the disk is full, or a quota or a limit is reached",
        "make room on that disk",
    ),
    Cause(
        re.compile("InvalidAuthToken|AuthenticationError: "),
        "the Ray cluster asks for a token",
        "RAY_AUTH_MODE=token in the environment, and the cluster's token in ~/.ray/auth_token or RAY_AUTH_TOKEN",
    ),
    # Ray says the first of every process that ends without a word, our watch the second: a guess, so it comes last.
    Cause(
        re.compile("killed by the OOM killer|a process of verl died: "),
        "a process ended without a word, as where the kernel kills it for want of memory (dmesg says so)",
        "if it was memory: lower cluster.max_tokens_per_gpu or cluster.gpus, cluster.offload=false",
    ),
)
"""The first whose text was printed is the one: what follows from a fault is below it."""


def cause(text: str) -> Cause | None:
    """The known fault that `text` tells of."""
    return next((known for known in CAUSES if known.text.search(text)), None)


def last_errors(text: str) -> list[str]:
    """The last few lines of a log that name an error, each once, without what Ray puts around them."""
    found: dict[str, None] = {}
    for raw in reversed(text.splitlines()):
        line = PREFIX.sub("", raw).strip()
        if ERROR.match(line) and "RayTaskError" not in line:
            found.setdefault(line[:300])
        if len(found) == SAID:
            break
    return list(reversed(found))
