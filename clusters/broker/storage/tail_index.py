"""Where the newest batches of a segment are, each of them: for reads at the end of a log.

Followers and consumers that keep up ask for the last few batches; the sparse index would make each
such read walk over some 4 kB of headers. In memory only, bounded, and never needed: what it does
not know is looked up in the sparse index.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

_MOST: Final = 4096


class TailIndex:
    def __init__(self) -> None:
        self._base_offsets: list[int] = []
        self._next_offsets: list[int] = []
        self._positions: list[int] = []

    def append(self, base_offset: int, next_offset: int, position: int) -> None:
        if len(self._positions) >= _MOST:
            self._keep(slice(_MOST // 2, None))
        self._base_offsets.append(base_offset)
        self._next_offsets.append(next_offset)
        self._positions.append(position)

    def find(self, offset: int) -> tuple[int, int] | None:
        """(position, base offset) of the batch that contains `offset`, or of the next one."""
        if not self._base_offsets or offset < self._base_offsets[0]:
            return None
        found = bisect_right(self._next_offsets, offset)
        if found == len(self._positions):
            return None
        return self._positions[found], self._base_offsets[found]

    def end_within(self, limit: int) -> int | None:
        """The last beginning of a batch that is not after the position `limit`."""
        found = bisect_right(self._positions, limit)
        return self._positions[found - 1] if found else None

    def truncate_to_position(self, position: int) -> None:
        self._keep(slice(0, bisect_left(self._positions, position)))

    def _keep(self, part: slice) -> None:
        self._base_offsets = self._base_offsets[part]
        self._next_offsets = self._next_offsets[part]
        self._positions = self._positions[part]
