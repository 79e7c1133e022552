"""Secrets in text: what must never be written down, printed or sent, and how it is taken out.

Three marks give a secret away: the environment keeps the value under a secret's name (`HF_TOKEN`) or as a password in
a URL, it has the shape of a well-known token (`hf_...`), or its place says so (a URL's password, `token=...`).
"""

import os
import re

HIDDEN = "***"
LEAST = 6
"""Characters of a value of the environment that is hidden wherever it stands: a shorter one is part of common words."""
VARIABLE = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|KEY)$", re.IGNORECASE)
SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|\bgh[opsur]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}"  # GitHub, GitLab
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|\bsk-[\w-]{20,}|\bwandb_v1_\w{20,}|\bdapi[a-f0-9]{32}"  # OpenAI and others, W&B, Databricks
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+"  # JSON web tokens
)
USER = re.compile(r"(?<=://)(?:[^\s\"'<>/:@]*:[^\s\"'<>]*|[^\s\"'<>/]*)@")
"""User and password of a URL; a password may hold slashes, as SQLAlchemy takes them."""
PASSWORD = re.compile(r"://[^\s/:@]*:([^\s@]+)@")
NAMED = re.compile(
    r"((?:token|secret|passw(?:or)?d|api[_-]?key|access[_-]?key(?:[_-]id)?|signature)"
    r"(?:=|[\"']\s*:\s*)[\"']?|authorization[\"']?\s*[=:]\s*[\"']?\w+\s+)[^\s\"'&,;]+",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """`text` without secrets: those of `masked`, users and passwords of URLs, values behind a secret's name."""
    return NAMED.sub(rf"\g<1>{HIDDEN}", USER.sub(f"{HIDDEN}@", masked(text)))


def masked(text: str) -> str:
    """`text` without values that are secrets wherever they stand; nothing else is changed, so that code stays code."""
    for value in sorted(_environment(), key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return SHAPES.sub(HIDDEN, text)


def _environment() -> set[str]:
    """The values that the environment gives away: those under a secret's name, and the passwords of URLs."""
    named = {value for name, value in os.environ.items() if VARIABLE.search(name)}
    in_urls = {match[1] for value in os.environ.values() for match in PASSWORD.finditer(value)}
    return {value for value in named | in_urls if len(value) >= LEAST}
