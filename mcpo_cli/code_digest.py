"""The hash of a Python file's code: its text without comments, docstrings and empty lines.

It hashes text because tokens and syntax trees differ between versions of Python, and a run's id must not.
"""

import ast
import hashlib
import io
import tokenize
from contextlib import suppress
from pathlib import Path

Position = tuple[int, int]
"""Line, counted from 1, and column in characters."""


def digest(path: Path) -> str:
    """SHA-256 of the code in hex digits; of the whole content if `path` does not hold valid Python."""
    content = path.read_bytes()
    if path.suffix == ".py":
        with suppress(SyntaxError, ValueError, tokenize.TokenError):
            content = without_words(content.decode("utf-8")).encode()
    return hashlib.sha256(content).hexdigest()


def without_words(source: str) -> str:
    """`source` without comments, empty lines, and statements that are texts, such as docstrings.

    A file that names `__doc__` keeps these texts, because its code may read them.

    Raises:
        SyntaxError, ValueError, tokenize.TokenError: it is not Python.
    """
    source = source.replace("\r\n", "\n")
    lines, words = source.split("\n"), list[tuple[Position, Position]]()
    if "__doc__" not in source:
        words = [_extent(node, lines) for node in ast.walk(ast.parse(source)) if _is_text(node)]
    open_lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            words.append((token.start, token.end))
        elif (token.start, token.end) not in words:
            open_lines.update(range(token.start[0], token.end[0]))
    for (first, begin), (last, end) in words:
        for number in range(first, last + 1):
            line = lines[number - 1]
            left, right = begin if number == first else 0, end if number == last else len(line)
            lines[number - 1] = line[:left] + " " * (right - left) + line[right:]
    return "\n".join(
        line if number in open_lines else line.rstrip()
        for number, line in enumerate(lines, 1)
        if number in open_lines or line.strip()
    )


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _extent(node: ast.AST, lines: list[str]) -> tuple[Position, Position]:
    """Beginning and end of a statement; a syntax tree counts columns in bytes."""
    assert isinstance(node, ast.Expr)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None

    def position(line: int, column: int) -> Position:
        return line, len(lines[line - 1].encode()[:column].decode())

    return position(node.lineno, node.col_offset), position(node.end_lineno, node.end_col_offset)
