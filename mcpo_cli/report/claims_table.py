"""The table of declared claims, with the verdict of these runs on each."""

import math
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.config import presets
from mcpo_cli.config.claims import Claim
from mcpo_cli.errors import ConfigError
from mcpo_cli.measures.frames import Runs
from mcpo_cli.render import markup
from mcpo_cli.render.markup import Columns, Grid
from mcpo_cli.render.product import CONCLUSIONS, Artifact, Product, Row
from mcpo_cli.report import claim_tests, claims_file, numbers
from mcpo_cli.report.claim_tests import ClaimTest
from mcpo_cli.statistics.power import ALPHA
from mcpo_cli.statistics.stats import LEAST
from mcpo_cli.statistics.words import CLAIM_WORDS, OPEN

HOLDS = " (Holm)"
NOTES = (
    "A test is one claim on one model and regime. value: mean over seeds of the number, or of its paired difference, "
    "with a 95% t-interval. p: two-sided, Student's t over seeds; p Holm: adjusted over all tests of this table.",
    "A claim of every benchmark, or of every third of training, is one test (intersection-union): supported only if "
    "each part is, contradicted if one part is, corrected for their number. value and interval then belong to the part "
    "that is least in favour; the last column has the others.",
    f"The value is better than the reference (above it), worse (below), or equivalent (within the margin by two "
    f"one-sided tests) at level {ALPHA:g}, by p, or p Holm where `decided by` says so. supported: the claim expected "
    "that word; contradicted: it expected the opposite, or, of a value within a margin, the value is beyond it; no "
    f"difference: the value is equivalent instead; unresolved: none of these, which does not show that there is no "
    f"effect.{HOLDS}: also after Holm. Decided by p, one test in {1 / ALPHA:.0f} without any true effect is still "
    "called supported or contradicted. Verdicts are on these runs, not on what a paper measured.",
    "new base policies: half of the 95% interval with base policies as units (their number), where runs share them; p "
    "is over runs. vacuous: the margin is a third or more of the baseline's own value.",
    f"not testable: the column says why, such as fewer than {LEAST} seeds. Such tests are counted apart.",
)
COMMITTED = "committed runs: verdicts of more runs than these, from results/{}."
Key = tuple[str, str, str]
"""A claim's id, model and regime."""


def claims_table(path: Path, title: str = "", section: str = CONCLUSIONS) -> Artifact:
    """The artifact of the claims in the file `path`: a row per test and one per run. title: by default the file's name.

    Results of more runs than a reader trains may be in `results/NAME.csv` next to `NAME.yaml`, as this artifact wrote
    them. Their verdicts on the same model and regime are shown next to the verdicts of the reader's runs.

    Raises:
        ConfigError: the file is not a file of claims.
    """
    claims, results_path = claims_file.read(path), path.parent / "results" / f"{path.stem}.csv"
    title = title or f"Claims of {path.name}"

    def build(data: Mapping[str, Runs]) -> Product:
        tests = claim_tests.of_claims(claims, data)
        results = dict(_committed(results_path)) if results_path.is_file() else {}
        spec = next(iter(data.values())).planned[0].spec
        setting = f"scale {spec.scale}, regime {spec.regime}, {spec.train.steps} global steps"
        grids = [_glance(claims, tests, results), verdict_grid(tests)]
        grids.append(Grid.of("What is tested", claims, CLAIMS, labels=len(CLAIMS)))
        rows = pd.DataFrame([*map(_row, tests), *_runs(claims, data)], dtype=object)  # whole numbers stay whole
        notes = [*NOTES, *([COMMITTED.format(results_path.name)] if results else []), *_quotes(claims)]
        return Product(f"{title} ({setting})", _sentence(claims, tests, results), rows, grids, notes)

    suites = tuple(dict.fromkeys(claim.suite for claim in claims))
    return Artifact(path.stem, title, section, suites, build, by_regime=True, source=path, committed=(results_path,))


def _committed(path: Path) -> Iterator[tuple[Key, str]]:
    """The verdicts of committed runs, by test, with their number of seeds.

    Raises:
        ConfigError: the file is not a table of claims.
    """
    try:
        rows = pd.read_csv(path, keep_default_na=False, dtype=str)
        rows[["claim", "model", "regime", "verdict", "seeds"]]
    except (ValueError, KeyError) as error:
        raise ConfigError(
            f"{path}: no table of claims, as mcpo reproduce writes it",
            fix=shlex.join(["mv", str(path), f"{path}.other"]),
        ) from error
    tests = rows[rows["block"] == "test"] if "block" in rows else rows
    for row in tests.to_dict("records"):
        holds = HOLDS if row.get("holds") == "True" else ""
        yield (row["claim"], row["model"], row["regime"]), f"{row['verdict']}{holds}, {row['seeds']} seeds"


def _runs(claims: Sequence[Claim], data: Mapping[str, Runs]) -> Iterator[Row]:
    """One row per run and suite, with every number that tests a claim."""
    for suite, runs in data.items():
        suite_claims = [claim for claim in claims if claim.suite == suite]
        names = {name: name for claim in suite_claims for name in claim.statistics}
        for row in numbers.per_run(runs, names, {arm for claim in suite_claims for arm in claim.arms}):
            yield {**row, "suite": presets.stem(suite)}


def _sentence(claims: Sequence[Claim], tests: Sequence[ClaimTest], results: Mapping[Key, str]) -> str:
    counts = Counter(test.verdict for test in tests)
    holm_counts = Counter(test.verdict for test in tests if test.holds)
    verdicts = CLAIM_WORDS[:-1]
    holm_text = ", ".join(f"{holm_counts[verdict] or 'none'} {verdict}" for verdict in verdicts[:2])
    single_text = ", ".join(f"{counts[verdict]} {verdict}" for verdict in verdicts if counts[verdict])
    apart_note = f" Counted apart: {counts['not testable']} not testable." if counts["not testable"] else ""
    open_tests = [test for test in tests if test.verdict in OPEN]
    count = sum(not results.get(_key(test), OPEN[0]).startswith(OPEN) for test in open_tests)
    note = f" Of {len(open_tests)} tests that stay open here, {count} are decided by committed runs." if results else ""
    return (
        f"Of {len(claims)} claims on {' and '.join(dict.fromkeys(test.model for test in tests))}, after Holm's "
        f"correction for {sum(counts[verdict] for verdict in verdicts)} tests: {holm_text}. Each test by itself: "
        f"{single_text or 'none tested'}.{apart_note}{note}"
    )


def _key(test: ClaimTest) -> Key:
    return test.claim.id, test.model, test.regime


def _glance(claims: Sequence[Claim], tests: Sequence[ClaimTest], results: Mapping[Key, str]) -> Grid:
    """One row per claim and one column per model and regime: the verdict of these runs, and of committed runs."""
    own_verdicts = {_key(test): verdict_of(test) for test in tests}
    settings = dict.fromkeys(key[1:] for key in own_verdicts)
    columns = {" ".join(setting): (own_verdicts, setting) for setting in settings}
    extra_settings = [setting for setting in settings if any(key[1:] == setting for key in results)]
    columns |= {f"{' '.join(setting)}, committed runs": (dict(results), setting) for setting in extra_settings}
    rows = [
        [claim.claim, *(verdicts.get((claim.id, *setting), "-") for verdicts, setting in columns.values()), claim.where]
        for claim in claims
    ]
    return Grid("At a glance", ["claim", *columns, "where"], rows, labels=2 + len(columns))


def frame(tests: Iterable[ClaimTest]) -> pd.DataFrame:
    """One row per test, with all numbers."""
    return pd.DataFrame(map(_row, tests))


def verdict_of(test: ClaimTest) -> str:
    """The verdict as text, with its qualifications."""
    if test.why:
        return f"{test.verdict}: {test.why}"
    margin_note = f" larger than {test.claim.margin:g}" if test.verdict == "no difference" else ""
    vacuous_note = f", vacuous: without it {_number(test.control, test.claim).lstrip('+')}" if test.vacuous else ""
    return test.verdict + margin_note + vacuous_note + (HOLDS if test.holds else "")


def verdict_grid(tests: Iterable[ClaimTest]) -> Grid:
    """One row per test."""
    return Grid.of("Verdicts of these runs", tests, VERDICTS, labels=4)


def _others(test: ClaimTest) -> str:
    """The effects of the other parts."""
    texts = [f"{part} {_number(effect.mean, test.claim)}" for part, effect in test.parts.items() if part != test.part]
    return ", ".join(texts) or "-"


def _required(claim: Claim) -> str:
    """The claim's precondition as a formula; empty without one."""
    if not claim.requires:
        return ""
    return f"{claim.requires.statistic}: {claim.required_arm} > {claim.requires.above:g}"


def _quotes(claims: Sequence[Claim]) -> list[str]:
    """The meaning of each number, then each claim's quote and how it is read."""
    statistics = dict.fromkeys(name for claim in claims for name in claim.statistics)
    return [
        *(f"{name}: {numbers.meaning(name)}." for name in statistics),
        *(
            f'{claim.id}: "{claim.quote}"' + (f"; read as: {claim.reads}." if claim.reads else ".")
            for claim in claims
            if claim.quote
        ),
    ]


def _against(claim: Claim) -> str:
    if claim.relation == "within":
        return f"{claim.reference:g} ± {claim.margin:g}"
    margin = f", margin {claim.margin:g}" if claim.margin else ""
    return f"{'>' if claim.relation == 'greater' else '<'} {claim.reference:g}{margin}"


def _number(value: float, claim: Claim) -> str:
    """The value as text, with a sign if the claim compares two arms."""
    return markup.number(value, "+.4f" if claim.baseline else ".4f")


def _interval(test: ClaimTest) -> str:
    bounds = [_number(value, test.claim) for value in (test.effect.low, test.effect.high)]
    return "-" if math.isnan(test.effect.half_width) else f"[{', '.join(bounds)}]"


def _p(value: float) -> str:
    return "<.0001" if value < 1e-4 else markup.p_value(value)


def _bases(test: ClaimTest) -> str:
    """Half of the interval with base policies as units, and their number."""
    half_width = test.bases.half_width
    return "-" if math.isnan(half_width) else f"± {half_width:.4f} ({test.bases.n})"


def _row(test: ClaimTest) -> dict[str, Any]:
    claim_fields = {key: value for key, value in asdict(test.claim).items() if key not in ("id", "claim")}
    return {
        "block": "test",
        **dict(zip(("claim", "model", "regime"), _key(test), strict=True)),
        **{name: getattr(test, name) for name in ("part", "word", "verdict", "holds", "why")},
        "value": test.effect.mean,
        "t_low": test.effect.low,
        "t_high": test.effect.high,
        "p": test.p_values.p,
        "p_holm": test.adjusted.p,
        "p_equal": test.p_values.p_equivalent,
        "seeds": test.effect.n,
        "bases_low": test.bases.low,
        "bases_high": test.bases.high,
        "bases": test.bases.n,
        "control": test.control,
        "parts": "; ".join(f"{part} {effect.mean:.6g}" for part, effect in test.parts.items() if part),
        "says": test.claim.claim,
        **claim_fields,
        "beyond": " - ".join(test.claim.beyond),
        "requires": _required(test.claim),
    }


VERDICTS: Columns = {
    "claim": lambda test: test.claim.id,
    "verdict": verdict_of,
    "model": lambda test: test.model,
    "regime": lambda test: test.regime,
    "seeds": lambda test: str(test.effect.n),
    "value": lambda test: _number(test.effect.mean, test.claim) + (f" ({test.part})" if test.part else ""),
    "95% interval": _interval,
    "new base policies": _bases,
    "against": lambda test: _against(test.claim),
    "p": lambda test: _p(test.p_values.p),
    "p Holm": lambda test: _p(test.adjusted.p),
    "decided by": lambda test: "p Holm" if test.claim.decide == "holm" else "p",
    "other parts": _others,
}
CLAIMS: Columns = {
    "id": lambda claim: claim.id,
    "where": lambda claim: claim.where,
    "claim": lambda claim: claim.claim,
    "test": lambda claim: claim.tested,
    "presupposes": lambda claim: _required(claim) or "-",
    "suite": lambda claim: presets.stem(claim.suite),
}
