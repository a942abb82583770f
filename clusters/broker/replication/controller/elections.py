"""What becomes of the elections that were asked for: who waits for which, and the answers.

When they are asked for is in replica_leader_election, how they are decided in leader_election.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.controller.controller_context import (
    Active,
    ElectionRequest,
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
from neaptide.clusters.broker.replication.interface.effects import RespondElectLeaders
from neaptide.clusters.broker.replication.model import NO_LEADER, TopicPartition


def make_elections(broker: Broker, decided: Iterable[TopicPartition]) -> None:
    """These partitions have been decided: who waits for their elections learns what came of it."""
    controller = broker.active_controller
    assert controller is not None
    elections = controller.elections
    made = set(decided) & (elections.wanted.keys() | (elections.of_znode or frozenset()))
    if not made:
        return
    requests = {
        number: _with_results(controller, one, made) for number, one in elections.requests.items()
    }
    of_znode = elections.of_znode - made if elections.of_znode is not None else None
    wanted = {tp: kind for tp, kind in elections.wanted.items() if tp not in made}
    broker.controller = replace(controller, elections=Elections(wanted, requests, of_znode))
    answer_elections(broker)


def _with_results(
    controller: Active, request: ElectionRequest, made: set[TopicPartition]
) -> ElectionRequest:
    results = {
        tp: _result(controller, tp, request.election_type)
        if known is None and tp in made
        else known
        for tp, known in request.results.items()
    }
    return replace(request, results=results)


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


def answer_elections(broker: Broker) -> None:
    """Answers the requests of which every partition has its result; deletes the znode that is done.

    A request for all partitions gets those only of which an election was tried.
    """
    controller = broker.active_controller
    if controller is None:
        return
    elections = controller.elections
    left = {
        number: one for number, one in elections.requests.items() if None in one.results.values()
    }
    for number, request in elections.requests.items():
        if number not in left:
            results = tuple(one for one in request.results.values() if one is not None)
            broker.do(RespondElectLeaders(number, Error.NONE, results))
    of_znode = elections.of_znode
    if of_znode == frozenset():
        broker.coordinate(
            DeletePreferredReplicaElection(
                controller.controller_epoch, broker.rules.fences_controller_writes
            )
        )
        of_znode = None
    broker.controller = replace(
        controller, elections=replace(elections, requests=left, of_znode=of_znode)
    )


def on_elections_expired(broker: Broker, request: int) -> None:
    """timeout.ms is over: what is not known by now has timed out."""
    controller = broker.active_controller
    waiting = None if controller is None else controller.elections.requests.get(request)
    if controller is None or waiting is None:
        return
    results = {
        tp: known or PartitionResult(tp, Error.REQUEST_TIMED_OUT)
        for tp, known in waiting.results.items()
    }
    requests = {**controller.elections.requests, request: replace(waiting, results=results)}
    broker.controller = replace(
        controller, elections=replace(controller.elections, requests=requests)
    )
    answer_elections(broker)


def forget_elections(broker: Broker, request: int) -> None:
    """Nobody waits for this answer any more; the elections are made all the same."""
    controller = broker.active_controller
    if controller is not None and request in controller.elections.requests:
        left = {n: one for n, one in controller.elections.requests.items() if n != request}
        elections = replace(controller.elections, requests=left)
        broker.controller = replace(controller, elections=elections)


def refuse_elections(broker: Broker) -> None:
    """Answers all that wait, before this broker ceases to be the controller."""
    controller = broker.active_controller
    if controller is not None:
        for number, one in controller.elections.requests.items():
            results = (
                known or PartitionResult(tp, Error.NOT_CONTROLLER)
                for tp, known in one.results.items()
            )
            broker.do(RespondElectLeaders(number, Error.NONE, tuple(results)))
