"""Grades stored responses again: those of a file, of an evaluation, or of both sides of a comparison.

A frame of samples has `gold`, `response` and, where a response is the bare answer, `extracted`; `judged` adds the
verdicts of a grader to it. A comparison counts a sample without a response or a gold, or on which the grader fails
(`infra_error`), neither before nor after, and says so: the two comparisons differ only in the grader.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

import pandas as pd

from mcpo_cli import golds, grading
from mcpo_cli.compare.comparison import Comparison, Question
from mcpo_cli.compare.log import Log, Side, plain_rows
from mcpo_cli.compare.logs import of_logs
from mcpo_cli.data import tables
from mcpo_cli.errors import ConfigError, bad_data
from mcpo_cli.grading import Grade, Pool
from mcpo_cli.render.markup import signed

FORM = 'one JSON object per line: {"gold": "42", "response": "... \\\\boxed{42}"} or {"gold": "42", "prediction": "42"}'
NO_RESPONSE, NO_GOLD, FAILED = "no response", "no gold", "infra_error"
LEFT_OUT = (NO_RESPONSE, NO_GOLD, FAILED)
"""Reasons why a sample was not graded again."""
KEYS = ["benchmark", "metric", "arm"]
MOST_UNREAD = 0.95
"""The largest share of a side's responses to a benchmark in which a grader may find no answer."""
VERDICT = [field.name for field in fields(Grade)]


def read(path: Path) -> pd.DataFrame:
    """The samples of a table, with a `name`: the `id` of a line, or else its number.

    A line has `gold`, and `response` or `prediction`.

    Raises:
        ConfigError: the file cannot be read, is empty, or a line has another form.
    """
    samples = []
    for number, cells in tables.rows(path):
        gold = cells.get("gold")
        row = {**cells, "gold": golds.of_cell(gold, str)} if isinstance(gold, list) else cells
        texts = "" if {"response", "prediction"} & set(row) else "'response' or 'prediction'"
        if missing := texts if "gold" in row else "'gold'":
            raise bad_data(f"{path}, line {number}: no {missing}; it has {', '.join(row) or 'nothing'}", fix=FORM)
        kind = "response" if "response" in row else "prediction"
        for key in ("gold", kind):
            value = row[key]
            if not isinstance(value, str | int | float) or isinstance(value, bool):
                raise bad_data(f"{path}, line {number}: {key} is {type(value).__name__}, not text", fix=FORM)
            if isinstance(value, float) and not math.isfinite(value):
                raise bad_data(f"{path}, line {number}: {key} is {value}, which is not an answer", fix=FORM)
        name = str(row.get("id", f"line {number}"))
        samples.append((name, str(row["gold"]), str(row[kind]), kind == "prediction"))
    if not samples:
        raise bad_data(f"{path} is empty", fix=FORM)
    return pd.DataFrame(samples, columns=["name", "gold", "response", "extracted"], dtype=object)


def judged(samples: pd.DataFrame, pool: Pool, advance: Callable[[], None] = lambda: None) -> pd.DataFrame:
    """The samples with the fields of the grader's verdicts (VERDICT) as columns; equal ones are graded once.

    advance: called after each sample.
    """
    extracted = samples["extracted"] if "extracted" in samples else [False] * len(samples)
    # `astype(str)` would refuse lone surrogates, which answers may have.
    keys = list(zip(map(str, samples["gold"]), map(str, samples["response"]), extracted, strict=True))
    futures = {key: pool.submit(key[0], key[1], extracted=key[2]) for key in dict.fromkeys(keys)}
    verdicts = []
    for key in keys:
        verdicts.append(futures[key].result())
        advance()
    columns = {name: [getattr(verdict, name) for verdict in verdicts] for name in VERDICT}
    return samples.assign(**{name: pd.Series(cells, samples.index, object) for name, cells in columns.items()})


def check(samples: pd.DataFrame) -> None:
    """Raise RunFailed if the grader failed on too many of the `judged` samples."""
    grading.check(
        [Grade(status, detail=detail) for status, detail in zip(samples["status"], samples["detail"], strict=True)]
    )


def lines(samples: pd.DataFrame) -> list[dict[str, Any]]:
    """The `judged` samples of a file with their verdicts, as plain data."""
    return cast(list[dict[str, Any]], plain_rows(samples[["name", "gold", *VERDICT]]))


def agreement(ours: pd.DataFrame, theirs: pd.DataFrame, version: str) -> dict[str, Any]:
    """Counts of agreement of two graders, and every sample on whose correctness they disagree.

    ours, theirs: the same samples, `judged` by each of both. version: name and version of the other grader.
    """
    pairs = Counter(zip(ours["status"], theirs["status"], strict=True))
    both = ours.assign(other_status=theirs["status"], other_answer=theirs["answer"])
    differ = both[(both["status"] == "correct") != (both["other_status"] == "correct")]
    return {
        "grader": version,
        "agree": len(ours) - len(differ),
        "disagree": len(differ),
        "correct": int((theirs["status"] == "correct").sum()),
        "statuses": [{"ours": a, "theirs": b, "count": count} for (a, b), count in sorted(pairs.items())],
        "disagreements": plain_rows(
            differ[["name", "gold", "status", "answer", "detail", "other_status", "other_answer"]]
        ),
    }


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
    """One row per side and benchmark: samples, regraded, up, down, right (correct now), unread (no answer is found),
    and the samples left out by reason (LEFT_OUT)."""

    def shares(self, question: Question, after: Comparison) -> pd.DataFrame:
        """One row per difference: before, after, the grader's part (before - after), and its share of before.

        after: the comparison of `sides` that answers `question`.
        """
        logged, again = (
            compared.differences[[*KEYS, "difference", "verdict"]]
            for compared in (of_logs(self.before, question), after)
        )
        both = logged.merge(again, on=KEYS, suffixes=("_before", "_after"))
        both = both.rename(columns={"difference_before": "before", "difference_after": "after"})
        by_grader = both["before"] - both["after"]
        return both.assign(by_grader=by_grader, share=(by_grader / both["before"]).where(both["before"] != 0) + 0.0)

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
            unread = f"; no answer is found in {row['unread']}" if row["unread"] else ""
            yield f"{row['side']}, {row['benchmark']}: {again}; {moved}{unread}{out}"
        whole = self.counts.groupby("benchmark", sort=False)[["regraded", "unread", "right"]].sum()
        for benchmark, total in whole[whole["right"] == 0].iterrows():
            answers = f"an answer in {total['regraded'] - total['unread']} of {total['regraded']} responses"
            yield (
                f"warning: {benchmark}: {self.grader} finds {answers} of all sides and calls none correct: the golds "
                "may have another form, such as whole solutions, which says nothing about the sides"
            )
        for row in self.shares(question, after).to_dict("records"):
            share = "" if pd.isna(row["share"]) else f" ({row['share']:.0%} of it)"
            both = f"{signed(row['before'])} as logged, {signed(row['after'])} graded again"
            was = f"{signed(row['by_grader'])} was the grader's{share}"
            yield f"{row['arm']}, {row['benchmark']}, {row['metric']}: {both}; {was}"


def regrade(sides: Sequence[Side], grader: str, *, workers: int = 0) -> Regraded:
    """Grade the responses of all sides with one grader. workers: processes; 0 for one per core.

    Raises:
        ConfigError: no such grader; a side has no response with a gold; or the grader finds no answer in nearly all
            responses of a side to a benchmark.
        RunFailed: the grader failed on too many samples.
    """
    if not grading.functions.is_function(grader):
        grading.check_name(grader, "--regrade {}")
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
    check(whole[whole["why"].isin(("", FAILED))])
    counts = _counts(whole)
    _refuse_unread(counts, grader)
    after, before = (
        tuple(_side(side, logs, facts) for side, logs in zip(sides, done, strict=True))
        for facts in ({"grader": name}, None)
    )
    return Regraded(name, after, before, _changes(whole), counts)


def _refuse_unread(counts: pd.DataFrame, grader: str) -> None:
    """Raise ConfigError if a grader finds no answer in nearly all responses of a side to a benchmark.

    Such a side has a score of about 0 whatever it answers, so its difference from another says nothing.
    """
    unread = counts[counts["unread"] > MOST_UNREAD * counts["regraded"]]
    if unread.empty:
        return
    sides = [
        f"{side}: no answer is found in {rows['unread'].sum()} of {rows['regraded'].sum()} responses "
        f"({', '.join(rows['benchmark'].astype(str))})"
        for side, rows in unread.groupby("side", sort=False)
    ]
    reads = f": {grader} reads {grading.READS[grader]}" if grader in grading.READS else ""
    raise ConfigError(
        f"{'; '.join(sides)}{reads}",
        fix="--regrade NAME of a grader that reads these responses (mcpo components list grader)",
        code="ungraded",
    )


def _why(samples: pd.DataFrame) -> pd.Series:
    """The reason why each sample cannot be graded; empty if it can."""
    why = pd.Series("", index=samples.index)
    for column, reason in (("gold", NO_GOLD), ("response", NO_RESPONSE)):
        lacking = samples[column].isna() if column in samples else pd.Series(True, index=samples.index)
        why = why.mask(lacking, reason)
    return why


def _regraded(log: Log, pool: Pool) -> pd.DataFrame:
    """The `judged` samples with the scores `before` and `after`, and `why` if they have no new one."""
    samples = log.samples.reset_index(drop=True)
    why = _why(samples)
    complete = samples[why == ""]
    verdicts = judged(complete, pool) if len(complete) else complete.assign(status="", answer=None, detail="")
    samples = samples.assign(**{name: verdicts[name] for name in ("status", "answer", "detail")})
    return samples.assign(
        before=_as_shares(samples["correct"]),
        after=(samples["status"] == "correct").astype(float),
        why=why.mask(samples["status"] == "infra_error", FAILED),
    )


def _as_shares(scores: pd.Series) -> pd.Series:
    """Scores of two values, a reward of -1 or 1 or a percentage of 0 or 100, as 0 and 1, as a grader gives them."""
    if scores.isin((-1, 1)).all():
        return (scores + 1) / 2
    return scores / 100 if scores.isin((0, 100)).all() else scores


def _side(side: Side, logs: Sequence[pd.DataFrame], graded: Mapping[str, str] | None) -> Side:
    """The side with only the graded samples: with their new scores and `graded` as a fact, or those of its logs."""
    made = []
    for log, samples in zip(side.logs, logs, strict=True):
        kept = samples[samples["why"] == ""]
        if kept.empty:
            continue
        if graded is None:
            made.append(replace(log, samples=kept.assign(correct=kept["before"])[log.samples.columns]))
            continue
        columns = [*dict.fromkeys([*log.samples.columns, "answer"])]
        facts = {name: {**log.facts.get(name, {}), **graded} for name in map(str, kept["benchmark"].unique())}
        made.append(replace(log, samples=kept.assign(correct=kept["after"])[columns], facts=facts))
    return Side(side.name, tuple(made))


def _changes(whole: pd.DataFrame) -> pd.DataFrame:
    columns = ["side", "benchmark", "seed", "problem", "gold", "before", "after", "status", "answer"]
    changed = whole[(whole["why"] == "") & (whole["before"] != whole["after"])]
    return changed[[name for name in columns if name in changed]].reset_index(drop=True)


def _counts(whole: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (side, benchmark), samples in whole.groupby(["side", "benchmark"], sort=False, observed=True):
        kept = samples[samples["why"] == ""]
        rows.append(
            {
                "side": side,
                "benchmark": benchmark,
                "samples": len(samples),
                "regraded": len(kept),
                "up": int((kept["after"] > kept["before"]).sum()),
                "down": int((kept["after"] < kept["before"]).sum()),
                "right": int(kept["after"].sum()),
                "unread": int((kept["status"] == "unparsable").sum()),
                **{why: int((samples["why"] == why).sum()) for why in LEFT_OUT},
            }
        )
    return pd.DataFrame(rows)
