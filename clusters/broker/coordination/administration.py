"""What operators ask of the controller by znodes, and what it writes of that.

`/admin/preferred_replica_election`, `/admin/reassign_partitions`, `/admin/delete_topics`, and the
replicas in `/brokers/topics/T`. What cannot be read asks for nothing, and is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import assert_never

from kazoo.client import TransactionRequest
from kazoo.exceptions import NoNodeError

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.client import Client, Watch
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Written
from neaptide.clusters.broker.coordination.session import Term
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AdministrationRequest,
    AssignmentWritten,
    DeletePreferredReplicaElection,
    DeleteTopic,
    FencedRequest,
    MarkTopicForDeletion,
    PartitionReassignmentFound,
    PreferredReplicaElectionFound,
    SetPartitionReassignment,
    TopicDeleted,
    TopicsMarkedForDeletion,
    UnmarkTopics,
    WriteAssignment,
)
from neaptide.clusters.broker.replication.model import TopicPartition

_log = logging.getLogger("broker")


def election_wanted(client: Client, watch: Watch) -> PreferredReplicaElectionFound | None:
    """None where nobody asks for one."""
    path = znodes.PREFERRED_REPLICA_ELECTION
    znode = client.watched(path, watch)
    try:
        if znode is not None:
            return PreferredReplicaElectionFound(znodes.decode_partitions(path, znode.data))
    except znodes.MalformedZnodeError as error:
        _log.warning("nobody is elected: %s", error)
        client.delete(path)
    return None


def reassignment_wanted(client: Client, watch: Watch) -> PartitionReassignmentFound | None:
    """None where nobody asks for one."""
    path = znodes.REASSIGN_PARTITIONS
    znode = client.watched(path, watch)
    try:
        if znode is not None:
            return PartitionReassignmentFound(znodes.decode_reassignments(znode.data))
    except znodes.MalformedZnodeError as error:
        _log.warning("nothing is reassigned: %s", error)
        client.delete(path)
    return None


def marked_topics(client: Client, watch: Watch | None = None) -> tuple[str, ...]:
    """Those that are to be deleted."""
    return tuple(client.children(znodes.DELETE_TOPICS, watch))


def deletion_wanted(client: Client, watch: Watch) -> TopicsMarkedForDeletion | None:
    """None where no topic is to be deleted."""
    marked = marked_topics(client, watch)
    return TopicsMarkedForDeletion(marked) if marked else None


def administer(
    client: Client, request: AdministrationRequest, term: Term | None
) -> AssignmentWritten | TopicDeleted | None:
    """None where the request has no answer."""
    match request:
        case WriteAssignment():
            error = _write_assignment(client, request, term)
            return AssignmentWritten(request.partition, request.assignment, error)
        case MarkTopicForDeletion(topic):
            client.ensure(znodes.delete_topic_path(topic))
        case DeleteTopic(topic):
            if _delete_topic(client, request, term):
                return TopicDeleted(topic)
        case UnmarkTopics(topics):
            _delete_all(client, list(map(znodes.delete_topic_path, topics)), request, term)
        case DeletePreferredReplicaElection() | SetPartitionReassignment():
            if _may_write(request, term):
                _take_out(client, request, term)
        case _:
            assert_never(request)
    return None


def _delete_topic(client: Client, request: DeleteTopic, term: Term | None) -> bool:
    """Whether all of its znodes are gone; the mark is the last, so that nothing is left behind."""
    topic = request.topic
    above = znodes.partitions_path(topic)
    names = client.children(above) if client.exists(above) is not None else []
    partitions = [TopicPartition(topic, int(name)) for name in names]
    return all(
        _delete_all(client, paths, request, term)
        for paths in (
            list(map(znodes.state_path, partitions)),
            list(map(znodes.partition_path, partitions)),
            [above],
            [znodes.topic_path(topic)],
            [znodes.topic_config_path(topic)],
            [znodes.delete_topic_path(topic)],
        )
    )


def _delete_all(
    client: Client, paths: Sequence[str], request: DeleteTopic | UnmarkTopics, term: Term | None
) -> bool:
    """What is there of them, asked for all at once. False: there is a later controller."""
    if not _may_write(request, term):
        return False

    def delete(path: str) -> ConditionalWrite:
        def fill(transaction: TransactionRequest) -> None:
            _fence(transaction, request, term)
            transaction.delete(path)

        return ConditionalWrite(client, fill, path, b"")

    results = [write.result() for write in list(map(delete, paths))]
    return all(
        isinstance(result, Written) or isinstance(result.because, NoNodeError) for result in results
    )


def _may_write(request: FencedRequest, term: Term | None) -> bool:
    """Whether a write that is fenced is of this session's own term: ZooKeeper knows the rest."""
    if not request.is_fenced:
        return True
    return term is not None and term.controller_epoch == request.controller_epoch


def _fence(transaction: TransactionRequest, request: FencedRequest, term: Term | None) -> None:
    if request.is_fenced and term is not None:
        transaction.check(znodes.CONTROLLER_EPOCH, term.version)


def _take_out(
    client: Client,
    request: DeletePreferredReplicaElection | SetPartitionReassignment,
    term: Term | None,
) -> None:
    """What is done, of the znode that asks for it. One that is gone, or another's, stays so."""
    match request:
        case DeletePreferredReplicaElection():
            path, data = znodes.PREFERRED_REPLICA_ELECTION, b""
        case SetPartitionReassignment(targets):
            path, data = znodes.REASSIGN_PARTITIONS, b""
            if targets:
                data = znodes.encode_reassignments(targets)
        case _:
            assert_never(request)

    def fill(transaction: TransactionRequest) -> None:
        _fence(transaction, request, term)
        if data:
            transaction.set_data(path, data)
        else:
            transaction.delete(path)

    ConditionalWrite(client, fill, path, data).result()


def _write_assignment(client: Client, request: WriteAssignment, term: Term | None) -> Error:
    """Whatever else was written into the znode meanwhile is kept."""
    if not _may_write(request, term):
        return Error.NOT_CONTROLLER
    path = znodes.topic_path(request.partition.topic)
    while True:
        znode = client.get(path)
        if znode is None:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        data = znodes.with_assignment(
            request.partition, znode.data, request.assignment, names_moves=request.names_moves
        )
        version = znode.stat.version

        def fill(transaction: TransactionRequest, data: bytes = data, at: int = version) -> None:
            _fence(transaction, request, term)
            transaction.set_data(path, data, at)

        result = ConditionalWrite(client, fill, path, data).result()
        if isinstance(result, Written):
            return Error.NONE
        if request.is_fenced and result.operation == 0:
            return Error.NOT_CONTROLLER
