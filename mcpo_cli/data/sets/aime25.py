"""AIME 2025, I and II: 30 problems, answers 0 to 999.

Revision: `math-ai/aime25`, as pinned by several public evaluation projects.
"""

from mcpo_cli.data.base import Dataset

DATASET = Dataset(
    name="aime25",
    title="AIME 2025",
    role="benchmark",
    repo="math-ai/aime25",
    revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
    file="test.jsonl",
    problem="problem",
    answer="answer",
    licence="not checked: see the data set's page",
    size=30,
    integer=True,
)
