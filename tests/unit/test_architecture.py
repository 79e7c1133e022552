"""ARCHITECTURE.md is short, and what it names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CODE = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL))
FOLDERS = [ROOT, *(ROOT / name for name in ("mcpo_cli", "mcpo_cli/backends/local", "mcpo_cli/backends/verl"))]
FILES = [
    word
    for word in dict.fromkeys(CODE)
    if re.fullmatch(r"[\w./-]+\.(py|yaml|md|toml)|[\w-]+/[\w/-]+", word) and "NAME" not in word
]


def test_it_is_at_most_150_lines() -> None:
    assert len(TEXT.splitlines()) <= 150


def test_files_and_folders_that_it_names_exist() -> None:
    assert len(FILES) > 40
    packages = [path for path in (ROOT / "mcpo_cli").iterdir() if path.is_dir()]
    assert [name for name in FILES if not any((folder / name).exists() for folder in (*FOLDERS, *packages))] == []


def test_it_names_all_packages_of_the_product() -> None:
    packages = {path.parent.name for path in (ROOT / "mcpo_cli").glob("*/__init__.py")}
    assert packages - set(CODE) == set()


def test_names_of_the_verl_path_are_methods() -> None:
    section = TEXT.partition("in order of time")[2].partition("\n## ")[0]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "mcpo_cli/backends/verl").glob("*.py"))
    named = [word.split(".")[-1] for word in re.findall(r"`([\w.]+)`", section) if not re.search(r"\.(py|yaml)$", word)]
    missing = [
        word
        for word in named
        if not re.search(rf"(\bdef|\bclass|self\.) ?{word}\b", sources) and f'"{word}"' not in sources
    ]
    assert missing == []
