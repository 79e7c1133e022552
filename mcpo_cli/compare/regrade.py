"""Grades stored responses again: responses of a file, of an evaluation, or of both sides of a comparison.

A frame of samples has `gold`, `response` and, where a response is the bare answer, `extracted`; `judged` adds the
verdicts of a grader to it. A sample without a response or a gold, or on which the grader fails (`infra_error`), counts
neither before nor after, and the comparison says so: the two comparisons differ only in the grader.
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
        if gap := texts if "gold" in row else "'gold'":
            raise bad_data(f"{path}, line {number}: no {gap}; it has {', '.join(row) or 'nothing'}", fix=FORM)
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
    """The samples with the fields of the grader's verdicts (VERDICT) as columns; equal samples are graded once.

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


def agreement(first: pd.DataFrame, second: pd.DataFrame, version: str) -> dict[str, Any]:
    """Counts of agreement of two graders, and every sample on whose correctness they disagree.

    first, second: the same samples, `judged` by each grader. version: name and version of the other grader.
    """
    pairs = Counter(zip(first["status"], second["status"], strict=True))
    table = first.assign(other_status=second["status"], other_answer=second["answer"])
    differ = table[(table["status"] == "correct") != (table["other_status"] == "correct")]
    return {
        "grader": version,
        "agree": len(first) - len(differ),
        "disagree": len(differ),
        "correct": int((second["status"] == "correct").sum()),
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

        A metric that the logged scores do not have, such as pass@8 of rewards between 0 and 1, has no row.

        after: the comparison of `sides` that answers `question`.
        """
        try:
            before = of_logs(self.before, question)
        except ConfigError:
            before = of_logs(self.before, replace(question, metrics=()))
        logged, regraded = (compared.differences[[*KEYS, "difference", "verdict"]] for compared in (before, after))
        table = logged.merge(regraded, on=KEYS, suffixes=("_before", "_after"))
        table = table.rename(columns={"difference_before": "before", "difference_after": "after"})
        by_grader = table["before"] - table["after"]
        return table.assign(by_grader=by_grader, share=(by_grader / table["before"]).where(table["before"] != 0) + 0.0)

    def to_json(self, shares: pd.DataFrame) -> dict[str, Any]:
        """The output of `mcpo compare --regrade --json`: one object per row of the frames; shares: see `shares`."""
        frames = {"counts": self.counts, "differences": shares, "changes": self.changes}
        return {"grader": self.grader, **{name: plain_rows(frame) for name, frame in frames.items()}}

    def sentences(self, shares: pd.DataFrame) -> Iterator[str]:
        """A sentence on the grader's changes for each side and each difference; shares: see `shares`."""
        for row in self.counts.to_dict("records"):
            left = [f"{row[reason]} {reason}" for reason in LEFT_OUT if row[reason]]
            head = f"{self.grader} graded {row['regraded']} of {row['samples']} samples again"
            tail = f"; left out: {', '.join(left)}" if left else ""
            moved = f"{row['up']} became correct, {row['down']} incorrect"
            unread = f"; no answer is found in {row['unread']}" if row["unread"] else ""
            yield f"{row['side']}, {row['benchmark']}: {head}; {moved}{unread}{tail}"
        totals = self.counts.groupby("benchmark", sort=False)[["regraded", "unread", "right"]].sum()
        for benchmark, total in totals[totals["right"] == 0].iterrows():
            answers = f"an answer in {total['regraded'] - total['unread']} of {total['regraded']} responses"
            yield (
                f"warning: {benchmark}: {self.grader} finds {answers} of all sides and calls none correct: the golds "
                "may have another form, such as whole solutions, which says nothing about the sides"
            )
        for row in shares.to_dict("records"):
            share = "" if pd.isna(row["share"]) else f" ({row['share']:.0%} of it)"
            change = f"{signed(row['before'])} as logged, {signed(row['after'])} graded again"
            was = f"{signed(row['by_grader'])} was the grader's{share}"
            yield f"{row['arm']}, {row['benchmark']}, {row['metric']}: {change}; {was}"


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
        results = [[_regraded(log, pool) for log in side.logs] for side in sides]
    table = pd.concat(
        [samples.assign(side=side.name) for side, logs in zip(sides, results, strict=True) for samples in logs],
        ignore_index=True,
    )
    check(table[table["why"].isin(("", FAILED))])
    counts = _counts(table)
    _refuse_unread(counts, grader)
    after, before = (
        tuple(_side(side, logs, facts) for side, logs in zip(sides, results, strict=True))
        for facts in ({"grader": pool.version}, None)
    )
    return Regraded(pool.version, after, before, _changes(table), counts)


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
    reasons = pd.Series("", index=samples.index)
    for column, reason in (("gold", NO_GOLD), ("response", NO_RESPONSE)):
        mask = samples[column].isna() if column in samples else pd.Series(True, index=samples.index)
        reasons = reasons.mask(mask, reason)
    return reasons


def _regraded(log: Log, pool: Pool) -> pd.DataFrame:
    """The `judged` samples with the scores `before` and `after`, and `why` if they have no new one."""
    samples = log.samples.reset_index(drop=True)
    reasons = _why(samples)
    complete = samples[reasons == ""]
    verdicts = judged(complete, pool) if len(complete) else complete.assign(status="", answer=None, detail="")
    samples = samples.assign(**{name: verdicts[name] for name in ("status", "answer", "detail")})
    return samples.assign(
        before=_as_shares(samples["correct"]),
        after=(samples["status"] == "correct").astype(float),
        why=reasons.mask(samples["status"] == "infra_error", FAILED),
    )


def _as_shares(scores: pd.Series) -> pd.Series:
    """Scores of two values, a reward of -1 or 1 or a percentage of 0 or 100, as 0 and 1, as a grader gives them."""
    if scores.isin((-1, 1)).all():
        return (scores + 1) / 2
    return scores / 100 if scores.isin((0, 100)).all() else scores


def _side(side: Side, logs: Sequence[pd.DataFrame], graded: Mapping[str, str] | None) -> Side:
    """The side with only the graded samples: with their new scores and `graded` as a fact, or with old scores."""
    new_logs = []
    for log, samples in zip(side.logs, logs, strict=True):
        rows = samples[samples["why"] == ""]
        if rows.empty:
            continue
        if graded is None:
            new_logs.append(replace(log, samples=rows.assign(correct=rows["before"])[log.samples.columns]))
            continue
        columns = [*dict.fromkeys([*log.samples.columns, "answer"])]
        facts = {name: {**log.facts.get(name, {}), **graded} for name in map(str, rows["benchmark"].unique())}
        new_logs.append(replace(log, samples=rows.assign(correct=rows["after"])[columns], facts=facts))
    return Side(side.name, tuple(new_logs))


def _changes(table: pd.DataFrame) -> pd.DataFrame:
    columns = ["side", "benchmark", "seed", "problem", "gold", "before", "after", "status", "answer"]
    changes = table[(table["why"] == "") & (table["before"] != table["after"])]
    return changes[[name for name in columns if name in changes]].reset_index(drop=True)


def _counts(table: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (side, benchmark), samples in table.groupby(["side", "benchmark"], sort=False, observed=True):
        part = samples[samples["why"] == ""]
        rows.append(
            {
                "side": side,
                "benchmark": benchmark,
                "samples": len(samples),
                "regraded": len(part),
                "up": int((part["after"] > part["before"]).sum()),
                "down": int((part["after"] < part["before"]).sum()),
                "right": int(part["after"].sum()),
                "unread": int((part["status"] == "unparsable").sum()),
                **{reason: int((samples["why"] == reason).sum()) for reason in LEFT_OUT},
            }
        )
    return pd.DataFrame(rows)
