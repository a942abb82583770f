"""`append`: unique values, round robin over all partitions; consumers read all of them.

`keyed`: each producer has keys of its own, and each key has its partition.
"""

from __future__ import annotations

import zlib

from neaptide.workloads.libraries.model import Place
from neaptide.workloads.roles.role import Pace, Role, Sends, burst_of, poll_once


class AppendProducer(Role):
    sends = True

    def work(self) -> None:
        sends = Sends(self, self.desk.producer(self.task))
        burst = burst_of(self.task.rate)
        pace = Pace(self.task.rate, burst)
        number = 0
        while not self.stopping.is_set():
            sends.send([self._record(number + n) for n in range(burst)])
            number += burst
            pace.wait(self.stopping)
        self.left = sends.finish()

    def _record(self, number: int) -> tuple[str, int, str | None, str]:
        places = self.task.places
        return (*places[number % len(places)], None, f"{self._first}-{number}")

    @property
    def _first(self) -> int:
        """The number of its first process: the process changes, values stay unique."""
        return self._name

    def start(self) -> None:
        self._name = self.process
        super().start()


class KeyedProducer(AppendProducer):
    def _record(self, number: int) -> tuple[str, int, str | None, str]:
        keys = int(self.task.options["keys"])
        key = f"k{self.task.index}-{self.chance.randrange(keys)}"
        return (*place_of(key, self.task.places), key, f"{self._first}-{number}")


def place_of(key: str, places: tuple[Place, ...]) -> Place:
    """The same for the same key, whoever asks."""
    return places[zlib.crc32(key.encode()) % len(places)]


class AppendConsumer(Role):
    """Reads every partition from its beginning, assigned by itself."""

    def work(self) -> None:
        consumer = self.desk.consumer(f"neaptide-{self.process}")
        consumer.assign(dict.fromkeys(self.task.places, 0))
        while not self.stopping.is_set():
            invoked_ns = self.desk.recorder.now_ns()
            polled = poll_once(consumer)
            if polled.records:
                self.record_poll(polled, invoked_ns)
        consumer.close()
