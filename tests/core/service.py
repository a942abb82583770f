"""The coordination service of the plays: a few dictionaries with versions, sessions and watches.

It is no ZooKeeper: it answers at once and in order. Rule (replication/coordination.py): every
condition is checked, every request is answered, every broker hears of `/controller`, and only the
controller hears of brokers, topics and ISR changes.
"""

from __future__ import annotations

from dataclasses import replace

from clusters.broker.replication import coordination as zk
from clusters.broker.replication.model import (
    BrokerRegistration,
    LeaderAndIsr,
    TopicConfiguration,
    TopicPartition,
)

Told = list[tuple[int, object]]


class Service:
    def __init__(self) -> None:
        self.sessions: dict[int, BrokerRegistration] = {}
        self.controller: int | None = None
        self.controller_epoch = 0
        self.topics: dict[str, TopicConfiguration] = {}
        self.states: dict[TopicPartition, LeaderAndIsr] = {}
        self.notifications: dict[str, tuple[TopicPartition, ...]] = {}
        self._zxid = 0  # of the last registration or state that was written
        self._sequence = 0

    def register(self, broker: int, *, unclean: bool = False) -> Told:
        self._zxid += 1
        self.sessions[broker] = BrokerRegistration(
            broker, (), epoch=self._zxid, unclean_shutdown=unclean
        )
        return [(broker, zk.SessionStarted(self._zxid)), *self._brokers_changed()]

    def expire(self, broker: int) -> Told:
        """The session ends: its ephemeral nodes are gone. The broker itself is not told here."""
        self.sessions.pop(broker, None)
        return [*self._free_controller(broker), *self._brokers_changed()]

    def execute(self, broker: int, request: object) -> Told:
        if broker not in self.sessions:
            return []
        match request:
            case zk.TryBecomeController():
                return self._elect(broker)
            case zk.ResignController():
                return self._free_controller(broker)
            case zk.LoadCluster(epoch) if epoch == self.controller_epoch:
                loaded = zk.ClusterLoaded(
                    epoch, dict(self.sessions), dict(self.topics), dict(self.states)
                )
                return [(broker, loaded)]
            case zk.ReadLeaderAndIsr(partitions):
                states = {tp: self.states[tp] for tp in partitions if tp in self.states}
                return [(broker, zk.LeaderAndIsrRead(partitions, states))]
            case zk.WriteLeaderAndIsr():
                return [(broker, self._write(request))]
            case zk.NotifyIsrChange(partitions):
                self._sequence += 1
                name = f"isr_change_{self._sequence:010}"
                self.notifications[name] = partitions
                return self._to_controller(zk.IsrChangeNotified((name,), partitions))
            case zk.DeleteIsrChangeNotifications(names):
                for name in names:
                    self.notifications.pop(name, None)
            case zk.CreateTopic(number, topic, configuration):
                return self._create(broker, number, topic, configuration)
        return []

    def _elect(self, broker: int) -> Told:
        if self.controller is not None:
            return [(broker, zk.ControllerChanged(self.controller))]
        self.controller = broker
        self.controller_epoch += 1
        others: Told = [
            (other, zk.ControllerChanged(broker)) for other in self.sessions if other != broker
        ]
        return [(broker, zk.ControllerElected(self.controller_epoch)), *others]

    def _free_controller(self, broker: int) -> Told:
        if self.controller != broker:
            return []
        self.controller = None
        return [(other, zk.ControllerChanged(None)) for other in self.sessions]

    def _write(
        self, request: zk.WriteLeaderAndIsr
    ) -> zk.LeaderAndIsrWritten | zk.LeaderAndIsrConflict:
        tp, state = request.partition, request.state
        known = self.states[tp].version if tp in self.states else -1
        fenced = request.by_controller and state.controller_epoch != self.controller_epoch
        if fenced or state.version != known:
            return zk.LeaderAndIsrConflict(tp, state, request.by_controller)
        self._zxid += 1
        self.states[tp] = replace(state, version=known + 1, written_at=self._zxid)
        return zk.LeaderAndIsrWritten(tp, self.states[tp], request.by_controller)

    def _create(
        self, broker: int, number: int, topic: str, configuration: TopicConfiguration
    ) -> Told:
        if topic in self.topics:
            return [(broker, zk.TopicCreated(number, topic, "TOPIC_ALREADY_EXISTS"))]
        self.topics[topic] = configuration
        changed = self._to_controller(zk.TopicsChanged(dict(self.topics)))
        return [(broker, zk.TopicCreated(number, topic, None)), *changed]

    def _brokers_changed(self) -> Told:
        return self._to_controller(zk.BrokersChanged(dict(self.sessions)))

    def _to_controller(self, event: object) -> Told:
        return [] if self.controller is None else [(self.controller, event)]
