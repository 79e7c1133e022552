"""GSM8K's test set (arXiv 2110.14168): grade-school problems; the gold follows `####` in a worked answer.

Revision: `openai/gsm8k`, as pinned by several public evaluation projects.
"""

from mcpo_cli.data.base import Dataset


def after_hashes(answer: str) -> str:
    """The text after the last `####`; the whole text if there is none."""
    return answer.rpartition("####")[2].strip()


DATASET = Dataset(
    name="gsm8k",
    title="GSM8K",
    role="benchmark",
    repo="openai/gsm8k",
    revision="740312add88f781978c0658806c59bc2815b9866",
    file="main/test-00000-of-00001.parquet",
    problem="question",
    answer="answer",
    licence="MIT",
    size=1319,
    integer=True,
    gold=after_hashes,
)
