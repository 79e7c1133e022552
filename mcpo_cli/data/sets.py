"""The published data sets: pinned revisions and the meaning of the columns.

Several public evaluation or training projects pin the same revisions.
"""

from dataclasses import replace

from mcpo_cli.data.base import Dataset

AIME24 = Dataset(
    name="aime24",
    title="AIME 2024",
    role="benchmark",
    repo="HuggingFaceH4/aime_2024",
    revision="2fe88a2f1091d5048c0f36abc874fb997b3dd99a",
    file="data/train-00000-of-00001.parquet",
    licence="none stated",
    size=30,
    integer=True,
)
"""AIME 2024, I and II: 30 problems, answers 0 to 999. Its golds may be
zero-padded (`025`).
"""
AIME25 = Dataset(
    name="aime25",
    title="AIME 2025",
    role="benchmark",
    repo="math-ai/aime25",
    revision="563bb8404243c5f09de6ec262f2db674fe5bce9b",
    file="test.jsonl",
    licence="not checked: see the data set's page",
    size=30,
    integer=True,
)
"""AIME 2025, I and II: 30 problems, answers 0 to 999."""
AMC23 = Dataset(
    name="amc23",
    title="AMC 2023",
    role="benchmark",
    repo="math-ai/amc23",
    revision="80815d37005feb82cd7f8fbc6901d5d3eff43057",
    file="test-00000-of-00001.parquet",
    problem="question",
    licence="none stated",
    size=40,
    integer=True,
)
"""AMC 12 2023, A and B: the 40 problems whose answer is (or was reworded to be) an integer, without their options.
Golds are stored as floats (`27.0`).
"""
MATH500 = Dataset(
    name="math500",
    title="MATH-500",
    role="benchmark",
    repo="HuggingFaceH4/MATH-500",
    revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
    file="test.jsonl",
    licence="MIT",
    size=500,
)
"""MATH-500: the 500 test problems of MATH (arXiv 2103.03874) that "Let's verify step by step" (arXiv 2305.20050) kept.
"""
OLYMPIADBENCH = Dataset(
    name="olympiadbench",
    title="OlympiadBench (OE_TO_maths_en_COMP)",
    role="benchmark",
    repo="Hothan/OlympiadBench",
    revision="91184b52131e7fc9455fef848035173aea8cc01a",
    file="OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet",
    problem="question",
    answer="final_answer",
    licence="Apache-2.0",
    size=674,
)
"""OlympiadBench (arXiv 2402.14008): its open-ended, text-only mathematics competition problems in English.

Of the 18 subsets, only this one is comparable with published text-only scores. `final_answer` is a list of one text; it
holds several answers separated by commas if the problem has several. The publisher's prompt states this for each such
problem; here all benchmarks share one template.
"""
GSM8K = Dataset(
    name="gsm8k",
    title="GSM8K",
    role="benchmark",
    repo="openai/gsm8k",
    revision="740312add88f781978c0658806c59bc2815b9866",
    file="main/test-00000-of-00001.parquet",
    problem="question",
    licence="MIT",
    size=1319,
    integer=True,
)
"""GSM8K's test set (arXiv 2110.14168): grade-school problems; the gold follows `####` in a worked answer."""
GSM8K_TRAIN = replace(
    GSM8K,
    name="gsm8k_train",
    title="GSM8K, training set",
    role="train",
    file="main/train-00000-of-00001.parquet",
    size=7473,
)
"""GSM8K's training set (arXiv 2110.14168): grade-school problems; the gold follows `####` in a worked answer."""
DAPO_MATH_17K = Dataset(
    name="dapo_math_17k",
    title="DAPO-Math-17k",
    role="train",
    repo="BytedTsinghua-SIA/DAPO-Math-17k",
    revision="65877096c24ffa7abc4e4fa5edb95cf3413a5674",
    file="data/dapo-math-17k.parquet",
    problem="prompt",
    answer="reward_model",
    licence="Apache-2.0",
    rows=1_791_700,
    integer=True,
)
"""DAPO-Math-17k (arXiv 2503.14476), the training set: competition problems reworded to have integer answers.

The published file has 1 791 700 rows: 17 917 problem ids, each 100 times. By content there are fewer problems (others
count 17 188, a dozen with contradicting golds), so no size is declared here: `mcpo components check data` counts them.
"""

DATASETS = (AIME24, AIME25, AMC23, DAPO_MATH_17K, GSM8K, GSM8K_TRAIN, MATH500, OLYMPIADBENCH)
