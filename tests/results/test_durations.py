from __future__ import annotations

from neaptide.results.durations import duration


def test_durations_in_words() -> None:
    assert [duration(s) for s in (5, 65, 3725)] == ["5 s", "1 min 5 s", "1 h 2 min"]
