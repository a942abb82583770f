"""A program that a scenario drives, in Python: what docs/clients.md asks of its lines.

`serve(describe, kinds)` is all of a program but its clients. A kind is a class whose methods are
the requests' verbs (`do_send`, `do_poll`, …); `idle` is called between requests.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

IDLE_S: Final = 0.05
Say = Callable[[Mapping[str, Any]], None]


class Refused(Exception):
    """What was answered to a request, by its name."""


class Client:
    """What all kinds have. A method returns why it could not be done, or nothing."""

    def __init__(self, config: Mapping[str, Any], say: Say) -> None:
        self.topic: str = config["topic"]
        self.group: str | None = config["group"]
        self.transactional_id: str | None = config["transactional_id"]
        self.bootstrap: str = config["bootstrap"]
        self.settings: Mapping[str, str] = config["settings"]
        self.say = say

    def notify(self, error: str) -> None:
        self.say({"event": "notified", "error": error})

    def idle(self) -> None:
        """Nothing to do between requests."""

    def do_start(self, deadline_s: float) -> str | None:
        """A transactional producer has its producer id and epoch then."""

    def do_leave(self, deadline_s: float) -> str | None:
        """Closes."""


class Producer(Client):
    """Knows how many sends have no end."""

    left = 0

    def sent(
        self, value: str, offset: int | None, error: str | None, appended: bool | None = None
    ) -> None:
        self.left -= 1
        row = {"event": "sent", "value": value, "offset": offset}
        self.say(row if error is None else {**row, "error": error, "appended": appended})

    def unanswered(self) -> str:
        return f"{self.left} sends were not answered" if self.left else ""


class Consumer(Client):
    """Says what it takes and has. `stalled`: it polls no more; `has_erred`: an error came in place
    of a record, and nobody has asked for records since."""

    stalled = False
    has_erred = False

    def notify(self, error: str) -> None:
        super().notify(error)
        self.has_erred = True

    def do_stall(self, deadline_s: float) -> None:
        self.stalled = True

    def do_wake(self, deadline_s: float) -> None:
        self.stalled = False

    def polled(
        self, value: str | None, offset: int, partition: int, leader_epoch: int | None = None
    ) -> None:
        row = {"event": "polled", "value": value, "offset": offset, "partition": partition}
        self.say({**row, "leader_epoch": leader_epoch})

    def assigned(self, partitions: Iterable[int]) -> None:
        self.say({"event": "assigned", "partitions": sorted(partitions)})

    def committed(self, partition: int, offset: int, error: str | None) -> None:
        row = {"event": "committed", "partition": partition, "offset": offset}
        self.say(row if error is None else {**row, "error": error})


def serve(describe: Mapping[str, Any], kinds: Mapping[str, Callable[..., Client]]) -> None:
    """Until standard input ends. `describe`: `client`, `version` and what it `can` do."""
    writing = threading.Lock()

    def say(row: Mapping[str, Any]) -> None:
        with writing:
            sys.stdout.write(json.dumps(row) + "\n")
            sys.stdout.flush()

    requests: queue.Queue[dict[str, Any]] = queue.Queue()

    def read() -> None:
        for line in sys.stdin:
            requests.put(json.loads(line))
        os._exit(0)  # nobody drives it any more

    threading.Thread(target=read, daemon=True).start()
    client: Client | None = None
    while True:
        try:
            request = requests.get(timeout=IDLE_S)
        except queue.Empty:
            if client is not None:
                client.idle()
            continue
        number, verb = request.pop("id"), request.pop("do")
        answer: dict[str, Any] = {"id": number}
        try:
            if verb == "describe":
                answer |= describe
            elif verb == "start":
                deadline_s, kind = request.pop("deadline_s"), request.pop("kind")
                client = kinds[kind](request, say)
                answer["problem"] = client.do_start(deadline_s) or ""
            else:
                answer["problem"] = getattr(client, f"do_{verb}")(**request) or ""
        except Refused as refused:
            answer["error"] = str(refused)
        except Exception as error:
            answer["problem"] = f"{type(error).__name__}: {error}"
        say(answer)
