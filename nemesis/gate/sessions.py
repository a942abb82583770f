"""Fetch sessions (KIP-227): what an incremental request or response leaves unsaid. Pure.

From Fetch v7 on a follower names only the partitions whose offset has moved, and a leader
answers only for those that have news. A round is nevertheless one of every partition in the
session. A session is remembered per connection: after a reconnect Kafka's followers start anew.
"""

from __future__ import annotations

from neaptide.nemesis.gate.messages import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    TopicPartition,
)


class FetchSession:
    """The partitions of one connection's fetch session, and the last answer for each."""

    __slots__ = ("_answers", "_asked")

    def __init__(self) -> None:
        self._asked: dict[TopicPartition, FetchPartition] = {}
        self._answers: dict[TopicPartition, FetchedPartition] = {}

    def request(self, request: FetchRequest) -> dict[TopicPartition, FetchPartition]:
        """All partitions that a request is about."""
        if request.session_epoch <= 0:
            self._asked = dict(request.partitions)
            self._answers = {}
        else:
            self._asked.update(request.partitions)
            for forgotten in request.forgotten:
                self._asked.pop(forgotten, None)
        return dict(self._asked)

    def response(
        self, response: FetchResponse, asked: dict[TopicPartition, FetchPartition]
    ) -> dict[TopicPartition, FetchedPartition]:
        """The answer for each partition that was asked for, as far as it is known.

        One that a response does not name has no records, no error, and the offsets as they were.
        """
        if response.error != 0:
            return {}
        answered = dict(response.partitions)
        for partition in asked:
            before = self._answers.get(partition)
            if partition not in answered and before is not None:
                answered[partition] = FetchedPartition(
                    0, before.high_watermark, before.log_start_offset, 0
                )
        self._answers.update(answered)
        return answered
