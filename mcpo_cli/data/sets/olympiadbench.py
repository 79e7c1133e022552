"""OlympiadBench (arXiv 2402.14008): its open-ended, text-only mathematics competition problems in English.

Of the 18 subsets, only this one is comparable with published text-only scores. `final_answer` is a list of one text; it
holds several answers separated by commas if the problem has several. The publisher's prompt states this for each such
problem; here all benchmarks share one template.

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
