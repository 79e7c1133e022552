"""Removes secrets from text that is written, printed or sent, and control characters from text that is printed.

Three rules find a secret: an environment variable with a secret's name (`HF_TOKEN`) or a URL password holds the value,
the value has the shape of a known token (`hf_...`), or its position marks it (a URL's password, `token=...`).
"""

import os
import re
from functools import lru_cache

HIDDEN = "***"
LEAST = 6
"""Fewest characters of an environment value that is hidden everywhere; shorter ones occur in common words."""
VARIABLE = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|KEY)$", re.IGNORECASE)
SHAPES = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|\bgh[opsur]_[A-Za-z0-9]{30,}|\bgithub_pat_\w{30,}|\bglpat-[\w-]{20,}"  # GitHub, GitLab
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{35}"  # AWS, Google
    r"|\bsk-[\w-]{20,}|\bwandb_v1_\w{20,}|\bdapi[a-f0-9]{32}"  # OpenAI and others, W&B, Databricks
    r"|\bxox[a-z]-[\w-]{10,}|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{50,}"  # Slack, npm, PyPI
    r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]+"  # JSON web tokens
)
KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^-]+")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys instead of showing them; tab and line feed are harmless."""
PORT = r"(?!\d{1,5}(?:[/?#,;:)\s]|$))"
USER = re.compile(
    r"(?<=://)(?:[^\s\"'<>/:@]{0,256}:[^\s\"'<>]{0,512}|[^\s\"'<>/]{0,512}"
    rf"|[^\s\"'<>/:@]{{1,256}}:{PORT}[^\n\"'<>@]{{0,128}})@"
)
"""User and password of a URL; the password may hold slashes, which SQLAlchemy accepts, and blanks, which it should not.

Lengths are bounded, so that the time is proportional to the length of a text, whoever wrote it.
"""
PASSWORD = re.compile(rf"://[^\s/:@]{{0,256}}:([^\s@]{{1,512}}|{PORT}[^\n@]{{1,128}})@")
NAMED = re.compile(
    r"((?:token|secret|passw(?:or)?d|passphrase|(?:api|account|shared)[_-]?key|access[_-]?key(?:[_-]id)?|signature)"
    r"(?:=|[\"']?\s{0,8}:\s{0,8})|authorization[\"']?\s{0,8}[=:]\s{0,8}[\"']?\w+\s+|\bbearer\s+(?=\S{16}))"
    r"([\"'])?(?(2)(?:(?!\2).)+|[^\s\"'&,;]+)",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """`text` without secrets: those of `masked`, users and passwords in URLs, and values after a secret's name."""
    return NAMED.sub(_without_value, USER.sub(f"{HIDDEN}@", masked(text)))


def visible(text: str) -> str:
    r"""`text` with control characters spelled out, as in `\x1b`: records may come from others."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _without_value(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2] or ''}{HIDDEN}"


def masked(text: str) -> str:
    """`text` without values that are secret in any position; nothing else changes, so that code stays valid."""
    for value in _environment(tuple(os.environ.items())):
        text = text.replace(value, HIDDEN)
    return KEY.sub(rf"\g<1>{HIDDEN}", SHAPES.sub(HIDDEN, text))


@lru_cache(maxsize=1)
def _environment(variables: tuple[tuple[str, str], ...]) -> list[str]:
    """Secret values in the environment, longest first: of variables with a secret's name, and passwords in URLs."""
    named = {value for name, value in variables if VARIABLE.search(name)}
    in_urls = {match[1] for _, value in variables for match in PASSWORD.finditer(value)}
    return sorted((value for value in named | in_urls if len(value) >= LEAST), key=len, reverse=True)
