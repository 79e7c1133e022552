"""Claims, those of the paper or of a plug-in, and the verdict of the runs at hand on each."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd

from mcpo_cli.analysis import claims
from mcpo_cli.analysis.claims import ALPHA, POWER, STATISTICS, VERDICTS, Claim, Outcome
from mcpo_cli.analysis.frames import Runs
from mcpo_cli.analysis.product import Artifact, Product
from mcpo_cli.analysis.render import Grid
from mcpo_cli.analysis.tables.base import STANDS_FOR
from mcpo_cli.statistics import power

TITLES = {claims.PATH: "Claims of the paper", claims.OF_METHODS: "Claims of other papers about their methods"}
HOLDS = " (Holm)"
NOTES = (
    "A test is one claim on one model, and on each tier if the paper claims it for every benchmark. value: mean over "
    "seeds of the statistic, or of its paired difference, with a 95% t-interval. p: two-sided, Student's t over seeds; "
    "p Holm: adjusted over all tests of this table.",
    f"supported: p is at most {ALPHA:g} and the effect is on the claim's side; contradicted: it is on the other side;"
    f"{HOLDS}: p Holm is at most {ALPHA:g}, too. Without any true effect, one test in {1 / ALPHA:.0f} is still called "
    "supported or contradicted. unresolved: p is larger, which does not show that there is no effect. contradicted "
    "refers to these runs, not to what the paper measured.",
    f"seeds needed: seeds that detect the effect seen here, if it is the true one, with probability {POWER:g} at level "
    f"{ALPHA:g}. This number is as uncertain as the standard deviation that it uses.",
    "Claims with a margin (±) test both bounds (two one-sided tests), so a wide interval cannot support them.",
)


def claims_table(path: Path) -> Artifact:
    """The artifact of the claims in the file `path`: a row a test.

    Raises:
        ConfigError: the file is none of claims.
    """
    declared = claims.read(path)
    title = TITLES.get(path, f"Claims of {path.name}")

    def build(data: Mapping[str, Runs]) -> Product:
        found = claims.outcomes(declared, data)
        spec = next(iter(data.values())).cells[0].spec
        where = f"scale {spec.scale}, regime {spec.regime}, {spec.train.steps} global steps"
        grids = [_glance(declared, found), _verdicts(found), _claims(declared)]
        rows = pd.DataFrame(map(_row, found))
        return Product(f"{title} ({where})", _sentence(declared, found), rows, grids, [*NOTES, *_quotes(declared)])

    suites = tuple(dict.fromkeys(claim.suite for claim in declared))
    return Artifact(path.stem, title, "claims", suites, build, source=path)


def _sentence(declared: Sequence[Claim], tests: Sequence[Outcome]) -> str:
    models = dict.fromkeys(one.model for one in tests)
    on = " and ".join(f"{name} (for {STANDS_FOR[name]})" if name in STANDS_FOR else name for name in models)
    by_verdict = Counter(one.verdict for one in tests)
    holding = Counter(one.verdict for one in tests if one.holds)
    parts = []
    for verdict in VERDICTS:
        held = f" ({holding[verdict]} of them also for all tests together)" if holding[verdict] else ""
        parts.append(f"{by_verdict[verdict]} {verdict}{held}")
    return f"Of {len(tests)} tests of {len(declared)} claims on {on}: {'; '.join(parts)}."


def _glance(declared: Sequence[Claim], tests: Sequence[Outcome]) -> Grid:
    """One row per claim and one column per model: the verdict, or the number of tests with each verdict."""
    models = list(dict.fromkeys(one.model for one in tests))
    rows = []
    for claim in declared:
        by_model = [[one for one in tests if one.claim is claim and one.model == model] for model in models]
        rows.append([claim.claim, claim.where, *map(_together, by_model)])
    return Grid("At a glance", ["claim", "where", *models], rows, labels=2 + len(models))


def _together(tests: Sequence[Outcome]) -> str:
    counts = Counter(_verdict(one) for one in tests)
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{verdict} {count}/{len(tests)}" for verdict, count in counts.items()) or "-"


def _verdict(one: Outcome) -> str:
    if one.why:
        return f"{one.verdict}: {one.why}"
    return one.verdict + (HOLDS if one.holds else "")


def _verdicts(tests: Iterable[Outcome]) -> Grid:
    header = ["claim", "model", "tier", "verdict", "seeds", "value", "95% interval", "against", "p", "p Holm"]
    rows = [
        [
            *(one.claim.id, one.model, one.part or "-"),
            _verdict(one),
            str(one.effect.n),
            _number(one.effect.mean, one.claim),
            _interval(one),
            {"greater": "> ", "less": "< ", "within": ""}[one.claim.relation] + _against(one.claim),
            _p(one.p),
            _p(one.p_holm),
            _needed(one),
            "-" if math.isnan(one.beside) else f"{one.claim.beside} {one.beside:.3f}",
        ]
        for one in tests
    ]
    return Grid("Verdicts of these runs", [*header, "seeds needed", "for comparison"], rows, labels=4)


def _claims(declared: Sequence[Claim]) -> Grid:
    rows = [[one.id, one.where, one.claim, one.tested, one.suite] for one in declared]
    return Grid("What is tested", ["id", "where", "claim", "test", "suite"], rows, labels=5)


def _quotes(declared: Sequence[Claim]) -> list[str]:
    named = dict.fromkeys(name for one in declared for name in (one.statistic, one.beside) if name)
    meanings = [f"{name}: {STATISTICS[name].meaning}." for name in named]
    return [
        *meanings,
        *(
            f'{one.id}: "{one.quote}"' + (f"; read as: {one.reads}." if one.reads else ".")
            for one in declared
            if one.quote
        ),
    ]


def _against(claim: Claim) -> str:
    return f"{claim.reference:g} ± {claim.margin:g}" if claim.relation == "within" else f"{claim.reference:g}"


def _number(value: float, claim: Claim) -> str:
    """The value as text, with a sign if the claim compares two arms."""
    if math.isnan(value):
        return "-"
    return f"{value:+.4f}" if claim.baseline else f"{value:.4f}"


def _interval(one: Outcome) -> str:
    bounds = [_number(value, one.claim) for value in (one.effect.low, one.effect.high)]
    return "-" if math.isnan(one.effect.half_width) else f"[{', '.join(bounds)}]"


def _p(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.4f}" if value >= 1e-4 else "<.0001"


def _needed(one: Outcome) -> str:
    if one.verdict != "unresolved":
        return "-"
    return f">{power.MOST_SEEDS}" if one.seeds is None else str(one.seeds)


def _row(one: Outcome) -> dict[str, Any]:
    about = {"claim": one.claim.id, "model": one.model, "tier": one.part, "verdict": one.verdict, "why": one.why}
    effect = {"value": one.effect.mean, "t_low": one.effect.low, "t_high": one.effect.high, "sd": one.sd}
    tests = {"p": one.p, "p_holm": one.p_holm, "seeds": one.effect.n, "seeds_needed": one.seeds}
    declared = {key: value for key, value in asdict(one.claim).items() if key not in ("id", "claim")}
    return about | effect | tests | {"beside_value": one.beside, "says": one.claim.claim} | declared


ARTIFACTS = (
    claims_table(claims.PATH),
    # Built by name alone: its runs are three times those of the paper.
    replace(claims_table(claims.OF_METHODS), section="diagnostic"),
)
