"""Removes secrets from text that is written, printed or sent, and control characters from text that is printed.

Three rules find a secret: an environment variable with a secret's name (`HF_TOKEN`) or a URL password holds the value,
the value has the shape of a known token (`hf_...`), or its position marks it (a URL's password, `token=...`). A test
compares the shapes with the library detect-secrets, whose import would take longer than most commands.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

HIDDEN = "***"
LEAST = 6
"""Least number of characters of an environment value that is hidden everywhere; shorter ones occur in common words."""
LONGEST_COMPOUND = 10_000
"""Most characters of an environment value, such as JSON or a connection string, that is searched for named secrets."""
VARIABLE = re.compile(
    r"(?:(?:^|_)(?:KEY|PAT|AUTH|COOKIE|JWT|PW)|_PWD|BIND_?PW|API_?KEY|WEBHOOK(?:_URL)?|TOKEN|SECRET|PASSW(?:OR)?D|PASSPHRASE|(?<!BY)PASS|CREDENTIALS?)$"
    # with a number or a purpose after it: OPENAI_APIKEY2, HF_TOKEN_READ, TOKEN_GITHUB
    r"|(?:^|_)(?:TOKEN|SECRET|PASSW(?:OR)?D|(?:\w*?)API_?KEY)"
    r"(?:\d+|\d*_(?!(?:FILE|PATH|DIR|FOLDER|URL|URI|NAME|TYPE|LIMIT|COUNT|TTL|EXPIRY|ID|IDS)$)\w+)$",
    re.IGNORECASE,
)
SHAPES = re.compile(
    r"\b(?:hf|api_org)_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|\bgh[opsur]_\w{30,}|\bgithub_pat_\w{30,}"  # GitHub
    r"|\bgl(?:pat|dt|ft|soat|rt|cbt)-[\w-]{20,}|\bGR1348941[\w-]{20,}"  # GitLab
    r"|\b(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[A-Z0-9]{16}"  # AWS
    r"|\bAIza[\w-]{35}|\bya29\.[\w-]{20,}|\bGOCSPX-[\w-]{20,}"  # Google
    r"|\bsk-[\w-]{20,}|\bwandb_v1_\w{20,}|\bdapi[a-f0-9]{32}"  # OpenAI and others, W&B, Databricks
    r"|\bgsk_\w{20,}|\bxai-\w{20,}|\bpplx-\w{20,}|\br8_\w{30,}"  # Groq, xAI, Perplexity, Replicate
    r"|\b(?i:xox[a-z]-[\w-]{3,}|xapp-[\w-]{10,}|hooks\.slack\.com/services/[\w/]+)"  # Slack
    r"|\bnpm_[A-Za-z0-9]{30,}|\bpypi-[\w-]{50,}|\bAKC[A-Za-z0-9]{10,}"  # npm, PyPI, Artifactory
    r"|\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}|\bsq0csp-[\w\\-]{43}"  # Stripe, Square
    r"|\bSG\.[\w-]{16,}\.[\w-]{16,}|\b[0-9a-z]{32}-us[0-9]{1,2}\b"  # SendGrid, Mailchimp
    r"|\b(?:AC|SK)[a-z0-9]{32}"  # Twilio
    r"|\b[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27}|\b\d{8,10}:[\w-]{35}"  # Discord, Telegram
    r"|\beyJ[\w=-]{8,}\.[\w=-]{8,}\.[\w-]+"  # JSON web tokens
)
KEY = re.compile(r"(-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----)[^-]+")
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
"""Characters that a terminal obeys instead of showing them; tab and line feed are harmless."""
LONGEST_HEADING = 200
"""Most characters of a name that becomes a heading."""
HEADING_FIX = f"names of at most {LONGEST_HEADING} printable characters"
PORT = r"(?!\d{1,5}(?:[/?#,;:)\s]|$))"
USER = re.compile(
    r"(?<=://)(?:[^\s\"'<>/:@]{0,256}:[^\s\"'<>]{0,512}|[^\s\"'<>/]{0,512}"
    rf"|[^\s\"'<>/:@]{{1,256}}:{PORT}[^\n\"'<>@]{{0,128}})@"
)
"""User and password of a URL; the password may hold slashes, which SQLAlchemy accepts, and blanks, which it should not.

Lengths are bounded, so that the time is proportional to the length of a text, even if the text is malicious.
"""
PASSWORD = re.compile(rf"://[^\s/:@]{{0,256}}:([^\s/]{{1,512}}|[^\s@]{{1,512}}|{PORT}[^\n@]{{1,128}})@")
LOGIN = re.compile(r"(?<![\w/.:@+-])(?!mailto:)[\w.+-]{1,64}:[^\s\"'<>@:/,;]{1,128}@(?=[\w-]{1,64}(?:\.\w|:\d))")
"""User and password before a host, without a scheme."""
PGPASS = re.compile(
    r"(?<![\w.:*-])((?:[A-Za-z*]|\d+\.)[\w.*-]{0,128}:(?:\d{2,5}|\*):[^\s:]{1,64}:[A-Za-z*][^\s:]{0,63}:)\S{1,256}"
)
"""A line of PostgreSQL's password file: host, port, database, user, password."""
COOKIE = re.compile(r"((?:set-)?cookie\\?[\"']?\s{0,8}[:=]\s{0,8}\\?[\"']?)[^\"'\n]+", re.IGNORECASE)
_NAME = (
    r"(?:token|secret|passw(?:or)?d|passphrase|(?<![A-Za-z])pwd|(?:api|account|shared)[_-]?key"
    r"|access[_-]?key(?:[_-]id)?|signature)(?:\d{1,3}|[_-](?:read|write|admin|bot|ci|dev|prod|hub|github|gitlab))?"
)
NAMED = re.compile(
    rf"({_NAME}(?:=|\\{{0,3}}[\"']?\s{{0,8}}:\s{{0,8}})|--(?:[a-z]{{1,16}}-){{0,3}}{_NAME}\s{{1,8}}|(?<=[?&])(?:sig|key)="
    r"|authorization[\"']?\s{0,8}[=:]\s{0,8}[\"']?\w+\s+|\bbearer\s+(?=\S{16}))"
    r"(\\{0,3}[\"'])?(?(2)(?:(?!\2)\\?.)+|[^\s\"'&,;]+)",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """`text` without secrets: values of `masked`, users and passwords in URLs, and values after a secret's name."""
    text = LOGIN.sub(f"{HIDDEN}@", USER.sub(f"{HIDDEN}@", masked(text)))
    return NAMED.sub(_without_value, COOKIE.sub(rf"\g<1>{HIDDEN}", PGPASS.sub(rf"\g<1>{HIDDEN}", text)))


def without_secrets(data: Any) -> Any:
    """Plain data with every text redacted."""
    if isinstance(data, str):
        return redact(data)
    if isinstance(data, Mapping):
        return {key: without_secrets(value) for key, value in data.items()}
    return [without_secrets(value) for value in data] if isinstance(data, list) else data


def visible(text: str) -> str:
    r"""`text` with control characters spelled out, as in `\x1b`: records may come from others."""
    return CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def unfit_heading(names: Iterable[str]) -> str:
    """The first of `names`, in ASCII, that is too long for a heading or has invisible characters; else empty.

    Names in other people's files become headings of tables, figures and pages.
    """
    return next((ascii(name)[:60] for name in names if not name.isprintable() or len(name) > LONGEST_HEADING), "")


def _without_value(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2] or ''}{HIDDEN}"


def masked(text: str) -> str:
    """`text` without values that are secret in any position; the rest is unchanged, so that code stays valid."""
    for value in _environment(tuple(os.environ.items())):
        text = text.replace(value, HIDDEN)
    return KEY.sub(rf"\g<1>{HIDDEN}", SHAPES.sub(HIDDEN, text))


@lru_cache(maxsize=1)
def _environment(variables: tuple[tuple[str, str], ...]) -> list[str]:
    """Secret values in the environment, longest first: values of variables with a secret's name, and passwords in URLs.

    Each in three forms: plain, as JSON and as part of a URL.
    """
    named_values = {value for name, value in variables if VARIABLE.search(name)}
    passwords = {match[1] for _, value in variables for match in PASSWORD.finditer(value)}
    # A driver takes a password with an unquoted @ for a part of the host, and names the rest of it.
    halves = {half for value in passwords if "@" in value for half in value.split("@")}
    compound_values = {
        match[0][len(match[1]) + len(match[2] or "") :]
        for name, value in variables
        if len(value) <= LONGEST_COMPOUND
        for match in NAMED.finditer(value)
    }
    secrets = [value for value in named_values | passwords | halves | compound_values if len(value) >= LEAST]
    forms = {form for value in secrets for form in (value, json.dumps(value)[1:-1], quote(value, safe=""))}
    return sorted(forms, key=len, reverse=True)
