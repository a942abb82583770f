"""Conditions: each form means what it reads like, and nothing else is let through."""

from __future__ import annotations

import pytest

from neaptide.nemesis.conditions import ConditionError, parse_condition, parse_number
from tests.nemesis.seen import Seen

BROKERS = {"A": 0, "B": 1, "C": 2}
RECORDS = ("m1", "m2")


@pytest.mark.parametrize(
    ("text", "seen", "expected"),
    [
        ("acked(m1)", Seen(acks={"m1"}), True),
        ("acked(m1)", Seen(acks={"m2"}), False),
        ("acked(m1) and held(C, A)", Seen(acks={"m1"}, holds={(2, 0)}), True),
        ("acked(m1) and held(C, A)", Seen(acks={"m1"}, holds={(0, 2)}), False),
        ("acked(m1) or level", Seen(is_level=True), True),
        ("not up(C) and up(A)", Seen(), True),
        ("not registered(A)", Seen(), False),
        ("leader is B", Seen(leads=1), True),
        ("leader is B", Seen(leads=2), False),
        ("leader is nobody", Seen(leads=None), True),
        ("leader is not nobody", Seen(leads=None), False),
        ("leader_epoch >= 3", Seen(), True),
        ("isr is {A, C}", Seen(in_sync=(2, 0)), True),
        ("isr is {A, C}", Seen(in_sync=(2, 0, 1)), False),
        ("isr is {}", Seen(in_sync=()), True),
        ("isr is {}", Seen(in_sync=(0,)), False),
        ("B in isr", Seen(in_sync=(1,)), True),
        ("B not in isr", Seen(in_sync=(1,)), False),
        ("LEO(A) >= 2", Seen(ends={0: 2}), True),
        ("LEO(A) < 2", Seen(ends={0: 2}), False),
        ("checkpointed(B) > 1 and round(A) <= 7", Seen(), True),
        ("error(m2) is REQUEST_TIMED_OUT", Seen(), True),
        ("error(m2) is NOT_ENOUGH_REPLICAS", Seen(), False),
        ("error(m1) is nobody", Seen(), True),
        ("isr_changes >= 4 and controller is B", Seen(controls=1), True),
        ("refused(A) and not refused(B)", Seen(), True),
        ("obeyed(B) and not obeyed(A)", Seen(), True),
        ("fenced(B) and not fenced(A)", Seen(), True),
        ("leader is C and (isr is {C, B} or fenced(B))", Seen(leads=2, in_sync=(2,)), True),
        ("leader is C and (isr is {C, B} or fenced(A))", Seen(leads=2, in_sync=(2,)), False),
        ("leader is A and (isr is {C} or fenced(B))", Seen(leads=2, in_sync=(2,)), False),
        ("leader is A and isr is {C} or fenced(B)", Seen(leads=2, in_sync=(2,)), True),
        ("log_start_offset(A) >= 5 and log_end_offset(A) is 9", Seen(), True),
        ("log_start_offset(B) >= 0", Seen(), False),
        ("round(A) >= round(B) - 1 and not round(A) >= round(B) + 1", Seen(), True),
        ("LEO(A) + 1 >= 3", Seen(), False),
    ],
)
def test_a_condition_means_what_it_reads_like(text: str, seen: Seen, expected: bool) -> None:
    assert parse_condition(text, BROKERS, RECORDS).holds(seen) is expected


def test_a_comparison_says_what_was_seen_on_its_left() -> None:
    assert parse_condition("isr_changes is 0", BROKERS, RECORDS).subject(Seen()) == 4


@pytest.mark.parametrize(
    ("text", "seen", "unmet"),
    [
        (
            "acked(m1) and held(C, A) and LEO(B) >= 2",
            Seen(acks={"m1"}, ends={1: 1}, leads=2, in_sync=(2, 0)),
            "held(C, A) is false, LEO(B) is 1, leader is C, isr is {A, C}",
        ),
        ("leader is A", Seen(leads=None), "leader is nobody, isr is {}"),
        ("B in isr", Seen(leads=2, in_sync=(2,)), "isr is {C}, leader is C"),
        (
            "HW(A) >= was(leader_epoch) + 1 or not up(A)",
            Seen(leads=0, in_sync=(0,)),
            "HW(A) >= was(leader_epoch) + 1 or not up(A) is false, leader is A, isr is {A}",
        ),
        (
            "controller is A and HW(A) > round(A) - 1",
            Seen(controls=2),
            "controller is C, HW(A) is not known, round(A) - 1 is 6, leader is nobody, isr is {}",
        ),
        (
            "error(m1) is NOT_CONTROLLER",
            Seen(leads=5),
            "error(m1) is not known, leader is 5, isr is {}",
        ),
    ],
)
def test_who_waited_in_vain_reads_what_was_seen_instead(text: str, seen: Seen, unmet: str) -> None:
    condition = parse_condition(text, BROKERS, RECORDS)
    assert not condition.holds(seen)
    assert condition.unmet(seen) == unmet


@pytest.mark.parametrize("text", ["LEO(A) >= 2", "LEO(A) < 2", "HW(A) < 100"])
def test_what_is_not_known_is_neither_more_nor_less(text: str) -> None:
    assert parse_condition(text, BROKERS, RECORDS).holds(Seen()) is False


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("acked(m3)", "no step produces the record m3"),
        ("held(C, D)", "D is no broker; there are A, B, C"),
        ("held(C)", "held takes 2, not 1"),
        ("leader is", "cannot read the condition"),
        ("foo(A)", "cannot read 'foo(A)'"),
        ("__import__('os')", "cannot read"),
        ("acked(m1) if level else level", "cannot read"),
        ("1 < LEO(A) < 3", "cannot read"),
        ("lambda: 1", "cannot read"),
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str, says: str) -> None:
    with pytest.raises(ConditionError) as refused:
        parse_condition(text, BROKERS, RECORDS)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("text", "seen", "expected"),
    [
        ("controller is A", Seen(controls=0), True),
        ("controller is not old", Seen(controls=1, names={"old": 0}), True),
        ("controller is not old", Seen(controls=0, names={"old": 0}), False),
        (
            "controller is not old and controller is not nobody",
            Seen(controls=None, names={"old": 0}),
            False,
        ),
        ("controller_epoch > 4", Seen(), True),
    ],
)
def test_the_controller_is_asked_for_by_a_name_that_a_step_gave(
    text: str, seen: Seen, expected: bool
) -> None:
    assert parse_condition(text, BROKERS, RECORDS, {"old"}).holds(seen) is expected


def test_was_is_what_was_observed_when_the_waiting_began() -> None:
    seen = Seen(ends={0: 5}, leads=1)
    condition = parse_condition("LEO(A) >= was(LEO(A)) + 2 or leader != was(leader)", BROKERS, ())
    begun = condition.begun(seen)
    assert not begun.holds(seen)
    seen.ends[0] = 6
    assert not begun.holds(seen)
    assert not condition.holds(seen)
    seen.ends[0] = 7
    assert begun.holds(seen)
    assert not condition.begun(seen).holds(seen)
    seen.leads = 2
    assert begun.begun(Seen(ends={0: 7}, leads=1)).holds(seen)


def test_what_was_not_known_is_never_reached() -> None:
    begun = parse_condition("LEO(B) >= was(LEO(B)) + 1", BROKERS, ()).begun(Seen())
    assert not begun.holds(Seen(ends={1: 10}))


def test_a_number_is_read_as_in_a_condition() -> None:
    assert parse_number("LEO(A) + 3", BROKERS)(Seen(ends={0: 4})) == 7
    assert parse_number("LEO(B) + 3", BROKERS)(Seen(ends={0: 4})) is None
    for text in ("LEO(A) * 3", "open('x')", "LEO(A) +"):
        with pytest.raises(ConditionError):
            parse_number(text, BROKERS)
