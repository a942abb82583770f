"""Valid histories by chance: a log that keeps what it acknowledged, and clients that read it.

For a checker to be silent about. Everything happens one after the other: sends that end in any way,
polls that go on where the last one ended, seeks, commits, transactions, control records between,
and final reads of all that there is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from neaptide.results.run import FinalRead
from tests.checkers.histories import Op, Story, commit, committed, final, poll, seek, send, txn

CONSUMERS = (10, 11, 12)
TRANSACTIONS = 20  # and on: a process each
FINAL = 90


@dataclass
class Log:
    """The records of one partition; offsets have gaps."""

    records: list[tuple[int, str]] = field(default_factory=list)
    end: int = 0

    def append(self, value: str) -> int:
        self.records.append((self.end, value))
        self.end += 1
        return self.end - 1

    def read(self, position: int, count: int) -> list[tuple[int, str]]:
        return [record for record in self.records if record[0] >= position][:count]


@dataclass
class World:
    chance: Random
    logs: list[Log]
    positions: dict[tuple[int, int], int] = field(default_factory=dict)
    committed: int = 0
    values: int = 0
    transactions: int = 0

    def value(self) -> str:
        self.values += 1
        return f"v{self.values}"

    def partition(self) -> int:
        return self.chance.randrange(len(self.logs))


def valid_story(seed: int) -> Story:
    chance = Random(seed)
    world = World(chance, [Log() for _ in range(chance.randint(1, 3))])
    actions = (_send, _send, _poll, _poll, _seek, _commit, _transaction, _marker)
    with_transactions = chance.random() < 0.3
    ops: list[Op] = []
    for _ in range(chance.randint(2, 40)):
        action = chance.choice(actions)
        if action is not _transaction or with_transactions:
            ops += action(world)
    for p, log in enumerate(world.logs):
        some = chance.randint(1, 5)
        for n in range(0, len(log.records), some):
            ops.append(final(*log.records[n : n + some], process=FINAL + p, partition=p))
    reads = tuple(FinalRead("t", p, log.end, True) for p, log in enumerate(world.logs))
    empty = any(log.end and not log.records for log in world.logs)
    return Story(ops, run={"final_reads": () if empty else reads})


def _send(world: World) -> list[Op]:
    p, value = world.partition(), world.value()
    process = world.chance.randrange(3)
    match world.chance.choice(("ok", "ok", "ok", "unplaced", "info", "gone", "fail")):
        case "ok":
            return [send(value, world.logs[p].append(value), process=process, partition=p)]
        case "unplaced":
            world.logs[p].append(value)
            return [send(value, None, process=process, partition=p)]
        case "info":
            world.logs[p].append(value)
            return [send(value, None, type="info", process=process, partition=p)]
        case "gone":
            return [send(value, None, type="info", process=process, partition=p)]
        case _:
            return [send(value, None, type="fail", process=process, partition=p)]


def _poll(world: World) -> list[Op]:
    p, process = world.partition(), world.chance.choice(CONSUMERS)
    records = world.logs[p].read(world.positions.get((process, p), 0), world.chance.randint(0, 4))
    if records:
        world.positions[process, p] = records[-1][0] + 1
    return [poll(*records, process=process, partition=p)]


def _seek(world: World) -> list[Op]:
    p, process = world.partition(), world.chance.choice(CONSUMERS)
    world.positions[process, p] = world.chance.randint(0, world.logs[p].end)
    return [seek(process, p)]


def _commit(world: World) -> list[Op]:
    if world.chance.random() < 0.3:
        return [committed(world.committed or None)]
    world.committed = world.chance.randint(world.committed, world.logs[0].end)
    return [commit(world.committed)] if world.committed else []


def _transaction(world: World) -> list[Op]:
    """Reads what others have committed, and writes; aborted ones leave control records only."""
    end = world.chance.choice(("ok", "ok", "fail", "info", "gone"))
    world.transactions += 1
    mops: list[tuple[str, int | None, str, int]] = []
    read = world.logs[p := world.partition()].read(0, world.chance.randint(0, 3))
    mops += [("poll", offset, value, p) for offset, value in read]
    touched = set()
    for _ in range(world.chance.randint(1, 3)):
        p, value = world.partition(), world.value()
        touched.add(p)
        offset = world.logs[p].append(value) if end in ("ok", "info") else None
        mops.append(("send", offset if end == "ok" else None, value, p))
    for p in touched:
        world.logs[p].end += 1
    kind = "info" if end == "gone" else end
    return [txn(*mops, process=TRANSACTIONS + world.transactions, type=kind)]


def _marker(world: World) -> list[Op]:
    world.logs[world.partition()].end += 1
    return []
