"""The end of a dead broker's session, without waiting for its timeout: for the harness.

Only for a broker whose process is gone: a live one would go on in its session without the znodes
that this deletes.
"""

from __future__ import annotations

from typing import Final

from kazoo.client import TransactionRequest
from kazoo.handlers.threading import KazooTimeoutError

from neaptide.clusters.broker.coordination import session, znodes
from neaptide.clusters.broker.coordination.client import Client
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Written
from neaptide.clusters.errors import MissingPartError

_TIMEOUT_MS: Final = 10_000


def expire_broker(connect: str, broker_id: int) -> tuple[str, ...]:
    """Delete `/brokers/ids/N`, and `/controller` if it is N's, in one step; what was deleted."""
    client = Client(connect, _TIMEOUT_MS)
    try:
        client.kazoo.start(timeout=_TIMEOUT_MS / 1000)
    except KazooTimeoutError as error:
        client.kazoo.close()
        raise MissingPartError(
            f"No ZooKeeper answers at {connect} within {_TIMEOUT_MS} ms; start one, or put the "
            "address right."
        ) from error
    try:
        return _delete(client, broker_id)
    finally:
        client.close()


def _delete(client: Client, broker_id: int) -> tuple[str, ...]:
    while True:
        doomed: list[tuple[str, int]] = []
        stat = client.exists(znodes.broker_path(broker_id))
        if stat is not None:
            doomed.append((znodes.broker_path(broker_id), stat.version))
        holder = session.holder(client)
        if holder is not None and holder.broker_id == broker_id:
            doomed.append((znodes.CONTROLLER, 0))
        if not doomed:
            return ()

        def delete(transaction: TransactionRequest, doomed: list[tuple[str, int]] = doomed) -> None:
            for path, version in doomed:
                transaction.delete(path, version)

        last_path = doomed[-1][0]
        if isinstance(ConditionalWrite(client, delete, last_path, b"").result(), Written):
            return tuple(path for path, _ in doomed)
