"""A process of the tools' environment: the command line of lm-evaluation-harness, with a model of a known accuracy.

`python tool_lm_eval.py NAME=SHARE...` writes a folder NAME each: SHARE of the answers to problems.jsonl are correct.
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

GROUP = """\
group: arithmetic
task: [sums]
aggregate_metric_list: [{metric: exact_match, aggregation: mean, weight_by_size: true}]
metadata: {version: 1.0}
"""
"""A group, whose score is that of its task: no row of it may count beside those of the task."""


@register_model("known")
class Known(LM):
    """Answers exactly a share of the questions correctly, drawn by its seed: models of a share have equal accuracy."""

    def __init__(self, share: float, seed: str, **_: Any) -> None:
        super().__init__()
        self.share, self.seed = share, seed

    def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
        right = set(random.Random(self.seed).sample(range(len(requests)), round(self.share * len(requests))))
        return [one.doc["answer"] if at in right else "?" for at, one in enumerate(requests)]

    def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
        raise NotImplementedError

    def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
        raise NotImplementedError


def main(*runs: str) -> None:
    """Write the task and evaluate each model."""
    Path("sums.yaml").write_text(TASK.format(data=Path("problems.jsonl").absolute()))
    Path("arithmetic.yaml").write_text(GROUP)
    for run in runs:
        name, share = run.split("=")
        asked = ["--model", "known", "--model_args", f"share={share},seed={name}", "--tasks", "arithmetic"]
        where = ["--include_path", ".", "--output_path", name, "--log_samples"]
        sys.argv = ["lm_eval", *asked, *where]
        cli_evaluate()


if __name__ == "__main__":
    main(*sys.argv[1:])
