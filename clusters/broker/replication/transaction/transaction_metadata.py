"""The transactions of one transactional id, as their coordinator keeps them in its log.

A frozen value, which is also the record: `__transaction_state` has one after each transition, and
the last of an id counts. As Kafka's TransactionMetadata and TransactionLogValue.
Source: KIP-98 ("Transaction Coordinator"), KIP-360 (the epoch before).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.broker.replication.model import TopicPartition, text_bytes

TRANSACTIONS_TOPIC: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
LAST_EPOCH: Final = 2**15 - 2  # after it the id is another; one more there is to fence it


class TransactionState(Enum):
    """Named as clients are shown them, numbered as in the log."""

    EMPTY = "Empty", 0  # there was none with this epoch yet
    ONGOING = "Ongoing", 1
    PREPARE_COMMIT = "PrepareCommit", 2  # decided: markers are on their way
    PREPARE_ABORT = "PrepareAbort", 3
    COMPLETE_COMMIT = "CompleteCommit", 4  # all markers are written
    COMPLETE_ABORT = "CompleteAbort", 5

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def number(self) -> int:
        return self.value[1]


PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
COMPLETE: Final = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """`started_ms`: by the clock of `step`; -1: there is none under way.

    `last_producer_epoch`: what the epoch was before its producer had it raised; who asks for that
    with the old one asks again.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    started_ms: int = -1
    last_producer_epoch: int = -1

    @property
    def size_bytes(self) -> int:
        """About as many as it has in the log. Raises TextTooLongError."""
        topics = sum(8 + text_bytes(topic) for topic, _ in self.partitions)
        return 70 + text_bytes(self.transactional_id) + topics
