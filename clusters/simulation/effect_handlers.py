"""A broker's node takes an event: what its core asks for is done, effect by effect, in their order.

Each effect of the core has a row in `HANDLERS`, or stands in `NOT_ASKED` with the reason: one that
is in neither is an error, never passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, get_args

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.rule import rule
from neaptide.clusters.broker.replication.step import begin, shut_down, step
from neaptide.clusters.simulation import broker_calls, controlling, fetching
from neaptide.clusters.simulation.broker_node import BrokerNode
from neaptide.clusters.simulation.clients import FetchAnswered
from neaptide.clusters.simulation.network import CLIENT, CLIENTS, CONTROL, COORDINATION, SERVICE
from neaptide.clusters.simulation.parts import TimerDue


class Handled(NamedTuple):
    """`answers`: to controllers' requests, in their order. `has_halted`: the process is to end.
    `may_stop`: it may end cleanly, as it was asked to."""

    effects: tuple[Effect, ...]
    answers: tuple[Error, ...]
    has_halted: bool
    may_stop: bool = False


class NotSimulatedError(AssertionError):
    """The core asks for what nobody in a simulation can do."""


def handle(node: BrokerNode, event: object) -> Handled:
    """One event for the core of a broker that runs."""
    return _carry_out(node, step(node.own_core(), event, node.now_ms()))


def start(node: BrokerNode) -> None:
    """A process begins with what is on the disk."""
    _carry_out(node, begin(node.start()))


def stop(node: BrokerNode) -> None:
    """A clean shutdown, up to where the process ends: checkpoints are written, logs flushed."""
    _carry_out(node, shut_down(node.core.copy()))
    node.own_disk().sync()


def _carry_out(node: BrokerNode, done: tuple[Effect, ...]) -> Handled:
    answers: tuple[Error, ...] = ()
    may_stop = False
    for effect in done:
        if isinstance(effect, effects.Halt):
            return Handled(done, answers, has_halted=True)
        if isinstance(effect, effects.Shutdown):
            may_stop = True
        elif isinstance(effect, effects.RespondControl):
            answers = (*answers, effect.error)
        else:
            handler = HANDLERS.get(type(effect))
            if handler is None:
                raise NotSimulatedError(f"{NOT_ASKED.get(type(effect), 'no handler')}: {effect}")
            handler(node, effect)
    return Handled(done, answers, has_halted=False, may_stop=may_stop)


# --- the disk -----------------------------------------------------------------------------------


def _write(node: BrokerNode, effect: Any) -> None:
    end_offset = node.own_disk().write(effect)
    if end_offset is not None:
        handle(node, events.LogTruncated(effect.partition, end_offset))


def _read_producers(node: BrokerNode, effect: effects.ReadProducers) -> None:
    log = node.disk.logs[effect.partition]
    transactions = log.transactions(effect.high_watermark)
    handle(node, events.ProducersRead(effect.partition, log.producers, transactions))


@rule
def read_committed_offsets(node: BrokerNode, effect: effects.ReadCommittedOffsets) -> None:
    found = node.disk.logs[effect.partition].committed_offsets
    handle(node, events.CommittedOffsetsRead(effect.partition, found))


def _read_transactions(node: BrokerNode, effect: effects.ReadTransactions) -> None:
    found = node.disk.logs[effect.partition].transactional_ids
    handle(node, events.TransactionsRead(effect.partition, found))


# --- what goes to others -------------------------------------------------------------------------


def _respond(node: BrokerNode, effect: Any) -> None:
    """To a follower, or to a client."""
    answer = fetching.respond if effect.request in node.network.asked else _respond_to_client
    answer(node, effect)


def _respond_to_client(node: BrokerNode, effect: Any) -> None:
    answer: object = effect
    if isinstance(effect, effects.RespondFetch):
        found, *_ = fetching.read(node, effect.results)  # nobody waits where there are several
        is_transactional = node.network.spec.transactions is not None and found.batches
        aborted = node.disk.logs[found.partition].aborted if is_transactional else ()
        answer = FetchAnswered(effect.request, found, aborted)
    node.network.send(node.broker_id, CLIENT, CLIENTS, answer)


def _respond_of_transaction(node: BrokerNode, effect: Any) -> None:
    """To a leader that verifies, or to a client."""
    is_asked = broker_calls.is_asked(node.network, effect.request)
    (_answer_broker if is_asked else _respond_to_client)(node, effect)


def _close_fetcher(node: BrokerNode, effect: effects.CloseFetcher) -> None:
    fetching.close_fetcher(node.network, node.broker_id, effect)


def _coordinate(node: BrokerNode, effect: effects.Coordinate) -> None:
    node.network.send(node.broker_id, SERVICE, COORDINATION, effect.request)


def _send_control(node: BrokerNode, effect: effects.SendControl) -> None:
    node.network.send(node.broker_id, effect.broker, CONTROL, effect.message)


def _stop_sending(node: BrokerNode, effect: effects.StopSendingControl) -> None:
    controlling.stop_sending(node.network, node.broker_id, effect.brokers)


def _ask_broker(node: BrokerNode, effect: Any) -> None:
    broker_calls.ask(node.network, node.broker_id, effect)


def _answer_broker(node: BrokerNode, effect: Any) -> None:
    broker_calls.respond(node.network, node.broker_id, effect)


# --- what it puts off ----------------------------------------------------------------------------


def _set_timer(node: BrokerNode, effect: effects.SetTimer) -> None:
    clock = node.network.spec.clocks.get(node.broker_id)
    delay_us = effect.delay_ms * 1_000 if clock is None else clock.duration_us(effect.delay_ms)
    due = TimerDue(node.broker_id, effect.timer)
    node.timers[effect.timer] = node.network.later(delay_us, due)


def _cancel_timer(node: BrokerNode, effect: effects.CancelTimer) -> None:
    node.timers.pop(effect.timer, None)


def _pass_over(node: BrokerNode, effect: Effect) -> None:
    """A line for a log, or an answer to an operator, who looks at the cluster and not at it."""


HANDLERS: Final[Mapping[type, Callable[[BrokerNode, Any], None]]] = {
    **dict.fromkeys(get_args(effects.LogWrite), _write),
    effects.ReadProducers: _read_producers,
    effects.ReadCommittedOffsets: read_committed_offsets,
    effects.ReadTransactions: _read_transactions,
    effects.SetTimer: _set_timer,
    effects.CancelTimer: _cancel_timer,
    effects.Coordinate: _coordinate,
    effects.SendControl: _send_control,
    effects.StopSendingControl: _stop_sending,
    effects.SendAlterPartition: _ask_broker,
    effects.RespondAlterPartition: _answer_broker,
    effects.SendControlledShutdown: _ask_broker,
    effects.RespondControlledShutdown: _answer_broker,
    effects.SendWriteTxnMarkers: _ask_broker,
    effects.RespondWriteTxnMarkers: _answer_broker,
    effects.SendAddPartitionsToTxn: _ask_broker,
    effects.RespondTransaction: _respond_of_transaction,
    effects.RespondInitProducerId: _respond_to_client,
    effects.SendFetch: fetching.ask,
    effects.SendOffsetForLeaderEpoch: fetching.ask,
    effects.SendListOffsets: fetching.ask,
    effects.CloseFetcher: _close_fetcher,
    effects.RespondFetch: _respond,
    effects.RespondOffsetForLeaderEpoch: _respond,
    effects.RespondListOffsets: _respond,
    effects.RespondProduce: _respond_to_client,
    effects.RespondOffsetCommit: _respond_to_client,
    effects.RespondOffsetFetch: _respond_to_client,
    effects.Note: _pass_over,
    effects.RespondCreateTopics: _pass_over,
    effects.RespondDeleteTopics: _pass_over,
    effects.RespondElectLeaders: _pass_over,
    effects.RespondAlterPartitionReassignments: _pass_over,
    effects.RespondListPartitionReassignments: _pass_over,
}
NOT_ASKED: Final[Mapping[type, str]] = {
    effects.RespondTxnOffsetCommit: "transactions of a simulation commit no offsets",
    **dict.fromkeys(
        (
            effects.RespondDescribeTransactions,
            effects.RespondListTransactions,
            effects.RespondDescribeProducers,
        ),
        "nobody in a simulation describes transactions",
    ),
    effects.RespondFindCoordinator: "clients of a simulation work out where a coordinator is",
    effects.RespondDeleteRecords: "nobody in a simulation deletes records by request",
    effects.RespondCreatePartitions: "nobody in a simulation asks for more partitions",
    **dict.fromkeys(
        (
            effects.RespondJoinGroup,
            effects.RespondSyncGroup,
            effects.RespondHeartbeat,
            effects.RespondLeaveGroup,
            effects.RespondConsumerGroupHeartbeat,
            effects.RespondConsumerGroupDescribe,
            effects.RespondDescribeGroups,
            effects.RespondListGroups,
            effects.RespondDeleteGroups,
            effects.RespondOffsetDelete,
        ),
        "groups of a simulation have no members",
    ),
}
