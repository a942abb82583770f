"""The coordination service's node: its znodes, and which brokers' heartbeats reach it.

What it holds is in service; whose session ends, and who is back, is here.
"""

from __future__ import annotations

from typing import Any

from neaptide.clusters.broker.replication.interface import coordination_service
from neaptide.clusters.simulation.network import COORDINATION, SERVICE, Entry, Link
from neaptide.clusters.simulation.network_node import Network
from neaptide.clusters.simulation.parts import Register, SessionTimedOut
from neaptide.clusters.simulation.service import Service


class CoordinationNode:
    __slots__ = ("expired", "network", "service", "silent_since")

    def __init__(self, network: Network) -> None:
        self.network = network
        self.service = Service()
        self.silent_since: dict[int, int] = {}  # brokers that do not reach the service
        self.expired: frozenset[int] = frozenset()  # whose session is over; they do not know

    def copy(self, network: Network) -> CoordinationNode:
        """Of the same node in another network."""
        other = CoordinationNode.__new__(CoordinationNode)
        other.network = network
        other.service = self.service.copy()
        other.silent_since = self.silent_since.copy()
        other.expired = self.expired
        return other

    # --- requests --------------------------------------------------------------------------------

    def serve(self, broker_id: int, request: Any) -> None:
        """The service's side of a session."""
        if isinstance(request, Register):
            news = self.service.register(broker_id, unclean_shutdown=request.unclean_shutdown)
            self.network.notify(news)
        elif broker_id in self.service.sessions and broker_id not in self.expired:
            self.network.notify(self.service.execute(broker_id, request))
            recorder = self.network.recorder
            if recorder is not None and isinstance(request, coordination_service.WriteLeaderAndIsr):
                recorder.state(request.partition, self.service.states[request.partition])

    def is_of_no_session(self, broker_id: int, body: object) -> bool:
        """Whether a message to a broker is of a session that is over. It learns that here."""
        if broker_id not in self.expired:
            return False
        if body != coordination_service.SessionExpired():
            return True
        self.expired -= {broker_id}
        return False

    # --- sessions --------------------------------------------------------------------------------

    def look_at_sessions(self) -> None:
        """After something was cut, healed, paused or resumed: whose heartbeats come through?"""
        network = self.network
        for broker_id in network.listening:
            if self._is_reached_by(broker_id):
                if self.silent_since.pop(broker_id, None) is not None:
                    self.come_back(broker_id)
            elif broker_id not in self.silent_since:
                self.silent_since[broker_id] = network.now_us
                timeout_us = network.spec.session_timeout_ms * 1_000
                network.later(timeout_us, SessionTimedOut(broker_id, network.now_us))

    def _is_reached_by(self, broker_id: int) -> bool:
        there = Link(broker_id, SERVICE, COORDINATION)
        back = Link(SERVICE, broker_id, COORDINATION)
        return broker_id not in self.network.paused and not any(
            cut.covers(there) or cut.covers(back) for cut in self.network.cuts
        )

    def time_out(self, due: SessionTimedOut, due_us: int) -> bool:
        """False: the broker was back meanwhile."""
        if self.silent_since.get(due.broker) != due.silent_since_us:
            return False
        self.network.reach(due_us)
        self.end_session(due.broker)
        return True

    def end_session(self, broker_id: int) -> None:
        """What the session had asked, and what it was to be sent, is gone with it."""
        if broker_id not in self.service.sessions:
            return
        self.expired |= {broker_id}
        self.network.remove(lambda entry: _is_of_session(entry, broker_id))
        self.network.notify(self.service.expire(broker_id))

    def come_back(self, broker_id: int) -> None:
        if broker_id in self.expired:
            self.network.remove(lambda entry: _is_of_session(entry, broker_id))
            expired = coordination_service.SessionExpired()
            self.network.send(SERVICE, broker_id, COORDINATION, expired)
            self.network.notify(self.service.register(broker_id))

    def lose(self, broker_id: int) -> None:
        """A broker's process has ended, and with it its session."""
        self.expired -= {broker_id}
        self.silent_since.pop(broker_id, None)
        self.network.notify(self.service.expire(broker_id))


def _is_of_session(entry: Entry, broker_id: int) -> bool:
    link = entry.link
    return (
        link is not None
        and link.channel == COORDINATION
        and broker_id in (link.source, link.target)
        and not isinstance(entry.body, Register)
    )
