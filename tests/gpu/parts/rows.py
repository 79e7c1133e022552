"""Part D: an update without the sequences that lack a gradient has the gradient of the whole, and takes less time."""

from pathlib import Path
from typing import Any

from mcpo_cli.backends.verl import batch as batches
from tests.gpu import engines
from tests.gpu.engines import Shape
from tests.gpu.notes import Notes

SHAPES = {"cuda": Shape(P=16, G=8, S=64, T=1024, limit=16384), "cpu": Shape(P=8, G=4, S=5, T=24, limit=120)}


def measure(notes: Notes, device: str, folder: Path) -> None:
    """The gradient of all sequences, of all packed differently, and of those that have one."""
    spec, shape = engines.settings(device, "one-gpu", "qwen3-0.6b"), SHAPES[device]
    engines.random_model(spec.model, device, folder / "model")
    with engines.one_rank(spec, folder):
        from tests.verl import fsdp, queued

        rollouts = engines.random_rollouts(shape, spec.model.vocabulary)
        batch = queued.graded(rollouts, spec.method, engines.accuracies(shape), shape.T)
        row = queued.sequences(rollouts) | queued.through_the_queue(batch, spec.method, shape.T)
        built = fsdp.engine(spec, folder / "model", *engines.as_on_gpus(device))
        everything, tokens = [*range(shape.P * shape.G)], [len(ids) + shape.S for ids in row["responses"]]
        row["old_log_probs"] = [*fsdp.log_probs(built, row, engines.packing(shape.limit), everything).unbind()]
        chosen = batches.select_trained(everything, row["bears"], tokens, 1)

        def update(rows: list[int], limit: int = shape.limit) -> tuple[Any, float]:
            """The gradient of these sequences, and the seconds of its passes."""

            def compute() -> None:
                fsdp.backward(built, fsdp.rows(row, rows), spec.method, engines.packing(limit), len(rows))

            with built.train_mode():
                taken = engines.seconds(compute, device)
                gradient = fsdp.gradients(built)
            return gradient, taken

        update(everything)  # the first call compiles
        whole, before = update(everything)
        otherwise, _ = update(everything, shape.limit // 2)
        less, after = update(chosen)
    noise, off = engines.difference(otherwise, whole), engines.difference(less, whole)
    meaning = "all sequences, packed otherwise: what rounding alone changes"
    notes.figure("gradient, another packing", noise, "relative difference", meaning)
    meaning = "without the sequences that bear none, against all; rounding may change it as much as another packing"
    notes.figure("gradient, fewer sequences", off, "relative difference", meaning, at_most=max(1e-6, 2 * noise))
    saved = 1 - sum(tokens[i] for i in chosen) / sum(tokens)
    meaning = f"share of the update's tokens in {shape.P * shape.G - len(chosen)} of {shape.P * shape.G} sequences"
    notes.figure("tokens saved", saved, "", meaning, at_least=0.01)
    notes.figure("seconds saved", 1 - after / before, "", f"share of the {before:.3g} s of forward and backward passes")
