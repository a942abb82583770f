"""The condition of a rule: comparisons of a message's fields, all of which must hold.

    high_watermark >= 2 and fetch_offset < 3
    group == g and generation > 1

Not an expression language: a name, an operator, an integer or a word, joined by `and`. A field that
a message does not have (a request has no high watermark) makes its comparison false.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from neaptide.clusters.errors import UsageError

NAMES: Final = (
    "round",
    "fetch_offset",
    "high_watermark",
    "leader_epoch",
    "records_bytes",
    "log_start_offset",
    "error",
    "offset",  # that is committed, or that a Produce is acknowledged with
    "producer_id",
    "producer_epoch",
    "sequence",
    "generation",
    "member_epoch",
    "acks",
    "committed",  # whether EndTxn or a marker commits: 1 or 0
)
TEXTS: Final = ("transactional_id", "group", "member", "client_id", "key")
_OPERATORS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_COMPARISON = re.compile(r"\s*([A-Za-z_]\w*)\s*(==|!=|>=|<=|>|<)\s*([\w.-]+)\s*")
_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison, for example `high_watermark >= 2`."""

    name: str
    operator: str
    value: int | str

    def holds(self, facts: Mapping[str, int | str | None]) -> bool:
        found = facts.get(self.name)
        return found is not None and _OPERATORS[self.operator](found, self.value)


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
    name, sign, value = found.groups()
    if name in TEXTS:
        if sign not in ("==", "!="):
            raise UsageError(f"{name} is a text: compare it by == or !=, not by {sign}")
        return Comparison(name, sign, value)
    if name not in NAMES:
        raise UsageError(f"a message has no {name!r}: must be one of {', '.join((*NAMES, *TEXTS))}")
    if not _NUMBER.fullmatch(value):
        raise UsageError(f"{name} is a number: {value!r} is none")
    return Comparison(name, sign, int(value))
