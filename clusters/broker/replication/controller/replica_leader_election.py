"""Elections that somebody asks for: by ElectLeaders, by znode, or because leaders are uneven.

As in Kafka's KafkaController (processReplicaLeaderElection, checkAndTriggerAutoLeaderRebalance):
a partition whose leader is the wanted one already is left alone, all others are reconsidered. What
comes of it is in elections.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import pending
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    Election,
)
from neaptide.clusters.broker.replication.controller.elections import delete_znode_where_done
from neaptide.clusters.broker.replication.controller.partition_state_machine import reconsider
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.administration import (
    AutoPreferredReplicaLeaderElection,
    ElectionType,
    ElectLeadersRequested,
    PartitionResult,
)
from neaptide.clusters.broker.replication.interface.coordination_service import (
    PreferredReplicaElectionFound,
)
from neaptide.clusters.broker.replication.interface.effects import RespondElectLeaders
from neaptide.clusters.broker.replication.model import NO_LEADER, TopicPartition


def on_elect_leaders(broker: Broker, event: ElectLeadersRequested, now_ms: int) -> None:
    """Each partition is refused or elected by itself; one answer waits for all of them."""
    controller = broker.active_controller
    if controller is None:
        asked = event.partitions or ()
        refused = tuple(PartitionResult(tp, Error.NOT_CONTROLLER) for tp in asked)
        broker.do(RespondElectLeaders(event.request, Error.NOT_CONTROLLER, refused))
        return
    partitions, kind = event.partitions, event.election_type
    if kind is None:
        broker.do(RespondElectLeaders(event.request, Error.INVALID_REQUEST))
        return
    everything = partitions is None
    results: dict[TopicPartition, PartitionResult | None] = {}
    for tp in dict.fromkeys(controller.all_partitions() if partitions is None else partitions):
        refusal = _refusal(controller, tp, kind)
        if refusal is not Error.NONE:
            if not (everything and refusal is Error.ELECTION_NOT_NEEDED):
                message = _MESSAGES.get(refusal)
                results[tp] = PartitionResult(tp, refusal, message)
            continue
        results[tp] = None
    pending.begin(broker, Election(event.request, results, kind), event.timeout_ms)
    if waiting := [tp for tp, result in results.items() if result is None]:
        _want(broker, waiting, kind)


_MESSAGES = {Error.UNKNOWN_TOPIC_OR_PARTITION: "the partition does not exist"}


def _refusal(controller: Active, tp: TopicPartition, kind: ElectionType) -> Error:
    """Why there is nothing to elect; NONE where there is."""
    configuration = controller.topics.get(tp.topic)
    if configuration is None or tp.partition not in configuration.assignment:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    state = controller.states.get(tp)
    leader = NO_LEADER if state is None else state.leader
    match kind:
        case ElectionType.PREFERRED:
            needed = leader != controller.replicas(tp)[0]
        case ElectionType.UNCLEAN:
            needed = leader not in controller.brokers
    return Error.NONE if needed else Error.ELECTION_NOT_NEEDED


def _want(broker: Broker, partitions: Iterable[TopicPartition], kind: ElectionType) -> None:
    controller = broker.active_controller
    assert controller is not None
    wanted = {**controller.elections.wanted, **dict.fromkeys(partitions, kind)}
    broker.controller = replace(controller, elections=replace(controller.elections, wanted=wanted))
    reconsider(broker, partitions)


def on_preferred_replica_election_found(
    broker: Broker, event: PreferredReplicaElectionFound, now_ms: int
) -> None:
    """The znode is deleted when all that it names is done, or cannot be."""
    controller = broker.active_controller
    if controller is None:
        return
    named = dict.fromkeys(event.partitions)
    kind = ElectionType.PREFERRED
    needed = [tp for tp in named if _refusal(controller, tp, kind) is Error.NONE]
    broker.note(f"electing preferred leaders of {', '.join(map(str, needed)) or 'nothing'}")
    waiting = frozenset(needed) | (controller.elections.of_znode or frozenset())
    broker.controller = replace(
        controller, elections=replace(controller.elections, of_znode=waiting)
    )
    if needed:
        _want(broker, needed, kind)
    delete_znode_where_done(broker)


def on_auto_preferred_replica_leader_election(
    broker: Broker, timer: AutoPreferredReplicaLeaderElection, now_ms: int
) -> None:
    """Leaders that moved away go back, for brokers of which more than so many percent have.

    Such a broker must live and be in sync.
    """
    controller = broker.active_controller
    if controller is None:
        return
    uneven = imbalanced(controller, broker.settings.leader_imbalance_per_broker_percentage)
    if uneven:
        names = ", ".join(map(str, uneven))
        broker.note(f"leaders are uneven: electing preferred leaders of {names}")
        _want(broker, uneven, ElectionType.PREFERRED)
    seconds = max(1, broker.settings.leader_imbalance_check_interval_seconds)
    broker.set_timer(timer, seconds * 1_000)


def imbalanced(controller: Active, percentage: int) -> tuple[TopicPartition, ...]:
    """Partitions to be led by their preferred leaders again, in order."""
    preferred: dict[int, list[TopicPartition]] = {}
    for tp in controller.all_partitions():
        preferred.setdefault(controller.replicas(tp)[0], []).append(tp)
    found: list[TopicPartition] = []
    for leader, partitions in preferred.items():
        states = {tp: controller.states[tp] for tp in partitions if tp in controller.states}
        elsewhere = [tp for tp, state in states.items() if state.leader != leader]
        if len(elsewhere) * 100 > percentage * len(partitions) and leader in controller.brokers:
            found += [tp for tp in elsewhere if leader in states[tp].isr]
    return tuple(sorted(found))
