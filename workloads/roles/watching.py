"""Clients that only look: the auditor of a bank, the watch over last stable offsets."""

from __future__ import annotations

import time
from typing import Any, Final

from neaptide.workloads.libraries.model import LibraryError, Place
from neaptide.workloads.roles.role import Role, poll_once

_ASK_S: Final = 2.0
_EACH_S: Final = 1.0
_SUM_EACH_S: Final = 0.2


class Auditor(Role):
    """Reads all partitions, and says where it had read all up to the last stable offset."""

    def work(self) -> None:
        consumer = self.desk.consumer(f"neaptide-{self.process}")
        consumer.assign(dict.fromkeys(self.task.places, 0))
        recorder = self.desk.recorder
        said: dict[Place, float] = {}
        while not self.stopping.is_set():
            invoked_ns = recorder.now_ns()
            polled = poll_once(consumer)
            if polled.records:
                self.record_poll(polled, invoked_ns)
            for topic, partition, end in polled.ends:
                if time.monotonic() - said.get((topic, partition), 0.0) < _SUM_EACH_S:
                    continue
                said[topic, partition] = time.monotonic()
                recorder.write(
                    operation=recorder.new_operation(),
                    process=self.process,
                    f="sum",
                    type="ok",
                    invoked_ns=invoked_ns,
                    completed_ns=recorder.now_ns(),
                    topic=topic,
                    partition=partition,
                    offset=end,
                )
        consumer.close()


class StableWatch(Role):
    """Asks each partition for its high watermark and then for its last stable offset.

    When all senders have ended and the cluster is healed, it goes on until these are equal
    everywhere, or so long that every transaction has timed out twice.
    """

    def work(self) -> None:
        group = f"neaptide-{self.process}"
        uncommitted = self.desk.consumer(group, isolation="read_uncommitted")
        committed = self.desk.consumer(group)
        while not self.stopping.is_set():
            self._look(uncommitted, committed, "main")
            self.stopping.wait(_EACH_S)
        timeout_s = float(self.task.options["transaction_timeout_ms"]) / 1e3
        deadline = time.monotonic() + 2 * timeout_s + 15.0
        while self._look(uncommitted, committed, "final") and time.monotonic() < deadline:
            time.sleep(_EACH_S / 2)  # nothing reports that a last stable offset has moved
        uncommitted.close()
        committed.close()

    def _look(self, uncommitted: Any, committed: Any, phase: str) -> set[Place]:
        """Partitions whose last stable offset is below their high watermark, or not known."""
        behind = set()
        recorder = self.desk.recorder
        for place in self.task.places:
            invoked_ns = recorder.now_ns()
            try:
                _, high_watermark = uncommitted.ends(place, _ASK_S)
                _, stable = committed.ends(place, _ASK_S)
            except LibraryError:
                behind.add(place)
                continue
            if stable < high_watermark:
                behind.add(place)
            recorder.write(
                operation=recorder.new_operation(),
                process=self.process,
                f="stable",
                type="ok",
                invoked_ns=invoked_ns,
                completed_ns=recorder.now_ns(),
                topic=place[0],
                partition=place[1],
                offset=stable,
                value=str(high_watermark),
                phase=phase,
            )
        return behind
