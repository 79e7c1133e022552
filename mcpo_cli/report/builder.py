"""Builds tables and figures from runs by name, and writes each with a record.

An artifact's files are `<name>.csv`, `.md` and `.tex` for tables, `.png` and `.pdf` for figures. Its record,
`<name>.json`, names its content, its runs and the commit that made it, and holds a hash of all inputs and checksums of
the files. An artifact whose hash and checksums still match is not built again.
"""

import hashlib
import importlib.metadata
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from mcpo_cli import measures, plugins
from mcpo_cli.config.plan import Plan, PlannedRun
from mcpo_cli.errors import ConfigError, McpoError, MissingRuns, RunFailed, first_line
from mcpo_cli.home import run_dir
from mcpo_cli.machine import cores, helpers
from mcpo_cli.measures.frames import Cache, Runs
from mcpo_cli.render import markup
from mcpo_cli.render.figures import base
from mcpo_cli.render.markup import Grid
from mcpo_cli.render.product import Artifact, Product
from mcpo_cli.report import artifacts
from mcpo_cli.runs.journal import Journal, read_json, write_atomic
from mcpo_cli.runs.provenance import code_state

LIBRARIES = ("matplotlib", "numpy", "pandas", "scipy")
"""Packages whose version can change a number or a picture."""
INDEPENDENT = (
    "backends/local", "backends/verl", "commands", "evaluation", "pretrained", "scheduling", "trackers",
    "testing",
)  # fmt: skip
"""Packages whose code no artifact depends on."""
DIGITS = 10
"""Significant digits in CSV files; later ones vary with summation order."""
Made = TypeVar("Made")


def check_axes(plan: Plan, *, by_regime: bool = False) -> None:
    """Raise ConfigError when two runs share arm, model and both seeds: a mean over them would mix settings.

    by_regime: whether runs may differ in their regime.
    """
    ids: dict[tuple[object, ...], str] = {}
    for run in plan.runs:
        arm, model, base_seed, seed = run.arm, run.spec.model.name, run.spec.seed_of_base, run.spec.seed
        key = arm, model, base_seed, seed, by_regime and run.spec.regime
        if key in ids:
            raise ConfigError(
                f"{plan.suite}: {arm}, {model}, base seed {base_seed}, seed {seed} matches two runs, {ids[key]} and "
                f"{run.spec.run_id}; only model, base_seed and seed can be swept",
                fix="give every other setting one value; build one table per value",
            )
        ids[key] = run.spec.run_id


@dataclass(frozen=True)
class BuiltArtifact:
    """An artifact on disk."""

    name: str
    folder: Path
    record: dict[str, Any]
    fresh: bool
    """True if it was up to date and therefore not built."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files, without the record."""
        return tuple(self.folder / name for name in self.record["files"])

    @property
    def grids(self) -> list[Grid]:
        """Its tables."""
        return [Grid(**grid) for grid in self.record["grids"]]

    @property
    def page(self) -> markup.Page:
        """Its text and tables."""
        return markup.Page(self.record["title"], self.record["sentence"], self.grids, self.record["notes"])

    def path(self, suffix: str) -> Path | None:
        """Its file with this suffix, if it has one."""
        return next((path for path in self.paths if path.suffix == suffix), None)

    def to_json(self) -> dict[str, Any]:
        """The record and the rows of the CSV file; undefined numbers are None."""
        rows = pd.read_csv(self.folder / f"{self.name}.csv")
        return {**self.record, "rows": json.loads(rows.to_json(orient="records", double_precision=15))}


def _write(name: str, folder: Path, product: Product, record: Mapping[str, Any]) -> BuiltArtifact:
    """Draw and write the files of an artifact, then its record with their checksums.

    Raises:
        RunFailed: the disk is full.
    """
    files = dict(_files(name, product, record["notes"]))
    for file, content in files.items():
        write_atomic(folder / file, content)
    path = folder / f"{name}.json"
    full_record = {**record, "files": {file: _sha256(content) for file, content in files.items()}}
    write_atomic(path, json.dumps(full_record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    # Reading the record back turns tuples into lists, so that it equals what a later process reads.
    return BuiltArtifact(name, folder, read_json(path), fresh=False)


class ArtifactBuilder:
    """Builds the artifacts of one scale; reads the runs of each suite once."""

    def __init__(self, plans: Mapping[str, Plan], reports: Path, scale: str, overrides: Sequence[str] = ()) -> None:
        """Check that runs of one plan differ only in arm, model, regime, base_seed and seed.

        Args:
            plans: by suite, for all artifacts that will be built.
            reports: the folder that holds one folder per scale.
            overrides: the plans' overrides, repeated in the commands that rebuild artifacts.

        Raises:
            ConfigError: two runs of a plan share arm, model and seed.
        """
        for plan in plans.values():
            check_axes(plan, by_regime=True)
        self.plans = plans
        self.scale = scale
        self.folder = reports / scale
        self._overrides = overrides
        self._cache = Cache()
        self._digest = cache(lambda run_id: Journal(run_dir(run_id)).digest())

    def check(self, artifact: Artifact) -> None:
        """Raise ConfigError when a suite has several regimes and the artifact does not distinguish them."""
        for suite in artifact.needs:
            check_axes(self.plans[suite], by_regime=artifact.by_regime)

    def build(self, name: str) -> BuiltArtifact:
        """The artifact `name`; it is rebuilt only if an input has changed.

        Raises:
            MissingRuns: a run of its suites is not done; the message names the command that completes it.
        """
        return self.make(artifacts.get(name), self.command(name))

    def make(self, artifact: Artifact, command: str) -> BuiltArtifact:
        """Like `build`, for an artifact without a name on the command line. command: the command that rebuilds it."""
        result = self._compute(artifact, command)
        return result if isinstance(result, BuiltArtifact) else result()

    def build_all(self, names: Sequence[str]) -> list[BuiltArtifact | McpoError]:
        """Several artifacts in the order given; an artifact that cannot be built is replaced by its error.

        Helper processes draw and write artifacts while this process computes the next. Drawing takes twice as long as
        computing what is drawn, so more than 3 helpers would idle.
        """
        with helpers(min(3, cores())) as pool:
            outcomes = [_outcome(partial(self._begin, name, pool)) for name in names]
            return [_outcome(outcome.result) if isinstance(outcome, Future) else outcome for outcome in outcomes]

    def _begin(self, name: str, pool: Executor) -> BuiltArtifact | Future[BuiltArtifact]:
        result = self._compute(artifacts.get(name), self.command(name))
        return result if isinstance(result, BuiltArtifact) else pool.submit(result)

    def _compute(self, artifact: Artifact, command: str) -> BuiltArtifact | Callable[[], BuiltArtifact]:
        """The artifact from disk if it is up to date; else, after computing its data, a function that writes it."""
        self.check(artifact)
        runs = {suite: self.runs(suite, failed_too=artifact.failed_too) for suite in artifact.needs}
        inputs = self._hash(command, artifact)
        if (record := _fresh(self.folder / f"{artifact.name}.json", inputs)) is not None:
            return BuiltArtifact(artifact.name, self.folder, record, fresh=True)
        product = artifact.build(runs)
        marks = dict.fromkeys(mark for suite_runs in runs.values() for mark in suite_runs.marks())
        suites = ", ".join(f"{suite_runs.plan.suite} {suite_runs.plan.plan_id}" for suite_runs in runs.values())
        origin = f"Built by: {command}" + (f" (runs of {suites})" if suites else "")
        record = {
            "name": artifact.name,
            "title": product.title,
            "place": artifact.place,
            "section": artifact.section,
            "sentence": product.sentence,
            "notes": [*product.notes, *marks, origin],
            "brief": product.brief,
            "marks": list(dict.fromkeys(mark for suite_runs in runs.values() for mark in suite_runs.not_finite())),
            "grids": [asdict(grid) for grid in product.grids],
            "command": command,
            "runs": list(_runs(runs)),
            "inputs": inputs,
            "code": commit(),
        }
        return partial(_write, artifact.name, self.folder, product, record)

    def command(self, name: str) -> str:
        """The command that rebuilds the artifact `name` from scratch."""
        return shlex.join(["mcpo", "reproduce", name, *self._overrides])

    def runs(self, suite: str, *, failed_too: bool = False) -> Runs:
        """The runs of a suite, which are looked up once. failed_too: see `Runs`.

        Raises:
            MissingRuns: a run is not done.
        """
        load_runs = partial(Runs, self.plans[suite], self._cache, failed_too=failed_too)
        result = self._cache.once(("runs", suite, failed_too), partial(_outcome, load_runs))
        if isinstance(result, McpoError):
            raise result
        return result

    def missing(self, suite: str, *, failed_too: bool = False) -> MissingRuns | None:
        """The error if runs of a suite are not done, else None. failed_too: see `Runs`."""
        try:
            self.runs(suite, failed_too=failed_too)
        except MissingRuns as error:
            return error
        return None

    def _hash(self, command: str, artifact: Artifact) -> str:
        journals = {
            suite: [[run.arm, run.spec.run_id, self._digest(run.spec.run_id)] for run in self.plans[suite].runs]
            for suite in artifact.needs
        }
        own_files = artifacts.declared().sources.get(artifact.name, [])
        # Only artifacts of studies show numbers of the studies' measures.
        measured = {path for files in measures.registry().sources.values() for path in files} if own_files else set()
        sources = [
            path
            for path in (*own_files, *sorted(measured), artifact.source, *artifact.committed)
            if path and path.is_file()
        ]
        hashes = [_sha256(path.read_bytes()) for path in sources]
        return _sha256(json.dumps([command, [*_code(), *hashes], journals], sort_keys=True))


def _outcome(make: Callable[[], Made]) -> Made | McpoError:
    """The result of `make`, or the error that it raises; a killed helper process counts as one."""
    try:
        return make()
    except McpoError as error:
        return error
    except BrokenExecutor as error:
        return RunFailed(f"a helper process was killed: {first_line(error)}", fix="free some memory, then try again")


def _files(name: str, product: Product, notes: Sequence[str]) -> Iterator[tuple[str, str | bytes]]:
    yield f"{name}.csv", product.data.to_csv(index=False, lineterminator="\n", float_format=f"%.{DIGITS}g")
    if product.grids:
        page = markup.Page(product.title, product.sentence, product.grids, notes)
        yield f"{name}.md", markup.markdown(page)
        yield f"{name}.tex", markup.tex(page)
    if product.figure is not None:
        for kind, content in base.save(product.figure).items():
            yield f"{name}.{kind}", content


def _runs(runs: Mapping[str, Runs]) -> Iterator[dict[str, Any]]:
    by_id: dict[str, tuple[Runs, PlannedRun]] = {}
    for suite_runs in runs.values():
        for run in suite_runs.planned:
            by_id.setdefault(run.spec.run_id, (suite_runs, run))
    for run_id, (suite_runs, run) in by_id.items():
        yield {"run_id": run_id, "arm": run.arm, **run.spec.about, "tree": suite_runs.trees()[run_id]}


def _fresh(path: Path, inputs: str) -> dict[str, Any] | None:
    """The record at `path` if its inputs hash to `inputs` and its files match their checksums, else None."""
    try:
        record: dict[str, Any] = read_json(path)
        is_same = record["inputs"] == inputs and all(
            _sha256((path.parent / file).read_bytes()) == digest for file, digest in record["files"].items()
        )
    except (RunFailed, OSError, ValueError, KeyError, TypeError):
        return None
    return record if is_same else None


@cache
def _code() -> list[str]:
    """Inputs of every artifact besides its runs: mcpo's code, package versions, plug-ins."""
    data = sorted(base.STYLE.parent.glob("*.mplstyle"))
    hashes = [_sha256(path.read_bytes()) for path in (*code_files(), *data)]
    versions = [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    return [*hashes, *versions, *(plugin.sha256 for plugin in plugins.present())]


def code_files() -> list[Path]:
    """The source files of mcpo, except for the packages that no artifact depends on."""
    package = Path(__file__).parents[1]
    return sorted(
        path for path in package.rglob("*.py") if not any(path.is_relative_to(package / name) for name in INDEPENDENT)
    )


@cache
def commit() -> dict[str, Any]:
    """The commit of the code that builds artifacts, and whether the working tree differs; or the installed package."""
    state = code_state()
    return {key: state[key] for key in ("commit", "dirty", "package")}


def _sha256(content: str | bytes) -> str:
    return hashlib.sha256(content if isinstance(content, bytes) else content.encode()).hexdigest()
