"""The order of Clojure's sets, for of several values at one offset Jepsen takes the first.

Sets of Clojure are in the order of their hashes, five bits after the other from the lowest.
"""

from __future__ import annotations

from collections.abc import Iterable

_WORD = 0xFFFFFFFF


def first_of(values: Iterable[str]) -> str:
    """The first of a set of whole numbers; any other text counts as zero."""
    return min(values, key=lambda value: [hash_of(value) >> n & 31 for n in range(0, 32, 5)])


def hash_of(value: str) -> int:
    """Murmur 3 of a number of 64 bits."""
    number = int(value) if value.lstrip("-").isdigit() else 0
    if number == 0:
        return 0
    h = _mixed(_mixed(0, number & _WORD), number >> 32 & _WORD) ^ 8
    h = (h ^ h >> 16) * 0x85EBCA6B & _WORD
    h = (h ^ h >> 13) * 0xC2B2AE35 & _WORD
    return h ^ h >> 16


def _mixed(h: int, k: int) -> int:
    k = k * 0xCC9E2D51 & _WORD
    k = (k << 15 | k >> 17) & _WORD
    h ^= k * 0x1B873593 & _WORD
    h = (h << 13 | h >> 19) & _WORD
    return h * 5 + 0xE6546B64 & _WORD
