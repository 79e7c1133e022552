"""DAPO-Math-17k (arXiv 2503.14476), the training set: competition problems reworded to have integer answers.

The published file has 1 791 700 rows: 17 917 problem ids, each 100 times. By content there are fewer problems (others
count 17 188, a dozen with contradicting golds), so no size is declared here: `mcpo data audit` counts them.

Revision: `BytedTsinghua-SIA/DAPO-Math-17k`, as pinned by several public training projects.
"""

from mcpo_cli.data.base import Dataset

DATASET = Dataset(
    name="dapo_math_17k",
    title="DAPO-Math-17k",
    role="train",
    repo="BytedTsinghua-SIA/DAPO-Math-17k",
    revision="65877096c24ffa7abc4e4fa5edb95cf3413a5674",
    file="data/dapo-math-17k.parquet",
    problem="prompt",
    answer="reward_model",
    licence="Apache-2.0",
    size=None,
    rows=1_791_700,
    integer=True,
)
