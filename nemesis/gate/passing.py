"""A large Fetch response, all of which but its last part goes on before it is whole. Pure.

A receiver does nothing before it has all of a message. So its last part stands for it: when that is
here the message is, it is what rules take, and what is held holds the message.
"""

from __future__ import annotations

from typing import Final

from nemesis.gate.exchange import Exchange, Message
from nemesis.gate.fetch_answer import FetchAnswer
from nemesis.gate.frames import HEAD_BYTES

# A Fetch response of which more than that is still to come passes as it comes.
PASSING_BYTES: Final = 64 * 1024


class Passing:
    """What is known of a response of `size` bytes, its length field included, that begins so."""

    __slots__ = ("_begun", "_exchange", "answer", "missing_bytes")

    def __init__(self, exchange: Exchange, answer: FetchAnswer, begun: bytes, size: int) -> None:
        self._exchange = exchange
        self._begun = begun[:HEAD_BYTES]
        self.answer: FetchAnswer | None = answer  # None: the gate cannot read it
        self.missing_bytes = size

    @property
    def skippable(self) -> int:
        """How many bytes may pass unread: records, and never the last byte."""
        last = self.missing_bytes - 1
        return last if self.answer is None else min(last, self.answer.skippable)

    def skip(self, count: int) -> None:
        self.missing_bytes -= count
        if self.answer is not None:
            self.answer.skip(count)

    def message(self, now_ns: int) -> Message | None:
        """All of it is here."""
        if self.answer is None:
            return None
        return self._exchange.passed(self._begun, self.answer.end(), now_ns)
