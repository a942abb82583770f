"""Tiny histories: one line per operation, named by content, written as run directories.

Operation n is invoked at 10 n and completed at 10 n + 5, or at times of its own; partition is
t-0 unless said otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from neaptide.checkers.material import open_run
from neaptide.clusters.cluster import PartitionView
from neaptide.results.run import Aim, Assigned, Converged, FinalRead, Run
from neaptide.results.schema import FETCH_ROUNDS, MESSAGES, OPERATIONS_READ, REPLICAS
from neaptide.results.store import write_run
from neaptide.results.tables import write_table


@dataclass(frozen=True)
class Op:
    """One operation: what its rows share, and what each row has of its own."""

    f: str
    process: int
    type: str
    rows: tuple[dict[str, Any], ...]
    phase: str = "main"
    at: tuple[int, int] | None = None  # invoked, completed


def send(
    value: str | None,
    offset: int | None = None,
    *,
    key: str | None = None,
    type: str = "ok",
    acks: str = "all",
    process: int = 0,
    partition: int | None = 0,
) -> Op:
    row = {"value": value, "offset": offset, "acks": acks, "topic": "t", "partition": partition}
    row |= {"key": key}
    return Op("send", process, type, (row,))


def poll(
    *records: tuple[int, str | None] | tuple[int, str | None, str],
    phase: str = "main",
    process: int = 1,
    partition: int = 0,
) -> Op:
    """Offset, value, and perhaps a key of each record."""
    rows = tuple(
        {"offset": o, "value": v, "topic": "t", "partition": partition, "key": k[0] if k else None}
        for o, v, *k in records
    )
    return Op("poll", process, "ok", rows or ({},), phase)


def final(
    *records: tuple[int, str | None] | tuple[int, str | None, str],
    process: int = 9,
    partition: int = 0,
) -> Op:
    return poll(*records, phase="final", process=process, partition=partition)


def txn(
    *mops: tuple[str, int | None, str] | tuple[str, int | None, str, int],
    process: int = 0,
    type: str = "ok",
) -> Op:
    """A transaction: ("send", offset, value) and ("poll", offset, value), perhaps with a partition.

    Records polled in a row are of one poll.
    """
    rows: list[dict[str, Any]] = []
    mop = -1
    for n, (f, offset, value, *partition) in enumerate(mops):
        mop += f == "send" or n == 0 or mops[n - 1][0] != f
        rows.append(
            {
                "f": f, "mop": mop, "offset": offset, "value": value, "topic": "t",
                "partition": partition[0] if partition else 0,
            }
        )  # fmt: skip
    return Op("txn", process, type, tuple(rows))


def commit(offset: int | None, *, f: str = "commit", group: str = "g", process: int = 1) -> Op:
    row = {"topic": "t", "partition": 0, "offset": offset, "key": group}
    return Op(f, process, "ok", (row,))


def committed(offset: int | None, *, group: str = "g", process: int = 1) -> Op:
    return commit(offset, f="committed", group=group, process=process)


def reset(
    offset: int, before: int | None = None, *, type: str = "ok", group: str = "g", process: int = 1
) -> Op:
    """Of a group's position: to where, and from where."""
    was = None if before is None else str(before)
    row = {"topic": "t", "partition": 0, "offset": offset, "value": was, "key": group}
    return Op("reset", process, type, (row,))


def setting(key: str, value: str) -> Op:
    return Op("setting", -1, "info", ({"topic": "t", "partition": 0, "key": key, "value": value},))


RETENTION = setting("retention.bytes", "100")
COMPACT = setting("cleanup.policy", "compact")


def nemesis(step: str) -> Op:
    return Op("nemesis", -1, "info", ({"value": step},))


def seek(process: int = 1, partition: int = 0) -> Op:
    return Op("seek", process, "ok", ({"topic": "t", "partition": partition, "offset": 0},))


def held(
    broker: int,
    *records: tuple[int, str | None],
    epoch: int | None = 0,
    partition: int = 0,
    start: int = 0,
    hw: int | None = None,
) -> list[dict[str, Any]]:
    """The log of one replica at the end."""
    end = max((offset + 1 for offset, _ in records), default=start)
    shared = {
        "broker": broker,
        "topic": "t",
        "partition": partition,
        "control": False,
        "log_start_offset": start,
        "log_end_offset": end,
        "high_watermark": end if hw is None else hw,
    }
    if not records:
        return [shared]
    return [
        shared | {"offset": offset, "value": value, "leader_epoch": epoch, "batch_base_offset": 0}
        for offset, value in records
    ]


def answered(
    hw: int,
    *,
    at: int,
    leader: int = 0,
    follower: int = 1,
    epoch: int | None = 0,
    round: int = 1,
    error: int = 0,
) -> dict[str, Any]:
    """A fetch round whose response carried this high watermark."""
    return {
        "follower": follower,
        "leader": leader,
        "topic": "t",
        "partition": 0,
        "leader_epoch": epoch,
        "round": round,
        "requested_ns": at - 2,
        "forwarded_ns": at - 1,
        "responded_ns": at,
        "delivered_ns": at,
        "fetch_offset": hw,
        "high_watermark": hw,
        "records_bytes": 0,
        "error": error,
        "request_fate": "passed",
        "response_fate": "passed",
        "held_ns": 0,
    }


def asked(
    offset: int,
    *,
    at: int,
    follower: int = 1,
    leader: int = 0,
    epoch: int | None = 0,
    round: int = 1,
    delivered: bool = True,
) -> dict[str, Any]:
    """A fetch round that began at a time and at an offset."""
    entry = answered(offset, at=at + 1, leader=leader, follower=follower, epoch=epoch, round=round)
    return entry | {"requested_ns": at, "delivered_ns": at + 2 if delivered else None}


def marked(
    sent: int,
    delivered: int | None = None,
    *,
    leader: int = 0,
    partition: int = 0,
    producer: int = 7,
    epoch: int = 0,
    error: int | None = 0,
) -> tuple[dict[str, Any], ...]:
    """A marker of an aborted transaction, as the gate records it, with its response; not delivered,
    it waits still."""
    said = {"producer_id": producer, "producer_epoch": epoch, "committed": 0}
    ends, back = {"source": "2"}, {"destination": "2"}
    ends["destination"] = back["source"] = str(leader)
    row = _message("write_txn_markers", "request", said, sent, ends, partition)
    row |= {"forwarded_ns": delivered, "fate": "discarded" if delivered is None else "held"}
    if delivered is None or error is None:
        return (row,)
    answer = said | {"error": error}
    response = _message("write_txn_markers", "response", answer, delivered + 1, back, partition)
    return row, response | {"correlation_id": row["correlation_id"]}


def asked_to_end(
    sent: int, delivered: int | None = None, *, producer: int = 7, epoch: int = 0
) -> tuple[dict[str, Any], ...]:
    """A producer's request to abort, as the gate records it; not delivered, it waits still."""
    said = {"transactional_id": "tx", "producer_id": producer, "producer_epoch": epoch}
    ends = {"source": "client", "destination": "2"}
    row = _message("end_txn", "request", said | {"committed": 0}, sent, ends, None)
    return (
        row | {"forwarded_ns": delivered, "fate": "discarded" if delivered is None else "held"},
    )


def appended(
    sent: int,
    *,
    leader: int = 0,
    partition: int = 0,
    producer: int = 7,
    epoch: int = 0,
    sequence: int = 0,
    error: int | None = 0,
    transactional: bool = True,
) -> tuple[dict[str, Any], ...]:
    """A Produce request with its response, which comes 2 later; without an error there is none."""
    said: dict[str, Any] = {
        "producer_id": producer,
        "producer_epoch": epoch,
        "sequence": sequence,
        **({"transactional_id": "tx"} if transactional else {}),
    }
    ends = {"source": "client", "destination": str(leader)}
    back = {"source": str(leader), "destination": "client"}
    request = _message("produce", "request", said, sent, ends, partition)
    if error is None:
        return (request,)
    return request, _message(
        "produce", "response", said | {"error": error}, sent + 2, back, partition
    )


def _message(
    api: str,
    message: str,
    said: dict[str, Any],
    at_ns: int,
    ends: dict[str, str],
    partition: int | None,
) -> dict[str, Any]:
    return {
        "api": api,
        "version": 9,
        "message": message,
        "correlation_id": at_ns,
        "topic": None if partition is None else "t",
        "partition": partition,
        "received_ns": at_ns,
        "forwarded_ns": at_ns + 1,
        "fate": "passed",
        "fields": json.dumps(said),
        **ends,
    }


def state(
    leader: int | None,
    *isr: int,
    epoch: int = 0,
    eligible: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (),
    version: int | None = None,
) -> Op:
    """What the coordination service says of t-0."""
    view = PartitionView(0, leader, epoch, isr, eligible, replicas, version)
    row = {"topic": "t", "partition": 0, "leader_epoch": epoch, "value": view.to_json()}
    return Op("leader", -2, "info", (row,))


def run_of(**changes: Any) -> Run:
    """A finished run with complete final reads of t-0, changed where said."""
    fields: dict[str, Any] = {
        "neaptide": "0.1.0",
        "name": "tiny",
        "system": "neaptide:0.10",
        "host": "local",
        "seed": 1,
        "started_utc": "2025-11-21T12:00:00Z",
        "status": "finished",
        "kind": "scenario",
        "brokers": {"A": 0, "B": 1, "C": 2},
        "final_reads": (reached(),),
        "converged": Converged(True),
    }
    return Run(**(fields | changes))


def reached(end_offset: int | None = None, partition: int = 0, *, yes: bool = True) -> FinalRead:
    return FinalRead("t", partition, end_offset, yes)


MISSED = Aim(False, "nothing was held")


@dataclass(frozen=True)
class Story:
    """A run to be written."""

    ops: Sequence[Op] = ()
    replicas: Sequence[Sequence[dict[str, Any]]] = ()
    rounds: Sequence[dict[str, Any]] = ()
    messages: Sequence[dict[str, Any]] = ()
    run: dict[str, Any] = field(default_factory=dict)

    def write(self, directory: Path) -> Path:
        directory.mkdir(parents=True)
        logs = [row for log in self.replicas for row in log]
        rows = [row for n, op in enumerate(self.ops) for row in operation_rows(n, op)]
        write_table(directory / "operations", OPERATIONS_READ, _tuples(OPERATIONS_READ, rows))
        if not rows:
            # A table without rows still has a file.
            write_empty(directory / "operations", OPERATIONS_READ)
        if logs:
            write_table(directory / "replicas", REPLICAS, _tuples(REPLICAS, logs))
        if self.rounds:
            write_table(
                directory / "fetch_rounds", FETCH_ROUNDS, _tuples(FETCH_ROUNDS, self.rounds)
            )
        if self.messages:
            write_table(directory / "messages", MESSAGES, _tuples(MESSAGES, self.messages))
        write_run(directory, run_of(**(self._of_itself(directory, logs) | self.run)))
        return directory

    def _of_itself(self, directory: Path, logs: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """What a run says of what it wrote. Without replicas it is like a history of Jepsen's."""
        brokers: dict[tuple[str, int], set[int]] = {}
        for row in logs:
            brokers.setdefault((row["topic"], row["partition"]), set()).add(row["broker"])
        assigned = tuple(Assigned(*place, tuple(sorted(of))) for place, of in brokers.items())
        own = {"replicas_written": True, "assigned": assigned} if logs else {"system": "jepsen"}
        return own | {"written": {t: dict(w) for t, w in open_run(directory).written.items()}}


def operation_rows(n: int, op: Op) -> list[dict[str, Any]]:
    invoked_ns, completed_ns = op.at or (10 * n, 10 * n + 5)
    shared = {
        "operation": n,
        "process": op.process,
        "f": op.f,
        "type": op.type,
        "invoked_ns": invoked_ns,
        "completed_ns": None if op.type == "invoke" else completed_ns,
        "phase": op.phase,
    }
    return [shared | {"row": i} | row for i, row in enumerate(op.rows)]


def write_empty(directory: Path, columns: Any) -> None:
    import pyarrow.parquet as pq

    directory.mkdir(exist_ok=True)
    pq.write_table(columns.empty_table(), directory / "part-0-00000.parquet")


def _tuples(columns: Any, rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.get(name) for name in columns.names) for row in rows]
