"""A process of the tools' environment: inspect_ai evaluates models of a known accuracy, or mcpo reads its logs.

`python tool_inspect.py write NAME=SHARE...` writes logs to a folder NAME, that of `weak-again` as .json: SHARE of the
answers to problems.jsonl are correct; below 0 the model fails.
`python tool_inspect.py read PACKAGES PATH...` prints mcpo's reading of each path as a line of JSON: it reads these
logs with inspect_ai, and takes its other packages from the folder PACKAGES.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

EPOCHS = 2


def write(*runs: str) -> None:
    """Evaluate each model."""
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import exact
    from inspect_ai.solver import generate

    problems = [json.loads(line) for line in Path("problems.jsonl").read_text().splitlines()]
    answers = {one["question"]: one["answer"] for one in problems}

    def answering(name: str, share: float) -> Any:
        draws = random.Random(name)

        def answer(messages: list[Any], *_: Any) -> Any:
            if share < 0:
                raise ValueError("a model that fails")
            said = answers[messages[-1].text] if draws.random() < share else "?"
            output = ModelOutput.from_content("mockllm/model", said)
            # Otherwise inspect_ai counts tokens, with a vocabulary that it downloads.
            output.usage = ModelUsage(input_tokens=5, output_tokens=len(said), total_tokens=5 + len(said))
            return output

        return answer

    for run in runs:
        name, share = run.split("=")
        task = Task(
            name="sums",
            dataset=[Sample(id=f"q{i}", input=one["question"], target=one["answer"]) for i, one in enumerate(problems)],
            solver=generate(),
            scorer=exact(),
            epochs=EPOCHS,
            version=3,
        )
        model = get_model("mockllm/model", custom_outputs=answering(name, float(share)), memoize=False)
        kind = "json" if name == "weak-again" else "eval"
        evaluate(task, model=model, log_dir=name, log_format=kind, temperature=0.5, display="none")


def read(packages: str, *paths: str) -> None:
    """Read logs with mcpo, and print samples and facts, or the error, of each."""
    # Last: inspect_ai needs its own versions.
    sys.path.append(packages)
    from mcpo_cli.compare.readers import Options
    from mcpo_cli.compare.readers import read as read_logs
    from mcpo_cli.errors import ConfigError

    for path in paths:
        try:
            (log,) = read_logs(Path(path), Options())
            samples = log.samples.to_dict("list")
            print(json.dumps({"path": path, "model": log.model, "facts": log.facts, "samples": samples}))
        except ConfigError as error:
            print(json.dumps({"code": error.code, "message": error.message}))


if __name__ == "__main__":
    job, *words = sys.argv[1:]
    {"write": write, "read": read}[job](*words)
