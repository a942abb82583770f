"""What a controller makes of an ISR change that a leader asks for (AlterPartition, KIP-497).

Only what is decided, as values: when it is asked for, written and answered is in
partition_state_machine. The checks and their order are those of Kafka's KafkaController
(tryProcessAlterPartition), with the members' broker epochs as in its ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import Active, Alteration
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.generation import Generation
from neaptide.clusters.broker.replication.interface.effects import RespondAlterPartition
from neaptide.clusters.broker.replication.interface.events import (
    AlteredPartition,
    AlterPartitionRequested,
    IsrMember,
)
from neaptide.clusters.broker.replication.model import (
    UNKNOWN_BROKER_EPOCH,
    BrokerRegistration,
    LeaderAndIsr,
)
from neaptide.clusters.broker.replication.partition.eligible_leader_replicas import (
    Eligibility,
    next_elr,
)
from neaptide.clusters.broker.replication.settings import topic_settings


def refusal_of_all(controller: Active, event: AlterPartitionRequested) -> Error:
    """Whether the sender is a broker of today: NONE where it is."""
    registration = controller.brokers.get(event.broker_id)
    if registration is None or registration.epoch != event.broker_epoch:
        return Error.STALE_BROKER_EPOCH
    return Error.NONE


def decide(
    broker: Broker, controller: Active, leader: int, asked: AlteredPartition
) -> LeaderAndIsr | Error:
    """The state to write, the present one where it is that already, or why not."""
    state = controller.states.get(asked.partition)
    if state is None or asked.partition.topic not in controller.topics:
        return Error.UNKNOWN_TOPIC_OR_PARTITION
    topic_id = controller.topics[asked.partition.topic].topic_id
    if None not in (asked.topic_id, topic_id) and asked.topic_id != topic_id:
        return Error.UNKNOWN_TOPIC_ID
    if asked.partition_epoch > state.version or asked.leader_epoch > state.leader_epoch:
        return Error.NOT_CONTROLLER  # the leader knows of a later controller
    if asked.leader_epoch < state.leader_epoch:
        return Error.FENCED_LEADER_EPOCH
    wanted = {member.broker_id for member in asked.isr}
    if leader == state.leader and wanted == set(state.isr):
        return state  # it was written, and the answer was lost
    if asked.partition_epoch < state.version:
        return Error.INVALID_UPDATE_VERSION
    assigned = controller.replicas(asked.partition)
    if leader != state.leader or leader not in wanted or not wanted <= set(assigned):
        return Error.INVALID_REQUEST
    ineligible = ineligible_members(asked.isr, controller.brokers, broker.rules)
    if broker.rules.fences_isr_members:
        ineligible += tuple(sorted((wanted - set(state.isr)) & controller.shutting_down.keys()))
    if ineligible:
        broker.note(f"{asked.partition}: {list(ineligible)} may not be in the ISR")
        return Error.INELIGIBLE_REPLICA
    return _next(broker, controller, asked, state, wanted)


def ineligible_members(
    isr: tuple[IsrMember, ...], registered: Mapping[int, BrokerRegistration], rules: Generation
) -> tuple[int, ...]:
    """Who is not registered (KIP-841), or has registered again since it fetched (KIP-903)."""

    def is_ineligible(member: IsrMember) -> bool:
        registration = registered.get(member.broker_id)
        if registration is None:
            return rules.fences_isr_members
        return (
            rules.isr_names_broker_epochs
            and member.broker_epoch != UNKNOWN_BROKER_EPOCH
            and member.broker_epoch != registration.epoch
        )

    return tuple(member.broker_id for member in isr if is_ineligible(member))


def _next(
    broker: Broker,
    controller: Active,
    asked: AlteredPartition,
    state: LeaderAndIsr,
    wanted: set[int],
) -> LeaderAndIsr:
    """In the same leader epoch; with those who are eligible now (KIP-966)."""
    assigned = controller.replicas(asked.partition)
    isr = tuple(replica for replica in assigned if replica in wanted)
    elr: tuple[int, ...] = ()
    if broker.rules.eligible_leader_replicas:
        settings = controller.topics[asked.partition.topic].settings
        min_isr = topic_settings(settings, broker.settings).min_insync_replicas
        unclean = controller.unclean.get(asked.partition, frozenset())
        members = (*state.isr, *state.elr)
        elr = next_elr(members, isr, assigned, Eligibility(min_isr, unclean))
    return replace(state, isr=isr, elr=elr, controller_epoch=controller.controller_epoch)


# --- answers -------------------------------------------------------------------------------------


def answer_complete(broker: Broker) -> None:
    """Answers the requests of which every partition has its result."""
    controller = broker.active_controller
    if controller is None or not controller.alterations:
        return
    open_requests = {one.request for one in controller.alterations if one.result is None}
    answered: dict[int, list[Alteration]] = {}
    for one in controller.alterations:
        if one.request not in open_requests:
            answered.setdefault(one.request, []).append(one)
    left = tuple(one for one in controller.alterations if one.request in open_requests)
    broker.controller = replace(controller, alterations=left)
    for request, alterations in answered.items():
        results = tuple(one.result for one in alterations if one.result is not None)
        broker.do(RespondAlterPartition(request, Error.NONE, results))


def refuse_alterations(broker: Broker) -> None:
    """Answers all that wait, before this broker ceases to be the controller."""
    controller = broker.active_controller
    if controller is not None:
        for request in dict.fromkeys(one.request for one in controller.alterations):
            broker.do(RespondAlterPartition(request, Error.NOT_CONTROLLER))
