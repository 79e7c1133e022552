"""Paths that users name."""

from pathlib import Path

from mcpo_cli.errors import ConfigError

SHOWN = 60
"""Largest number of characters of a path that an error quotes."""


def named(given: str | Path) -> Path:
    """The path that a user names, with `~` and `~USER` replaced; it need not exist.

    Raises:
        ConfigError: no file can have that name: the user does not exist, or the name is too long or has a null byte.
    """
    try:
        path = Path(given).expanduser()
        path.lstat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return path
    except RuntimeError as error:
        raise _no_file(given, "there is no such user") from error
    except (OSError, ValueError) as error:
        raise _no_file(given, getattr(error, "strerror", None) or str(error)) from error
    return path


def _no_file(path: str | Path, reason: str) -> ConfigError:
    text = str(path)
    excerpt = text if len(text) <= SHOWN else f"{text[:SHOWN]}... ({len(text)} characters)"
    return ConfigError(f"{excerpt!a} cannot be a file or folder: {reason}", fix="name another path", code="not_found")
