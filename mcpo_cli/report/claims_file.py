"""Files of declared claims, of a study or of a user."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from mcpo_cli.config import plan
from mcpo_cli.config.claims import Claim
from mcpo_cli.config.reading import read_yaml
from mcpo_cli.convert import convert
from mcpo_cli.errors import ConfigError, mend, nearest
from mcpo_cli.report.numbers import meaning


def read(path: Path) -> list[Claim]:
    """Read and check the claims.

    Raises:
        ConfigError: a key, suite, arm or statistic is unknown, a key is missing, or an id is used twice.
    """
    claims: list[Claim] = []
    content = read_yaml(path)
    entries, defaults = content.get("claims"), {key: content[key] for key in ("decide",) if key in content}
    if not entries or not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path}: claims must be a list of claims", fix=f"edit {path}")
    for number, entry in enumerate(entries, start=1):
        try:
            claim = _claim(defaults | entry, path.parent)
            if claim.id in {earlier_claim.id for earlier_claim in claims}:
                raise ConfigError("the id is used twice")
        except ConfigError as error:
            place = f"{path.name}, claim {number} ({entry.get('id', 'without id')})"
            raise ConfigError(f"{place}: {error.message}", fix=error.fix or f"edit {path}") from error
        claims.append(claim)
    return claims


def _claim(entry: Mapping[str, Any], folder: Path) -> Claim:
    """The claim; its suite may be a file of that name in the claims' `folder`, or in `suites` there."""
    claim = convert(Claim, entry, "")
    if claim.suite not in plan.suites():
        beside = [folder / f"{claim.suite}.yaml", folder / "suites" / f"{claim.suite}.yaml"]
        claim = replace(claim, suite=str(next(filter(Path.is_file, beside), claim.suite)))
    arms = plan.read(claim.suite).arms
    _check_name("arm", claim.arm, arms)
    for name in (claim.baseline or claim.arm, *claim.beyond):
        _check_name("baseline", name, arms)
    if claim.beyond and not (claim.baseline and len(claim.beyond) == 2):
        raise ConfigError("beyond needs two arms and a baseline")
    for name in claim.statistics:
        meaning(name)
    _check_name("arm", claim.required_arm, arms)
    return claim


def _check_name(kind: str, name: str, choices: Mapping[str, Any]) -> None:
    if name not in choices:
        message, fix = f"unknown {kind} '{name}': {nearest(name, choices)}", mend(kind + ": {}", name, choices)
        raise ConfigError(message, fix=fix, code="unknown_name")
