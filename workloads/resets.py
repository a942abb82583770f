"""The seven ways to reset the position of a group, as Kafka's own tool has them.

`kafka-consumer-groups --reset-offsets` (KIP-122) gives them their names and bounds. `to-offset` and
`shift-by` are bounded to what the log has; where the log has no record that young, `to-datetime`
and `by-duration` take its end; `to-current` takes the end where the group has no position, and
`shift-by` is refused there. No IO here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

KINDS: Final = (
    "to-earliest", "to-latest", "to-current", "to-offset", "shift-by", "to-datetime", "by-duration",
)  # fmt: skip

_OFFSET_MOST: Final = 2_000
_SHIFT_MOST: Final = 500  # in either direction
_DURATION_MS: Final = (1_000, 20_000)


@dataclass(frozen=True, slots=True)
class Reset:
    """One reset. `amount`: the offset of `to-offset`, the records of `shift-by` (below 0: back).

    `since_ms`: the time of `to-datetime` and `by-duration`, in milliseconds since 1970.
    """

    kind: str
    amount: int = 0
    since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a partition. `committed`: the group's position, None: it has none.

    `start`, `end`: of the log. `since`: the first record of the time that is asked for or of a
    later one, None: there is none.
    """

    committed: int | None
    start: int
    end: int
    since: int | None = None


def draw(kind: str, chance: random.Random, began_ms: int, now_ms: int) -> Reset:
    """`to-datetime` is a moment between the two; the amounts may lead out of the log."""
    match kind:
        case "to-offset":
            return Reset(kind, chance.randint(0, _OFFSET_MOST))
        case "shift-by":
            return Reset(kind, chance.randint(-_SHIFT_MOST, _SHIFT_MOST))
        case "to-datetime":
            return Reset(kind, since_ms=began_ms + int(chance.random() * (now_ms - began_ms)))
        case "by-duration":
            return Reset(kind, since_ms=now_ms - chance.randint(*_DURATION_MS))
    return Reset(kind)


def new_position(reset: Reset, known: Known) -> int | None:
    """Where the group goes on. None: it has no position that could be shifted."""
    match reset.kind:
        case "to-earliest":
            return known.start
        case "to-latest":
            return known.end
        case "to-current":
            return known.end if known.committed is None else known.committed
        case "to-offset":
            return _bounded(reset.amount, known)
        case "shift-by":
            if known.committed is None:
                return None
            return _bounded(known.committed + reset.amount, known)
        case "to-datetime" | "by-duration":
            return known.end if known.since is None else known.since
    raise ValueError(f"There is no reset {reset.kind!r}.")


def _bounded(offset: int, known: Known) -> int:
    return max(known.start, min(offset, known.end))
