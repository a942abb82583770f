"""Clocks that are wrong and disks that fail, as faults of a random run: drawn, as data. Pure.

What a replicated log must survive, and so nothing else is drawn:

clocks  No clock is wrong by as much as a record, a producer or a position of a group is kept for
        (Kafka's defaults: a day and more), nor by the hour that Kafka 4 grants a record's
        timestamp.
calls   A write or fsync fails on one broker: a Kafka ends of that, as of a kill, and what it has
        acknowledged is written.
damage  To a broker that was killed, and that is out of the ISR of the partition while as many as
        `min.insync.replicas` are in it: it cannot be elected before it has fetched what it lacks,
        all that was acknowledged is elsewhere, and it is in no ELR (KIP-966). Only to what a Kafka
        looks at as it recovers: the newest segment, which it reads whole after a kill, in bytes
        that a checksum covers (the base offset is in none); its end; and files that it makes anew.
        Not to the high watermarks, the epochs, or the directory whole: those are of partitions
        about which nobody has asked, or have elections after it go by an older rule.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from neaptide.clusters.disks.damage import DamageKind, DiskFile
from neaptide.clusters.hosts.io_faults import Call, Errno, IoFault
from neaptide.nemesis.drawn.targets import Scope, Target, draw_target

Shape = Literal["jump", "strobe", "drift"]
Move = tuple[float, int]  # seconds since the fault began, ms ahead of the real clock
_OF_ONE: Final[tuple[Scope, ...]] = ("one", "leader", "follower")
_AHEAD_MS: Final = (100, 2_700_000)
_DRIFT_MS_A_S: Final = (5, 500)
_MOVES_S: Final = 9  # as long as a fault of clocks lasts, and more
_STROBE_S: Final = (1.0, 2.0)
_DELAY_MS: Final = (20, 1_000)
_SEEDS: Final = 1 << 16
# With how late the first call of a thread may be that fails: a checkpoint is written rarely.
_CALLS: Final[Sequence[tuple[Call, DiskFile, float, int]]] = (
    ("write", "segment", 4, 5),
    ("fsync", "segment", 0.5, 1),
    ("write", "high-watermarks", 1, 1),
    ("fsync", "high-watermarks", 1, 1),
)
DAMAGES: Final[Sequence[tuple[DamageKind, DiskFile, float]]] = (
    ("flipped-record-bit", "segment", 3),
    ("torn-tail", "segment", 3),
    ("lost-file", "segment", 2),
    ("lost-file", "index", 1),
    ("lost-file", "timeindex", 1),
    ("lost-file", "recovery-points", 1),
)


@dataclass(frozen=True, slots=True)
class ClockFault:
    """Clocks of brokers are set, one or several times, and are right again at the end."""

    shape: Shape
    target: Target
    moves: tuple[Move, ...]
    kind: Literal["clock"] = "clock"

    def to_json(self) -> dict[str, Any]:
        moves = [list(move) for move in self.moves]
        return {"kind": self.kind, "shape": self.shape, **self.target.to_json(), "moves": moves}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ClockFault:
        shape = _one_of(raw["shape"], get_args(Shape))
        moves = tuple((float(after_s), int(ahead_ms)) for after_s, ahead_ms in raw["moves"])
        if not moves:
            raise ValueError("a clock needs moves")
        return cls(shape, Target.from_json(raw), moves)


@dataclass(frozen=True, slots=True)
class CallsFault:
    """Calls of one running broker on its files fail, or are slow."""

    target: Target
    fault: IoFault
    file: DiskFile
    partition: int
    kind: Literal["disk"] = "disk"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            **self.target.to_json(),
            "call": self.fault.call,
            "error": self.fault.error,
            "delay_ms": self.fault.delay_ms,
            "nth": self.fault.nth,
            "file": self.file,
            "of_partition": self.partition,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> CallsFault:
        error = None if raw["error"] is None else _one_of(raw["error"], get_args(Errno))
        call = _one_of(raw["call"], get_args(Call))
        fault = IoFault(call, error, int(raw["delay_ms"]), int(raw["nth"]))
        if fault.nth < 1 or fault.delay_ms < 0 or (error is None and not fault.delay_ms):
            raise ValueError("calls fail or take longer, from the first on or a later one")
        file = _one_of(raw["file"], get_args(DiskFile))
        return cls(Target.from_json(raw), fault, file, int(raw["of_partition"]))


@dataclass(frozen=True, slots=True)
class DamageFault:
    """One broker is killed, and its disk damaged once the partition can do without it."""

    target: Target
    damage: DamageKind
    file: DiskFile
    partition: int
    seed: int
    kind: Literal["disk"] = "disk"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            **self.target.to_json(),
            "damage": self.damage,
            "file": self.file,
            "of_partition": self.partition,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> DamageFault:
        damage, file = raw["damage"], raw["file"]
        if (damage, file) not in [drawn[:2] for drawn in DAMAGES]:
            raise ValueError(f"a replicated log need not survive {damage!r} of {file!r}")
        partition, seed = int(raw["of_partition"]), int(raw["seed"])
        return cls(Target.from_json(raw), damage, file, partition, seed)


DiskFault = CallsFault | DamageFault


def read_disk(raw: Mapping[str, Any]) -> DiskFault:
    return (DamageFault if "damage" in raw else CallsFault).from_json(raw)


# --- drawing -------------------------------------------------------------------------------------


def draw_clock(rng: random.Random, brokers: Sequence[int], partitions: int) -> ClockFault:
    shape = rng.choice(list(_MOVES))
    return ClockFault(shape, draw_target(rng, brokers, partitions), _MOVES[shape](rng))


def _signed(rng: random.Random, least: int, most: int) -> int:
    """Small ones as likely as large ones, ahead as likely as behind."""
    return int(least * (most / least) ** rng.random()) * rng.choice((1, -1))


def _jump(rng: random.Random) -> tuple[Move, ...]:
    return ((0.0, _signed(rng, *_AHEAD_MS)),)


def _strobe(rng: random.Random) -> tuple[Move, ...]:
    """There and back again; a process looks at its clock once a second."""
    ahead_ms, every_s = _signed(rng, *_AHEAD_MS), rng.uniform(*_STROBE_S)
    count = int(_MOVES_S / every_s)
    return tuple((round(n * every_s, 3), 0 if n % 2 else ahead_ms) for n in range(count))


def _drift(rng: random.Random) -> tuple[Move, ...]:
    """A step each second: libfaketime's own rate counts from the start of a process, and jumps."""
    step_ms = _signed(rng, *_DRIFT_MS_A_S)
    return tuple((float(n), step_ms * (n + 1)) for n in range(_MOVES_S))


_MOVES: Final[Mapping[Shape, Callable[[random.Random], tuple[Move, ...]]]] = {
    "jump": _jump,
    "strobe": _strobe,
    "drift": _drift,
}


def draw_disk(rng: random.Random, brokers: Sequence[int], partitions: int) -> DiskFault:
    target = draw_target(rng, brokers, partitions, _OF_ONE)
    partition = rng.randrange(partitions) if target.scope == "one" else target.partition
    if rng.random() < 0.5:
        [(kind, file, _)] = rng.choices(DAMAGES, [weight for _, _, weight in DAMAGES])
        return DamageFault(target, kind, file, partition, rng.randrange(_SEEDS))
    [(call, file, _, latest)] = rng.choices(_CALLS, [weight for _, _, weight, _ in _CALLS])
    error: Errno | None = rng.choice(("EIO", "ENOSPC", None))
    delay_ms = 0 if error is not None else rng.randint(*_DELAY_MS)
    fault = IoFault(call, error, delay_ms, rng.randint(1, latest))
    return CallsFault(target, fault, file, partition)


def _one_of(value: Any, allowed: Sequence[Any]) -> Any:
    if value not in allowed:
        raise ValueError(f"{value!r} must be one of {', '.join(map(str, allowed))}")
    return value
