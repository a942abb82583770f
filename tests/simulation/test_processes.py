"""In the simulation too: after an indeterminate send a client goes on as a new process."""

from __future__ import annotations

from neaptide.clusters.simulation.clients import Outcome, Send
from neaptide.harness.simulation.recording import PRODUCER, sent_by

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
    assert sent_by(outcomes, FRESH) == {1: PRODUCER, 2: PRODUCER, 3: 7, 4: 7, 5: 8}


def test_it_is_the_completion_that_counts_not_when_it_was_sent() -> None:
    outcomes = [
        (send(1), Outcome("info", 50)),
        (send(2), Outcome("ok", 10, 0)),
        (send(3), Outcome("ok", 60, 1)),
    ]
    assert sent_by(outcomes, FRESH) == {2: PRODUCER, 1: PRODUCER, 3: 7}


def test_sends_whose_ends_are_known_share_a_process() -> None:
    outcomes = [(send(n), Outcome(kind, n)) for n, kind in enumerate(("ok", "fail", "ok"), 1)]
    assert set(sent_by(outcomes, FRESH).values()) == {PRODUCER}
