"""OlympiadBench (arXiv 2402.14008): its open-ended, text-only mathematics competition problems in English.

Only this subset of the 18 can be compared with published text-only scores. `final_answer` is a list of one text; where
a problem has several answers they stand in that text with commas between them. The publisher's own prompt says so
problem by problem; here all benchmarks share one template.

Revision: `Hothan/OlympiadBench`, as pinned by several public evaluation projects.
"""

from mcpo_cli.data.base import Dataset

DATASET = Dataset(
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
