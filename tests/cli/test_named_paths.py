"""A path that no file can have is an input error in every place where a user names a path."""

import os
from pathlib import Path

import pytest

from mcpo_cli import paths, plugin_files, plugins
from tests.cli.conftest import InProcess
from tests.errors import refused

LONG = "x" * 300
WRONG = {
    "an unknown user": "~nosuchuser/x",
    "a name that is too long": f"./{LONG}",
    "a null byte": "a\0b",
}


@pytest.mark.parametrize("given", WRONG.values(), ids=WRONG)
def test_what_no_file_can_be_called_is_refused(given: str) -> None:
    with refused("not_found", ascii(given)[1:40].rstrip("'")) as raised:
        paths.named(given)
    assert raised.value.fix
    assert "\0" not in raised.value.message
    assert len(raised.value.message) < 200


VERBS = {
    "train": ["train", "--dry-run", "{}.yaml"],
    "a preset": ["train", "--dry-run", "scale={}.yaml"],
    "train a model": ["train", "--dry-run", "scale=laptop", "model.path={}"],
    "fork": ["fork", "{}.yaml"],
    "compare": ["compare", "{}.yaml"],
    "compare logs": ["compare", "{}/*.jsonl", "ours.jsonl"],
    "compare into": ["compare", "a.jsonl", "b.jsonl", "--out", "{}"],
    "claim": ["claim", "{}.yaml"],
    "claim into": ["claim", "54.2 vs 51.7, n=30, 32 samples", "--csv", "{}"],
    "model fetch": ["components", "fetch", "model", "smollm2-135m", "--from", "{}"],
    "evaluate": ["evaluate", "{}"],
    "grade": ["grade", "{}"],
    "grade a file": ["grade", "{}.jsonl"],
    "data audit": ["components", "check", "data", "{}/x.jsonl"],
    "data audit of a set": ["components", "check", "data", "math500={}"],
    "probe": ["probe", "sanity", "{}"],
    "runs unbundle": ["runs", "unbundle", "{}"],
    "runs bundle": ["runs", "bundle", "{}", "{}"],
}


@pytest.mark.parametrize("words", VERBS.values(), ids=VERBS)
def test_no_verb_calls_it_a_bug(here: InProcess, words: list[str]) -> None:
    done = here(*(word.replace("{}", f"./{LONG}") for word in words))
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr


def test_a_plug_in_folder_that_can_be_none_is_a_message(
    plugin_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(plugin_files, "__path__", ["~nosuchuser/plug-ins", os.fspath(plugin_folder)])
    assert plugins.folders() == [plugin_folder]
    assert "MCPO_PLUGINS: '~nosuchuser/plug-ins' cannot be a file or folder" in capsys.readouterr().err


def test_nor_is_a_home_that_can_be_none(here: InProcess) -> None:
    assert "MCPO_HOME: " in here.refused("not_found", "runs", "list", MCPO_HOME=LONG)
