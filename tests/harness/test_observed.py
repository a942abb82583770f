"""When the followers of a partition are level, by what the wire has shown of each."""

from __future__ import annotations

import pytest

from neaptide.harness.live.observed import level_end
from neaptide.nemesis.gate.client import FetchPosition

A, B, C = 0, 1, 2


def _follows(leader: int, end: int, mark: int | None, epoch: int | None = 0) -> FetchPosition:
    return FetchPosition(leader, epoch, 1, end, mark)


@pytest.mark.parametrize(
    ("positions", "end"),
    [
        ({A: _follows(C, 2, 2), B: _follows(C, 2, 2), C: None}, 2),
        ({A: _follows(C, 2, 2), B: _follows(C, 1, 1), C: None}, None),
        ({A: _follows(C, 2, 1), B: _follows(C, 2, 2), C: None}, None),
        ({A: _follows(C, 2, 2), B: None, C: None}, None),
        ({A: _follows(B, 2, 2, 1), B: _follows(C, 1, 1), C: _follows(B, 2, 2, 1)}, 2),
        ({A: _follows(B, 2, 2, 1), B: _follows(C, 1, 1), C: None}, None),
        ({A: _follows(C, 2, 2), B: _follows(C, 2, 2, 1), C: None}, None),
        ({A: _follows(C, 2, 2, None), B: _follows(C, 2, 2, None), C: None}, 2),
        ({}, None),
    ],
    ids=[
        "level",
        "one is behind",
        "one does not know the high watermark",
        "one was not seen",
        "the leader once followed",
        "the dead leader has not followed yet",
        "one follows in an earlier epoch",
        "epochs are not known",
        "nobody was seen",
    ],
)
def test_followers_are_level(positions: dict[int, FetchPosition | None], end: int | None) -> None:
    assert level_end(positions) == end
