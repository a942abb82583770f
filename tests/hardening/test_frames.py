"""A small share of `python -m tests.hardening.frames`, on the generation in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardening.frames import hurt

pytestmark = pytest.mark.live
FRAMES = 2_500


def test_a10_malformed_frames_end_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    found = hurt(tmp_path, "2.1", FRAMES, number=1)
    assert found["frames"] == FRAMES
    assert {"answered", "closed"} <= set(found["outcomes"])
    assert set(found["of_kind"]) == {
        "mutated",
        "poisoned batch",
        "noise",
        "wrong length",
        "broken control",
    }
    assert found["neighbour"]["served"] >= 3
