"""Cuts as rules of packet filters: every direction of every link at the node that can see it."""

from __future__ import annotations

from neaptide.clusters.hosts.host import Drop
from neaptide.nemesis.filters import drops
from neaptide.nemesis.gate.model import CLIENT, COORDINATION, Cut, LinkSpec, cluster_links
from neaptide.nemesis.gate.network import Network

A, B, C = 0, 1, 2
BROKERS = (A, B, C)
LINKS = cluster_links(
    BROKERS,
    replication={A: 9093, B: 9093, C: 9093},
    client={A: 9092, B: 9092, C: 9092},
    coordination=2181,
    addresses={A: "10.0.0.10", B: "10.0.0.11", C: "10.0.0.12"},
)
PORTS = {link.name: 30_000 + number for number, link in enumerate(LINKS)}


def dropped(*cuts: Cut, links: tuple[LinkSpec, ...] = LINKS) -> dict[int, set[Drop]]:
    """Of the nodes that drop anything."""
    network = Network()
    for cut in cuts:
        network = network.cut(cut)
    found = drops(network, links, PORTS, BROKERS)
    return {broker: set(those) for broker, those in found.items() if those}


def test_one_way_between_brokers_is_dropped_on_both_connections_and_only_that_way() -> None:
    assert dropped(Cut(A, B, "replication")) == {
        A: {Drop("output", "peer", PORTS["replication-1"])},  # what A asks of B
        B: {Drop("input", "peer", PORTS["replication-0"])},  # what A answers to B
    }


def test_the_other_way_is_the_other_rules() -> None:
    there, back = dropped(Cut(A, B)), dropped(Cut(B, A))
    assert all(not there[broker] & back[broker] for broker in (A, B))
    assert dropped(Cut(A, B), Cut(B, A)) == {
        broker: there[broker] | back[broker] for broker in (A, B)
    }


def test_the_coordination_service_is_cut_at_the_broker() -> None:
    port = PORTS["coordination-2"]
    assert dropped(Cut(C, COORDINATION)) == {C: {Drop("output", "peer", port)}}
    assert dropped(Cut(COORDINATION, C)) == {C: {Drop("input", "peer", port)}}


def test_clients_are_cut_at_the_brokers_own_port() -> None:
    assert dropped(Cut(CLIENT, B)) == {B: {Drop("input", "node", 9092)}}
    assert dropped(Cut(B, CLIENT)) == {B: {Drop("output", "node", 9092)}}


def test_where_clients_and_replicas_share_a_port_the_gate_alone_cuts_clients() -> None:
    shared = cluster_links(
        BROKERS, replication=dict.fromkeys(BROKERS, 9092), client=dict.fromkeys(BROKERS, 9092)
    )
    assert dropped(Cut(CLIENT, B), links=shared) == {}
    assert dropped(Cut(A, B), links=shared) != {}


def test_any_end_means_all_of_a_brokers_links() -> None:
    found = dropped(Cut(A, None))
    assert len(found[A]) == 4  # to B, to C, to ZooKeeper, to clients
    assert len(found[B]) == len(found[C]) == 1  # what A answers


def test_nothing_is_dropped_without_a_cut_or_after_it() -> None:
    assert dropped() == {}
    healed = Network().cut(Cut(A, B)).heal(Cut(A, B))
    assert not any(drops(healed, LINKS, PORTS, BROKERS).values())
