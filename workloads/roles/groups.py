"""Members of a group: they subscribe, process what they are given, and commit how far they came.

To process a record is to note it where a death cannot take it back (`f` is `process`), so that it
is known of each record how often that was done, also by members that were killed. What a member is
assigned, and what is taken from it, are operations too: `assigned`, `revoked`, `lost`.

A member that joins again may reset each partition when it is first assigned it, in one of the ways
of `workloads.resets`: it asks for the group's position (`committed`), commits the new one
(`commit`) and goes on there. That is an operation, `reset`, which is noted before it is done.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from neaptide.workloads.group_options import COMMITS
from neaptide.workloads.libraries.model import LibraryError, Place, Polled, Record
from neaptide.workloads.resets import Known, Reset, draw, new_position
from neaptide.workloads.roles.role import POLL_S, Role

SESSION_MS: Final = 6_000
_INTERVAL_S: Final = 1.0
_POLL_RECORDS: Final = 200
_STALL_S: Final = SESSION_MS / 1_000 + 3.0
_CHURN_S: Final = (3.0, 8.0)
_ASK_S: Final = 2.0

RESET: Final = "reset"
_RESETS_MOST: Final = 4  # of one client, so that its group comes to the end


def _now_ms() -> int:
    return int(time.time() * 1e3)


class GroupMember(Role):
    """Implements workloads.libraries.model.Listener."""

    def work(self) -> None:
        options = self.task.options
        self._commits = COMMITS[str(options["commit"])]
        self._churns = [name for name in str(options["churn"]).split("+") if name != "none"]
        self._owned: dict[Place, int | None] = {}  # behind the last record that was processed
        self._ends: dict[Place, int] = {}
        self._began_ms = _now_ms()
        self._resets_left = _RESETS_MOST
        self._reset: Reset | None = None  # of this membership
        self._was_reset: set[Place] = set()
        while not self.stopping.is_set():
            self._be_member()

    @property
    def is_idle(self) -> bool:
        owned = dict(self._owned)
        return all(at is not None and self._ends.get(place) == at for place, at in owned.items())

    def _be_member(self) -> None:
        options = self.task.options
        self._consumer = self.desk.consumer(
            str(options["group"]),
            auto_commit_ms=500 if self._commits.auto else None,
            assignor=str(options["assignor"]),
            protocol=str(options["protocol"]),
            reset=str(options["reset"]),
            session_ms=SESSION_MS,
        )
        self._consumer.subscribe(tuple(self.task.topics), self)
        self._polled = time.monotonic()
        leaves_at = time.monotonic() + self.chance.uniform(*_CHURN_S)
        committed_at = time.monotonic()
        while not self.stopping.is_set():
            self._serve(self._poll())
            if self._commits.interval_s and time.monotonic() > committed_at + _INTERVAL_S:
                self._commit(self._positions())
                committed_at = time.monotonic()
            if self._churns and time.monotonic() > leaves_at:
                churn = self.chance.choice(self._churns)
                if churn != "stall":
                    break
                self.stopping.wait(_STALL_S)  # it does not poll, and so is no member any more
                leaves_at = time.monotonic() + self.chance.uniform(*_CHURN_S)
        else:
            churn = "none"
        self._consumer.close()
        self._owned.clear()
        self.logical.renew()  # who joins again is another member
        self._reset, self._was_reset = None, set()
        if churn == RESET:
            self._draw_reset()

    def _draw_reset(self) -> None:
        kind = str(self.task.options["resets"])
        self._reset = draw(kind, self.chance, self._began_ms, _now_ms())
        self._resets_left -= 1
        if not self._resets_left:
            self._churns.remove(RESET)

    # --- records ---------------------------------------------------------------------------------

    def _poll(self) -> Polled:
        invoked_ns = self.desk.recorder.now_ns()
        polled: Polled = self._consumer.poll(_POLL_RECORDS, POLL_S)
        self._polled = time.monotonic()
        if polled.records:
            self.record_poll(polled, invoked_ns)
        for topic, partition, end in polled.ends:
            self._ends[topic, partition] = end
            if self._owned.get((topic, partition), -1) is None:
                self._owned[topic, partition] = end
        return polled

    def _serve(self, polled: Polled) -> None:
        by_place: dict[Place, list[Record]] = {}
        for record in polled.records:
            by_place.setdefault((record.topic, record.partition), []).append(record)
        if self._commits.before:
            acknowledged = self._commit(
                {place: records[-1].offset + 1 for place, records in by_place.items()}
            )
            if not acknowledged:
                return  # it may be another's: what is not processed is not processed twice
        for place, records in by_place.items():
            self._process(place, records)
            if self._commits.each_partition:
                self._commit({place: records[-1].offset + 1})
        commits = self._commits
        if not (commits.auto or commits.before or commits.each_partition or commits.interval_s):
            self._commit({place: records[-1].offset + 1 for place, records in by_place.items()})

    def _process(self, place: Place, records: Sequence[Record]) -> None:
        recorder = self.desk.recorder
        time.sleep(float(self.task.options["work_ms"]) / 1e3)  # the work itself
        first, now_ns = recorder.new_operations(len(records)), recorder.now_ns()
        group = str(self.task.options["group"])
        segment = self.desk.note(
            [
                (
                    first + n, 0, self.process, "process", "ok", now_ns, now_ns, *place, r.offset,
                    group, None, None, None,
                )
                for n, r in enumerate(records)
            ],
            1,
        )  # fmt: skip
        for n, record in enumerate(records):
            self._record("process", place, record.offset, operation=first + n, at_ns=now_ns)
        self.desk.done(segment)
        self._owned[place] = records[-1].offset + 1

    # --- positions -------------------------------------------------------------------------------

    def _positions(self) -> dict[Place, int]:
        return {place: at for place, at in self._owned.items() if at is not None}

    def _commit(self, offsets: Mapping[Place, int]) -> bool:
        """Whether it was acknowledged."""
        if not offsets:
            return True
        recorder = self.desk.recorder
        operation, invoked_ns = recorder.new_operation(), recorder.now_ns()
        if not self._commits.waits:
            self._commit_async(operation, invoked_ns, offsets)
            return True
        error = self._try_commit(offsets)
        self._record_positions("commit", operation, invoked_ns, offsets, error)
        return error is None

    def _try_commit(self, offsets: Mapping[Place, int]) -> str | None:
        """The name of the error: then nobody knows whether it was done."""
        try:
            self._consumer.commit(offsets)
        except LibraryError as failed:
            return failed.name
        return None

    def _commit_async(self, operation: int, invoked_ns: int, offsets: Mapping[Place, int]) -> None:
        def done(error: str | None) -> None:
            self._record_positions("commit", operation, invoked_ns, offsets, error)

        try:
            self._consumer.commit_async(offsets, done)
        except LibraryError as failed:
            done(failed.name)

    def _record_positions(
        self,
        f: str,
        operation: int,
        invoked_ns: int,
        offsets: Mapping[Place, int | None],
        error: str | None = None,
    ) -> None:
        recorder = self.desk.recorder
        for row, ((topic, partition), offset) in enumerate(offsets.items()):
            recorder.write(
                operation=operation,
                row=row,
                process=self.process,
                f=f,
                type="ok" if error is None else "info",
                invoked_ns=invoked_ns,
                completed_ns=recorder.now_ns(),
                topic=topic,
                partition=partition,
                offset=offset,
                key=str(self.task.options["group"]),
                error=error,
            )

    # --- what is assigned ------------------------------------------------------------------------

    def assigned(self, places: Sequence[Place]) -> Mapping[Place, int]:
        """Who was silent for too long may learn of a generation that is over: then it is not
        known whether it owns what is assigned."""
        kind = "info" if self._was_silent else "ok"
        starts = self._reset_positions(places) if kind == "ok" else {}
        for place in places:
            self._record("assigned", place, kind=kind)
            self._owned[place] = None
        return starts

    def revoked(self, places: Sequence[Place]) -> None:
        """It is the owner until it lets go: what it processed is committed before.

        Who did not poll for longer than a member may is none any more, whatever it is called: its
        library may learn of a rebalance first, and say so when it is asked again (KIP-62).
        """
        if self._was_silent:
            self.lost(places)
            return
        if not self._commits.auto and not self._commits.before:
            self._commit({p: at for p, at in self._positions().items() if p in places})
        for place in places:
            self._record("revoked", place)
            self._owned.pop(place, None)

    @property
    def _was_silent(self) -> bool:
        return time.monotonic() - self._polled > SESSION_MS / 1e3

    def lost(self, places: Sequence[Place]) -> None:
        for place in places:
            self._record("lost", place)
            self._owned.pop(place, None)

    # --- resets ----------------------------------------------------------------------------------

    def _reset_positions(self, places: Sequence[Place]) -> dict[Place, int]:
        """Resets what this membership is assigned for the first time; where that was acknowledged.

        Where it was not, nobody knows the group's position: the library asks for it.
        """
        new = [place for place in places if place not in self._was_reset]
        if self._reset is None or not new:
            return {}
        self._was_reset.update(new)
        try:
            known = self._known(self._reset, new)
        except LibraryError:
            return {}  # nothing was reset
        wanted = {place: new_position(self._reset, one) for place, one in known.items()}
        chosen = {place: offset for place, offset in wanted.items() if offset is not None}
        before = {place: known[place].committed for place in chosen}
        return chosen if chosen and self._commit_reset(chosen, before) else {}

    def _known(self, reset: Reset, places: Sequence[Place]) -> dict[Place, Known]:
        """Raises LibraryError."""
        recorder = self.desk.recorder
        operation, invoked_ns = recorder.new_operation(), recorder.now_ns()
        committed = self._consumer.committed(places, _ASK_S)
        self._record_positions("committed", operation, invoked_ns, committed)
        ends = {place: self._consumer.ends(place, _ASK_S) for place in places}
        found: Mapping[Place, int | None] = {}
        if reset.since_ms is not None:
            found = self._consumer.starts_since(places, reset.since_ms, _ASK_S)
        return {
            place: Known(committed[place], start, end, found.get(place))
            for place, (start, end) in ends.items()
        }

    def _commit_reset(
        self, positions: Mapping[Place, int], before: Mapping[Place, int | None]
    ) -> bool:
        """Whether it was acknowledged. Its operations begin where its commit does."""
        recorder, group = self.desk.recorder, str(self.task.options["group"])
        first, operation = recorder.new_operations(len(positions)), recorder.new_operation()
        invoked_ns = recorder.now_ns()
        was = {place: None if at is None else str(at) for place, at in before.items()}
        segment = self.desk.note(
            [
                (
                    first + n, 0, self.process, RESET, "invoke", invoked_ns, None, *place, offset,
                    group, was[place], None, None,
                )
                for n, (place, offset) in enumerate(positions.items())
            ],
            len(positions),
        )  # fmt: skip
        error = self._try_commit(positions)
        completed_ns = recorder.now_ns()
        for n, (place, offset) in enumerate(positions.items()):
            recorder.write(
                operation=first + n,
                process=self.process,
                f=RESET,
                type="ok" if error is None else "info",
                invoked_ns=invoked_ns,
                completed_ns=completed_ns,
                topic=place[0],
                partition=place[1],
                offset=offset,
                key=group,
                value=was[place],
                error=error,
            )
            self.desk.done(segment)
        self._record_positions("commit", operation, invoked_ns, positions, error)
        return error is None

    def _record(
        self,
        f: str,
        place: Place,
        offset: int | None = None,
        *,
        operation: int | None = None,
        at_ns: int | None = None,
        kind: str = "ok",
    ) -> None:
        recorder = self.desk.recorder
        at_ns = recorder.now_ns() if at_ns is None else at_ns
        recorder.write(
            operation=recorder.new_operation() if operation is None else operation,
            process=self.process,
            f=f,
            type=kind,
            invoked_ns=at_ns,
            completed_ns=at_ns,
            topic=place[0],
            partition=place[1],
            offset=offset,
            key=str(self.task.options["group"]),
        )
