"""MATH-500: the 500 test problems of MATH (arXiv 2103.03874) that "Let's verify step by step" (arXiv 2305.20050) kept.

Revision: `HuggingFaceH4/MATH-500`, as pinned by several public evaluation projects.
"""

from mcpo_cli.data.base import Dataset

DATASET = Dataset(
    name="math500",
    title="MATH-500",
    role="benchmark",
    repo="HuggingFaceH4/MATH-500",
    revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    file="test.jsonl",
    problem="problem",
    answer="answer",
    licence="MIT",
    size=500,
)
