"""Java's 32-bit arithmetic, as far as Kafka's choices by hash depend on it."""

from __future__ import annotations

from typing import Final

_INT_RANGE: Final = 1 << 32


def java_int(number: int) -> int:
    """A number as a signed int of 32 bits holds it."""
    wrapped = number % _INT_RANGE
    return wrapped - _INT_RANGE if wrapped >= _INT_RANGE // 2 else wrapped


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: a signed 32-bit number."""
    value = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        value = (31 * value + unit) % _INT_RANGE
    return java_int(value)


def java_abs(number: int) -> int:
    """Kafka's `Utils.abs`: 0 for the one int that has no positive twin."""
    signed = java_int(number)
    return 0 if signed == -(_INT_RANGE // 2) else abs(signed)
