"""A subnet is free if nothing on this machine overlaps with it, and is claimed by one."""

from __future__ import annotations

from ipaddress import IPv4Network
from pathlib import Path

from neaptide.clusters.hosts.subnet import claim_subnet, free

ONE, TWO = IPv4Network("10.213.0.0/24"), IPv4Network("10.213.1.0/24")


def test_what_overlaps_is_not_free_and_what_does_not_is() -> None:
    assert free([ONE, TWO], [IPv4Network("10.213.0.64/26")]) == [TWO]
    assert free([ONE, TWO], [IPv4Network("10.0.0.0/8")]) == []
    assert free([ONE, TWO], [IPv4Network("192.168.0.0/16")]) == [ONE, TWO]


def test_two_claims_never_meet_and_one_that_is_given_back_can_be_had_again(tmp_path: Path) -> None:
    first, second = claim_subnet(tmp_path), claim_subnet(tmp_path)
    assert not first.network.overlaps(second.network)
    assert first.label != second.label
    first.close()
    third = claim_subnet(tmp_path)
    assert third.network == first.network
    for claim in (second, third):
        claim.close()
