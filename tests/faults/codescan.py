"""What no module of the package may do: load a pickle, run text as code, start a shell, let anybody in."""

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("mcpo_cli", "analysis")
PICKLING = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
EVALUATING = {"eval", "exec", "compile", "__import__"}
SHELLS = {"os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"}
STARTING = {f"subprocess.{name}" for name in ("run", "Popen", "call", "check_call", "check_output")}
CODE_OF_MODELS = {"AutoConfig", "AutoTokenizer", "AutoModel", "AutoModelForCausalLM", "AutoProcessor"}


def findings(source: str) -> list[str]:
    """What is wrong in one module, with the line."""
    return [f"line {node.lineno}: {said}" for node in ast.walk(ast.parse(source)) for said in _wrong(node)]


def modules() -> list[Path]:
    """All modules of the package."""
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def _wrong(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"import {alias.name}" for alias in node.names if alias.name in PICKLING)
    if isinstance(node, ast.ImportFrom) and node.module in PICKLING:
        # The error of a pickle that is refused is no way to load one.
        yield from (f"from {node.module} import {one.name}" for one in node.names if one.name != "UnpicklingError")
    if isinstance(node, ast.Constant) and node.value in ("0.0.0.0", "::"):
        yield f"listens on {node.value}"
    if isinstance(node, ast.Call):
        name = ast.unparse(node.func)
        yield from (f"{name}: {said}" for holds, said in RULES if holds(name, node))


def _keyword(node: ast.Call, name: str) -> object:
    """The value of a keyword argument that stands there as a constant; None where it does not."""
    return next(
        (one.value.value for one in node.keywords if one.arg == name and isinstance(one.value, ast.Constant)), None
    )


def _is_text(node: ast.Call) -> bool:
    """Whether the first argument is put together as text: a literal, an f-string, a sum, a join."""
    first = node.args[0] if node.args else None
    is_call = isinstance(first, ast.Call) and isinstance(first.func, ast.Attribute)
    return isinstance(first, ast.Constant | ast.JoinedStr | ast.BinOp) or is_call


RULES: tuple[tuple[Callable[[str, ast.Call], bool], str], ...] = (
    (lambda name, _: name in EVALUATING, "runs text as code"),
    (lambda name, _: name in SHELLS, "a shell"),
    (lambda name, node: name in STARTING and any(one.arg == "shell" for one in node.keywords), "shell="),
    (lambda name, node: name in STARTING and _is_text(node), "a command as text"),
    (lambda name, node: name == "torch.load" and _keyword(node, "weights_only") is not True, "a pickle"),
    (lambda name, node: name.endswith((".load", ".load_all")) and name.startswith("yaml."), "not safe_load"),
    (lambda name, node: name in ("np.load", "numpy.load") and "allow_pickle" in ast.unparse(node), "a pickle"),
    (lambda name, _: name.endswith("read_pickle"), "a pickle"),
    (
        lambda name, node: (
            (
                (name.partition(".")[0] in CODE_OF_MODELS and name.endswith((".from_pretrained", ".from_config")))
                or name == "LLM"
            )
            and _keyword(node, "trust_remote_code") is not False
        ),
        "a model's own code",
    ),
    (lambda name, node: name.endswith(".extractall") and _keyword(node, "filter") != "data", "leaves its folder"),
)
"""Whether a call with this name breaks the rule, and what it does then."""
