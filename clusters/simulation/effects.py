"""What the core of a broker asks for is done to the world, effect by effect, in their order.

A new effect of the core needs a row in the table, unless it is the disk's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from neaptide.clusters.broker.replication import effects as do
from neaptide.clusters.broker.replication import messages as told
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.simulation import fetching, producing
from neaptide.clusters.simulation.ending import die
from neaptide.clusters.simulation.network import CONTROL, COORDINATION, SERVICE, Entry
from neaptide.clusters.simulation.parts import TimerDue

if TYPE_CHECKING:
    from neaptide.clusters.simulation.world import World


def carry_out(world: World, broker_id: int, effects: tuple[do.Effect, ...]) -> Error | None:
    """Returns the error with which a controller was refused, if so."""
    refusal: Error | None = None
    for effect in effects:
        if isinstance(effect, do.Halt):
            die(world, broker_id)
            return refusal
        handler = _EFFECTS.get(type(effect))
        if handler is not None:
            handler(world, broker_id, effect)
        elif isinstance(effect, do.RespondControl):
            refusal = None if effect.error is Error.NONE else effect.error
        elif not isinstance(effect, do.Note | do.RespondCreateTopics):
            end_offset = world.own_disk(broker_id).carry_out(effect)
            if end_offset is not None and isinstance(effect, do.TruncateLog):
                world.tell(broker_id, told.LogTruncated(effect.partition, end_offset))
    return refusal


def _read_producers(world: World, broker_id: int, effect: do.ReadProducers) -> None:
    found = world.disks[broker_id].logs[effect.partition].producers
    world.tell(broker_id, told.ProducersRead(effect.partition, found))


def _read_positions(world: World, broker_id: int, effect: do.ReadPositions) -> None:
    found = world.disks[broker_id].logs[effect.partition].positions
    world.tell(broker_id, told.PositionsRead(effect.partition, found))


def _respond(world: World, broker_id: int, effect: Any) -> None:
    """To a follower, or to a client."""
    answer = fetching.respond if effect.request in world.asked else producing.respond
    answer(world, broker_id, effect)


def _set_timer(world: World, broker_id: int, effect: do.SetTimer) -> None:
    clock = world.spec.clocks.get(broker_id)
    delay_us = effect.delay_ms * 1_000 if clock is None else clock.duration_us(effect.delay_ms)
    due = TimerDue(broker_id, effect.timer)
    world.timers[due] = world.later(delay_us, due)


def _cancel_timer(world: World, broker_id: int, effect: do.CancelTimer) -> None:
    world.timers.pop(TimerDue(broker_id, effect.timer), None)


def _coordinate(world: World, broker_id: int, effect: do.Coordinate) -> None:
    world.send(broker_id, SERVICE, COORDINATION, effect.request)


def _send_control(world: World, broker_id: int, effect: do.SendControl) -> None:
    world.send(broker_id, effect.broker, CONTROL, effect.message)


def _stop_sending(world: World, broker_id: int, effect: do.StopSendingControl) -> None:
    def is_stopped(entry: Entry) -> bool:
        link = entry.link
        return (
            link is not None
            and link.source == broker_id
            and link.channel == CONTROL
            and not isinstance(entry.body, told.ControlResponded)
            and (effect.brokers is None or link.target in effect.brokers)
        )

    world.remove(is_stopped)


_EFFECTS: Final[Mapping[type, Callable[[World, int, Any], None]]] = {
    do.ReadProducers: _read_producers,
    do.ReadPositions: _read_positions,
    do.SetTimer: _set_timer,
    do.CancelTimer: _cancel_timer,
    do.Coordinate: _coordinate,
    do.SendControl: _send_control,
    do.StopSendingControl: _stop_sending,
    do.SendFetch: fetching.ask,
    do.SendOffsetForLeaderEpoch: fetching.ask,
    do.SendListOffsets: fetching.ask,
    do.CloseFetcher: fetching.close_fetcher,
    do.RespondFetch: _respond,
    do.RespondOffsetForLeaderEpoch: _respond,
    do.RespondListOffsets: _respond,
    do.RespondProduce: producing.respond,
    do.RespondOffsetCommit: producing.respond,
    do.RespondOffsetFetch: producing.respond,
}
