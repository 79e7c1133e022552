"""The table of claims, those of the paper or of a plug-in, with the verdict of these runs on each."""

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.analysis import claims, numbers, render
from mcpo_cli.analysis.claims import Claim
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product, Row, Section
from mcpo_cli.analysis.render import Columns, Grid
from mcpo_cli.analysis.verdicts import APART, TESTED, Outcome, outcomes
from mcpo_cli.errors import ConfigError
from mcpo_cli.statistics.power import ALPHA, POWER
from mcpo_cli.statistics.stats import LEAST

HOLDS = " (Holm)"
RULES = {"nominal": "p", "holm": "p Holm", "90% interval": "90% interval"}
NOTES = (
    "A test is one claim on one model and regime. value: mean over seeds of the statistic, or of its paired "
    "difference, with a 95% t-interval. p: two-sided, Student's t over seeds; p Holm: adjusted over all tests of this "
    "table that have a p.",
    "A claim of every benchmark, or of every third of training, is one test (intersection-union): supported only if "
    "each part is, contradicted if one part is, corrected for their number. value and interval then belong to the part "
    "that is least in favour; the last column has the others.",
    f"decided by: the registered rule, or else p. supported: that p is at most {ALPHA:g} and the effect is on the "
    f"claim's side; contradicted: it is on the other side;{HOLDS}: p Holm is at most {ALPHA:g}, too. Decided by p, one "
    f"test in {1 / ALPHA:.0f} without any true effect is still called supported or contradicted. contradicted refers "
    "to these runs, not to what the paper measured.",
    "no difference: the value lies within the claim's margin of the reference by two one-sided tests at level "
    f"{ALPHA:g}: the 90% interval is within it. unresolved: neither, which does not show that there is no effect. "
    "Values that are all identical are unresolved, too: they have no variance to test by.",
    "not testable here: what the claim presupposes did not occur in these runs, or they cannot say. too few runs: "
    f"fewer than {LEAST} seeds. not computable: a value is NaN, or none differs. by construction: an identity of the "
    "code, no evidence for the paper. These have no p and are counted apart.",
    f"finds: the distance from the tested bound that as many seeds detect with probability {POWER:g} at level "
    f"{ALPHA:g}: it does not depend on the effect seen, but on how much seeds vary, which few seeds know badly; so it "
    "is shown for both ends of the 80% interval of their standard deviation.",
    "A claim of a value within a margin (±) tests both bounds (two one-sided tests), so a wide interval cannot support "
    "it.",
)
COMMITTED = "committed runs: verdicts of more runs than these, from results/{}."
OPEN = ("unresolved", "too few runs", "not computable")


def claims_table(path: Path, title: str = "", section: Section = "claims") -> Artifact:
    """The artifact of the claims in the file `path`: a row per test and one per run. title: by default the file's name.

    Results of more runs than a reader trains may be in `results/NAME.csv` next to `NAME.yaml`, as this artifact wrote
    them; their verdicts on the same model and regime are shown next to those of the reader's runs. If such a verdict
    does not hold after Holm's correction, that of a further file (`claims.results`) which does is shown in its place.

    Raises:
        ConfigError: the file is not a file of claims.
    """
    declared = claims.read(path)
    title = title or f"Claims of {path.name}"
    committed = claims.results(path)

    def build(data: Mapping[str, Runs]) -> Product:
        found, larger = outcomes(declared, data), _larger(committed)
        spec = next(iter(data.values())).cells[0].spec
        where = f"scale {spec.scale}, regime {spec.regime}, {spec.train.steps} global steps"
        grids = [_glance(declared, found, larger), verdict_grid(found)]
        grids.append(Grid.of("What is tested", declared, CLAIMS, labels=len(CLAIMS)))
        rows = pd.DataFrame([*map(_row, found), *_runs(declared, data)], dtype=object)  # whole numbers stay whole
        names = " and ".join(file.name for file in committed if file.is_file())
        notes = [*NOTES, *([COMMITTED.format(names)] if larger else []), *_quotes(declared)]
        return Product(f"{title} ({where})", _sentence(declared, found, larger), rows, grids, notes)

    suites = tuple(dict.fromkeys(claim.suite for claim in declared))
    return Artifact(path.stem, title, section, suites, build, by_regime=True, source=path, committed=committed)


Test = tuple[str, str, str]
"""A claim's id, model and regime."""


def _larger(committed: Sequence[Path]) -> dict[Test, str]:
    """The verdicts of committed runs, by test, with their number of seeds; empty without files.

    Raises:
        ConfigError: a file is not a table of claims.
    """
    found: dict[Test, str] = {}
    for file in committed:
        for test, verdict in _verdicts(file):
            if test not in found or (HOLDS in verdict and HOLDS not in found[test]):
                found[test] = verdict
    return found


def _verdicts(committed: Path) -> Iterator[tuple[Test, str]]:
    if not committed.is_file():
        return
    try:
        rows = pd.read_csv(committed, keep_default_na=False, dtype=str)
        rows[["claim", "model", "regime", "verdict", "seeds"]]
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"{committed}: no table of claims, as mcpo reproduce writes it",
            fix=shlex.join(["mv", str(committed), f"{committed}.other"]),
        ) from error
    tests = rows[rows["block"] == "test"] if "block" in rows else rows
    for row in tests.to_dict("records"):
        holds = HOLDS if row.get("holds") == "True" else ""
        yield (row["claim"], row["model"], row["regime"]), f"{row['verdict']}{holds}, {row['seeds']} seeds"


def _runs(declared: Sequence[Claim], data: Mapping[str, Runs]) -> Iterator[Row]:
    """One row per run and suite, with every number that tests a claim."""
    for suite, runs in data.items():
        of_suite = [claim for claim in declared if claim.suite == suite]
        names = dict.fromkeys(name for claim in of_suite for name in claim.statistics)
        arms = {arm for claim in of_suite for arm in claim.arms}
        for row in numbers.per_run(runs, {name: name for name in names}, arms):
            yield {**row, "suite": suite}


def _sentence(declared: Sequence[Claim], tests: Sequence[Outcome], larger: Mapping[Test, str]) -> str:
    models = dict.fromkeys(one.model for one in tests)
    on = " and ".join(models)
    by_verdict = Counter(one.verdict for one in tests)
    holding = Counter(one.verdict for one in tests if one.holds)
    held = ", ".join(f"{holding[verdict] or 'none'} {verdict}" for verdict in TESTED[:2])
    alone = ", ".join(f"{by_verdict[verdict]} {verdict}" for verdict in TESTED if by_verdict[verdict])
    apart = [f"{by_verdict[verdict]} {verdict}" for verdict in (*APART, "by construction") if by_verdict[verdict]]
    number = sum(by_verdict[verdict] for verdict in TESTED)
    undecided = [one for one in tests if one.verdict in OPEN]
    decided = sum(not larger.get(_test(one), "unresolved").startswith(OPEN) for one in undecided)
    told = f" Of {len(undecided)} tests that stay open here, {decided} are decided by committed runs." if larger else ""
    return (
        f"Of {len(declared)} claims on {on}, after Holm's correction for {number} tests: {held}. "
        f"Each test by itself: {alone}." + (f" Counted apart: {', '.join(apart)}." if apart else "") + told
    )


def _test(one: Outcome) -> Test:
    return one.claim.id, one.model, one.regime


def _glance(declared: Sequence[Claim], tests: Sequence[Outcome], larger: Mapping[Test, str]) -> Grid:
    """One row per claim and one column per model and regime: the verdict, and that of committed runs."""
    settings = list(dict.fromkeys((one.model, one.regime) for one in tests))
    names = [" ".join(one) if len({regime for _, regime in settings}) > 1 else one[0] for one in settings]
    here = {_test(one): verdict_of(one) for one in tests}
    columns: dict[str, tuple[Mapping[Test, str], tuple[str, str]]] = {
        name: (here, one) for name, one in zip(names, settings, strict=True)
    }
    for name, one in zip(names, settings, strict=True):
        if any(key[1:] == one for key in larger):
            columns[f"{name}, committed runs"] = larger, one
    rows = [
        [claim.claim, *(found.get((claim.id, *one), "-") for found, one in columns.values()), claim.where]
        for claim in declared
    ]
    return Grid("At a glance", ["claim", *columns, "where"], rows, labels=2 + len(columns))


def frame(tests: Iterable[Outcome]) -> pd.DataFrame:
    """One row per test, with all numbers."""
    return pd.DataFrame(map(_row, tests))


def verdict_of(one: Outcome) -> str:
    """The verdict as text, with its qualifications."""
    if one.why:
        return f"{one.verdict}: {one.why}"
    larger = f" larger than {one.claim.margin:g}" if one.verdict == "no difference" else ""
    return one.verdict + larger + (HOLDS if one.holds else "")


def verdict_grid(tests: Iterable[Outcome]) -> Grid:
    """One row per test."""
    return Grid.of("Verdicts of these runs", tests, VERDICTS, labels=4)


def _beside(one: Outcome) -> str:
    """The other parts and the companion statistic."""
    others = [f"{part} {_number(effect.mean, one.claim)}" for part, effect in one.parts.items() if part != one.part]
    if not math.isnan(one.beside):
        others.append(f"{one.claim.beside} {one.beside:.3g}")
    return ", ".join(others) or "-"


def required(claim: Claim) -> str:
    """The claim's precondition as a formula; empty without one."""
    if not claim.requires:
        return ""
    return f"{claim.requires.statistic}: {claim.required_arm} > {claim.requires.above:g}"


def _quotes(declared: Sequence[Claim]) -> list[str]:
    """The meaning of each statistic, then each claim's quote and how it is read."""
    named = [name for one in declared for name in one.statistics]
    quoted = [one for one in declared if one.quote]
    return [
        *(f"{name}: {numbers.meaning(name)}." for name in dict.fromkeys(named)),
        *(f'{one.id}: "{one.quote}"' + (f"; read as: {one.reads}." if one.reads else ".") for one in quoted),
    ]


def _against(claim: Claim) -> str:
    if claim.relation == "within":
        return f"{claim.reference:g} ± {claim.margin:g}"
    margin = f", margin {claim.margin:g}" if claim.margin else ""
    return f"{'>' if claim.relation == 'greater' else '<'} {claim.reference:g}{margin}"


def _number(value: float, claim: Claim) -> str:
    """The value as text, with a sign if the claim compares two arms."""
    return render.number(value, "+.4f" if claim.baseline else ".4f")


def _interval(one: Outcome) -> str:
    bounds = [_number(value, one.claim) for value in (one.effect.low, one.effect.high)]
    return "-" if math.isnan(one.effect.half_width) else f"[{', '.join(bounds)}]"


def _p(value: float) -> str:
    return "<.0001" if value < 1e-4 else render.p_value(value)


def _row(one: Outcome) -> dict[str, Any]:
    low, high = one.detectable
    declared = {key: value for key, value in asdict(one.claim).items() if key not in ("id", "claim")}
    return {
        "block": "test",
        "claim": one.claim.id,
        "model": one.model,
        "regime": one.regime,
        "part": one.part,
        "verdict": one.verdict,
        "holds": one.holds,
        "why": one.why,
        "value": one.effect.mean,
        "t_low": one.effect.low,
        "t_high": one.effect.high,
        "sd": one.sd,
        "p": one.p,
        "p_holm": one.p_holm,
        "p_equal": one.p_equal,
        "seeds": one.effect.n,
        "detectable_low": low,
        "detectable_high": high,
        "parts": "; ".join(f"{part} {effect.mean:.6g}" for part, effect in one.parts.items() if part),
        "beside_value": one.beside,
        "says": one.claim.claim,
        **declared,
        "beyond": " - ".join(one.claim.beyond),
        "requires": required(one.claim),
    }


VERDICTS: Columns = {
    "claim": lambda one: one.claim.id,
    "verdict": verdict_of,
    "model": lambda one: one.model,
    "regime": lambda one: one.regime,
    "seeds": lambda one: str(one.effect.n),
    "value": lambda one: _number(one.effect.mean, one.claim) + (f" ({one.part})" if one.part else ""),
    "95% interval": _interval,
    "against": lambda one: _against(one.claim),
    "p": lambda one: _p(one.p),
    "p Holm": lambda one: _p(one.p_holm),
    "decided by": lambda one: RULES[one.claim.decide],
    "finds": lambda one: "-" if math.isnan(one.detectable[0]) else "{:.2g} to {:.2g}".format(*one.detectable),
    "for comparison": _beside,
}
CLAIMS: Columns = {
    "id": lambda one: one.id,
    "where": lambda one: one.where,
    "claim": lambda one: one.claim,
    "test": lambda one: one.tested,
    "presupposes": lambda one: required(one) or "-",
    "suite": lambda one: one.suite,
}
