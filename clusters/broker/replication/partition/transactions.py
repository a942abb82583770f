"""What a log says of transactions: which are open, and up to where all of them have ended.

Pure functions on frozen values. A transaction begins in a log with its producer's first batch in
it, and ends with a marker, a control record that its coordinator has written there. Below the
first offset of the oldest one that is open, or whose marker is not yet below the high watermark,
lies what is stable: who reads committed records alone reads no further. As what Kafka's
ProducerStateManager keeps of transactions (ongoingTxns, unreplicatedTxns).
Source: KIP-98 ("Transactional guarantees": last stable offset, aborted transactions).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from neaptide.clusters.broker.replication.model import Batch
from neaptide.clusters.broker.replication.rule import rule


class CompletedTransaction(NamedTuple):
    """One that has ended here: its first offset, and that of its marker."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedTransaction(NamedTuple):
    """What readers of committed records must leave out; an entry of a `.txnindex` file."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int  # of the log, once this one had ended


@dataclass(frozen=True, slots=True)
class Transactions:
    """`ongoing`: first offsets by producer id. `completed`: in the order of their markers."""

    ongoing: Mapping[int, int] = field(default_factory=dict)
    completed: tuple[CompletedTransaction, ...] = ()


NO_TRANSACTIONS: Final = Transactions()


def no_transactions() -> Transactions:
    return NO_TRANSACTIONS


@rule
def after(transactions: Transactions, batch: Batch) -> Transactions:
    """A batch was appended."""
    if batch.marker is not None:
        producer_id = batch.marker.producer_id
        first = transactions.ongoing.get(producer_id)
        if first is None:  # nothing of its transaction is here
            return transactions
        ended = CompletedTransaction(producer_id, first, batch.base_offset)
        left = {one: offset for one, offset in transactions.ongoing.items() if one != producer_id}
        return Transactions(left, (*transactions.completed, ended))
    producer = batch.producer
    if producer is None or not producer.is_transactional:
        return transactions
    if producer.producer_id in transactions.ongoing:
        return transactions
    ongoing = {**transactions.ongoing, producer.producer_id: batch.base_offset}
    return replace(transactions, ongoing=ongoing)


def aborted_by(
    transactions: Transactions, batches: Iterable[Batch]
) -> tuple[AbortedTransaction, ...]:
    """Those that these batches, which come next in the log, abort."""
    aborted = []
    for batch in batches:
        before, transactions = transactions, after(transactions, batch)
        marker = batch.marker
        if marker is None or marker.is_commit or transactions is before:
            continue
        [*_, ended] = transactions.completed
        stable = min(transactions.ongoing.values(), default=batch.next_offset)
        aborted.append(AbortedTransaction(*ended, last_stable_offset=stable))
    return tuple(aborted)


def replicated(transactions: Transactions, high_watermark: int) -> Transactions:
    """Forgets those whose markers are committed."""
    if not transactions.completed or transactions.completed[0].last_offset >= high_watermark:
        return transactions
    left = tuple(one for one in transactions.completed if one.last_offset >= high_watermark)
    return replace(transactions, completed=left)


def truncated(transactions: Transactions, end_offset: int) -> Transactions:
    """The log was cut there. Those that a marker behind it had ended are read from the log again
    (effects.ReadProducers)."""
    if transactions is NO_TRANSACTIONS:
        return transactions
    ongoing = {one: first for one, first in transactions.ongoing.items() if first < end_offset}
    completed = tuple(one for one in transactions.completed if one.last_offset < end_offset)
    return Transactions(ongoing, completed)


@rule
def first_unstable_offset(transactions: Transactions) -> int | None:
    """None: all that there is of transactions is decided."""
    first = min(transactions.ongoing.values(), default=None)
    ended = min((one.first_offset for one in transactions.completed), default=None)
    return min((one for one in (first, ended) if one is not None), default=None)
