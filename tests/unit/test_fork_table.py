"""The table of forks, also of forks that share nothing with the run that they left."""

from mcpo_cli.measures.base import Finding
from mcpo_cli.report import forking


def test_forks_without_shared_prompts_or_problems_have_a_row_without_their_numbers() -> None:
    steps = [{"step": 2, "prompts": prompts, "difference": prompts / 100, "changed": 0.5} for prompts in (1, 3)]
    held_out = [{"step": 3, "problems": 4, "difference": -0.2, "low": -0.3, "high": -0.1}]
    tables = {"both": (steps, held_out), "trained": (steps, []), "evaluated": ([], held_out)}
    findings = {
        name: (name, Finding({}, {"steps": of_steps, "evaluations": evaluations}))
        for name, (of_steps, evaluations) in tables.items()
    }
    found = forking.product("Forks", forking.rows(findings))
    assert [row[2:] for row in found.grids[0].rows] == [
        ["-0.2000", "[-0.3000, -0.1000]", "+0.0250", "50%"],
        ["-", "-", "+0.0250", "50%"],
        ["-0.2000", "[-0.3000, -0.1000]", "-", "-"],
    ]
    assert "-0.2000 (both)" in found.sentence
    alone = forking.product("Forks", forking.rows({"trained": findings["trained"]}))
    assert alone.sentence.startswith("No evaluation after the fork")
