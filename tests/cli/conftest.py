"""The command line as users meet it: subprocesses in a separate home."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main

from mcpo_cli.main import app, main
from mcpo_cli.plugin_files import VARIABLE
from mcpo_cli.scheduling import scheduler
from mcpo_cli.scheduling.process import ForkServer

MCPO = (sys.executable, "-m", "mcpo_cli.main")
COMMANDS = functools.cache(typer.main.get_command)
"""Typer makes all commands anew each time: once in a process of a user, hundreds of times in one of tests."""


def keys_told(words: Sequence[str]) -> str:
    """The keys that `--help` of a command names for its `--json`."""
    command: Any = COMMANDS(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    return next(option.help for option in command.params if option.name == "as_json")


class Cli:
    """Runs `mcpo` with MCPO_HOME=`home`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"}
        self.env |= {"MCPO_HOME": str(home), "NO_COLOR": "1"}

    def __call__(self, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*MCPO, *arguments], env=self.env | env, capture_output=True, text=True, check=False, timeout=1200
        )

    def json(self, *arguments: str) -> Any:
        """The one document that `--json` prints."""
        result = self(*arguments, "--json")
        assert result.returncode == 0, result.stderr
        document = json.loads(result.stdout)
        told = re.sub(r"\([^)]*\)", "", keys_told(arguments))
        assert "..." in told or set(document) <= set(re.findall(r"\w+", told))
        return document

    def refused(self, code: str, *arguments: str, **env: str) -> str:
        """The message and the fix of a command that ends with an error of this code, and without a traceback."""
        result = self(*arguments, "--json", **env)
        error = json.loads(result.stdout)["error"]
        assert (error["code"], "Traceback" in result.stderr) == (code, False), result.stderr
        return f"{error['message']}; fix: {error['fix']}"

    def untouched(self) -> bool:
        """True if nothing was written."""
        return not self.home.exists() or not any(self.home.iterdir())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "home"
    monkeypatch.setenv("MCPO_HOME", str(path))
    return path


@pytest.fixture
def warm_home(home: Path, base_policies: Path) -> Path:
    """The home, with the base policies that tests share."""
    home.mkdir(exist_ok=True)
    (home / "cache").symlink_to(base_policies)
    return home


@pytest.fixture
def stored(home: Path, empty_store: Path) -> None:
    """The home has a store."""
    home.mkdir(exist_ok=True)
    shutil.copy(empty_store, home / "mlflow.db")


@pytest.fixture
def cli(home: Path) -> Cli:
    return Cli(home)


class InProcess(Cli):
    """Runs `mcpo` in this process, for the many cases whose time would be mostly imports."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__(home)
        self._monkeypatch, self._capsys = monkeypatch, capsys
        monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
        monkeypatch.setenv("COLUMNS", "200")
        monkeypatch.setattr(typer.main, "get_command", COMMANDS)

    def __call__(self, *arguments: str, **env: str) -> "subprocess.CompletedProcess[str]":
        self._monkeypatch.setattr(sys, "argv", ["mcpo", *arguments])
        for name, value in env.items():
            self._monkeypatch.setenv(name, value)
        code: Any = 0
        self._capsys.readouterr()
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        out, err = self._capsys.readouterr()
        return subprocess.CompletedProcess(list(arguments), code, out, err)


class KeptServer(ForkServer):
    """A fork server that outlives the plan that it is started for."""

    def close(self) -> None:
        """Nothing: another test may use it."""


Servers = Callable[[str, Mapping[str, str]], ForkServer]


@pytest.fixture(scope="session")
def fork_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """One fork server for the runs of many tests, because it loads torch for seconds. Its home is a link."""
    link, kept = tmp_path_factory.mktemp("server") / "home", dict[tuple[str, ...], ForkServer]()

    def end() -> None:
        for server in kept.values():
            ForkServer.close(server)
        kept.clear()

    def start(module: str, environment: Mapping[str, str]) -> ForkServer:
        link.unlink(missing_ok=True)
        link.symlink_to(environment["MCPO_HOME"])
        settings = {**environment, "MCPO_HOME": str(link)}
        key = (module, str(Path.cwd()), os.environ.get(VARIABLE, ""), *settings.values())
        if key not in kept:
            end()
            kept[key] = KeptServer(module, settings)
        return kept[key]

    yield start
    end()


@pytest.fixture
def here(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fork_servers: Servers
) -> InProcess:
    monkeypatch.setattr(scheduler, "ForkServer", fork_servers)
    return InProcess(home, monkeypatch, capsys)
