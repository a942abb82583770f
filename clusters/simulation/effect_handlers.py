"""What the core of a broker asks for is done to the world, effect by effect, in their order.

A new effect of the core needs a row in the table, unless it is the disk's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.simulation import altering, controlling, fetching, producing
from neaptide.clusters.simulation.ending import die
from neaptide.clusters.simulation.network import CONTROL, COORDINATION, SERVICE
from neaptide.clusters.simulation.parts import TimerDue

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World


def carry_out(world: World, broker_id: int, done: tuple[Effect, ...]) -> tuple[Error, ...]:
    """Returns what controllers' requests are answered with, in their order."""
    answers: tuple[Error, ...] = ()
    for effect in done:
        if isinstance(effect, effects.Halt):
            die(world, broker_id)
            return answers
        handler = _EFFECTS.get(type(effect))
        if handler is not None:
            handler(world, broker_id, effect)
        elif isinstance(effect, effects.RespondControl):
            answers = (*answers, effect.error)
        elif not isinstance(effect, effects.Note | effects.RespondCreateTopics):
            end_offset = world.own_disk(broker_id).carry_out(effect)
            if end_offset is not None and isinstance(effect, effects.TruncateLog):
                world.handle(broker_id, events.LogTruncated(effect.partition, end_offset))
    return answers


def _read_producers(world: World, broker_id: int, effect: effects.ReadProducers) -> None:
    found = world.disks[broker_id].logs[effect.partition].producers
    world.handle(broker_id, events.ProducersRead(effect.partition, found))


def _read_committed_offsets(
    world: World, broker_id: int, effect: effects.ReadCommittedOffsets
) -> None:
    found = world.disks[broker_id].logs[effect.partition].committed_offsets
    world.handle(broker_id, events.CommittedOffsetsRead(effect.partition, found))


def _respond(world: World, broker_id: int, effect: Any) -> None:
    """To a follower, or to a client."""
    answer = fetching.respond if effect.request in world.asked else producing.respond
    answer(world, broker_id, effect)


def _set_timer(world: World, broker_id: int, effect: effects.SetTimer) -> None:
    clock = world.spec.clocks.get(broker_id)
    delay_us = effect.delay_ms * 1_000 if clock is None else clock.duration_us(effect.delay_ms)
    due = TimerDue(broker_id, effect.timer)
    world.timers[due] = world.later(delay_us, due)


def _cancel_timer(world: World, broker_id: int, effect: effects.CancelTimer) -> None:
    world.timers.pop(TimerDue(broker_id, effect.timer), None)


def _coordinate(world: World, broker_id: int, effect: effects.Coordinate) -> None:
    world.send(broker_id, SERVICE, COORDINATION, effect.request)


def _send_control(world: World, broker_id: int, effect: effects.SendControl) -> None:
    world.send(broker_id, effect.broker, CONTROL, effect.message)


def _stop_sending(world: World, broker_id: int, effect: effects.StopSendingControl) -> None:
    controlling.stop_sending(world, broker_id, effect.brokers)


_EFFECTS: Final[Mapping[type, Callable[[World, int, Any], None]]] = {
    effects.ReadProducers: _read_producers,
    effects.ReadCommittedOffsets: _read_committed_offsets,
    effects.SetTimer: _set_timer,
    effects.CancelTimer: _cancel_timer,
    effects.Coordinate: _coordinate,
    effects.SendControl: _send_control,
    effects.StopSendingControl: _stop_sending,
    effects.SendAlterPartition: altering.ask,
    effects.RespondAlterPartition: altering.respond,
    effects.SendFetch: fetching.ask,
    effects.SendOffsetForLeaderEpoch: fetching.ask,
    effects.SendListOffsets: fetching.ask,
    effects.CloseFetcher: fetching.close_fetcher,
    effects.RespondFetch: _respond,
    effects.RespondOffsetForLeaderEpoch: _respond,
    effects.RespondListOffsets: _respond,
    effects.RespondProduce: producing.respond,
    effects.RespondOffsetCommit: producing.respond,
    effects.RespondOffsetFetch: producing.respond,
}
