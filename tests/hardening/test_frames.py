"""A small share of `python -m tests.hardening.frames`, on the generation in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardening import entities, gate_frames
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


def test_malformed_frames_end_no_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    found = gate_frames.hurt(tmp_path / "run", FRAMES, number=1)
    assert found["frames"] == FRAMES
    assert set(found["of_kind"]) == {
        "between brokers",
        "mutated",
        "poisoned batch",
        "noise",
        "wrong length",
    }
    assert found["served"] == 1


def test_what_stands_before_kio_comes_as_far_as_kio() -> None:
    found = entities.hurt(20_000, number=1)
    assert set(found["outcomes"]) == {"read", "refused"}
    assert found["entities"] > 1_000
