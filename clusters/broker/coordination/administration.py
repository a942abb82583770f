"""What operators ask of the controller by znodes, and what it writes of that.

`/admin/preferred_replica_election`, `/admin/reassign_partitions`, and the replicas in
`/brokers/topics/T`. What cannot be read asks for nothing, and is deleted.
"""

from __future__ import annotations

import logging
from typing import assert_never

from kazoo.client import TransactionRequest

from neaptide.clusters.broker.coordination import znodes
from neaptide.clusters.broker.coordination.client import Client, Watch
from neaptide.clusters.broker.coordination.conditional import ConditionalWrite, Written
from neaptide.clusters.broker.coordination.session import Term
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.coordination_service import (
    AdministrationRequest,
    AssignmentWritten,
    DeletePreferredReplicaElection,
    PartitionReassignmentFound,
    PreferredReplicaElectionFound,
    SetPartitionReassignment,
    WriteAssignment,
)

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


def administer(
    client: Client, request: AdministrationRequest, term: Term | None
) -> AssignmentWritten | None:
    """None where the request has no answer."""
    if isinstance(request, WriteAssignment):
        error = _write_assignment(client, request, term)
        return AssignmentWritten(request.partition, request.assignment, error)
    if _may_write(request, term):
        _take_out(client, request, term)
    return None


def _may_write(request: AdministrationRequest, term: Term | None) -> bool:
    """Whether a write that is fenced is of this session's own term: ZooKeeper knows the rest."""
    if not request.is_fenced:
        return True
    return term is not None and term.controller_epoch == request.controller_epoch


def _fence(
    transaction: TransactionRequest, request: AdministrationRequest, term: Term | None
) -> None:
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
