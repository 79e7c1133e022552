"""A run or an evaluation that is continued with other prompts says so before it does anything."""

import shutil
from pathlib import Path

from mcpo_cli.runs import prompts
from tests.errors import refused


def test_the_digest_is_that_of_the_tokens_in_their_order() -> None:
    assert prompts.digest([[1, 2], [3]]) == prompts.digest(iter([(1, 2), (3,)]))
    others = [[[1, 2, 3]], [[3], [1, 2]], [[1], [2, 3]], [[1, 2], [4]], []]
    assert prompts.digest([[1, 2], [3]]) not in {prompts.digest(each) for each in others}


def test_other_prompts_are_refused_and_new_sources_are_added(tmp_path: Path) -> None:
    prompts.check(tmp_path, {"training": "a", "aime24 1": "b"})
    prompts.check(tmp_path, {"training": "a", "aime24 2": "c"})
    for source, value in {"training": "x", "aime24 1": "x", "aime24 2": "x"}.items():
        with refused("changed", source):
            prompts.check(tmp_path, {"training": "a", source: value})
    prompts.check(tmp_path, {"training": "a", "aime24 1": "b", "aime24 2": "c"})


def test_a_run_that_begins_with_the_records_of_another_has_its_digests(tmp_path: Path) -> None:
    parent, fork = tmp_path / "parent", tmp_path / "fork"
    fork.mkdir()
    prompts.check(parent, {"training": "a"})
    shutil.copyfile(parent / prompts.FILE, fork / prompts.FILE)
    with refused("changed", "training"):
        prompts.check(fork, {"training": "x"})
