"""AMC 12 2023, A and B: the 40 problems whose answer is (or was reworded to be) an integer, without their options.

Revision: `math-ai/amc23`, as pinned by several public evaluation projects. Golds are stored as floats (`27.0`).
"""

from mcpo_cli.data.base import Dataset

DATASET = Dataset(
    name="amc23",
    title="AMC 2023",
    role="benchmark",
    repo="math-ai/amc23",
    revision="80815d37005feb82cd7f8fbc6901d5d3eff43057",
    file="test-00000-of-00001.parquet",
    problem="question",
    answer="answer",
    licence="none stated",
    size=40,
    integer=True,
)
