"""Measures the deviations of methods from the functions of verl and TRL, and from worked numbers.

`PYTHONPATH=. python .ci/references.py` runs it.

Updates docs/method-references.json, from which `python .ci/gallery.py` makes a table: the parts of verl and TRL if
they are installed, and that of the worked numbers of `tests/golden`.
"""

import importlib.metadata
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from torch import Tensor

from mcpo_cli.methods import get
from mcpo_cli.testing import mini_batch, step
from tests.golden import test_trl_references as trl
from tests.verl import test_literature_references as verl

PATH = Path(__file__).parents[1] / "docs" / "method-references.json"
Row = dict[str, Any]
NUMBER = type(pytest.approx(0.0))
"""The type of `pytest.approx(number)`, also for each number of a list."""


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
    ours_BT = (ours_PG[..., None] if ours_PG.ndim == 2 else ours_PG).flatten(0, 1)
    return off(ours_BT * of.mask_PGT.flatten(0, 1), theirs_BT)


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


class Worked:
    """A plug-in of pytest that records the deviation of each method from the numbers of the tests that name it."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, list[float]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Function) -> Iterator[None]:
        compared, equal = list[float](), NUMBER.__eq__

        def compare(expected: Any, actual: Any) -> bool:
            compared.append(abs(float(actual) - float(expected.expected)))
            return equal(expected, actual)

        with patch.object(NUMBER, "__eq__", compare):
            result = yield
        given = getattr(item, "callspec", None)
        named = [given.params["name"]] if given and "name" in given.params else []
        for name in named or re.findall(r'get\("(\w+)"', inspect.getsource(item.function)):
            kind = "gradient" if "losses" in item.path.name else "value"
            self.found.setdefault(name, {"value": [], "gradient": []})[kind] += compared
        return result


def of_golden() -> Iterator[Row]:
    """Deviations in tests of advantages (`value`), and in tests of losses and their gradients (`gradient`)."""
    worked, folder = Worked(), Path(__file__).parents[1] / "tests" / "golden"
    names = "literature_advantages", "literature_losses", "literature_losses_rewritten", "mcpo_variants", "advantages"
    files = [str(folder / f"test_{name}.py") for name in names]
    if pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *files], plugins=[worked]):
        raise SystemExit("a worked number differs")
    for name, kinds in sorted(worked.found.items()):
        yield row(name, {}, f"{sum(map(len, kinds.values()))} of them", kinds["value"], kinds["gradient"])


def off(ours: Tensor, theirs: Tensor) -> float:
    """The largest deviation."""
    return float((ours.double() - theirs.double()).abs().max().detach())


def row(name: str, options: Row, reference: str, values: Iterable[float], gradients: Iterable[float]) -> Row:
    shown = " ".join(f"{key}={value}" for key, value in options.items())
    most = {"value": max(values, default=None), "gradient": max(gradients, default=None)}
    return {"method": name, "options": shown, "reference": reference, **most}


def main() -> None:
    found = json.loads(PATH.read_text()) if PATH.exists() else {}
    versions = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions()}
    for source, of in (("verl", of_verl), ("trl", of_trl)):
        if source in versions:
            found[source] = {"version": versions[source], "rows": list(of())}
    found["worked numbers"] = {"version": "of six digits", "rows": list(of_golden())}
    for source, part in found.items():
        sys.stdout.write(f"{source}: {len(part['rows'])} rows\n")
    PATH.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
