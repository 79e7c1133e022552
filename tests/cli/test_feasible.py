"""`--dry-run` refuses runs that no machine can train with the message of `train`, before any file is written."""

from pathlib import Path

import pytest

from mcpo_cli.backends import local
from tests.cli.conftest import InProcess
from tests.models import wordy
from tests.unit.test_write_a_task import told


@pytest.fixture
def words(plugin_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The settings of a run of each kind that cannot be trained."""
    letters = told()["letters"]
    (plugin_folder / "letters.py").write_text(letters, encoding="utf-8")
    # Of two letters there are some hundred short strings.
    few = letters.replace('choices("abcde"', 'choices("ab"').replace('"letters"', '"few"')
    (plugin_folder / "few.py").write_text(few, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    lines = [f'{{"problem": "What is {one} and {one + 1} and {one + 2}?", "answer": "{one}"}}\n' for one in range(60)]
    (tmp_path / "mine.jsonl").write_text("".join(lines), encoding="utf-8")
    model = f"model.path={wordy(tmp_path / 'model')}"
    own = ["data=./mine.jsonl", "scale=smoke", "task.style=plain", 'task.template="{question}"']
    return {
        "a task without words of its own": ["task=letters"],
        "too few problems": ["task=few", model],
        "own data without a model": own,
        "prompts that are too long": [*own, model, "train.max_prompt=2"],
        "too few of one's own problems": [*own, model, "train.prompts=64", "train.mini_batch=64"],
    }


KINDS = {
    "a task without words of its own": "contradiction",
    "too few problems": "no_room",
    "own data without a model": "contradiction",
    "prompts that are too long": "no_room",
    "too few of one's own problems": "no_room",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_dry_run_refuses_what_train_refuses(kind: str, here: InProcess, words: dict[str, list[str]]) -> None:
    refused = here.refused(KINDS[kind], "train", *words[kind])
    assert here.refused(KINDS[kind], "train", *words[kind], "--dry-run") == refused
    assert here.untouched()


def test_a_dry_run_warns_with_the_message_of_a_start_that_lacks_memory(
    here: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory may be free again when the run starts, so the dry run still ends well."""
    monkeypatch.setattr(local, "on_cpu", lambda spec: True)
    words, room = ("train", "model=smollm2-135m"), local.Free(1e9, 1e12, tmp_path)
    assert "would be refused" not in here(*words, "--dry-run").stderr
    monkeypatch.setattr(local, "free", lambda: room)
    dry = here(*words, "--dry-run")
    assert dry.returncode == 0
    assert f"warning: a start would be refused: {here.refused('bad_input', *words)}" in dry.stderr
    assert here.untouched()
