"""Members of a share group (KIP-932): each record goes to one of them, who accepts, releases or
rejects it.

A record is acquired for a time (`f` is `acquire`, `value` the delivery count), and acknowledged
(`acknowledge`, `value` is how). An acknowledgement is noted before it is asked for, so that one of
a member that is killed is known, with an end that nobody knows. Who has polled in vain for longer
than a record may be acquired is at rest (`share-rest`).

A library may have records that it has not handed out yet. So who comes to its next poll too late
joins again: what waits for it there may be another member's by then.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from neaptide.workloads.group_options import SHARE_LOCK_MS
from neaptide.workloads.libraries.model import (
    Acquired,
    LibraryError,
    Place,
    ShareConsumer,
    ShareConsumerAsked,
)
from neaptide.workloads.roles.role import POLL_S, Role

_REST_S: Final = 2 * SHARE_LOCK_MS / 1_000
# Between two polls. Three brokers may have answered, and each poll hands out what one has given: so
# nothing is handed out after it is another's.
_PATIENCE_S: Final = SHARE_LOCK_MS / 1_000 / 4
_ACKNOWLEDGE_S: Final = 10.0
_CHURN_S: Final = (3.0, 8.0)
_PAUSE_S: Final = 0.5


class ShareMember(Role):
    _vain_since_ns: int | None = None  # since when it has polled in vain

    def work(self) -> None:
        self._group = str(self.task.options["share_group"])
        while not self.stopping.is_set():
            try:
                self._be_member()
            except LibraryError:
                self._vain_since_ns = None
                self.stopping.wait(_PAUSE_S)  # nobody answers: it joins again
            self.logical.renew()
        if self._vain_since_ns is not None and self.is_idle:
            self._record_rest(self._vain_since_ns)

    @property
    def is_idle(self) -> bool:
        since_ns = self._vain_since_ns
        return since_ns is not None and self.desk.recorder.now_ns() - since_ns > _REST_S * 1e9

    def _be_member(self) -> None:
        """Raises LibraryError."""
        churns = self.task.options["churn"] == "leave"
        self._vain_since_ns = None
        consumer = self._joined()
        polled = time.monotonic()
        leaves_at = polled + self.chance.uniform(*_CHURN_S)
        try:
            while not self.stopping.is_set() and time.monotonic() - polled < _PATIENCE_S:
                if churns and self._vain_since_ns is None and time.monotonic() > leaves_at:
                    break  # who waits for the end stays
                invoked_ns = self.desk.recorder.now_ns()
                records = consumer.poll(POLL_S)
                polled = time.monotonic()
                if records:
                    self._vain_since_ns = None
                    self._serve(consumer, records, invoked_ns)
                elif self._vain_since_ns is None:
                    self._vain_since_ns = invoked_ns
        finally:
            consumer.close()

    def _joined(self) -> ShareConsumer:
        made = self.desk.library.share_consumer
        assert made is not None
        consumer: ShareConsumer = made(
            ShareConsumerAsked(self.desk.bootstrap, self._group, self.desk.settings)
        )
        consumer.subscribe(tuple(self.task.topics))
        return consumer

    def _serve(self, consumer: ShareConsumer, records: Sequence[Acquired], invoked_ns: int) -> None:
        """Raises LibraryError."""
        recorder = self.desk.recorder
        self._record("acquire", [(one, str(one.delivery_count)) for one in records], invoked_ns)
        self.counts["polled"] += len(records)
        time.sleep(float(self.task.options["work_ms"]) / 1e3)  # the work itself
        decided = [(one, self._decide()) for one in records]
        operation, asked_ns = recorder.new_operation(), recorder.now_ns()
        segment = self.desk.note(
            [
                (
                    operation, row, self.process, "acknowledge", "invoke", asked_ns, None,
                    *one[:3], self._group, how, None, None,
                )
                for row, (one, how) in enumerate(decided)
            ],
            1,
        )  # fmt: skip
        errors: Mapping[Place, str | None] = {}
        try:
            errors = consumer.acknowledge(decided, _ACKNOWLEDGE_S)
        finally:
            self._record("acknowledge", decided, asked_ns, operation=operation, errors=errors)
            self.desk.done(segment)

    def _decide(self) -> str:
        drawn = self.chance.random()
        releases = float(self.task.options["releases"])
        if drawn < releases:
            return "release"
        return "reject" if drawn < releases + float(self.task.options["rejects"]) else "accept"

    def _record(
        self,
        f: str,
        records: Sequence[tuple[Acquired, str]],
        invoked_ns: int,
        *,
        operation: int | None = None,
        errors: Mapping[Place, str | None] | None = None,
    ) -> None:
        """`errors`: by partition, where there are answers; a partition without one has none."""
        recorder = self.desk.recorder
        operation = recorder.new_operation() if operation is None else operation
        completed_ns = recorder.now_ns()
        for row, (one, value) in enumerate(records):
            place = one.topic, one.partition
            is_known = errors is None or (place in errors and errors[place] is None)
            recorder.write(
                operation=operation,
                row=row,
                process=self.process,
                f=f,
                type="ok" if is_known else "info",
                invoked_ns=invoked_ns,
                completed_ns=completed_ns,
                topic=one.topic,
                partition=one.partition,
                offset=one.offset,
                key=self._group,
                value=value,
                error=None if errors is None else errors.get(place),
            )

    def _record_rest(self, since_ns: int) -> None:
        recorder = self.desk.recorder
        operation = recorder.new_operation()
        for row, (topic, partition) in enumerate(self.task.places):
            recorder.write(
                operation=operation,
                row=row,
                process=self.process,
                f="share-rest",
                type="ok",
                invoked_ns=since_ns,
                completed_ns=recorder.now_ns(),
                topic=topic,
                partition=partition,
                key=self._group,
            )
