"""Clients of transactions: `txn`, `stream`, `bank`.

One transaction is one operation, whose rows share its number, type and times; `mop` is the place
of a send or poll in it. It is `ok` when it was committed, `fail` when it surely was not: commit was
never asked for, or it was aborted after commit had been refused. All else is `info`, and the client
goes on as a new process, with a new producer that fences the old one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from neaptide.workloads.libraries.model import LibraryError, Place, Producer, Record
from neaptide.workloads.roles.role import POLL_S, Role, fields_of, transactional_id

_INIT_S: Final = 5.0
_END_S: Final = 5.0
_END_TRIES: Final = 6
_POLL_RECORDS: Final = 100
_AGAIN_S: Final = 0.1


@dataclass(slots=True)
class Transaction:
    """What is in one: rows of the history, but for how it ended."""

    operation: int
    invoked_ns: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    offsets: dict[Place, int] = field(default_factory=dict)  # where its polls came to
    mops: int = 0
    planned: list[tuple[Place, str | None, str]] = field(default_factory=list)  # what it may send

    def next_mop(self) -> int:
        self.mops += 1
        return self.mops - 1


@dataclass(frozen=True, slots=True)
class Ended:
    kind: str
    error: str | None = None
    goes_on: bool = True  # its producer can be used again


class Aborting(Exception):
    """The transaction is to be aborted: chance wants it."""


class Transactor(Role):
    """Does one transaction after the other, each prepared before it begins."""

    sends = True

    def work(self) -> None:
        self.producer: Producer | None = None
        self._number = 0
        self._name = self.process
        self.begin_work()
        while not self.stopping.is_set():
            if self.producer is None and not self._open():
                self.stopping.wait(_AGAIN_S)
                continue
            self.one()
        if self.producer is not None:
            self.producer.close()
        self.end_work()

    @abstractmethod
    def transactional_id(self) -> str: ...

    @abstractmethod
    def one(self) -> None:
        """One transaction, or none where there is nothing to do."""

    def begin_work(self) -> None: ...

    def end_work(self) -> None: ...

    def opened(self) -> None:
        """A producer is ready, and every earlier transaction of its id has ended."""

    def _open(self) -> bool:
        producer = self.desk.producer(self.task, self.transactional_id())
        try:
            producer.init_transactions(_INIT_S)
        except LibraryError:
            producer.close()
            return False
        self.producer = producer
        try:
            self.opened()
        except LibraryError:
            self.drop_producer()
            return False
        return True

    def drop_producer(self) -> None:
        if self.producer is not None:
            self.producer.close()
            self.producer = None

    def new_value(self) -> str:
        self._number += 1
        return f"{self._name}-{self._number}"

    # --- one transaction -------------------------------------------------------------------------

    def prepare(self, sends: list[tuple[Place, str | None, str]]) -> tuple[Transaction, int]:
        """Notes what will be sent before anything is."""
        recorder = self.desk.recorder
        made = Transaction(recorder.new_operation(), recorder.now_ns(), planned=sends)
        segment = self.desk.note(
            [
                (
                    made.operation, n, self.process, "send", "invoke", made.invoked_ns, None,
                    topic, partition, None, key, value, "all", n,
                )
                for n, ((topic, partition), key, value) in enumerate(sends)
            ],
            1,
        )  # fmt: skip
        return made, segment

    def add_send(self, made: Transaction, place: Place, key: str | None, value: str) -> None:
        assert self.producer is not None
        row: dict[str, Any] = {
            "f": "send", "mop": made.next_mop(), "topic": place[0], "partition": place[1],
            "key": key, "value": value, "acks": "all",
        }  # fmt: skip
        made.rows.append(row)

        def done(offset: int | None, error: str | None) -> None:
            row["offset"] = offset
            row["error"] = error

        self.producer.send(*place, key, value, done)

    def add_poll(self, made: Transaction, records: list[Record]) -> None:
        mop = made.next_mop()
        for record in records:
            made.rows.append({"f": "poll", "mop": mop, **fields_of(record)})
            made.offsets[record.topic, record.partition] = record.offset + 1

    def add_offsets(self, made: Transaction, consumer: Any, offsets: Mapping[Place, int]) -> None:
        """Positions are committed with the transaction."""
        assert self.producer is not None
        mop = made.next_mop()
        for (topic, partition), offset in offsets.items():
            made.rows.append(
                {"f": "commit", "mop": mop, "topic": topic, "partition": partition,
                 "offset": offset, "key": consumer.group}
            )  # fmt: skip
        self.producer.send_offsets(offsets, consumer)

    def commit(self) -> Ended:
        assert self.producer is not None
        for _ in range(_END_TRIES):
            try:
                self.producer.commit(_END_S)
                return Ended("ok")
            except LibraryError as error:
                if error.aborts:
                    ended = self.abort(error.name)
                    # Unless the abort was acknowledged the commit may have been done.
                    return ended if ended.goes_on else Ended("info", error.name, False)
                if not error.again:
                    return Ended("info", error.name, False)
                last = error.name
        return Ended("info", last, False)

    def abort(self, why: str | None) -> Ended:
        """Nobody has asked for a commit, or it was refused."""
        assert self.producer is not None
        for _ in range(_END_TRIES):
            try:
                self.producer.abort(_END_S)
                return Ended("fail", why)
            except LibraryError as error:
                if not error.again:
                    break
        return Ended("fail", why, False)

    def close(self, made: Transaction, segment: int, ended: Ended) -> None:
        """Records it; after an unknown end the client is another process.

        A library may say of a commit that it was done and of a send in it that it failed: then it
        has not promised that the record is there.
        """
        recorder = self.desk.recorder
        failed = next((row["error"] for row in made.rows if row.get("error")), None)
        if ended.kind == "ok" and failed is not None:
            ended = Ended("info", failed, False)
        completed_ns = recorder.now_ns()
        sent = {row["value"] for row in made.rows if row["f"] == "send"}
        for (topic, partition), key, value in made.planned:
            if value not in sent:  # it came to its end before
                made.rows.append(
                    {"f": "send", "mop": made.next_mop(), "topic": topic, "partition": partition,
                     "key": key, "value": value, "acks": "all"}
                )  # fmt: skip
        process = self.logical.completed(ended.kind)
        for n, row in enumerate(made.rows):
            recorder.write(
                operation=made.operation,
                row=n,
                process=process,
                type=ended.kind,
                invoked_ns=made.invoked_ns,
                completed_ns=completed_ns,
                **{**row, "error": ended.error or row.get("error")},
            )
        self.desk.done(segment)
        self.counts[ended.kind] += sum(row["f"] == "send" for row in made.rows)
        self.counts["polled"] += sum(row["f"] == "poll" for row in made.rows)
        if not ended.goes_on:
            self.drop_producer()


class TxnClient(Transactor):
    """Jepsen's: a few sends and polls in one transaction, aborted at any step by chance."""

    def begin_work(self) -> None:
        self._positions: dict[Place, int] = dict.fromkeys(self.task.places, 0)
        self._consumer: Any = None
        self._gap_s = 1.0 / self.task.rate

    def end_work(self) -> None:
        if self._consumer is not None:
            self._consumer.close()

    def transactional_id(self) -> str:
        return transactional_id("txn", self.task.seed, self.task.index)

    def opened(self) -> None:
        """Each process has a group of its own: what of an unknown end was committed is not known,
        and so would be whether a position went back."""
        group = f"neaptide-{self.task.seed}-txn-{self.process}"
        if self._consumer is not None and self._consumer.group == group:
            return
        self.end_work()
        self._consumer = self.desk.consumer(group)
        self._consumer.assign(self._positions)

    def one(self) -> None:
        options, chance = self.task.options, self.chance
        steps = chance.randint(1, int(options["steps"]))
        plan: list[tuple[Place, str | None, str] | None] = [
            (chance.choice(self.task.places), None, self.new_value())
            if chance.random() < float(options["sends"]) else None
            for _ in range(steps)
        ]  # fmt: skip
        aborts = [chance.random() < float(options["aborts"]) for _ in range(steps + 1)]
        made, segment = self.prepare([step for step in plan if step is not None])
        ended = self._do(made, plan, aborts)
        if ended.kind == "ok":
            self._positions |= made.offsets
        elif made.offsets:  # what was not committed is read again
            self._consumer.assign(self._positions)
        self.close(made, segment, ended)
        if not made.rows:
            self.stopping.wait(self._gap_s)

    def _do(
        self,
        made: Transaction,
        plan: list[tuple[Place, str | None, str] | None],
        aborts: list[bool],
    ) -> Ended:
        assert self.producer is not None
        try:
            self.producer.begin()
            for step, is_aborted in zip(plan, aborts, strict=False):
                if is_aborted:
                    raise Aborting
                if step is None:
                    self.add_poll(made, self._consumer.poll(_POLL_RECORDS, POLL_S / 2).records)
                else:
                    self.add_send(made, *step)
            if made.offsets:
                self.add_offsets(made, self._consumer, made.offsets)
            if aborts[-1]:
                raise Aborting
        except Aborting:
            return self.abort("aborted by chance")
        except LibraryError as error:
            return self.abort(error.name)
        return self.commit()


class StreamTask(Transactor):
    """Consumes, transforms, produces: the output's key says which input it is of.

    Task i of n has every n-th partition of the input and its own transactional id, so that one that
    follows a killed one fences it. It goes on where its group's committed position is.
    """

    sends = False

    def begin_work(self) -> None:
        self._input, self._output = sorted(self.task.topics)
        count = self.task.topics[self._input]
        mine = range(self.task.index, count, self.task.of)
        self._mine = [(self._input, partition) for partition in mine]
        self._consumer = self.desk.consumer("stream")
        self._positions: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}

    def transactional_id(self) -> str:
        return transactional_id("stream", self.task.seed, self.task.index)

    def opened(self) -> None:
        if not self._positions:
            self._ask_positions()

    @property
    def is_idle(self) -> bool:
        return all(self._ends.get(one, -1) == self._positions.get(one, 0) for one in self._mine)

    def _ask_positions(self) -> None:
        recorder = self.desk.recorder
        invoked_ns = recorder.now_ns()
        answers = self._consumer.committed(self._mine, _END_S)
        for (topic, partition), offset in answers.items():
            recorder.write(
                operation=recorder.new_operation(),
                process=self.process,
                f="committed",
                type="ok",
                invoked_ns=invoked_ns,
                completed_ns=recorder.now_ns(),
                topic=topic,
                partition=partition,
                offset=offset,
                key=self._consumer.group,
            )
        self._positions = {one: answers.get(one) or 0 for one in self._mine}
        self._consumer.assign(self._positions)

    def one(self) -> None:
        invoked_ns = self.desk.recorder.now_ns()
        polled = self._consumer.poll(_POLL_RECORDS, POLL_S)
        for topic, partition, end in polled.ends:
            self._ends[topic, partition] = end
        if not polled.records:
            return
        outputs: list[tuple[Place, str | None, str]] = [
            ((self._output, r.partition), f"{r.topic}-{r.partition}@{r.offset}", self.new_value())
            for r in polled.records
        ]
        made, segment = self.prepare(outputs)
        made.invoked_ns = invoked_ns
        ended = self._do(made, polled.records, outputs)
        if ended.kind == "ok":
            self._positions |= made.offsets
        elif ended.kind == "fail":
            self._consumer.assign(self._positions)
        else:  # whether it was committed, only the group knows
            self._positions = {}
        self.close(made, segment, ended)

    def _do(
        self,
        made: Transaction,
        records: list[Record],
        outputs: list[tuple[Place, str | None, str]],
    ) -> Ended:
        assert self.producer is not None
        aborted = self.chance.random() < float(self.task.options["aborts"])
        try:
            self.producer.begin()
            self.add_poll(made, records)
            for output in outputs:
                self.add_send(made, *output)
            self.add_offsets(made, self._consumer, made.offsets)
        except LibraryError as error:
            return self.abort(error.name)
        return self.abort("aborted by chance") if aborted else self.commit()

    def end_work(self) -> None:
        """What the output has to have: all inputs below these offsets."""
        recorder = self.desk.recorder
        for topic, partition in self._mine:
            try:
                _, end = self._consumer.ends((topic, partition), _END_S)
            except LibraryError:
                continue  # without it nobody says that nothing is missing
            now_ns = recorder.now_ns()
            recorder.write(
                operation=recorder.new_operation(),
                process=self.process,
                f="source",
                type="ok",
                invoked_ns=now_ns,
                completed_ns=now_ns,
                topic=self._output,
                partition=partition,
                offset=end,
                key=f"{topic}-{partition}",
            )
        self._consumer.close()


class Teller(Transactor):
    """Moves money between accounts of one partition: what is sent in one transaction adds up to 0.

    A value is the amount, and behind a slash what makes it unique.
    """

    def begin_work(self) -> None:
        self._gap_s = 1.0 / self.task.rate

    def transactional_id(self) -> str:
        return transactional_id("teller", self.task.seed, self.task.index)

    def one(self) -> None:
        chance, options = self.chance, self.task.options
        place = chance.choice(self.task.places)
        names = [f"account-{n}" for n in range(int(options["accounts"]))]
        accounts = chance.sample(names, chance.randint(2, min(4, len(names))))
        amounts = [chance.randint(1, 100) for _ in accounts[1:]]
        amounts.append(-sum(amounts))
        legs: list[tuple[Place, str | None, str]] = [
            (place, account, f"{amount}/{self.new_value()}")
            for account, amount in zip(accounts, amounts, strict=True)
        ]
        made, segment = self.prepare(legs)
        self.close(made, segment, self._do(made, legs))
        self.stopping.wait(self._gap_s)

    def _do(self, made: Transaction, legs: list[tuple[Place, str | None, str]]) -> Ended:
        assert self.producer is not None
        probability = float(self.task.options["aborts"])
        try:
            self.producer.begin()
            for leg in legs:
                if self.chance.random() < probability:
                    return self.abort("aborted by chance")
                self.add_send(made, *leg)
        except LibraryError as error:
            return self.abort(error.name)
        return self.commit()
