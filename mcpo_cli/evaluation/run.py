"""Runs an evaluation: draws the missing samples, grades them and stores the results. Stored samples are reused."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from pathlib import Path
from typing import Any

from mcpo_cli.data.base import Problem
from mcpo_cli.evaluation import asking, gradings, metrics
from mcpo_cli.evaluation.asking import Benchmark
from mcpo_cli.evaluation.engines import Sample, SampleRequest, Sampling, open_engine
from mcpo_cli.evaluation.gradings import BenchmarkGrading, Drawn, Graders, Samples
from mcpo_cli.evaluation.protocol import Protocol
from mcpo_cli.grading.pool import REFUSING
from mcpo_cli.home import home, location
from mcpo_cli.model_facts import ModelFacts
from mcpo_cli.records import BenchmarkResult, GradeRow, Results
from mcpo_cli.runs import prompts, provenance
from mcpo_cli.runs.attempts import owned
from mcpo_cli.runs.journal import read_json, write_atomic
from mcpo_cli.seeds import stream

Advance = Callable[[], None]
Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""Takes a title and a number of problems; the context's value is called after each problem."""


def folder(eval_id: str) -> Path:
    """The folder of one evaluation, whether it exists or not."""
    return home() / "evals" / eval_id


def evaluate(protocol: Protocol, benchmarks: Sequence[Benchmark], progress: Progress) -> Results:
    """Evaluates a model; samples and gradings of an earlier start of the same evaluation are reused.

    Raises:
        RunFailed: another process runs this evaluation, the engine broke, or too many answers could not be graded.
        ConfigError: the engine is not available here.
    """
    target = folder(protocol.eval_id)
    with owned(target):
        attempt = target / f"attempt_{1 + sum(1 for _ in target.glob('attempt_*'))}"
        provenance.write(attempt, sys.argv)
        write_atomic(target / "protocol.json", json.dumps(protocol.document(), indent=2))
        _draw(protocol, benchmarks, target, progress)
        refuses = protocol.settings.grading.refuse_unevaluated
        before = [results for results in gradings.all_of(target) if _covers(results, benchmarks, refuses=refuses)]
        if before:
            return before[-1]
        draws = {
            benchmark.name: Samples(target / "samples" / benchmark.name).read_all(
                [problem.id for problem in benchmark.problems]
            )
            for benchmark in benchmarks
        }
        graded = {}
        with Graders(protocol.settings.grading) as graders:
            for benchmark in benchmarks:
                with progress(f"grading {benchmark.name}", len(benchmark.problems)) as advance:
                    graded[benchmark.name] = graders.grade(benchmark.grader, draws[benchmark.name], advance)
        facts = {
            benchmark.name: {"digest": benchmark.digest, "source": benchmark.source, "notes": benchmark.notes}
            for benchmark in benchmarks
        }
        return record(target, protocol.label, protocol.deviations(), facts, graded, draws)


def record(
    target: Path,
    label: str,
    deviations: Sequence[str],
    facts: Mapping[str, Mapping[str, Any]],
    graded: Mapping[str, BenchmarkGrading],
    draws: Mapping[str, Sequence[Drawn]],
) -> Results:
    """Stores a new grading of the evaluation in `target`. facts: digest, source and notes of each benchmark."""
    protocol = read_json(target / "protocol.json")
    code = provenance.code_state()
    engines = sorted({draw.engine for problems in draws.values() for draw in problems})
    benchmarks = {
        name: BenchmarkResult(
            problems=len(result.rows),
            digest=facts[name]["digest"],
            source=facts[name]["source"],
            notes=list(facts[name]["notes"]),
            grader=result.grader,
            metrics=metrics.summarize(result.rows, protocol["n"]),
            warnings=metrics.suspicions(result.rows, protocol["n"], protocol["temperature"]),
        )
        for name, result in graded.items()
    }
    results = Results(
        eval_id=target.name,
        grading=gradings.next_number(target),
        time=time.time(),
        label=label,
        protocol=protocol,
        deviations=list(deviations),
        shortfalls=_shortfalls(graded, engines),
        engines=engines,
        commit=code["commit"],
        dirty=code["dirty"],
        benchmarks=benchmarks,
    )
    gradings.write(target, results, {name: result.rows for name, result in graded.items()})
    return results


def grade_again(target: Path, grader: str | None, graders: Graders, progress: Progress) -> Results:
    """Adds a grading of all samples that were graded before. grader: None means each benchmark's own grader.

    Raises:
        RunFailed: some samples are missing or damaged, another process runs this evaluation, or too many answers could
            not be graded.
    """
    newest = gradings.newest(target)
    rows = {name: gradings.rows(target, results["grading"], name) for name, results in newest.items()}
    draws = {
        name: Samples(target / "samples" / name).read_all([r["problem"] for r in table]) for name, table in rows.items()
    }
    graded: dict[str, BenchmarkGrading] = {}
    with owned(target):
        for name, problems in draws.items():
            choice = grader or newest[name]["benchmarks"][name]["grader"].split()[0]
            with progress(f"grading {name}", len(problems)) as advance:
                graded[name] = graders.grade(choice, problems, advance)
        facts = {name: dict(results["benchmarks"][name]) for name, results in newest.items()}
        deviations = dict.fromkeys(text for results in newest.values() for text in results["deviations"])
        label = max(newest.values(), key=itemgetter("grading"))["label"]
        return record(target, label, list(deviations), facts, graded, draws)


def missing(protocol: Protocol, benchmarks: Sequence[Benchmark]) -> dict[str, int]:
    """Number of problems of each benchmark that still need samples."""
    target, n = location() / "evals" / protocol.eval_id, protocol.settings.n
    stores = {benchmark.name: Samples(target / "samples" / benchmark.name) for benchmark in benchmarks}
    return {test.name: sum(not stores[test.name].has(problem, n) for problem in test.problems) for test in benchmarks}


def _draw(protocol: Protocol, benchmarks: Sequence[Benchmark], target: Path, progress: Progress) -> None:
    """Draws all missing samples in one call, because an engine may need a minute to start."""
    settings, facts = protocol.settings, protocol.model
    jobs: dict[str, tuple[Samples, Problem]] = {}
    requests = []
    for benchmark in benchmarks:
        samples = Samples(target / "samples" / benchmark.name)
        way = benchmark.asking
        for problem in benchmark.problems:
            if not samples.has(problem, settings.n):
                key = f"{benchmark.name}/{problem.id}"
                jobs[key] = samples, problem
                prompt_ids = asking.encoded(way, problem, facts)
                # They do not depend on the other problems of the evaluation.
                seeds = tuple(stream(settings.seed, "eval", problem.number, index) for index in range(settings.n))
                requests.append(SampleRequest(key, prompt_ids, seeds, way.stops, way.max_tokens))
    if not requests:
        return
    _check_prompts(target, benchmarks, facts)
    sampling = Sampling(settings.temperature, settings.top_p, settings.max_tokens, facts.stop_ids)
    compute = settings.compute
    engine = open_engine(settings.engine, facts, sampling, device=compute.device, threads=compute.threads)
    with progress("sampling", len(requests)) as advance:
        for key, responses in _generate(engine.generate, requests, facts.window):
            samples, problem = jobs[key]
            samples.write(problem, responses, engine.version)
            advance()


def _check_prompts(target: Path, benchmarks: Sequence[Benchmark], facts: ModelFacts) -> None:
    """Raise RunFailed if the first prompts of a benchmark differ from an earlier start; see `prompts.check`."""
    digests = {}
    for benchmark in benchmarks:
        first = (asking.encoded(benchmark.asking, problem, facts) for problem in benchmark.problems[: prompts.SAMPLE])
        # Another limit, or another file, has other problems.
        digests[f"{benchmark.name} {benchmark.digest}"] = prompts.digest(first)
    prompts.check(target, digests)


def _generate(
    generate: Callable[[Sequence[SampleRequest]], Iterator[tuple[str, list[Sample]]]],
    requests: list[SampleRequest],
    window: int,
) -> Iterator[tuple[str, list[Sample]]]:
    """The samples of each request; empty samples if the prompt leaves no room for an answer."""
    fitting = []
    for request in requests:
        if len(request.prompt_ids) < window:
            fitting.append(request)
        else:
            yield request.key, [Sample("", 0, "no_room", seed) for seed in request.seeds]
    if fitting:
        yield from generate(fitting)


def _covers(results: Results, benchmarks: Sequence[Benchmark], *, refuses: bool) -> bool:
    """True if a grading covers exactly these benchmarks with their own graders and graded every answer.

    refuses: whether it has to call unevaluated answers wrong.
    """
    wanted = {benchmark.name: (benchmark.digest, benchmark.grader, refuses) for benchmark in benchmarks}
    covered = {
        name: (result["digest"], result["grader"].split()[0], result["grader"].endswith(REFUSING))
        for name, result in results["benchmarks"].items()
    }
    return covered == wanted and not any(result["metrics"]["infra_error"] for result in results["benchmarks"].values())


def _shortfalls(graded: Mapping[str, BenchmarkGrading], engines: Sequence[str]) -> list[str]:
    """The ways in which the results differ from the protocol."""
    shortfalls = [] if len(engines) < 2 else [f"samples of several engines: {', '.join(engines)}"]
    rows: list[GradeRow] = [row for result in graded.values() for row in result.rows]
    if failures := sum(row["statuses"].count("infra_error") for row in rows):
        shortfalls.append(f"{failures} samples could not be graded and enter no metric")
    if overflows := sum("no_room" in row["finishes"] for row in rows):
        shortfalls.append(f"{overflows} prompts fill the model's window: their problems count as not solved")
    return shortfalls
