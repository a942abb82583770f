"""A broker's session with ZooKeeper: its registration, and which broker is controller.

One session after the other: when one expires, all its ephemeral znodes are gone, and the next one
registers anew. An old znode of the same broker, left by a session that has not ended yet, is waited
for by a watch and never deleted.
Rule: `/controller` (ephemeral) and the next `/controller_epoch` are written in one transaction, on
condition of the epoch's version: so no two controllers share an epoch (KAFKA-6082).
"""

from __future__ import annotations

import base64
import uuid
from dataclasses import dataclass

from kazoo.client import TransactionRequest

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.client import Client, Watch
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Written
from neaptide.clusters.broker.replication.model import BrokerRegistration


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds `/controller`; two terms of the same broker differ in `created`."""

    broker_id: int
    created: int
    session_id: int


@dataclass(frozen=True, slots=True)
class Term:
    """A controller's own epoch, and the version of `/controller_epoch` that fences its writes."""

    controller_epoch: int
    version: int


def derived_cluster_id(connect: str) -> str:
    """22 characters as Kafka's own; the same for the same ZooKeeper, so that runs repeat."""
    digest = uuid.uuid5(uuid.NAMESPACE_URL, f"zookeeper://{connect}").bytes
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def prepare(client: Client, new_cluster_id: str) -> str:
    """Make what every cluster has; the cluster's id, which the first broker gave it."""
    for path in znodes.PERSISTENT_PARENTS:
        client.ensure(path)
    client.ensure(znodes.CONTROLLER_EPOCH, znodes.encode_epoch(0))
    client.ensure(znodes.CLUSTER_ID, znodes.encode_cluster_id(new_cluster_id))
    found = client.get(znodes.CLUSTER_ID)
    return new_cluster_id if found is None else znodes.decode_cluster_id(found.data)


def register(
    client: Client, registration: BrokerRegistration, now_ms: int, on_freed: Watch
) -> int | None:
    """Create `/brokers/ids/N`; its broker epoch, or None: `on_freed` is called to try again."""
    path = znodes.broker_path(registration.broker_id)
    data = znodes.encode_broker(registration, now_ms)
    while True:

        def create(transaction: TransactionRequest) -> None:
            transaction.create(path, data, ephemeral=True)

        ConditionalWrite(client, create, path, data).result()
        stat = client.exists(path, on_freed)
        if stat is None:
            continue
        return int(stat.czxid) if stat.ephemeralOwner == client.session_id else None


def holder(client: Client, watch: Watch | None = None) -> Holder | None:
    """Who is controller now; the watch is set either way."""
    if watch is None:
        found = client.get(znodes.CONTROLLER)
    else:
        found = client.watched(znodes.CONTROLLER, watch)
    if found is None:
        return None
    stat = found.stat
    return Holder(znodes.decode_controller(found.data), stat.czxid, stat.ephemeralOwner)


def elect(client: Client, broker_id: int, now_ms: int) -> Term | Holder:
    """Become controller, or learn who is it."""
    data = znodes.encode_controller(broker_id, now_ms)
    while True:
        known = client.get(znodes.CONTROLLER_EPOCH)
        if known is None:
            client.ensure(znodes.CONTROLLER_EPOCH, znodes.encode_epoch(0))
            continue
        epoch = znodes.decode_epoch(known.data) + 1
        written = znodes.encode_epoch(epoch)
        version = known.stat.version

        def win(
            transaction: TransactionRequest, written: bytes = written, version: int = version
        ) -> None:
            transaction.create(znodes.CONTROLLER, data, ephemeral=True)
            transaction.set_data(znodes.CONTROLLER_EPOCH, written, version)

        result = ConditionalWrite(client, win, znodes.CONTROLLER_EPOCH, written).result()
        found = holder(client)
        if found is None:
            continue
        if found.session_id != client.session_id:
            return found
        if isinstance(result, Written):
            return Term(epoch, result.version)
        # Elected before, by this session: while it holds /controller nobody moves the epoch.
        known = client.get(znodes.CONTROLLER_EPOCH)
        if known is not None:
            return Term(znodes.decode_epoch(known.data), known.stat.version)
