"""What the training process waits for before verl starts."""

import pytest

from mcpo_cli.errors import RunFailed

pytestmark = pytest.mark.verl


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that passed; sleeping takes no time."""
    from mcpo_cli.backends.verl import main

    slept: list[float] = []
    monkeypatch.setattr(main.time, "sleep", slept.append)
    monkeypatch.setattr(main.time, "monotonic", lambda: sum(slept))
    return slept


def test_it_waits_until_all_gpus_have_joined(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    from mcpo_cli.backends.verl import main

    monkeypatch.setattr(main.ray, "cluster_resources", lambda: {"GPU": 8.0 * min(len(clock), 2)} if clock else {})
    said: list[str] = []
    main.wait_for_gpus(16, said.append)
    assert [text.partition(":")[2] for text in said] == [
        " 0 of 16 GPUs have joined the Ray cluster",
        " 8 of 16 GPUs have joined the Ray cluster",
    ]


def test_it_gives_up_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, clock: list[float]) -> None:
    from mcpo_cli.backends.verl import main

    monkeypatch.setattr(main.ray, "cluster_resources", lambda: {"GPU": 8.0})
    with pytest.raises(RunFailed, match=r"8 of 16 GPUs .* after 30 minutes"):
        main.wait_for_gpus(16, lambda _: None)
    assert sum(clock) > main.JOINING_SECONDS
