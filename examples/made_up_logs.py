"""Made-up logs of models with a known difference, to try `mcpo compare` on.

    python examples/made_up_logs.py            # writes base/, new/ and seeds/ into the current folder

`base/` and `new/` have the files that lm-evaluation-harness writes with `--log_samples`: 500 problems of `sums` and 300
of `logic`, one response each. The chance of a correct response is 7 points higher with `new` than with `base` in `sums`
(up to 100 %), and equal in `logic`. `seeds/` has three training seeds of two recipes, 8 responses for each of 200
problems; the recipe `new` adds 5 points, and seeds have a standard deviation of about 2.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

DATE = "2026-11-24T10-00-00.000000"
SEEDS = 3


def main() -> None:
    """Write all logs."""
    for number, (name, gain) in enumerate({"base": 0.0, "new": 0.07}.items()):
        folder = Path(name) / "local__model"
        folder.mkdir(parents=True, exist_ok=True)
        write_task(folder, "sums", 500, gain, seed=number)
        write_task(folder, "logic", 300, 0.0, seed=10 + number)
        settings = {task: {"generation_kwargs": {"temperature": 0.0}} for task in ("sums", "logic")}
        document = {"lm_eval_version": "0.4.13", "configs": settings, "versions": dict.fromkeys(settings, 1.0)}
        (folder / f"results_{DATE}.json").write_text(json.dumps(document))
    Path("seeds").mkdir(exist_ok=True)
    for number, (name, gain) in enumerate({"base": 0.0, "new": 0.05}.items()):
        for seed in range(SEEDS):
            write_seed(Path("seeds") / f"{name}-s{seed}.jsonl", gain, seed=100 * number + seed)


def write_task(folder: Path, task: str, problems: int, gain: float, seed: int) -> None:
    """Write one task of the harness: one response per problem."""
    chance = np.random.default_rng(len(task)).beta(1.2, 0.8, problems)
    right = np.random.default_rng([seed, problems]).random(problems) < np.clip(chance + gain, 0, 1)
    rows = [row(number, bool(correct)) for number, correct in enumerate(right)]
    (folder / f"samples_{task}_{DATE}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))


def row(number: int, correct: bool) -> dict[str, Any]:
    """The harness's line for one document."""
    question, gold = f"What is {number} + {number + 1}?", str(2 * number + 1)
    prompt = f"{question}\nEnd with a line 'Answer: ' and the number."
    answer = gold if correct else str(2 * number)
    return {
        "doc_id": number,
        "doc": {"question": question, "answer": gold},
        "target": gold,
        "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": {"until": ["\n\n"]}}},
        "resps": [[f"{number} and {number + 1} make {answer}.\nAnswer: {answer}"]],
        "filtered_resps": [answer],
        "filter": "none",
        "metrics": ["exact_match"],
        "doc_hash": hashlib.sha256(question.encode()).hexdigest(),
        "prompt_hash": hashlib.sha256(prompt.encode()).hexdigest(),
        "target_hash": hashlib.sha256(gold.encode()).hexdigest(),
        "exact_match": float(correct),
    }


def write_seed(path: Path, gain: float, seed: int, problems: int = 200, samples: int = 8) -> None:
    """Write the samples of one training seed, one per line, with the columns problem, sample and correct."""
    chance = np.random.default_rng(0).beta(1.0, 1.0, problems)
    random = np.random.default_rng([seed, 1])
    moved = np.clip(chance + gain + random.normal(0, 0.02), 0, 1)
    correct = random.random((samples, problems)) < moved
    lines = [
        json.dumps({"problem": f"p{problem}", "sample": sample, "correct": int(correct[sample, problem])})
        for problem in range(problems)
        for sample in range(samples)
    ]
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
