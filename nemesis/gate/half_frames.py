"""How much the gate keeps of messages that are not whole, on all connections together. Pure.

Whoever sends the first part of a large message and no more would otherwise have the gate keep it
for ever, as often as he connects.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

KEPT_BYTES_MAX: Final = 256 * 1024 * 1024
_T = TypeVar("_T")


class HalfFrames(Generic[_T]):
    """How many bytes each sender's unfinished message has here."""

    def __init__(self, kept_bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._kept_bytes_max = kept_bytes_max
        self._sizes: dict[_T, int] = {}
        self.total_bytes = 0

    def keep(self, sender: _T, size: int) -> _T | None:
        """The sender's unfinished message has so many bytes now; 0: there is none.

        Returns whose message is the largest, where all together are too many.
        """
        self.total_bytes += size - self._sizes.pop(sender, 0)
        if size:
            self._sizes[sender] = size
        if self.total_bytes <= self._kept_bytes_max:
            return None
        return max(self._sizes, key=self._sizes.__getitem__)
