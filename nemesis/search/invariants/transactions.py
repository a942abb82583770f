"""Invariants of transactions: of their logs, of what a coordinator decides, and of their markers.

What is open in a log is worked out here from its batches, by no rule of the core. Which transaction
a record is of, its client knows. Sentences are in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import Batch, EndTransactionMarker, TopicPartition
from neaptide.clusters.broker.replication.transaction.transaction_coordinator import (
    Asked,
    DelayedTransition,
    Initialized,
)
from neaptide.clusters.broker.replication.transaction.transaction_metadata import (
    COMPLETE,
    PREPARED,
    TRANSACTIONS_TOPIC,
    TransactionMetadata,
    TransactionState,
)
from neaptide.clusters.simulation.disk import values_of
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.invariants.seen import Step
from neaptide.nemesis.search.looking import all_partitions
from neaptide.nemesis.search.transactions import decisions_of

# --- logs ----------------------------------------------------------------------------------------


def open_in(batches: Iterable[Batch]) -> dict[int, int]:
    """The first offsets of the transactions that are open, by producer id."""
    found: dict[int, int] = {}
    for batch in batches:
        if batch.marker is not None:
            found.pop(batch.marker.producer_id, None)
        elif batch.producer is not None and batch.producer.is_transactional:
            found.setdefault(batch.producer.producer_id, batch.base_offset)
    return found


def transactions_of_the_log(step: Step) -> str | None:
    """Not asked where retention deletes: a transaction may have begun in what is gone."""
    partition, world = step.partition, step.world
    log = world.nodes[step.broker_id].disk.logs.get(world.partition)
    if partition is None or log is None or not _asks(step) or world.spec.retention_check_ms:
        return None
    known, held = dict(partition.log.transactions.ongoing), open_in(log.batches)
    if known == held:
        return None
    return f"broker {step.broker_id} knows of open transactions {known}, its log has {held}"


def reads_below_stable(step: Step) -> str | None:
    """A marker that is not below the high watermark may go again."""
    event, partition = step.event, step.partition
    if partition is None or not isinstance(event, events.FetchRequested) or not event.is_committed:
        return None
    log = step.world.nodes[step.broker_id].disk.logs[partition.topic_partition]
    below = [batch for batch in log.batches if batch.base_offset < partition.high_watermark]
    stable = min(open_in(below).values(), default=partition.high_watermark)
    for effect in step.effects:
        for result in effect.results if isinstance(effect, effects.RespondFetch) else ():
            end = result.records.end if result.records else 0
            if result.partition == partition.topic_partition and end > stable:
                return f"a consumer of committed records is sent up to {end}, {stable} is open"
    return None


def _asks(step: Step) -> bool:
    return step.world.spec.transactions is not None


def _leads(step: Step) -> bool:
    """By the service's word: what one appends who does not know of another is cut off."""
    written = step.world.service.states.get(step.world.partition)
    return written is not None and written.leader == step.broker_id


def _appended(step: Step, partition: TopicPartition) -> Iterator[Batch]:
    """By a leader: it assigns their offsets."""
    for effect in step.effects:
        if isinstance(effect, effects.AppendToLog) and effect.assign:
            yield from effect.batches if effect.partition == partition else ()


# --- what is written in a transaction -------------------------------------------------------------


def _number_of(world: World, value: object) -> int | None:
    """Which transaction a record is of; None: nobody is left who knows, or it is of none."""
    known = world.clients.sends.get(str(value))
    if known is not None:
        return known[0].transaction
    sent = chain.from_iterable(one.sent for one in world.clients.transactional.values())
    return next((one.transaction for one in sent if one.value == value), None)


def written_before_its_end(step: Step) -> str | None:
    """Nothing is appended of a transaction whose end was answered, nor by who has a successor."""
    if step.partition is None or not _asks(step) or not _leads(step):
        return None
    clients = step.world.clients
    for batch in _appended(step, step.partition.topic_partition):
        producer = batch.producer
        if producer is None or not producer.is_transactional:
            continue
        for value in values_of(batch):
            _, outcome = clients.sends.get(str(value), (None, None))
            if outcome is not None and outcome.kind != "info":
                return f"{value} is appended, and its transaction has ended"
        newest = (
            one.producer_epoch
            for one in clients.transactional.values()
            if one.producer_id == producer.producer_id
        )
        if max(newest, default=-1) > producer.producer_epoch:
            return f"{batch.identity} is appended, and its producer has a successor"
    return None


def new_epoch_each(step: Step) -> str | None:
    """Who was answered before lives perhaps, and would write as this one."""
    for effect in step.effects:
        if not isinstance(effect, effects.RespondInitProducerId) or effect.error is not Error.NONE:
            continue
        for one in step.world.clients.transactional.values():
            is_other = one.asked is None or one.asked.request != effect.request
            is_like = one.producer_id == effect.producer_id
            if is_other and is_like and one.producer_epoch >= effect.producer_epoch:
                return f"a producer is answered epoch {effect.producer_epoch}, as {one.name} was"
    return None


def one_decision(step: Step) -> str | None:
    """A marker ends one transaction, and in the same way on all of its partitions."""
    if step.partition is None or not _asks(step) or not _leads(step):
        return None
    here = step.partition.topic_partition
    for batch in _appended(step, here):
        if batch.marker is None:
            continue
        log = step.world.nodes[step.broker_id].disk.logs[here]
        ended = {_number_of(step.world, value) for value in _ended_by(log.batches, batch)}
        if len(ended - {None}) > 1:
            return (
                f"the marker at {batch.base_offset} ends the transactions {sorted(map(str, ended))}"
            )
        for number, is_commit in _decided(step.world):
            if number in ended - {None} and is_commit is not batch.marker.is_commit:
                return f"transaction {number} is committed here, and aborted there"
    return None


def _ended_by(batches: Iterable[Batch], marker: Batch) -> Iterator[object]:
    """The records that this marker is the first behind."""
    assert marker.marker is not None
    producer_id, found = marker.marker.producer_id, list[object]()
    for batch in batches:
        if batch.base_offset >= marker.base_offset:
            break
        if batch.marker is not None and batch.marker.producer_id == producer_id:
            found.clear()
        elif batch.producer is not None and batch.producer.producer_id == producer_id:
            found.extend(values_of(batch))
    yield from found


def _decided(world: World) -> Iterator[tuple[int | None, bool]]:
    """(transaction, whether it is committed), as far as any log says so."""
    for node in world.nodes.values():
        for partition in all_partitions(world):
            log = node.disk.logs.get(partition)
            for value, is_commit in decisions_of(log.batches if log else ()).items():
                if is_commit is not None:
                    yield _number_of(world, value), is_commit


# --- what a coordinator says ----------------------------------------------------------------------


def _states(
    world: World, broker_id: int, partition: TopicPartition
) -> list[tuple[Batch, TransactionMetadata]]:
    """What a coordinator's log has of transactional ids, in its order."""
    log = world.nodes[broker_id].disk.logs.get(partition)
    return [
        (batch, value)
        for batch in (log.batches if log else ())
        for value in values_of(batch)
        if isinstance(value, TransactionMetadata)
    ]


def answered_is_committed(step: Step) -> str | None:
    """What a producer is answered for a record of `__transaction_state` that had to wait."""
    parked = step.memory.parked.get(step.broker_id, {}).values()
    required: dict[int | None, tuple[TopicPartition, int]] = {
        one.waiting.request: (one.partition, one.appended.required_offset)
        for one in parked
        if isinstance(one, DelayedTransition) and isinstance(one.waiting, Asked | Initialized)
    }
    request = getattr(step.event, "request", None)
    for effect in step.effects:
        if isinstance(effect, effects.AppendToLog) and effect.partition.topic == TRANSACTIONS_TOPIC:
            required[request] = (effect.partition, effect.batches[-1].next_offset)
    for effect in step.effects:
        if not isinstance(effect, effects.RespondTransaction | effects.RespondInitProducerId):
            continue
        place, end = required.get(effect.request, (None, 0))
        led = None if place is None else step.broker.led(place)
        errors = {effect.error, *(error for _, error in getattr(effect, "partitions", ()))}
        if led is not None and errors == {Error.NONE} and end > led.high_watermark:
            return f"a state up to {end} is answered, with HW {led.high_watermark}"
    return None


def markers_are_decided(step: Step) -> str | None:
    """Of what an earlier coordinator has written, all that is in the log is decided."""
    for effect in step.effects:
        if not isinstance(effect, effects.SendWriteTxnMarkers):
            continue
        for marker, _ in effect.markers:
            wrong = _undecided(step, marker)
            if wrong is not None:
                return f"{marker} is sent, and {wrong}"
    return None


def _undecided(step: Step, marker: EndTransactionMarker) -> str | None:
    for place, epoch in step.broker.coordinator_epochs.items():
        of_producer = [
            (batch, state)
            for batch, state in _states(step.world, step.broker_id, place)
            if state.producer_id == marker.producer_id and state.state not in COMPLETE
        ]
        led = step.broker.led(place)
        if not of_producer or led is None:
            continue
        batch, state = of_producer[-1]
        is_commit = state.state is TransactionState.PREPARE_COMMIT
        if state.state not in PREPARED or is_commit is not marker.is_commit:
            return f"its log says {state.state.label}"
        if state.producer_epoch != marker.producer_epoch:
            return f"its log has epoch {state.producer_epoch}"
        if batch.leader_epoch == epoch and batch.next_offset > led.high_watermark:
            return f"that is at {batch.base_offset}, with HW {led.high_watermark}"
        return None
    return "no log of this coordinator has its producer"


def complete_after_markers(step: Step) -> str | None:
    """Who leads a partition of a transaction that is over has its marker."""
    for effect in step.effects:
        if not isinstance(effect, effects.AppendToLog) or not effect.assign:
            continue
        if effect.partition.topic != TRANSACTIONS_TOPIC:
            continue
        for batch in effect.batches:
            for state in values_of(batch):
                if isinstance(state, TransactionMetadata) and state.state in COMPLETE:
                    missing = _unmarked(step, state)
                    if missing is not None:
                        return f"{state.transactional_id} is {state.state.label}, and {missing}"
    return None


def _unmarked(step: Step, state: TransactionMetadata) -> str | None:
    world = step.world
    for partition in all_partitions(world):
        written = world.service.states.get(partition)
        node = None if written is None else world.nodes.get(written.leader)
        log = None if node is None else node.disk.logs.get(partition)
        if log is not None and state.producer_id in open_in(log.batches):
            return f"it is open in {partition} on its leader {written.leader if written else None}"
    return None


def answered_marker_is_committed(step: Step) -> str | None:
    """Else the transaction is over, and the next leader does not know it."""
    partition, world = step.partition, step.world
    for effect in step.effects:
        if not isinstance(effect, effects.RespondWriteTxnMarkers) or partition is None:
            continue
        log = world.nodes[step.broker_id].disk.logs[world.partition]
        for result in effect.results:
            if result.partition != world.partition or result.error is not Error.NONE:
                continue
            markers = (batch for batch in log.batches if batch.marker is not None)
            of_producer = (
                batch.next_offset
                for batch in markers
                if batch.marker and batch.marker.producer_id == result.producer_id
            )
            first = min(of_producer, default=0)
            if first > partition.high_watermark:
                return f"no marker of {result.producer_id} is below HW {partition.high_watermark}"
    return None


def coordinator_of_its_epoch(step: Step) -> str | None:
    """Another may have been elected, and have decided otherwise."""
    for place, epoch in step.broker.coordinator_epochs.items():
        led = step.broker.led(place)
        if led is None or led.leader_epoch != epoch:
            return f"broker {step.broker_id} coordinates {place} in epoch {epoch}, and leads it not"
    return None
