"""The one entrance: an event goes in, the broker changes, effects come out in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from neaptide.clusters.broker.replication import (
    control,
    controlling,
    coordinator,
    following,
    groups,
    isr,
    leading,
    offsets,
    producer_ids,
    retention,
    topics,
    truncation,
)
from neaptide.clusters.broker.replication import coordination as heard
from neaptide.clusters.broker.replication import messages as told
from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.effects import Effect
from neaptide.clusters.broker.replication.errors import IllegalReplicaStateError

Handler = Callable[[Broker, Any, int], None]


def _on_written(broker: Broker, event: heard.LeaderAndIsrWritten, now_ms: int) -> None:
    if event.by_controller:
        controlling.on_state_written(broker, event, now_ms)
    elif isr.on_isr_written(broker, event, now_ms):
        leading.complete_delayed(broker, event.partition, now_ms)


def _on_conflict(broker: Broker, event: heard.LeaderAndIsrConflict, now_ms: int) -> None:
    if event.by_controller:
        controlling.on_state_conflict(broker, event, now_ms)
    else:
        isr.on_isr_conflict(broker, event, now_ms)


def _on_read(broker: Broker, event: heard.LeaderAndIsrRead, now_ms: int) -> None:
    """Asked by the controller, or by a leader that does not know what became of its ISR change."""
    for topic_partition, state in event.states.items():
        if isr.on_state_read(broker, topic_partition, state, now_ms):
            leading.complete_delayed(broker, topic_partition, now_ms)
    controlling.on_leader_and_isr_read(broker, event, now_ms)


def _on_session_started(broker: Broker, event: heard.SessionStarted, now_ms: int) -> None:
    controlling.on_session_started(broker, event, now_ms)
    control.on_session_started(broker, event, now_ms)
    isr.on_session_started(broker)
    producer_ids.on_session_started(broker)


def _on_session_expired(broker: Broker, event: heard.SessionExpired, now_ms: int) -> None:
    controlling.on_session_expired(broker, event, now_ms)
    isr.on_session_expired(broker)
    producer_ids.on_session_expired(broker)


def _on_request_abandoned(broker: Broker, event: told.RequestAbandoned, now_ms: int) -> None:
    leading.on_request_abandoned(broker, event, now_ms)
    topics.forget_creation(broker, event.request)
    producer_ids.forget_request(broker, event.request)


def _on_expired(broker: Broker, timer: told.DelayedOperationExpired, now_ms: int) -> None:
    leading.on_delayed_operation_expired(broker, timer, now_ms)
    topics.on_creation_expired(broker, timer.request)


def _on_timer(broker: Broker, event: told.TimerFired, now_ms: int) -> None:
    handler = _TIMERS.get(type(event.timer))
    if handler is None:
        raise IllegalReplicaStateError(f"no broker ever sets {type(event.timer).__name__}")
    handler(broker, event.timer, now_ms)


_TIMERS: Final[Mapping[type, Handler]] = {
    told.IsrExpiration: isr.on_isr_expiration,
    told.IsrChangePropagation: isr.on_isr_change_propagation,
    told.HighWatermarkCheckpoint: control.on_high_watermark_checkpoint,
    told.DelayedOperationExpired: _on_expired,
    told.FetcherBackoffOver: following.on_backoff_over,
}

_HANDLERS: Final[Mapping[type, Handler]] = {
    told.TimerFired: _on_timer,
    # clients and followers
    told.ProduceRequested: leading.on_produce,
    told.InitProducerIdRequested: producer_ids.on_init_producer_id,
    told.FetchRequested: leading.on_fetch,
    told.FindCoordinatorRequested: groups.on_find_coordinator,
    told.OffsetCommitRequested: groups.on_offset_commit,
    told.OffsetFetchRequested: groups.on_offset_fetch,
    told.OffsetForLeaderEpochRequested: offsets.on_offset_for_leader_epoch,
    told.ListOffsetsRequested: offsets.on_list_offsets,
    told.RequestAbandoned: _on_request_abandoned,
    told.CreateTopicsRequested: topics.on_create_topics,
    told.TopicWanted: topics.on_topic_wanted,
    # the leader that this broker follows
    told.FetchResponded: following.on_fetch_responded,
    told.OffsetForLeaderEpochResponded: following.on_epochs_responded,
    told.ListOffsetsResponded: following.on_offsets_responded,
    told.FetcherRequestFailed: following.on_request_failed,
    told.LogTruncated: truncation.on_log_truncated,
    told.ProducersRead: truncation.on_producers_read,
    told.PositionsRead: coordinator.on_positions_read,
    # retention
    told.LogStartAdvanced: retention.on_log_start_advanced,
    told.ProducerExpiration: retention.on_producer_expiration,
    # the controller
    told.LeaderAndIsrRequested: control.on_leader_and_isr,
    told.StopReplicaRequested: control.on_stop_replica,
    told.UpdateMetadataRequested: control.on_update_metadata,
    told.TopicSettingsChanged: control.on_topic_settings_changed,
    told.ControlResponded: controlling.on_control_responded,
    # the coordination service
    heard.SessionStarted: _on_session_started,
    heard.SessionExpired: _on_session_expired,
    heard.ControllerElected: controlling.on_controller_elected,
    heard.ControllerChanged: controlling.on_controller_changed,
    heard.ClusterLoaded: controlling.on_cluster_loaded,
    heard.BrokersChanged: controlling.on_brokers_changed,
    heard.TopicsChanged: controlling.on_topics_changed,
    heard.LeaderAndIsrRead: _on_read,
    heard.LeaderAndIsrWritten: _on_written,
    heard.LeaderAndIsrConflict: _on_conflict,
    heard.IsrChangeNotified: controlling.on_isr_change_notified,
    heard.TopicCreated: topics.on_topic_created,
    heard.ProducerIdsAllocated: producer_ids.on_producer_ids_allocated,
}


def step(broker: Broker, event: object, now_ms: int) -> tuple[Effect, ...]:
    """Changes the broker by one event; returns what must be done now, in order.

    `now_ms` never goes back. Raises IllegalReplicaStateError where the event cannot be.
    """
    handler = _HANDLERS.get(type(event))
    if handler is None:
        raise IllegalReplicaStateError(f"no broker is ever told {type(event).__name__}")
    try:
        handler(broker, event, now_ms)
        return tuple(broker.effects)
    finally:
        broker.effects.clear()


def begin(broker: Broker) -> tuple[Effect, ...]:
    """The first effects of a broker that has just started: its periodic timers."""
    broker.set_timer(told.IsrExpiration(), isr.isr_check_interval_ms(broker))
    if broker.rules.reports_isr_changes:
        broker.set_timer(told.IsrChangePropagation(), isr.PROPAGATION_INTERVAL_MS)
    effects = tuple(broker.effects)
    broker.effects.clear()
    return effects


def shut_down(broker: Broker) -> tuple[Effect, ...]:
    """The last effects of a broker that stops cleanly: its high watermarks are checkpointed."""
    control.checkpoint_high_watermarks(broker)
    effects = tuple(broker.effects)
    broker.effects.clear()
    return effects
