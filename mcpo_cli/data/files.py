"""Reads the problems of a local table (see `tables`), in verl's schema or with plain columns.

verl's schema: `{data_source, prompt: [{role, content}], reward_model: {ground_truth}, extra_info}`, see
https://verl.readthedocs.io/en/latest/preparation/prepare_data.html. A plain column of problems may hold such
turns, too, as TRL's `prompt` does: the problem is the text of the user's turn.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from mcpo_cli import extras, golds, hub
from mcpo_cli.data import tables
from mcpo_cli.data.base import Dataset, Defect, Reading, integer, strip
from mcpo_cli.errors import ConfigError, bad_data, mend, nearest

VERL = ("prompt", "reward_model")
PROBLEMS = ("problem", "question", "prompt")
ANSWERS = (
    *("answer", "final_answer", "expected_answer", "ground_truth", "target", "gold", "solution"),
    *("answers", "golden_answers"),
)
USE = "give a table (CSV, JSON lines, Parquet) with the columns problem and answer, or in verl's schema"


def inside(folder: Path, name: str) -> list[Path]:
    """The existing files `<name>.jsonl`, `<name>.parquet`, ... of `folder`, in the order of `tables.FORMATS`."""
    suffixes = (suffix + packed for suffix in tables.FORMATS for packed in ("", ".gz"))
    return [folder / (name + suffix) for suffix in suffixes if (folder / (name + suffix)).is_file()]


def locate(path: Path, name: str) -> Path:
    """The file at `path`, or `<name>.jsonl`, `.parquet`, ... if `path` is a folder.

    Raises:
        ConfigError: there is no such file, or its format is unknown.
    """
    if path.is_dir():
        candidates = inside(path, name)
        if not candidates:
            names = sorted(file.name for file in path.iterdir() if is_name(file.name))
            hint = nearest(f"{name}.jsonl", names) if names else "it holds no table"
            raise ConfigError(f"no {name}.jsonl or {name}.parquet in {path}: {hint}", fix=USE, code="not_found")
        return candidates[0]
    if not path.is_file():
        names = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
        tables_there = [name for name in names if is_name(name)]
        hint = nearest(path.name, tables_there) if tables_there else f"there is no table in {path.parent}"
        fix = mend(str(path.parent / "{}"), path.name, tables_there, USE)
        raise ConfigError(f"no such file: {path}; {hint}", fix=fix, code="not_found")
    if not is_name(path.name):
        raise bad_data(f"{path}: unknown format '{path.suffix}'; known: {', '.join(tables.FORMATS)}", fix=USE)
    return path


def read(path: Path, dataset: Dataset, source: str) -> Reading:
    """All rows of `path`, counted by content; unusable rows become `defects`.

    Raises:
        ConfigError: the file cannot be read, is empty, or has an unknown schema.
    """
    counts: dict[tuple[str, tuple[str, ...]], list[int]] = {}
    reading = Reading(source)
    for number, problem, answers in _texts(path, dataset):
        reading.rows += 1
        entry = counts.setdefault((problem, answers), [number, 0])
        entry[1] += 1
    if not reading.rows:
        raise bad_data(f"{path} is empty: it holds no rows", fix=USE)
    for (problem, answers), (number, count) in counts.items():
        text, texts = strip(problem.strip()).strip(), [dataset.gold(answer) for answer in answers]
        values = [integer(gold) if dataset.integer else gold for gold in texts]
        if not text:
            reading.defects.append(Defect("empty problem", number, count, golds.any_of(answers)))
        elif not all(texts):
            reading.defects.append(Defect("empty gold", number, count, text))
        elif None in values:
            reading.defects.append(Defect("non-integer gold", number, count, texts[values.index(None)]))
        else:
            reading.add(text, golds.any_of(filter(None, values)), number, count)
    return reading


def is_name(name: str) -> bool:
    """True if `name` names a file with problems, rather than a data set."""
    return bool(tables.suffix(name))


def stem(name: str) -> str:
    """A file's name without the suffix of its format."""
    return name.removesuffix(tables.suffix(name))


def _texts(path: Path, dataset: Dataset) -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Row number, problem and its answers, each of them correct; only these two columns are read."""
    if not (heading := tables.heading(path)):
        return
    problem, answer = _columns(path, heading, dataset)
    is_verl = (problem, answer) == VERL
    for number, row in tables.rows(path, (problem, answer)):
        try:
            question, truth = row[problem], _truth(row[answer]) if is_verl else row[answer]
            if is_verl or _has_turns(question):
                question = _turn(problem, question)
            answers = truth if isinstance(truth, list) and truth else [truth]
            texts = chain.from_iterable(golds.alternatives(tables.text(item)) for item in answers)
            yield number, tables.text(question), tuple(map(tables.text, texts))
        except KeyError as missing:
            raise bad_data(f"{path}, row {number}: no column {missing}", fix=USE) from missing
        except (ValueError, RecursionError) as error:
            raise bad_data(f"{path}, row {number}: {error}", fix=USE) from error


def _columns(path: Path, heading: list[str], dataset: Dataset) -> tuple[str, str]:
    """The columns of problem and answer: in verl's schema, as the publisher names them, or under common names."""
    if set(VERL) <= set(heading):
        return VERL
    columns = []
    for kind, title, aliases in (("problem", dataset.problem, PROBLEMS), ("answer", dataset.answer, ANSWERS)):
        names = dict.fromkeys((title, *aliases))
        column = next((name for name in names if name in heading), None)
        if column is None:
            options = " or ".join(f"'{name}'" for name in names)
            raise bad_data(f"{path}: no column for the {kind} ({options}); it has {_listed(heading)}", fix=USE)
        columns.append(column)
    return columns[0], columns[1]


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _has_turns(cell: Any) -> bool:
    """True if a cell holds the turns of a conversation."""
    return isinstance(cell, list) and any(isinstance(turn, dict) and "role" in turn for turn in cell)


def _turn(column: str, prompt: Any) -> str:
    """The text of the single user turn in a cell of `column`; a system turn is left out."""
    if isinstance(prompt, str):
        return prompt
    turns = prompt if isinstance(prompt, list) else []
    texts = [turn.get("content") for turn in turns if isinstance(turn, dict) and turn.get("role") == "user"]
    if len(texts) != 1 or not isinstance(texts[0], str):
        raise ValueError(f"{column!r} must hold one user turn as [{{role, content}}]")
    return texts[0]


def _truth(reward: Any) -> Any:
    if not isinstance(reward, dict) or "ground_truth" not in reward:
        content = _listed(reward) if isinstance(reward, dict) else json.dumps(reward, default=str)[:60]
        raise ValueError(f"'reward_model' has no 'ground_truth', only {content}")
    return reward["ground_truth"]


def cached(dataset: Dataset) -> Path | None:
    """The local file of `dataset`, or its file in the cache; None if that was never downloaded."""
    if not dataset.repo:
        return locate(Path(dataset.file), dataset.name)
    if not extras.is_installed("huggingface_hub"):
        return None
    from huggingface_hub import try_to_load_from_cache

    path = try_to_load_from_cache(dataset.repo, dataset.file, repo_type="dataset", revision=dataset.revision)
    return Path(path) if isinstance(path, str) else None


def fetch(dataset: Dataset) -> Path:
    """The file of `dataset`, downloaded once; a file in the cache needs no network.

    Raises:
        ConfigError: the hub cannot be reached, or does not serve that file.
    """
    if path := cached(dataset):
        return path
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    repo, file, revision = dataset.repo, dataset.file, dataset.revision
    otherwise = (
        "use a copy (parquet or JSONL): task.data_path=FILE to train, data.path=FILE to evaluate, or "
        f"mcpo components check data FILE --as {dataset.name}"
    )
    with hub.fetching(
        f"{dataset.name}, {file} of {repo}@{revision}", f"https://huggingface.co/datasets/{repo}", otherwise
    ):
        # Without a network this fails at once; the download would retry for half a minute first.
        get_hf_file_metadata(hf_hub_url(repo, file, repo_type="dataset", revision=revision))
        return Path(hf_hub_download(repo, file, repo_type="dataset", revision=revision))
