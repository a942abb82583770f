"""Steps about a broker's clock and its disk: a process of its own is needed, which the simulation
does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from pydantic import Field

from neaptide.clusters.cluster import DamageKind, DiskFile
from neaptide.clusters.hosts.io_faults import Call, Errno
from neaptide.nemesis.steps.language import (
    Broker,
    Count,
    Delay_ms,
    Means,
    Names,
    Partition,
    Step,
    Whole,
    step,
)

FAMILY: Final = "Clocks and disks"
# What a replicated log survives of a broker that is out of the ISR, and how often it is drawn: what
# a Kafka looks at as it recovers. The newest segment, which it reads whole after a kill, in bytes
# that a checksum covers (the base offset is in none); its end; and files that it makes anew. Not
# the high watermarks, the epochs, or the directory whole: those are of partitions about which
# nobody has asked, or have elections after it go by an older rule.
SURVIVED: Final[Mapping[tuple[DamageKind, DiskFile], float]] = {
    ("flipped-record-bit", "segment"): 3,
    ("torn-tail", "segment"): 3,
    ("lost-file", "segment"): 2,
    ("lost-file", "index"): 1,
    ("lost-file", "timeindex"): 1,
    ("lost-file", "recovery-points"): 1,
}
_File = Annotated[
    DiskFile, Field(description="Which of the broker's files: the newest of its kind.")
]


@step(
    FAMILY,
    "set_clock",
    '{ broker = "A", ahead_ms = 172800000 }',
    words="sets {0.broker}'s clock {0.ahead_ms:+} ms from the real one",
)
@dataclass(frozen=True, slots=True)
class SetClock(Step):
    """Sets a broker's clock ahead of the real one. The process looks every second or two. Its
    monotonic clock stays right."""

    needs: ClassVar[Means | None] = "clocks"
    passes: ClassVar[bool] = True

    broker: Broker
    ahead_ms: Whole
    """How far, in milliseconds. 0: right again."""


@step(
    FAMILY,
    "inject",
    '{ broker = "A", call = "fsync", error = "EIO" }',
    '{ broker = "A", call = "write", delay_ms = 100, nth = 3, file = "segment" }',
)
@dataclass(frozen=True, slots=True)
class Inject(Step):
    """System calls of a broker on its files fail, or take longer, until `end_injections`."""

    needs: ClassVar[Means | None] = "calls"
    passes: ClassVar[bool] = True

    broker: Broker
    call: Call
    """The system call."""
    error: Errno | None = None
    """The error that it returns."""
    delay_ms: Delay_ms = 0
    """How much longer it takes, in milliseconds."""
    nth: Count = 1
    """The first call that is affected, counted from 1."""
    file: _File = "segment"
    partition: Partition = 0

    def check(self, names: Names) -> None:
        if self.error is None and self.delay_ms == 0:
            raise ValueError('needs an error = "EIO", a delay_ms, or both')

    def words(self) -> str:
        effects = [] if self.error is None else [f"fails with {self.error}"]
        effects += [f"takes {self.delay_ms} ms longer"] if self.delay_ms else []
        first = "every" if self.nth == 1 else f"from number {self.nth} on, every"
        return (
            f"{first} {self.call} of {self.broker} on the {self.file} of partition"
            f" {self.partition} {' and '.join(effects)}"
        )


@step(FAMILY, "end_injections", '{ broker = "A" }', words="{0.broker}'s disk is well again")
@dataclass(frozen=True, slots=True)
class EndInjections(Step):
    """The broker's disk is well again. If no call was affected, the run has missed its aim."""

    broker: Broker


@step(FAMILY, "damage", '{ broker = "A", kind = "flipped-bit", file = "segment" }')
@dataclass(frozen=True, slots=True)
class Damage(Step):
    """Damages a file of a broker that is down. Of a file with `run`: the broker is killed, its file
    is damaged once its partition can do without it, and it is started again when that is over."""

    passes: ClassVar[bool] = True
    broker: Broker
    kind: DamageKind
    """The damage. `flipped-record-bit`: a bit that a checksum covers. `lost-directory`: all files
    are gone."""
    file: _File = "segment"
    partition: Partition = 0

    def check(self, names: Names) -> None:
        if names.is_timed and (self.kind, self.file) not in SURVIVED:
            raise ValueError(f"a replicated log need not survive {self.kind} of {self.file}")

    def words(self) -> str:
        of = f" ({self.file} of partition {self.partition})"
        return f"damages {self.broker}'s disk: {self.kind}" + (
            "" if self.kind == "lost-directory" else of
        )


@step(FAMILY, "keep_snapshot", '{ broker = "A" }', words="copies {0.broker}'s log directory")
@dataclass(frozen=True, slots=True)
class KeepSnapshot(Step):
    """Copies the log directory of a broker that is down."""

    broker: Broker


@step(
    FAMILY,
    "put_back",
    '{ broker = "A" }',
    words="puts {0.broker}'s log directory back as it was copied",
)
@dataclass(frozen=True, slots=True)
class PutBack(Step):
    """Puts the copied log directory back. The broker must be down."""

    broker: Broker
