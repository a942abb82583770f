"""A small share of `python -m tests.hardening.frames`; `make proof` sends 10⁶ frames to each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hardening import entities, gate_frames
from tests.hardening.frames import FRAMES, GENERATIONS, hurt
from tests.proof import proof_but

pytestmark = [pytest.mark.live, pytest.mark.timeout(3_600)]
FEW = 120
SHARE = 100_000  # of the long form: what a proof that was interrupted repeats at most
SHARES = [(SHARE, number) for number in range(1, FRAMES // SHARE + 1)]


@pytest.mark.parametrize(
    ("generation", "frames", "number"),
    proof_but(
        [
            ("2.1", FEW, 1),
            *((GENERATIONS[n % len(GENERATIONS)], frames, n) for frames, n in SHARES),
        ],
        ("2.1", FEW, 1),
    ),
)
def test_a10_malformed_frames_end_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: str, frames: int, number: int
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    found = hurt(tmp_path, generation, frames, number=number)
    assert found["frames"] == frames
    assert {"answered", "closed"} <= set(found["outcomes"])
    assert set(found["of_kind"]) == {
        "mutated",
        "poisoned batch",
        "noise",
        "wrong length",
        "broken control",
    }
    assert found["neighbour"]["served"] >= 3


@pytest.mark.parametrize(("frames", "number"), proof_but([(FEW, 1), *SHARES]))
def test_malformed_frames_end_no_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, frames: int, number: int
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    found = gate_frames.hurt(tmp_path / "run", frames, number=number)
    assert found["frames"] == frames
    assert set(found["of_kind"]) == {
        "between brokers",
        "mutated",
        "poisoned batch",
        "noise",
        "wrong length",
    }
    assert found["served"] == max(1, frames // gate_frames.ROUND)


@pytest.mark.parametrize("messages", proof_but([5_000, FRAMES], 5_000))
def test_what_stands_before_kio_comes_as_far_as_kio(messages: int) -> None:
    found = entities.hurt(messages, number=1)
    assert set(found["outcomes"]) == {"read", "refused"}
    assert found["entities"] > 1_000
