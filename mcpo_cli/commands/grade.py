"""`mcpo grade`: grade the answers in a file, or regrade an evaluation."""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from mcpo_cli.commands.options import Debug, Json


def _complete_graders(incomplete: str) -> list[str]:
    from mcpo_cli import grading

    done, _, begun = incomplete.rpartition(",")
    return [(f"{done}," if done else "") + name for name in grading.registry() if name.startswith(begun)]


def _complete_targets(incomplete: str) -> list[str]:
    from mcpo_cli.home import location

    ids = sorted(path.name for path in (location() / "evals").glob("*") if path.is_dir())
    files = sorted(str(path) for path in Path().glob("*.jsonl"))
    return [name for name in ids + files if name.startswith(incomplete)]


Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.jsonl|EVALUATION",
        help="A file of lines with gold and response (or prediction), or the id of a stored evaluation.",
        autocompletion=_complete_targets,
    ),
]
GraderName = Annotated[
    str | None,
    typer.Option(
        "--grader",
        help="Grader. Default: math_verify for a file, each benchmark's own for an evaluation.",
        autocompletion=_complete_graders,
    ),
]
Compare = Annotated[
    str,
    typer.Option(
        help="Graders to compare with, separated by commas, such as math_dapo,exact.", autocompletion=_complete_graders
    ),
]
Timeout = Annotated[float, typer.Option(min=0.01, max=600, help="Time limit per answer in seconds.")]
Workers = Annotated[int, typer.Option(min=0, max=256, help="Number of grading processes; 0 for one per core.")]


def grade(
    target: Target,
    grader: GraderName = None,
    compare: Compare = "",
    timeout: Timeout = 5.0,
    workers: Workers = 0,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Grade the answers in a file, or regrade an evaluation; its old grading is kept."""
    from mcpo_cli import paths
    from mcpo_cli.commands import console, print_evaluation
    from mcpo_cli.commands.publish import evaluation_publisher
    from mcpo_cli.config.evaluation import Grading
    from mcpo_cli.evaluation import regrade
    from mcpo_cli.evaluation.gradings import Graders
    from mcpo_cli.grading import tally

    others = [name.strip() for name in compare.split(",") if name.strip()]
    regrade.known([*([grader] if grader else []), *others])
    file = paths.named(target)
    folder = None if file.is_file() else regrade.evaluation(target)
    drawn = regrade.stored(folder) if folder else {}
    answers = regrade.answers(drawn) if folder else regrade.read(file)
    document: dict[str, Any] = {"target": target, "answers": len(answers)}
    with Graders(Grading(timeout=timeout, workers=workers)) as pools:
        if folder:
            publish = evaluation_publisher("", console.talk)
            document["results"] = regrade.grade_again(folder, drawn, grader, pools, console.progress)
            verdicts = regrade.verdicts(folder, document["results"])
            publish(folder)
        else:
            with console.progress(grader or "math_verify", len(answers), "answers") as advance:
                document["grader"], verdicts = regrade.judge(pools, grader or "math_verify", answers, advance)
            document["lines"] = regrade.lines(answers, verdicts)
        document["totals"] = Counter(verdict.status for verdict in verdicts)
        document["comparisons"] = {}
        for other in others:
            with console.progress(other, len(answers), "answers") as advance:
                version, theirs = regrade.judge(pools, other, answers, advance)
            document["comparisons"][other] = regrade.comparison(answers, verdicts, version, theirs)
    if not as_json:
        print_evaluation.show_grading(document)
    failures = [verdict.detail for verdict in verdicts if verdict.status == "infra_error"]
    tally.check(document["totals"], failures[0] if failures else "", document)
    if as_json:
        console.print_json(document)
