"""Grades both sides again with one grader, to measure the grader's part in their difference.

Grades the responses in the logs against the golds in the logs. A sample without a response or a gold, or on which the
grader fails (`infra_error`), is left out both before and after, and counted; so the two comparisons differ only in the
grader.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from mcpo_cli import grading
from mcpo_cli.compare.comparison import Comparison, Question
from mcpo_cli.compare.log import Log, Side, plain_rows
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.compare.page import signed
from mcpo_cli.errors import ConfigError
from mcpo_cli.grading import Pool, Verdict

NO_RESPONSE, NO_GOLD, FAILED = "no response", "no gold", "infra_error"
LEFT_OUT = (NO_RESPONSE, NO_GOLD, FAILED)
"""Reasons why a sample was not graded again."""
KEYS = ["benchmark", "metric", "arm"]


@dataclass(frozen=True)
class Regraded:
    """The sides graded by one grader, and its changes."""

    grader: str
    """Name and version."""
    sides: tuple[Side, ...]
    """The sides with the new scores and answers, and the grader among their facts."""
    before: tuple[Side, ...]
    """The same samples with the scores that their logs hold."""
    changes: pd.DataFrame
    """One row per sample whose score changed: side, benchmark, seed, problem, gold, before, after, status, answer."""
    counts: pd.DataFrame
    """One row per side and benchmark: samples, regraded, up, down, and the samples left out by reason (LEFT_OUT)."""

    def shares(self, question: Question, after: Comparison) -> pd.DataFrame:
        """One row per difference: before, after, the grader's part (before - after), and its share of before.

        after: the comparison of `sides` that answers `question`.
        """
        one, other = (
            found.differences[[*KEYS, "difference", "verdict"]] for found in (of_logs(self.before, question), after)
        )
        found = one.merge(other, on=KEYS, suffixes=("_before", "_after"))
        found = found.rename(columns={"difference_before": "before", "difference_after": "after"})
        by_grader = found["before"] - found["after"]
        return found.assign(by_grader=by_grader, share=(by_grader / found["before"]).where(found["before"] != 0))

    def to_json(self, question: Question, after: Comparison) -> dict[str, Any]:
        """The output of `mcpo compare --regrade --json`: one object per row of the frames; after: see `shares`."""
        frames = {"counts": self.counts, "differences": self.shares(question, after), "changes": self.changes}
        return {"grader": self.grader, **{name: plain_rows(frame) for name, frame in frames.items()}}

    def sentences(self, question: Question, after: Comparison) -> Iterator[str]:
        """A sentence on the grader's changes for each side and each difference; after: see `shares`."""
        for row in self.counts.to_dict("records"):
            left = [f"{row[why]} {why}" for why in LEFT_OUT if row[why]]
            again = f"{self.grader} graded {row['regraded']} of {row['samples']} samples again"
            out = f"; left out: {', '.join(left)}" if left else ""
            moved = f"{row['up']} became correct, {row['down']} incorrect"
            yield f"{row['side']}, {row['benchmark']}: {again}; {moved}{out}"
        for row in self.shares(question, after).to_dict("records"):
            share = "" if pd.isna(row["share"]) else f" ({row['share']:.0%} of it)"
            both = f"{signed(row['before'])} as logged, {signed(row['after'])} graded again"
            was = f"{signed(row['by_grader'])} was the grader's{share}"
            yield f"{row['arm']}, {row['benchmark']}, {row['metric']}: {both}; {was}"


def regrade(sides: Sequence[Side], grader: str, *, workers: int = 0) -> Regraded:
    """Grade the responses of all sides with one grader. workers: processes; 0 for one per core.

    Raises:
        ConfigError: no such grader, or a side has no response with a gold.
        RunFailed: the grader failed on too many samples.
    """
    with Pool(grader, workers=workers) as pool:
        for side in sides:
            if not any((_why(log.samples) == "").any() for log in side.logs):
                raise ConfigError(
                    f"{side.name}: no sample has both a response and a gold answer, so none can be graded again",
                    fix="name their columns: --columns response=NAME,gold=NAME",
                )
        done = [[_regraded(log, pool) for log in side.logs] for side in sides]
        name = pool.version if pool.version.startswith(grader) else f"{grader} {pool.version}"
    whole = pd.concat(
        [samples.assign(side=side.name) for side, logs in zip(sides, done, strict=True) for samples in logs],
        ignore_index=True,
    )
    verdicts = whole[whole["why"].isin(("", FAILED))]
    grading.check(
        [Verdict(status, detail=detail) for status, detail in zip(verdicts["status"], verdicts["detail"], strict=True)]
    )
    after = [_side(side, logs, name) for side, logs in zip(sides, done, strict=True)]
    before = [_side(side, logs, "") for side, logs in zip(sides, done, strict=True)]
    return Regraded(name, tuple(after), tuple(before), _changes(whole), _counts(whole))


def _why(samples: pd.DataFrame) -> pd.Series:
    """The reason why each sample cannot be graded; empty if it can."""
    why = pd.Series("", index=samples.index)
    for column, reason in (("gold", NO_GOLD), ("response", NO_RESPONSE)):
        lacking = samples[column].isna() if column in samples else pd.Series(True, index=samples.index)
        why = why.mask(lacking, reason)
    return why


def _regraded(log: Log, pool: Pool) -> pd.DataFrame:
    """The samples with `after`, `status`, `answer`, `detail` of the grader, and `why` if they have no score."""
    samples, why = log.samples.reset_index(drop=True), _why(log.samples).reset_index(drop=True)
    own = samples[why == ""]
    pairs = list(
        zip(own.get("gold", pd.Series()).astype(str), own.get("response", pd.Series()).astype(str), strict=True)
    )
    known = dict(zip(dict.fromkeys(pairs), pool.grade(dict.fromkeys(pairs)), strict=True))
    verdicts = pd.Series([known[pair] for pair in pairs], index=own.index, dtype=object).reindex(samples.index)
    status = verdicts.map(lambda one: one.status if isinstance(one, Verdict) else "")
    return samples.assign(
        before=samples["correct"],
        after=(status == "correct").astype(float),
        status=status,
        answer=verdicts.map(lambda one: one.answer if isinstance(one, Verdict) else None),
        detail=verdicts.map(lambda one: one.detail if isinstance(one, Verdict) else ""),
        why=why.mask(status == "infra_error", FAILED),
    )


def _side(side: Side, logs: Sequence[pd.DataFrame], grader: str) -> Side:
    """The side with only the graded samples: with the scores of `grader`, or those of its logs if that is empty."""
    made = []
    for log, samples in zip(side.logs, logs, strict=True):
        kept = samples[samples["why"] == ""]
        if kept.empty:
            continue
        if not grader:
            made.append(replace(log, samples=log.samples.reset_index(drop=True).loc[kept.index]))
            continue
        columns = [*dict.fromkeys([*log.samples.columns, "answer"])]
        facts = {
            benchmark: {**log.facts.get(benchmark, {}), "grader": grader}
            for benchmark in map(str, kept["benchmark"].unique())
        }
        made.append(replace(log, samples=kept.assign(correct=kept["after"])[columns], facts=facts))
    return Side(side.name, tuple(made))


def _changes(whole: pd.DataFrame) -> pd.DataFrame:
    columns = ["side", "benchmark", "seed", "problem", "gold", "before", "after", "status", "answer"]
    changed = whole[(whole["why"] == "") & (whole["before"] != whole["after"])]
    return changed[[name for name in columns if name in changed]].reset_index(drop=True)


def _counts(whole: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (side, benchmark), own in whole.groupby(["side", "benchmark"], sort=False, observed=True):
        kept = own[own["why"] == ""]
        rows.append(
            {
                "side": side,
                "benchmark": benchmark,
                "samples": len(own),
                "regraded": len(kept),
                "up": int((kept["after"] > kept["before"]).sum()),
                "down": int((kept["after"] < kept["before"]).sum()),
                **{why: int((own["why"] == why).sum()) for why in LEFT_OUT},
            }
        )
    return pd.DataFrame(rows)
