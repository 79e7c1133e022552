"""AIME 2024, I and II: 30 problems, answers 0 to 999.

Revision: `HuggingFaceH4/aime_2024`, as pinned by several public evaluation projects. Its golds may be
zero-padded (`025`).
"""

from mcpo_cli.data.base import Dataset

DATASET = Dataset(
    name="aime24",
    title="AIME 2024",
    role="benchmark",
    repo="HuggingFaceH4/aime_2024",
    revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    file="data/train-00000-of-00001.parquet",
    problem="problem",
    answer="answer",
    licence="none stated",
    size=30,
    integer=True,
)
