"""How far methods are from the functions of verl and TRL: run where one is installed, `python -m tests.references`.

Updates its part of docs/method-references.json, from which `python -m tests.gallery` makes a table.
"""

import importlib.metadata
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from mcpo_cli.methods import get
from mcpo_cli.testing import mini_batch, step
from tests.bench import test_trl_references as trl
from tests.verl import test_zoo_references as verl

PATH = Path(__file__).parents[1] / "docs" / "method-references.json"
Row = dict[str, Any]


def of_verl() -> Iterator[Row]:
    for name, options, estimator, arguments in verl.ADVANTAGES:
        values = [verl_advantage(name, options, estimator, arguments, seed) for seed in verl.SEEDS]
        yield row(name, options, f"advantage `{estimator}`", values, [])
    for name, options, loss, aggregation, settings in verl.LOSSES:
        pairs = [verl_loss(name, options, loss, aggregation, settings, seed) for seed in verl.SEEDS]
        yield row(name, options, f"loss `{loss}`, `{aggregation}`", *zip(*pairs, strict=True))


def verl_advantage(name: str, options: Row, estimator: str, arguments: Row, seed: int) -> float:
    of = step((0, 1, 2, 3, 4) if name == "reinforce_pp" else verl.MIXED, seed=seed)
    ours_PG = get(name, **options).signals(of, {})[0].advantage
    theirs_BT = verl.verl_advantages(of, estimator, **arguments)
    return off(ours_PG.flatten()[:, None] * of.mask_PGT.flatten(0, 1), theirs_BT)


def verl_loss(name: str, options: Row, loss: str, aggregation: str, settings: Row, seed: int) -> tuple[float, float]:
    of, method = step(verl.MIXED, seed=seed), get(name, **options)
    batch = mini_batch(method, of, method.signals(of, {})[0], seed=seed + 10)
    ours = verl.differentiated(lambda: verl.reduce(method.token_loss(batch), batch.mask_BT), batch)
    theirs = verl.differentiated(lambda: verl.verl_loss(batch, loss, aggregation, settings), batch)
    return off(ours[0], theirs[0]), off(ours[1], theirs[1])


def of_trl() -> Iterator[Row]:
    for name, options, loss_type, settings in trl.LOSSES:
        both = [trl.both(name, options, loss_type, settings, seed) for seed in trl.SEEDS]
        pairs = [(off(ours[0], theirs[0]), off(ours[1], theirs[1])) for ours, theirs in both]
        other = {"gmpo": "`GMPOTrainer`", "rloo": "`RLOOTrainer`"}
        yield row(name, options, other.get(loss_type, f"loss_type `{loss_type}`"), *zip(*pairs, strict=True))


def off(ours: Tensor, theirs: Tensor) -> float:
    """The largest deviation."""
    return float((ours.double() - theirs.double()).abs().max().detach())


def row(name: str, options: Row, reference: str, values: Iterable[float], gradients: Iterable[float]) -> Row:
    shown = " ".join(f"{key}={value}" for key, value in options.items())
    most = {"value": max(values), "gradient": max(gradients, default=None)}
    return {"method": name, "options": shown, "reference": reference, **most}


def installed() -> list[str]:
    return [
        name
        for name in ("verl", "trl")
        if any(one.metadata["Name"] == name for one in importlib.metadata.distributions())
    ]


def main() -> None:
    found = json.loads(PATH.read_text()) if PATH.exists() else {}
    for package in installed():
        rows = list({"verl": of_verl, "trl": of_trl}[package]())
        found[package] = {"version": importlib.metadata.version(package), "rows": rows}
        sys.stdout.write(f"{package}: {len(rows)} rows\n")
    PATH.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
