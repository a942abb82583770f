"""What conditions ask about, as a test says that it is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass
class Seen:
    """An Observed with plain values."""

    acks: set[str] = field(default_factory=set)
    holds: set[tuple[int, int]] = field(default_factory=set)
    leads: int | None = None
    in_sync: tuple[int, ...] = ()
    ends: dict[int, int] = field(default_factory=dict)
    is_level: bool = False
    controls: int | None = 1
    names: dict[str, int] = field(default_factory=dict)

    def acked(self, record: str) -> bool:
        return record in self.acks

    def failed(self, record: str) -> bool:
        return False

    def error(self, record: str) -> str | None:
        return "REQUEST_TIMED_OUT" if record == "m2" else None

    def replicas(self) -> tuple[int, ...]:
        return (2, 0)

    def isr_changes(self) -> int:
        return 4

    def refused(self, broker: int) -> bool:
        return broker == 0

    def obeyed(self, broker: int) -> bool:
        return broker == 1

    def fenced(self, broker: int) -> bool:
        return broker == 1

    def log_start_offset(self, broker: int) -> int | None:
        return 5 if broker == 0 else None

    def log_end_offset_on_disk(self, broker: int) -> int | None:
        return 9

    def consumed(self, record: str) -> bool:
        return False

    def held(self, source: int | str, destination: int | str) -> bool:
        return (source, destination) in self.holds

    def up(self, broker: int) -> bool:
        return broker != 2

    def registered(self, broker: int) -> bool:
        return broker == 0

    def leader(self) -> int | None:
        return self.leads

    def leader_epoch(self) -> int | None:
        return 3

    def isr(self) -> tuple[int, ...]:
        return self.in_sync

    def controller(self) -> int | None:
        return self.controls

    def controller_epoch(self) -> int | None:
        return 5

    def named(self, name: str) -> int | None:
        return self.names.get(name)

    def level(self) -> bool:
        return self.is_level

    def log_end_offset(self, broker: int) -> int | None:
        return self.ends.get(broker)

    def high_watermark(self, broker: int) -> int | None:
        return None

    def checkpointed(self, broker: int) -> int | None:
        return 2

    def round(self, broker: int) -> int | None:
        return 7

    # --- what no test asks about ------------------------------------------------------------------

    def committed(self, group: str) -> int | None:
        raise NotImplementedError

    def commits_level(self) -> bool:
        raise NotImplementedError

    def voters(self) -> Collection[int]:
        raise NotImplementedError

    def flushed(self, broker: int) -> int | None:
        raise NotImplementedError

    def cleaned(self, broker: int, partition: int) -> int | None:
        raise NotImplementedError

    def hits(self, rule: str) -> int:
        raise NotImplementedError

    def sender_gone(self, rule: str) -> bool:
        raise NotImplementedError

    def handled(self, record: str) -> int:
        raise NotImplementedError

    def taken(self, client: str, record: str) -> bool:
        raise NotImplementedError

    def assigned(self, client: str) -> int:
        raise NotImplementedError

    def notified(self, client: str) -> str | None:
        raise NotImplementedError
