"""The rules of ARCHITECTURE.md about who may import whom, and what may be slow to import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "mcpo_cli"
HEAVY = ("torch", "hydra", "mlflow", "pandas", "transformers", "matplotlib", "scipy")
LONGEST = 400


def sources(folder: Path = PACKAGE) -> list[Path]:
    """All modules of the package; the linked folders count under their import name."""
    # rglob of Python 3.11 and 3.12 does not follow links.
    links = [path for path in folder.iterdir() if path.is_symlink()]
    return sorted({path for start in (folder, *links) for path in start.rglob("*.py")})


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Absolute names that `path` imports, and whether only type checkers see the import."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    guarded = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node in guarded) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            # `from mcpo_cli import backends` imports mcpo_cli.backends.
            yield from ((f"{node.module}.{alias.name}", node in guarded) for alias in node.names)


def importers(library: str, folder: Path = PACKAGE) -> set[str]:
    """The modules below `folder` that import `library`, as paths from the package."""
    return {
        path.relative_to(PACKAGE).as_posix()
        for path in sources(folder)
        for name, _ in imports(path)
        if name == library or name.startswith(f"{library}.")
    }


def test_the_scan_sees_imports_and_linked_folders() -> None:
    assert importers("hydra") == {"config/load.py", "backends/verl/main.py"}
    assert "analysis/stats.py" in {path.relative_to(PACKAGE).as_posix() for path in sources()}


def test_only_the_store_imports_mlflow() -> None:
    assert all(path.startswith("store/") for path in importers("mlflow"))


def test_only_the_verl_backend_imports_verl() -> None:
    assert all(path.startswith("backends/verl/") for path in importers("verl"))


def test_only_its_engine_imports_vllm() -> None:
    assert importers("vllm") == {"evaluation/engines/vllm.py"}


@pytest.mark.parametrize(
    ("library", "reason"),
    [
        ("click", "typer vendors it"),
        ("analysis", "it is mcpo_cli.analysis everywhere"),
        ("experiments", "it is mcpo_cli.experiments everywhere"),
        ("tests", "a wheel has none"),
    ],
)
def test_nothing_imports(library: str, reason: str) -> None:
    assert importers(library) == set(), reason


def test_methods_import_torch_for_types_only() -> None:
    own = ("mcpo_cli.methods", "mcpo_cli.errors", "mcpo_cli.scan", "mcpo_cli.config.convert")
    found = {
        (path.name, name)
        for path in sources(PACKAGE / "methods")
        for name, typing_only in imports(path)
        if name.split(".")[0] not in sys.stdlib_module_names
        and not name.startswith(own)
        and not (typing_only and name.startswith("torch."))
    }
    assert found == set()


def test_analysis_imports_no_backend() -> None:
    assert importers("mcpo_cli.backends", PACKAGE / "analysis") == set()
    assert importers("torch", PACKAGE / "analysis") == set()


@pytest.mark.parametrize("path", sources(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_files_stay_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@pytest.mark.parametrize(
    ("argv", "forbidden"),
    [([], HEAVY), (["--help"], HEAVY), (["train", "--help"], HEAVY), (["plan", "table1"], ("torch", "transformers"))],
    ids=" ".join,
)
def test_light_verbs_load_nothing_heavy(argv: list[str], forbidden: tuple[str, ...], tmp_path: Path) -> None:
    code = (
        "import sys, mcpo_cli.main as m\n"
        f"sys.argv = ['mcpo', *{argv!r}]\n"
        "try: m.main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        f"print('loaded:', *sorted(set({forbidden!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded:"
