"""The conditional writes of partition states and topics, with their parents and their fence.

Rule: a fenced write needs the version that `/controller_epoch` got when its writer was elected; any
write of a state needs the state's own version, or that there is none yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kazoo.client import TransactionRequest
from kazoo.exceptions import NodeExistsError, NoNodeError

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.client import Client
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Refused, Written
from neaptide.clusters.broker.coordination.session import Term
from neaptide.clusters.broker.replication.interface.coordination_service import (
    CreateTopic,
    LeaderAndIsrConflict,
    LeaderAndIsrWritten,
    TopicCreated,
    WriteLeaderAndIsr,
)

_NOT_THERE = -1
# ZooKeeper ends the connection of whoever sends more (jute.maxbuffer, 0xfffff bytes where it is not
# set), and a write that is sent again does so again. Some bytes are left to the transaction.
_TRANSACTION_BYTES_MAX = 0xFFFFF - 4096


class StateWriter:
    """Writes partition states."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._parents: set[str] = set()

    def forget_parents(self) -> None:
        """Topics may have been deleted meanwhile."""
        self._parents.clear()

    def begin(
        self, request: WriteLeaderAndIsr, term: Term | None
    ) -> Callable[[], LeaderAndIsrWritten | LeaderAndIsrConflict]:
        """Send a write; what comes back waits for its answer."""
        conflict = LeaderAndIsrConflict(request.partition, request.state, request.by_controller)
        check: int | None = None
        if request.is_fenced:
            if term is None or term.controller_epoch != request.state.controller_epoch:
                return lambda: conflict
            check = term.version
        write = self._send(request, check)

        def finish() -> LeaderAndIsrWritten | LeaderAndIsrConflict:
            result = write.result()
            if isinstance(result, Refused):
                return conflict
            state = replace(request.state, version=result.version)
            return LeaderAndIsrWritten(request.partition, state, request.by_controller)

        return finish

    def _send(self, request: WriteLeaderAndIsr, check: int | None) -> ConditionalWrite:
        path = znodes.state_path(request.partition)
        data = znodes.encode_state(request.state)
        version = request.state.version

        def fill(transaction: TransactionRequest) -> None:
            if check is not None:
                transaction.check(znodes.CONTROLLER_EPOCH, check)
            if version == _NOT_THERE:
                transaction.create(path, data)
            else:
                transaction.set_data(path, data, version)

        return ConditionalWrite(self._client, fill, path, data)

    def make_parents(self, requests: Sequence[WriteLeaderAndIsr]) -> None:
        """Of the states that are not there yet. Those of a topic that is gone are left out: the
        writes themselves will be refused."""
        first = [request for request in requests if request.state.version == _NOT_THERE]
        for topic in dict.fromkeys(request.partition.topic for request in first):
            of_topic = [request.partition for request in first if request.partition.topic == topic]
            try:
                self._ensure([znodes.partitions_path(topic)])
                self._ensure([znodes.partition_path(partition) for partition in of_topic])
            except NoNodeError:
                continue

    def _ensure(self, paths: Sequence[str]) -> None:
        missing = [path for path in paths if path not in self._parents]
        self._client.ensure_all(missing)
        self._parents.update(missing)


def write_states(
    writer: StateWriter, requests: Sequence[WriteLeaderAndIsr], term: Term | None
) -> list[LeaderAndIsrWritten | LeaderAndIsrConflict]:
    """All are sent before the first answer is waited for."""
    writer.make_parents(requests)
    begun = [writer.begin(request, term) for request in requests]
    return [finish() for finish in begun]


def create_topic(client: Client, request: CreateTopic, topic_id: str | None = None) -> TopicCreated:
    """Both znodes in one step; settings that a deleted topic of that name left are replaced.

    POLICY_VIOLATION where they are larger than one step may be.
    """
    path = znodes.topic_path(request.topic)
    data = znodes.encode_assignment(request.configuration.assignment, topic_id)
    config_path = znodes.topic_config_path(request.topic)
    config = znodes.encode_settings(request.configuration.settings)
    if len(data) + len(config) + 2 * len(path) > _TRANSACTION_BYTES_MAX:
        return TopicCreated(request.request, request.topic, "POLICY_VIOLATION")

    def create_both(transaction: TransactionRequest) -> None:
        transaction.create(config_path, config)
        transaction.create(path, data)

    def replace_settings(transaction: TransactionRequest) -> None:
        transaction.set_data(config_path, config)
        transaction.create(path, data)

    fill = create_both
    while True:
        result = ConditionalWrite(client, fill, path, data).result()
        if isinstance(result, Written):
            return TopicCreated(request.request, request.topic, None)
        of_topic = result.operation == 1
        if of_topic or client.exists(path) is not None:
            return TopicCreated(request.request, request.topic, "TOPIC_ALREADY_EXISTS")
        left_over = isinstance(result.because, NodeExistsError)
        fill = replace_settings if left_over else create_both
