"""The verbs about models: `mcpo evaluate`, `grade` and `export`."""

import re
import shlex
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mcpo_cli import paths
from mcpo_cli.commands.completion import completing
from mcpo_cli.commands.reply import Reply, verb
from mcpo_cli.commands.verbs import DryRun, RunId
from mcpo_cli.errors import ConfigError, Interrupted, RunFailed
from mcpo_cli.home import home, location

if TYPE_CHECKING:
    import pandas as pd

EVALUATE_SETTINGS = """\
Settings, key=value: engine=hf|local|vllm n=8 temperature=0.7 top_p=1 max_tokens=20480 seed=0 prompt=dapo|boxed|plain
chat=auto|off revision=COMMIT data.path=FILE|FOLDER grading.timeout=5 compute.device=auto|cpu|cuda ..."""


Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A run, a preset, a Hugging Face folder, or OWNER/NAME on the Hugging Face Hub."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings in Hydra's grammar, see below.", show_default=False),
]
Benchmarks = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE|NAME=FILE,...",
        help="Benchmarks (mcpo components list data), files of yours, or tasks that generate problems: held-out tiers.",
        autocompletion=completing("benchmark", commas=True),
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, max=100_000, help="Use at most this many problems of each benchmark.", show_default=False),
]


@verb(
    "eval_id, protocol, benchmarks, ...; with --dry-run: eval_id, ..., missing_problems, benchmarks_fetched_from, or "
    "fetched_from alone"
)
def evaluate(
    model: Model,
    settings: Settings = None,
    benchmarks: Benchmarks = "aime24,aime25,amc23",
    limit: Limit = None,
    dry_run: DryRun = False,
) -> Reply:
    """Sample a model on benchmarks, grade, and report with intervals. Rerunning samples only what is missing."""
    from mcpo_cli.commands import console, print_evaluation
    from mcpo_cli.compare import evaluation_page
    from mcpo_cli.config import class_options
    from mcpo_cli.config.evaluation import Evaluation
    from mcpo_cli.evaluation import asking, protocol, run, scope, upload

    if file := next((word[5:] for word in settings or [] if re.match("data=[^{]", word)), ""):
        command = shlex.join(["mcpo", "evaluate", model, "--benchmarks", file])
        raise ConfigError(f"data={file}: an evaluation reads a file as a benchmark", fix=command)
    evaluation = class_options.settings(Evaluation, settings or [])
    if dry_run and (source := scope.to_fetch(model, evaluation.revision)):
        why = f"the model {model} is not on this machine: without --dry-run, it is fetched from {source}"
        return Reply({"fetched_from": source}, f"{why}; its files decide the protocol")
    subject = scope.subject(model, evaluation.revision)
    protocol.check(protocol.Protocol(evaluation, subject.facts, limit))
    names = scope.split(benchmarks)
    absent = scope.unfetched(names, evaluation) if dry_run else {}
    loaded = scope.benchmarks([name for name in names if name not in absent], subject, evaluation, limit)
    plan = protocol.Protocol(evaluation, subject.facts, limit, asking.of_tasks(loaded))
    protocol.check(plan)
    print_evaluation.announce(plan, loaded, str(run.folder(plan.eval_id)))
    if dry_run:
        counts = run.missing(plan, loaded)
        summary = {"label": plan.label, "deviations": plan.deviations(), "missing_problems": counts}
        gaps = [
            f"{count} of {len(benchmark.problems)} problems of {benchmark.name}"
            for benchmark, count in zip(loaded, counts.values(), strict=True)
        ]
        gaps += [f"all problems of {name}, which are fetched from {source}" for name, source in absent.items()]
        document = {"eval_id": plan.eval_id, "protocol": plan.document(), **summary, "benchmarks_fetched_from": absent}
        return Reply(document, f"{plan.eval_id}: {plan.label}; to be sampled: {', '.join(gaps)}")
    send = upload.uploader(evaluation.compute.tracking_uri, console.talk)
    try:
        with _terminable():
            results = run.evaluate(plan, loaded, console.progress)
    except KeyboardInterrupt as error:
        raise Interrupted("stopped; all samples so far are kept", fix="the same command continues") from error
    page = evaluation_page.write(run.folder(plan.eval_id), results)
    send(run.folder(plan.eval_id))
    console.talk(f"metrics and samples: {page}")
    return Reply({**results}, print_evaluation.page(results))


@contextmanager
def _terminable() -> Iterator[None]:
    """Make SIGTERM end the block as Ctrl-C does."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.jsonl|EVALUATION",
        help="A file of lines with gold and response (or prediction), or the id of a stored evaluation.",
        autocompletion=completing("evaluation", "file"),
    ),
]
GraderName = Annotated[
    str | None,
    typer.Option(
        "--grader",
        help="Grader. Default: math_verify for a file, each benchmark's own for an evaluation.",
        autocompletion=completing("grader", commas=True),
    ),
]
Compare = Annotated[
    str,
    typer.Option(
        help="Graders to compare with, separated by commas, such as math_dapo,exact.",
        autocompletion=completing("grader", commas=True),
    ),
]
Timeout = Annotated[float, typer.Option(min=0.01, max=600, help="Time limit per answer in seconds.")]
Workers = Annotated[int, typer.Option(min=0, max=256, help="Number of grading processes; 0 for one per core.")]


@verb("target, answers, totals, comparisons; of a file: grader, lines; of an evaluation: results")
def grade(
    target: Target,
    grader: GraderName = None,
    compare: Compare = "",
    timeout: Timeout = 5.0,
    workers: Workers = 0,
) -> Reply:
    """Grade the answers in a file, or regrade an evaluation; its old grading is kept."""
    from mcpo_cli import grading
    from mcpo_cli.commands import console, print_evaluation
    from mcpo_cli.compare import evaluation_page, regrade
    from mcpo_cli.compare.readers.evaluations import samples_of
    from mcpo_cli.config.evaluation import Grading
    from mcpo_cli.evaluation import gradings, run, upload
    from mcpo_cli.evaluation.gradings import Graders

    others = [name.strip() for name in compare.split(",") if name.strip()]
    if grader:
        grading.check_name(grader, "--grader {}")
    for name in others:
        grading.check_name(name, "--compare {}")
    file = paths.named(target)
    folder = None if file.is_file() else gradings.find(target)
    document: dict[str, Any] = {"target": target}
    with Graders(Grading(timeout=timeout, workers=workers)) as graders:

        def judged(name: str, samples: "pd.DataFrame") -> "pd.DataFrame":
            with console.progress(name, len(samples), "answers") as advance:
                return regrade.judged(samples, graders.pool(name), advance)

        if folder:
            send = upload.uploader("", console.talk)
            results = run.grade_again(folder, grader, graders, console.progress)
            evaluation_page.write(folder, results)
            send(folder)
            samples = samples_of(folder, dict.fromkeys(results["benchmarks"], results))
            samples["name"] = [f"{row.benchmark}/{row.problem}/{row.sample}" for row in samples.itertuples()]
            document |= {"answers": len(samples), "results": results}
        else:
            judge = grader or "math_verify"
            samples = judged(judge, regrade.read(file))
            facts = {"answers": len(samples), "grader": graders.pool(judge).version}
            document |= {**facts, "lines": regrade.lines(samples)}
        document["totals"] = Counter(samples["status"])
        document["comparisons"] = {
            name: regrade.agreement(samples, judged(name, samples), graders.pool(name).version) for name in others
        }
    error = None
    try:
        regrade.check(samples)
    except RunFailed as failure:
        error = failure
    return Reply(document, print_evaluation.grading_page(document), error)


To = Annotated[
    Path | None,
    typer.Option(help="The folder to write (default: MCPO_HOME/exports/RUN_ID/step_N).", show_default=False),
]
Step = Annotated[
    int | None,
    typer.Option(
        min=1, help="Step of the policy: the last, or one with a checkpoint (default: the newest).", show_default=False
    ),
]
Push = Annotated[
    str | None,
    typer.Option(
        metavar="OWNER/NAME", help="Also upload the folder to this model of the Hugging Face Hub; a new one is private."
    ),
]


@verb("run_id, step, folder, address")
def export(run_id: RunId, to: To = None, step: Step = None, push: Push = None) -> Reply:
    """Write a run's policy with a model card to a folder that `mcpo evaluate`, transformers and vLLM can load."""
    from mcpo_cli import backends
    from mcpo_cli.evaluation import model_card
    from mcpo_cli.runs import catalog, folders
    from mcpo_cli.runs.journal import Journal

    if push:
        model_card.check(push)
    run = catalog.find(location(), run_id)
    backend, name, last = backends.get(run.spec.backend), run.spec.run_id, run.spec.train.steps
    final = folders.final_policy(run.folder)
    steps = sorted({number for number in backend.kept(run.folder) if number} | ({last} if final else set()))
    if not steps:
        raise ConfigError(
            f"{name} is {run.state} and has kept no policy: neither a checkpoint nor the final one",
            fix=f"mcpo runs show {name}",
            code="missing_runs",
        )
    step_number = step or steps[-1]
    if step_number not in steps:
        numbers = ", ".join(map(str, steps))
        raise ConfigError(
            f"{name} has kept no policy of step {step_number}; those that it has are of step {numbers}",
            fix=f"mcpo export {name} --step {min(steps, key=lambda number: abs(number - step_number))}",
            code="not_found",
        )
    target = paths.named(to or home() / "exports" / name / f"step_{step_number}")
    if target.exists():
        raise ConfigError(f"{target} already exists and is not overwritten", fix="--to FOLDER")
    with folders.atomic_folder(target, {"run_id": name, "step": step_number}) as part:
        if final and step_number == last:
            folders.copy_policy(final, part)
        else:
            backend.export(run.spec, run.folder, step_number, part)
        (part / "README.md").write_text(model_card.text(run.spec, Journal(run.folder), step_number), encoding="utf-8")
    address = model_card.push(target, push, f"{name} after step {step_number}") if push else None
    document = {"run_id": name, "step": step_number, "folder": str(target), "address": address}
    return Reply(document, "\n".join(filter(None, [str(target), address])))
