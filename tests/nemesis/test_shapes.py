"""Network partitions: who receives from whom is what the shape's name says."""

from __future__ import annotations

import pytest

from neaptide.nemesis.gate.model import CLIENT, COORDINATION
from neaptide.nemesis.shapes import SHAPES, Deaf, Shape
from neaptide.nemesis.steps import PartitionNetwork

ENDS = (CLIENT, COORDINATION)


def receives(shape: Shape, brokers: tuple[int, ...]) -> dict[int, set[int | str]]:
    """Broker → from whom it receives, itself included."""
    names = {str(broker): broker for broker in brokers}
    ends: tuple[int | str, ...] = (*brokers, *ENDS)
    cut = {
        (names.get(deaf.source, deaf.source), names.get(deaf.destination, deaf.destination))
        for deaf in SHAPES[shape](tuple(names))
    }
    return {b: {b, *(end for end in ends if end != b and (end, b) not in cut)} for b in brokers}


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7])
def test_in_a_ring_each_receives_from_a_majority_and_no_two_the_same(count: int) -> None:
    received = receives("majority-ring", tuple(range(count)))
    sets = [frozenset(one - set(ENDS)) for one in received.values()]
    assert {len(one) for one in sets} == {count // 2 + 1}
    assert count == 2 or len(set(sets)) == count


def test_one_is_cut_off_from_everybody() -> None:
    received = receives("one", (2, 0, 1))
    assert received == {2: {2}, 0: {0, 1, *ENDS}, 1: {0, 1, *ENDS}}


def test_no_half_receives_from_the_other() -> None:
    received = receives("half", (4, 3, 2, 1, 0))
    assert received[4] == received[3] == {4, 3}
    assert received[2] == received[1] == received[0] == {0, 1, 2, *ENDS}


def test_a_bridge_receives_from_both_halves() -> None:
    received = receives("bridge", (2, 0, 1, 3, 4))
    assert received[2] == {0, 1, 2, 3, 4, *ENDS}
    assert received[0] == received[1] == {0, 1, 2, *ENDS}
    assert received[3] == received[4] == {3, 4, 2, *ENDS}


def test_one_way_is_one_way() -> None:
    assert receives("mute", (0, 1, 2)) == {0: {0, 1, 2, *ENDS}, 1: {1, 2, *ENDS}, 2: {1, 2, *ENDS}}
    assert receives("deaf", (0, 1, 2)) == {
        0: {0, *ENDS},
        1: {0, 1, 2, *ENDS},
        2: {0, 1, 2, *ENDS},
    }


@pytest.mark.parametrize(
    ("shape", "purpose"),
    [
        ("only-clients", "client"),
        ("only-coordination", "coordination"),
        ("only-replication", "replication"),
    ],
)
def test_only_one_purpose_is_cut(shape: Shape, purpose: str) -> None:
    cuts = SHAPES[shape](("1", "0", "2"))
    assert {deaf.purpose for deaf in cuts} == {purpose}
    assert all("1" in (deaf.source, deaf.destination) for deaf in cuts)
    assert {Deaf(one.destination, one.source, one.purpose) for one in cuts} == set(cuts)


def test_whoever_has_the_role_has_the_first_part() -> None:
    step = PartitionNetwork("mute", ("A", "B", "C"))
    assert {deaf.source for deaf in step.cuts(None)} == {"A"}
    assert {deaf.source for deaf in step.cuts("C")} == {"C"}
    assert step.cuts("controller-100") == step.cuts(None)
