"""What operators request of a transaction coordinator: to list and describe transactions (KIP-664).

What of a partition is known of producers says its leader: see leader/transaction_markers.
"""

from __future__ import annotations

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.effects import (
    RespondDescribeTransactions,
    RespondListTransactions,
)
from neaptide.clusters.broker.replication.interface.events import (
    DescribeTransactionsRequested,
    ListTransactionsRequested,
)
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    TransactionMetadata,
)
from neaptide.clusters.broker.replication.transaction.transaction_state_manager import coordinated


def on_describe_transactions(
    broker: Broker, event: DescribeTransactionsRequested, now_ms: int
) -> None:
    results = tuple((one, *_described(broker, one)) for one in event.transactional_ids)
    broker.do(RespondDescribeTransactions(event.request, results))


def _described(broker: Broker, transactional_id: str) -> tuple[Error, TransactionMetadata | None]:
    _, error = coordinated(broker, transactional_id)
    known = broker.transactions.get(transactional_id)
    if error is not Error.NONE:
        return error, None
    if known is None:
        return Error.TRANSACTIONAL_ID_NOT_FOUND, None
    return Error.NONE, known.metadata


def on_list_transactions(broker: Broker, event: ListTransactionsRequested, now_ms: int) -> None:
    """Those that this broker coordinates."""

    def is_wanted(metadata: TransactionMetadata) -> bool:
        lasts_ms = now_ms - metadata.started_ms if metadata.started_ms >= 0 else -1
        return (
            (not event.states or metadata.state.label in event.states)
            and (not event.producer_ids or metadata.producer_id in event.producer_ids)
            and (event.duration_ms < 0 or lasts_ms > event.duration_ms)
        )

    known = (one.metadata for one in broker.transactions.values())
    listed = tuple(one for one in known if is_wanted(one))
    broker.do(RespondListTransactions(event.request, Error.NONE, listed))
