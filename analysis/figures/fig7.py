"""Figure 7 of the paper, with the control it lacks: mastered prompts one step later under DAPO and MCPO."""

from mcpo_cli.analysis.figures.next_step import next_step_figure

ARTIFACT = next_step_figure("fig7", "Mastered prompts rolled again", "table1")
