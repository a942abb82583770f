"""Toxics on links, clocks that are wrong and disks that fail, drawn as steps. Pure.

What a replicated log must survive, and so nothing else is drawn:

toxics  None may lose what was acknowledged: TCP loses the rest of a connection, never its midst.
clocks  No clock is wrong by as much as a record, a producer or a position of a group is kept for
        (Kafka's defaults: a day and more), nor by the hour that Kafka 4 grants a record's
        timestamp.
calls   A write or fsync fails on one broker: a Kafka ends of that, as of a kill, and what it has
        acknowledged is written.
damage  To a broker that was killed, and that is out of the ISR of the partition while as many as
        `min.insync.replicas` are in it: it cannot be elected before it has fetched what it lacks,
        all that was acknowledged is elsewhere, and it is in no ELR (KIP-966). To what: see
        `steps.machines.SURVIVED`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

from neaptide.clusters.cluster import DiskFile
from neaptide.clusters.hosts.io_faults import Call
from neaptide.clusters.hosts.toxiproxy import Stream, ToxicKind
from neaptide.nemesis.steps import Purpose
from neaptide.nemesis.steps.machines import SURVIVED

Table = dict[str, Any]
_PURPOSES: Final[Mapping[Purpose, float]] = {"replication": 3, "client": 2, "coordination": 1}
_AHEAD_MS: Final = (100, 2_700_000)
_DRIFT_MS_A_S: Final = (5, 500)
_STROBE_S: Final = (1.0, 2.0)
_DELAY_MS: Final = (20, 1_000)
# With how late the first call of a thread may be that fails: a checkpoint is written rarely.
_CALLS: Final[Sequence[tuple[Call, DiskFile, float, int]]] = (
    ("write", "segment", 4, 5),
    ("fsync", "segment", 0.5, 1),
    ("write", "high-watermarks", 1, 1),
    ("fsync", "high-watermarks", 1, 1),
)


def draw_toxic(rng: random.Random, brokers: Sequence[str]) -> Table:
    broker = rng.choice(brokers)
    [purpose] = rng.choices(list(_PURPOSES), list(_PURPOSES.values()))
    kind = rng.choice(list(_ATTRIBUTES))
    link = {"broker": broker, "purpose": purpose, "stream": rng.choice(get_args(Stream))}
    return {**link, "type": kind, **_ATTRIBUTES[kind](rng)}


def _latency(rng: random.Random) -> dict[str, int]:
    latency_ms = _of_any_size(rng, 20, 1_500)
    return {"latency_ms": latency_ms, "jitter_ms": rng.randint(0, latency_ms // 2)}


def _slicer(rng: random.Random) -> dict[str, int]:
    size = _of_any_size(rng, 2, 500)
    return {
        "bytes": size,
        "variation_bytes": rng.randint(0, size - 1),
        "delay_us": rng.randint(0, 2_000),
    }


def _of_any_size(rng: random.Random, least: int, most: int) -> int:
    """Small ones as likely as large ones."""
    return int(least * (most / least) ** rng.random())


_ATTRIBUTES: Final[Mapping[ToxicKind, Callable[[random.Random], dict[str, int]]]] = {
    "latency": _latency,
    "bandwidth": lambda rng: {"kb_per_s": _of_any_size(rng, 2, 500)},
    "slow_close": lambda rng: {"delay_ms": _of_any_size(rng, 100, 3_000)},
    "timeout": lambda rng: {"timeout_ms": rng.choice((0, _of_any_size(rng, 100, 3_000)))},
    "reset_peer": lambda rng: {"timeout_ms": rng.randint(0, 1_000)},
    "slicer": _slicer,
    "limit_data": lambda rng: {"bytes": _of_any_size(rng, 100, 200_000)},
}


def draw_moves(rng: random.Random, lasts_s: float) -> Iterator[tuple[float, float, int]]:
    """Of a clock: when it is set, since the fault began, how long that lasts, and ms ahead.

    A jump; a strobe, there and back again (a process looks at its clock once a second); or a drift,
    a step each second: libfaketime's own rate counts from the start of a process, and jumps.
    """
    shape = rng.choice(("jump", "strobe", "drift"))
    if shape == "drift":
        step_ms = _signed(rng, *_DRIFT_MS_A_S)
        for n in range(int(lasts_s)):
            yield float(n), lasts_s - n, step_ms * (n + 1)
        return
    ahead_ms, every_s = _signed(rng, *_AHEAD_MS), rng.uniform(*_STROBE_S)
    if shape == "jump":
        yield 0.0, lasts_s, ahead_ms
        return
    for n in range(0, int(lasts_s / every_s), 2):
        yield n * every_s, every_s, ahead_ms


def _signed(rng: random.Random, least: int, most: int) -> int:
    """Small ones as likely as large ones, ahead as likely as behind."""
    return _of_any_size(rng, least, most) * rng.choice((1, -1))


def draw_disk(rng: random.Random, broker: str, partition: int) -> tuple[str, Table]:
    """The verb, and its table."""
    where = {"broker": broker, "partition": partition}
    if rng.random() < 0.5:
        [(kind, file)] = rng.choices(list(SURVIVED), list(SURVIVED.values()))
        return "damage", {**where, "kind": kind, "file": file}
    [(call, file, _, latest)] = rng.choices(_CALLS, [weight for _, _, weight, _ in _CALLS])
    error = rng.choice(("EIO", "ENOSPC", None))
    effect = {"delay_ms": rng.randint(*_DELAY_MS)} if error is None else {"error": error}
    return "inject", {**where, "call": call, "file": file, "nth": rng.randint(1, latest), **effect}
