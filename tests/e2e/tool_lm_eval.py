"""A process of the tools' environment: the command line of lm-evaluation-harness, with a model of a known accuracy.

`python tool_lm_eval.py FOLDER NAME=SHARE...` writes FOLDER/NAME for each: SHARE of the answers are right.
"""

import random
import sys
from pathlib import Path
from typing import Any

from lm_eval.__main__ import cli_evaluate
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

TASK = """\
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n"], do_sample: true, temperature: 1.0, max_gen_toks: 6}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
metadata: {{version: 3.0}}
"""


@register_model("known")
class Known(LM):
    """Answers right with a chance of `share`, drawn by its seed and the question."""

    def __init__(self, share: float, seed: str, **_: Any) -> None:
        super().__init__()
        self.share, self.seed = share, seed

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        draws = [random.Random(f"{self.seed} {one.doc['question']}").random() for one in requests]
        return [one.doc["answer"] if draw < self.share else "?" for one, draw in zip(requests, draws, strict=True)]

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        raise NotImplementedError


def main(folder: Path, *runs: str) -> None:
    """Write the task and evaluate each model."""
    (folder / "sums.yaml").write_text(TASK.format(data=folder / "problems.jsonl"))
    for run in runs:
        name, share = run.split("=")
        asked = ["--model", "known", "--model_args", f"share={share},seed={name}", "--tasks", "sums"]
        where = ["--include_path", str(folder), "--output_path", str(folder / name), "--log_samples"]
        sys.argv = ["lm_eval", *asked, *where]
        cli_evaluate()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
