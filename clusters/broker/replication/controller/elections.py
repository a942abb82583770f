"""What becomes of the elections that were asked for: who waits for which, and the answers.

When they are asked for is in replica_leader_election, how they are decided in leader_election.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import pending
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    Election,
    Elections,
)
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.administration import (
    ElectionType,
    PartitionResult,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    DeletePreferredReplicaElection,
)
from neaptide.clusters.broker.replication.model import NO_LEADER, TopicPartition


def make_elections(broker: Broker, decided: Iterable[TopicPartition]) -> None:
    """These partitions have been decided: who waits for their elections learns what came of it."""
    controller = broker.active_controller
    assert controller is not None
    elections = controller.elections
    made = set(decided) & (elections.wanted.keys() | (elections.of_znode or frozenset()))
    if not made:
        return
    of_znode = elections.of_znode - made if elections.of_znode is not None else None
    wanted = {tp: kind for tp, kind in elections.wanted.items() if tp not in made}
    broker.controller = replace(controller, elections=Elections(wanted, of_znode))
    for one in pending.waiting(broker, Election):
        for tp in made & one.results.keys():
            if one.results[tp] is None:
                pending.give(broker, one.request, tp, _result(controller, tp, one.election_type))
    pending.settle(broker, Election)
    delete_znode_where_done(broker)


def _result(controller: Active, tp: TopicPartition, kind: ElectionType) -> PartitionResult:
    configuration = controller.topics.get(tp.topic)
    if configuration is None or tp.partition not in configuration.assignment:
        return PartitionResult(tp, Error.UNKNOWN_TOPIC_OR_PARTITION)  # deleted meanwhile
    state = controller.states.get(tp)
    leader = NO_LEADER if state is None else state.leader
    match kind:
        case ElectionType.PREFERRED:
            if leader == controller.replicas(tp)[0]:
                return PartitionResult(tp)
            message = "the preferred leader does not live or is not in the ISR"
            return PartitionResult(tp, Error.PREFERRED_LEADER_NOT_AVAILABLE, message)
        case ElectionType.UNCLEAN:
            if leader in controller.brokers:
                return PartitionResult(tp)
            message = "no replica lives"
            return PartitionResult(tp, Error.ELIGIBLE_LEADERS_NOT_AVAILABLE, message)


def delete_znode_where_done(broker: Broker) -> None:
    controller = broker.active_controller
    if controller is not None and controller.elections.of_znode == frozenset():
        broker.coordinate(
            DeletePreferredReplicaElection(
                controller.controller_epoch, broker.rules.fences_controller_writes
            )
        )
        broker.controller = replace(
            controller, elections=replace(controller.elections, of_znode=None)
        )
