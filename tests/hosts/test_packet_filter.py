"""The text for nft, and what its answers say: literally, for a wrong rule cuts the wrong link."""

from __future__ import annotations

import json

from neaptide.clusters.hosts.host import Drop
from neaptide.clusters.hosts.packet_filter import dropped_packets, remove, render

HARNESS = "10.213.0.1"


def rules(*drops: Drop) -> list[str]:
    return [line for line in render(drops, HARNESS).splitlines() if line.startswith("add rule")]


def test_each_kind_of_drop_matches_its_own_side_of_the_connection() -> None:
    assert rules(Drop("output", "peer", 30001)) == [
        "add rule ip neaptide output ip daddr 10.213.0.1 tcp dport 30001 counter drop"
    ]
    assert rules(Drop("input", "peer", 30001)) == [
        "add rule ip neaptide input ip saddr 10.213.0.1 tcp sport 30001 counter drop"
    ]
    assert rules(Drop("input", "node", 9092)) == [
        "add rule ip neaptide input ip saddr 10.213.0.1 tcp dport 9092 counter drop"
    ]
    assert rules(Drop("output", "node", 9092)) == [
        "add rule ip neaptide output ip daddr 10.213.0.1 tcp sport 9092 counter drop"
    ]


def test_the_table_is_replaced_as_a_whole_and_nothing_else_is_touched() -> None:
    lines = render([Drop("input", "node", 1)], HARNESS).splitlines()
    assert lines[:3] == [
        "add table ip neaptide",
        "delete table ip neaptide",
        "add table ip neaptide",
    ]
    assert all(" ip neaptide" in line for line in lines)


def test_without_drops_there_is_no_table() -> None:
    assert render([], HARNESS) == remove()
    assert remove("mine").splitlines() == ["add table ip mine", "delete table ip mine"]


def test_dropped_packets_are_those_of_all_rules() -> None:
    def rule(packets: int) -> dict[str, object]:
        counter = {"counter": {"packets": packets, "bytes": 60 * packets}}
        return {"rule": {"expr": [{"match": {}}, counter, {"drop": None}]}}

    listing = {"nftables": [{"metainfo": {}}, {"table": {}}, rule(3), rule(0), rule(4)]}
    assert dropped_packets(json.dumps(listing)) == 7
    assert dropped_packets(json.dumps({"nftables": [{"table": {}}]})) == 0
