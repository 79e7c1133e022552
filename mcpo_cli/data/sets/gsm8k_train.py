"""GSM8K's training set (arXiv 2110.14168): grade-school problems; the gold follows `####` in a worked answer.

Repository and revision are those of the test set, `gsm8k`.
"""

from dataclasses import replace

from mcpo_cli.data.sets import gsm8k

DATASET = replace(
    gsm8k.DATASET,
    name="gsm8k_train",
    title="GSM8K, training set",
    role="train",
    file="main/train-00000-of-00001.parquet",
    size=7473,
)
