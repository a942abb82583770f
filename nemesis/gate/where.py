"""The condition of a rule: comparisons of a message's numbers, all of which must hold.

    high_watermark >= 2 and fetch_offset < 3

Not an expression language: a name, an operator, an integer, joined by `and`. A number that a
message does not have (a request has no high watermark) makes its comparison false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from neaptide.clusters.errors import UsageError

NAMES: Final = (
    "round",
    "fetch_offset",
    "high_watermark",
    "leader_epoch",
    "records_bytes",
    "log_start_offset",
    "error",
)
_OPERATORS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_COMPARISON = re.compile(r"\s*([A-Za-z_]\w*)\s*(==|!=|>=|<=|>|<)\s*(-?\d+)\s*")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison, for example `high_watermark >= 2`."""

    name: str
    operator: str
    number: int

    def holds(self, facts: Mapping[str, int | None]) -> bool:
        value = facts.get(self.name)
        return value is not None and _OPERATORS[self.operator](value, self.number)


@lru_cache(maxsize=256)
def parse_where(text: str) -> tuple[Comparison, ...]:
    """The comparisons of a condition; the empty text has none and holds always."""
    if not text.strip():
        return ()
    return tuple(_comparison(part) for part in re.split(r"\band\b", text))


def _comparison(text: str) -> Comparison:
    found = _COMPARISON.fullmatch(text)
    if found is None:
        raise UsageError(
            f"cannot read the comparison {text.strip()!r}: write it like 'high_watermark >= 2',"
            " and join several by 'and'"
        )
    name, sign, number = found.groups()
    if name not in NAMES:
        raise UsageError(f"a message has no {name!r}: must be one of {', '.join(NAMES)}")
    return Comparison(name, sign, int(number))
