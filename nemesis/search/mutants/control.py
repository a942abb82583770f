"""Mutants of control: which controllers and states are obeyed, who is elected, who may write.

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller import (
    leader_election,
    partition_state_machine,
)
from neaptide.clusters.broker.replication.controller.controller_context import Active
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface.coordination_service import (
    LeaderAndIsrConflict,
    LeaderAndIsrWritten,
)
from neaptide.clusters.broker.replication.interface.events import PartitionState
from neaptide.clusters.broker.replication.leader import purgatory
from neaptide.clusters.broker.replication.model import LeaderAndIsr, TopicPartition
from neaptide.clusters.broker.replication.replicas import replica_manager
from neaptide.clusters.simulation.service import Service
from neaptide.nemesis.search.mutants.mutant import POWER, rule

# The core's own rules, whatever stands in their places while a mutant is searched.
_next_state = leader_election.next_state.own
_decide = partition_state_machine.decide_state.own
_write = Service.write.own
_send_written = partition_state_machine.send_written.own
_settle = partition_state_machine.settle.own
Live = Collection[int]
Written = LeaderAndIsrWritten | LeaderAndIsrConflict


def never_stale(broker: Broker, controller_epoch: int) -> bool:
    return False


def believes_any_controller(broker: Broker, controller_epoch: int) -> bool:
    broker.controller_epoch = controller_epoch
    return False


def becomes_where(is_stale: Callable[[int, int], bool]) -> Callable[..., Error]:
    """A state is refused where this says so of its leader epoch and the known one."""

    def become(broker: Broker, sent: PartitionState, now_ms: int) -> Error:
        if broker.broker_id not in sent.replicas:
            return Error.UNKNOWN_TOPIC_OR_PARTITION
        held = replica_manager.get_or_create(broker, sent)
        if is_stale(sent.state.leader_epoch, held.leader_epoch):
            return Error.STALE_CONTROLLER_EPOCH
        leads = sent.state.leader == broker.broker_id
        take = replica_manager.become_leader if leads else replica_manager.become_follower
        take(broker, held, sent, now_ms)
        purgatory.complete_delayed(broker, sent.partition, now_ms)
        return Error.NONE

    return become


def forgets_who_fell(
    broker: Broker, controller: Active, tp: TopicPartition, state: LeaderAndIsr | None
) -> LeaderAndIsr | None:
    return _decide(broker, replace(controller, fallen={}), tp, state)


def elects_unclean(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    return _next_state(state, assigned, live, epoch, unclean=True)


def elects_the_first(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    first = next((replica for replica in assigned if replica in live), None)
    if decided is None or first is None or decided.leader == state.leader:
        return decided
    isr = tuple(r for r in assigned if r == first or r in decided.isr)
    return replace(decided, leader=first, isr=isr)


def elects_in_the_old_epoch(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    return decided and replace(decided, leader_epoch=state.leader_epoch)


def takes_all_living_as_in_sync(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    return decided and replace(decided, isr=tuple(r for r in assigned if r in live))


def keeps_the_dead_in_sync(
    state: LeaderAndIsr, assigned: tuple[int, ...], live: Live, epoch: int, *, unclean: bool
) -> LeaderAndIsr | None:
    decided = _next_state(state, assigned, live, epoch, unclean=unclean)
    if decided is None or decided.leader == state.leader:
        return None
    return replace(decided, isr=state.isr)


def writes_for_any_controller(service: Service, request: Any) -> Written:
    return _write(service, replace(request, is_fenced=False))


def writes_any_version(service: Service, request: Any) -> Written:
    known = service.states.get(request.partition)
    if request.by_controller or known is None:
        return _write(service, request)
    return _write(service, replace(request, state=replace(request.state, version=known.version)))


def names_the_fallen(broker: Broker) -> None:
    controller = broker.active_controller
    assert controller is not None
    broker.controller = replace(controller, fallen={})
    _send_written(broker)
    sending = broker.active_controller
    assert sending is not None
    broker.controller = replace(sending, fallen=controller.fallen)


def counts_later_falls(
    broker: Broker,
    settled: list[tuple[TopicPartition, LeaderAndIsr | None]],
    *,
    changed: bool,
) -> None:
    _settle(broker, settled, changed=changed)
    controller, names = broker.active_controller, {tp for tp, _ in settled}
    if controller is not None:
        left = {tp: dead for tp, dead in controller.fallen.items() if tp not in names}
        broker.controller = replace(controller, fallen=left)


MUTANTS: Final = (
    rule(
        "fallen-leader-named",
        partition_state_machine.send_written,
        names_the_fallen,
        "Brokers are sent a state whose leader has fallen after it was decided.",
        swarm=True,
    ),
    rule(
        "later-fall-counted-already",
        partition_state_machine.settle,
        counts_later_falls,
        "Who fell after a state was decided is taken to be counted in it.",
        shown="an elected leader that dies and is back before its election is written",
    ),
    rule(
        "stale-controller-obeyed",
        replica_manager.is_stale,
        believes_any_controller,
        "A controller of an earlier epoch is obeyed, and its epoch believed.",
    ),
    rule(
        "stale-controller-followed",
        replica_manager.is_stale,
        never_stale,
        "A controller of an earlier epoch is obeyed.",
        hidden="the leader epochs that it sends are old too, or what it wrote while it was one:"
        " those are refused, or right",
    ),
    rule(
        "older-leader-epoch-obeyed",
        replica_manager.become,
        becomes_where(lambda epoch, known: False),
        "A state of an earlier leader epoch is obeyed.",
    ),
    rule(
        "equal-leader-epoch-obeyed",
        replica_manager.become,
        becomes_where(lambda epoch, known: epoch < known),
        "A state of the same leader epoch is obeyed again.",
        shown="a new controller whose word comes late",
    ),
    rule(
        "controller-writes-unfenced",
        Service.write,
        writes_for_any_controller,
        "A controller writes whatever epoch it is of.",
        shown="a controller that is deposed over a write, message by message",
    ),
    rule(
        "isr-writes-without-version",
        Service.write,
        writes_any_version,
        "A leader writes its ISR over whatever was written meanwhile.",
        shown="an ISR change that comes after the controller's",
    ),
    rule(
        "dead-and-back-is-in-sync",
        partition_state_machine.decide_state,
        forgets_who_fell,
        "A replica that died and is back before that is decided does not leave the ISR.",
        faults=POWER,
    ),
    rule(
        "elects-unclean",
        leader_election.next_state,
        elects_unclean,
        "With nobody of the ISR alive, another replica leads.",
    ),
    rule(
        "elects-the-first",
        leader_election.next_state,
        elects_the_first,
        "The first replica that lives leads, be it in the ISR or not.",
    ),
    rule(
        "elects-in-the-old-epoch",
        leader_election.next_state,
        elects_in_the_old_epoch,
        "A new leader leads in the epoch of the old one.",
    ),
    rule(
        "takes-all-living-as-in-sync",
        leader_election.next_state,
        takes_all_living_as_in_sync,
        "After an election, all that live are in the ISR.",
    ),
    rule(
        "keeps-the-dead-in-sync",
        leader_election.next_state,
        keeps_the_dead_in_sync,
        "The controller leaves the dead in the ISR.",
        hidden="only availability suffers: the high watermark waits for the dead until the leader"
        " takes them out",
    ),
)
