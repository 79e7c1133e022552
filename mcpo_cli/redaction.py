"""Removes secrets from text that is written, printed or sent.

Three rules find a secret: an environment variable with a secret's name (`HF_TOKEN`) or a URL password holds the value,
the value has the shape of a known token (`hf_...`), or its position marks it (a URL's password, `token=...`).
"""

import os
import re

HIDDEN = "***"
LEAST = 6
"""Fewest characters of an environment value that is hidden everywhere; shorter ones occur in common words."""
VARIABLE = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|KEY)$", re.IGNORECASE)
SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|\bgh[opsur]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}"  # GitHub, GitLab
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|\bsk-[\w-]{20,}|\bwandb_v1_\w{20,}|\bdapi[a-f0-9]{32}"  # OpenAI and others, W&B, Databricks
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+"  # JSON web tokens
)
USER = re.compile(r"(?<=://)(?:[^\s\"'<>/:@]*:[^\s\"'<>]*|[^\s\"'<>/]*)@")
"""User and password of a URL; the password may hold slashes, which SQLAlchemy accepts."""
PASSWORD = re.compile(r"://[^\s/:@]*:([^\s@]+)@")
NAMED = re.compile(
    r"((?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key(?:[_-]id)?|signature)"
    r"(?:=|[\"']\s*:\s*)[\"']?|authorization[\"']?\s*[=:]\s*[\"']?\w+\s+)[^\s\"'&,;]+",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """`text` without secrets: those of `masked`, users and passwords in URLs, and values after a secret's name."""
    return NAMED.sub(rf"\g<1>{HIDDEN}", USER.sub(f"{HIDDEN}@", masked(text)))


def masked(text: str) -> str:
    """`text` without values that are secret in any position; nothing else changes, so that code stays valid."""
    for value in sorted(_environment(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return SHAPES.sub(HIDDEN, text)


def _environment() -> set[str]:
    """Secret values in the environment: those of variables with a secret's name, and passwords in URLs."""
    named = {value for name, value in os.environ.items() if VARIABLE.search(name)}
    in_urls = {match[1] for value in os.environ.values() for match in PASSWORD.finditer(value)}
    return {value for value in named | in_urls if len(value) >= LEAST}
