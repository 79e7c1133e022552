"""verl's replay buffer drops the groups that the method's own filter drops."""

from collections import Counter

import pytest

from mcpo_cli.methods import get

pytestmark = pytest.mark.verl


@pytest.mark.parametrize(("name", "dropped"), [("dapo", {"wrong", "right"}), ("ngrpo", {"right"})])
def test_groups_of_equal_verdicts(name: str, dropped: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    from mcpo_cli.backends.verl.sampler import Sampler

    accuracy = {"wrong": 0.0, "right": 1.0, "mixed": None}
    monkeypatch.setattr(ReplayBuffer, "_dapo_filtered_keys", lambda *_: ({"wrong", "right"}, Counter([0.0, 1.0])))
    sampler = object.__new__(Sampler)
    vars(sampler).update(_keeps=get(name).keeps, _dapo_classification_cache={"train": accuracy})
    found, counts = sampler._dapo_filtered_keys("train")
    assert found == dropped
    assert counts == Counter(accuracy[uid] for uid in dropped)
