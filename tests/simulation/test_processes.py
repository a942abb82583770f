"""In the simulation too: after an indeterminate send a client goes on as a new process."""

from __future__ import annotations

from dataclasses import replace

from neaptide.clusters.simulation.clients import Outcome, Send, sent_by
from neaptide.harness.play.simulation.recording import PRODUCER

FRESH = 7


def send(number: int) -> Send:
    return Send(number, f"m{number}", -1, 0, number)


def test_each_send_without_an_answer_is_the_last_of_its_process() -> None:
    outcomes = [
        (send(1), Outcome("ok", 10, 0)),
        (send(2), Outcome("info", 20)),
        (send(3), Outcome("ok", 30, 1)),
        (send(4), None),
        (send(5), None),
    ]
    assert sent_by(outcomes, PRODUCER, FRESH) == {1: PRODUCER, 2: PRODUCER, 3: 7, 4: 7, 5: 8}


def test_it_is_the_completion_that_counts_not_when_it_was_sent() -> None:
    outcomes = [
        (send(1), Outcome("info", 50)),
        (send(2), Outcome("ok", 10, 0)),
        (send(3), Outcome("ok", 60, 1)),
    ]
    assert sent_by(outcomes, PRODUCER, FRESH) == {2: PRODUCER, 1: PRODUCER, 3: 7}


def test_sends_whose_ends_are_known_share_a_process() -> None:
    outcomes = [(send(n), Outcome(kind, n)) for n, kind in enumerate(("ok", "fail", "ok"), 1)]
    assert set(sent_by(outcomes, PRODUCER, FRESH).values()) == {PRODUCER}


def test_a_record_for_one_broker_alone_has_a_producer_of_its_own() -> None:
    """Two producers promise no order between them; nor do two numbers of acknowledgements."""
    outcomes = [
        (send(1), Outcome("ok", 10, 0)),
        (replace(send(2), to=3), Outcome("info", 20)),
        (replace(send(3), acks=1), Outcome("ok", 30, 1)),
        (replace(send(4), to=3), Outcome("ok", 40, 2)),
        (send(5), Outcome("ok", 50, 3)),
    ]
    assert sent_by(outcomes, PRODUCER, FRESH) == {1: PRODUCER, 2: 7, 3: 8, 4: 9, 5: PRODUCER}
