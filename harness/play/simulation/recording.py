"""What happens in a world, as the tables of a run directory: operations, fetch rounds, replicas.

Times are the world's own, so the same run writes the same bytes. The rows are those of a live run:
what a client sent and read, what the service said of a partition, what passed on the wire.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import events
from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    EndTransactionMarker,
    LeaderAndIsr,
    TopicPartition,
)
from neaptide.clusters.broker.replication.settings import topic_settings
from neaptide.clusters.cluster import UNCLEAN, PartitionView
from neaptide.clusters.simulation.clients import (
    GroupOperation,
    Outcome,
    Read,
    Send,
    by_operation,
    sent_by,
)
from neaptide.clusters.simulation.network import Entry
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.ending import log_of
from neaptide.nemesis.search.observed import assigned
from neaptide.results.run import Assigned, Written
from neaptide.results.schema import FETCH_ROUNDS, OPERATIONS, REPLICAS
from neaptide.results.tables import write_table

PRODUCER, NEMESIS, OBSERVER = 0, -1, -2
EVENT_LOG = "events.log"
ACKS = {0: "0", 1: "1", -1: "all"}
_EMPTY_OPERATION: dict[str, Any] = dict.fromkeys(field.name for field in OPERATIONS)
_EMPTY_ROUND: dict[str, Any] = dict.fromkeys(field.name for field in FETCH_ROUNDS)


class RunRecorder:
    """A world's recorder (clusters.simulation.parts.Recorder) that keeps rows in memory."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._origin_us = world.now_us
        self._rows: list[dict[str, Any]] = []
        self._rounds: list[dict[str, Any]] = []
        self._open_rounds: dict[tuple[int, int], list[dict[str, Any]]] = {}
        self._held_since: dict[int, int] = {}
        self._operations = 0
        self._events: list[str] = []  # every message that arrived, as it was

    def now_ns(self) -> int:
        return (self._world.now_us - self._origin_us) * 1_000

    # --- operations ------------------------------------------------------------------------------

    def _write(self, process: int, f: str, kind: str, invoked_ns: int, **columns: Any) -> None:
        self._operations += 1
        self._rows.append(
            {
                **_EMPTY_OPERATION,
                "operation": self._operations,
                "row": 0,
                "process": process,
                "f": f,
                "type": kind,
                "invoked_ns": invoked_ns,
                "completed_ns": self.now_ns(),
                "phase": "main",
                **columns,
            }
        )

    def note_nemesis(self, value: Mapping[str, Any]) -> None:
        self._write(NEMESIS, "nemesis", "info", self.now_ns(), value=json.dumps(value))

    def state(self, partition: TopicPartition, state: LeaderAndIsr) -> None:
        leader = None if state.leader == NO_LEADER else state.leader
        self._write(
            OBSERVER,
            "leader",
            "info",
            self.now_ns(),
            topic=partition.topic,
            partition=partition.partition,
            leader_epoch=state.leader_epoch,
            value=PartitionView(
                partition.partition, leader, state.leader_epoch, state.isr, state.elr
            ).to_json(),
        )

    def polled(self, reading: Read, values: list[tuple[int, int, object]]) -> None:
        invoked_ns = (reading.invoked_us - self._origin_us) * 1_000
        process = PRODUCER + reading.number  # each read is a consumer of its own
        if not values:
            self._write(process, "poll", "ok", invoked_ns, phase=reading.phase)
            return
        self._operations += 1
        for row, (offset, epoch, value) in enumerate(values):
            self._write(
                process,
                "poll",
                "ok",
                invoked_ns,
                operation=self._operations,
                row=row,
                topic=self._world.spec.topic,
                partition=reading.partition,
                offset=offset,
                value=str(value),
                leader_epoch=None if epoch < 0 else epoch,
                phase=reading.phase,
            )

    def of_group(self, done: GroupOperation) -> None:
        self._write(
            PRODUCER + done.process,
            done.f,
            done.kind,
            (done.invoked_us - self._origin_us) * 1_000,
            topic=self._world.spec.topic,
            partition=done.partition,
            offset=done.offset,
            key=done.group,
            phase=done.phase,
        )

    def sent(
        self, send: Send, outcome: Outcome | None, process: int, operation: int, row: int
    ) -> None:
        kind = "invoke" if outcome is None else outcome.kind
        completed = None if outcome is None else (outcome.completed_us - self._origin_us) * 1_000
        self._write(
            process,
            "send",
            kind,
            (send.invoked_us - self._origin_us) * 1_000,
            operation=operation,
            row=row,
            completed_ns=completed,
            topic=self._world.spec.topic,
            partition=send.partition,
            offset=outcome.offset if outcome else None,
            value=send.value,
            acks=ACKS[send.acks],
            error=outcome.error if outcome else None,
        )

    # --- fetch rounds ----------------------------------------------------------------------------

    def asked(self, entry: Entry) -> None:
        """A follower has sent a Fetch: its round begins; none of `__consumer_offsets` is kept."""
        body = entry.body
        assert isinstance(body, events.FetchRequested)
        assert entry.link is not None
        rows = []
        for one in body.partitions:
            if one.partition.topic != self._world.spec.topic:
                continue
            partition = self._world.brokers[body.replica_id].partitions[one.partition]
            key = (body.replica_id, entry.link.target, partition.leader_epoch)
            rows.append(
                {
                    **_EMPTY_ROUND,
                    "follower": body.replica_id,
                    "leader": entry.link.target,
                    "topic": one.partition.topic,
                    "partition": one.partition.partition,
                    "leader_epoch": partition.leader_epoch,
                    "round": self._world.network.shown.rounds[key],
                    "requested_ns": self.now_ns(),
                    "fetch_offset": one.fetch_offset,
                    "request_fate": "passed",
                    "held_ns": 0,
                }
            )
        asked = self._world.network.asked[body.request]
        self._open_rounds[body.replica_id, asked.effect.sequence] = rows
        self._rounds.extend(rows)

    def _of(self, entry: Entry) -> list[dict[str, Any]]:
        body, link = entry.body, entry.link
        assert link is not None
        if isinstance(body, events.FetchResponded):
            return self._open_rounds.get((link.target, body.sequence), [])
        if isinstance(body, events.FetchRequested):
            asked = self._world.network.asked.get(body.request)
            key = (link.source, asked.effect.sequence) if asked else (0, 0)
            return self._open_rounds.get(key, [])
        return []

    def answered(self, entry: Entry) -> None:
        """The answer is on its way."""
        body = entry.body
        assert isinstance(body, events.FetchResponded)
        results = {result.partition: result for result in body.results}
        for row in self._of(entry):
            result = results[TopicPartition(row["topic"], row["partition"])]
            has_error = result.error is not Error.NONE
            row.update(
                responded_ns=self.now_ns(),
                high_watermark=None if has_error else result.high_watermark,
                log_start_offset=None
                if has_error or result.log_start_offset < 0
                else result.log_start_offset,
                records_bytes=sum(batch.size for batch in result.batches),
                error=result.error.value,
                response_fate="passed",
            )

    def event(self, entry: Entry) -> None:
        """A message arrives."""
        self._events.append(f"{self._world.now_us} {entry.sequence} {entry.link} {entry.body}")
        column = "delivered_ns" if isinstance(entry.body, events.FetchResponded) else "forwarded_ns"
        since_ns = self._held_since.pop(entry.sequence, None)
        for row in self._of(entry):
            row[column] = self.now_ns()
            if since_ns is not None:
                row["held_ns"] += self.now_ns() - since_ns

    def blocked(self, entry: Entry) -> None:
        """A message is held."""
        self._held_since[entry.sequence] = self.now_ns()
        self._set_fate(entry, "held")

    def dropped(self, entry: Entry) -> None:
        """A message is thrown away."""
        since_ns = self._held_since.pop(entry.sequence, None)
        self._set_fate(entry, "discarded")
        for row in self._of(entry):
            if since_ns is not None:
                row["held_ns"] += self.now_ns() - since_ns

    def _set_fate(self, entry: Entry, fate: str) -> None:
        is_answer = isinstance(entry.body, events.FetchResponded)
        for row in self._of(entry):
            row["response_fate" if is_answer else "request_fate"] = fate

    # --- the end ---------------------------------------------------------------------------------

    def assigned(self) -> list[Assigned]:
        spec = self._world.spec
        return [
            Assigned(spec.topic, partition, tuple(brokers))
            for partition, brokers in sorted(spec.configuration.assignment.items())
        ]

    def write(self, run: Path) -> dict[str, dict[str, Written]]:
        """Sends have their rows last: how they ended is known only now."""
        clients, spec = self._world.clients, self._world.spec
        given = spec.configuration.settings
        unclean = topic_settings(given, spec.settings).unclean_leader_election_enable
        settings = {UNCLEAN: str(unclean).lower()}
        settings |= {name: given[name] for name in ("retention.bytes",) if name in given}
        for partition in sorted(spec.configuration.assignment):
            for name, value in settings.items():
                self._write(
                    NEMESIS,
                    "setting",
                    "info",
                    self.now_ns(),
                    topic=spec.topic,
                    partition=partition,
                    key=name,
                    value=value,
                )
        outcomes: list[tuple[Send, Outcome | None]] = list(clients.sends.values())
        outcomes += [(send, None) for send in clients.unsettled]
        fresh = 1 + max((row["process"] for row in self._rows), default=PRODUCER)
        processes = sent_by(outcomes, PRODUCER, max(fresh, PRODUCER + 1))
        ordered = sorted(outcomes, key=lambda item: item[0].number)
        for together in by_operation(ordered):
            operation = self._operations + 1
            for row, (send, outcome) in enumerate(together):
                self.sent(send, outcome, processes[send.number], operation, row)
        written = {
            "operations": _write(run / "operations", OPERATIONS, self._rows),
            "fetch_rounds": _write(run / "fetch_rounds", FETCH_ROUNDS, self._rounds),
            "replicas": _write(run / "replicas", REPLICAS, _replica_rows(self._world)),
        }
        logs = run / "logs"
        logs.mkdir(exist_ok=True)
        (logs / EVENT_LOG).write_text("\n".join(self._events) + "\n", encoding="utf-8")
        return written


def _write(directory: Path, schema: Any, rows: list[dict[str, Any]]) -> dict[str, Written]:
    return write_table(
        directory, schema, (tuple(row[name] for name in schema.names) for row in rows)
    )


def _text_of(value: object) -> str:
    """A marker as a replica's row has it."""
    if isinstance(value, EndTransactionMarker):
        return "commit" if value.is_commit else "abort"
    return str(value)


def _replica_rows(world: World) -> list[dict[str, Any]]:
    partition = world.partition
    rows = []
    for broker_id in sorted(assigned(world, partition)):
        log = world.disks[broker_id].logs.get(partition)
        common = {
            "broker": broker_id,
            "topic": partition.topic,
            "partition": partition.partition,
            "leader_epoch": None,
            "batch_base_offset": None,
            "timestamp_ms": None,
            "key": None,
            "value": None,
            "control": False,
            "log_start_offset": log.start_offset if log else 0,
            "log_end_offset": log.end_offset if log else 0,
            "high_watermark": world.disks[broker_id].high_watermarks.get(partition),
        }
        records = log_of(world, broker_id)
        rows += [
            {
                **common,
                "offset": offset,
                "leader_epoch": None if epoch < 0 else epoch,
                "batch_base_offset": offset,
                "value": _text_of(value),
                "control": isinstance(value, EndTransactionMarker),
            }
            for offset, epoch, value in records
        ] or [{**common, "offset": None}]
    return rows
