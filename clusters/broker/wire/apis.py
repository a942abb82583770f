"""Which requests the broker answers, and in which versions: what ApiVersions tells.

The versions are those of Kafka 0.11 where kio can still speak them (its lowest are the lowest that
KIP-896 left); ApiVersions goes higher so that newer clients need not ask twice. Followers and the
controller use the replication listener, on which requests of brokers to brokers are answered too.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple


class Api(IntEnum):
    """Kafka's API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    OFFSET_FOR_LEADER_EPOCH = 23


class Versions(NamedTuple):
    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


CLIENT_APIS: Final[Mapping[Api, Versions]] = {
    Api.PRODUCE: Versions(3, 5),
    Api.FETCH: Versions(4, 6),
    Api.LIST_OFFSETS: Versions(1, 2),
    Api.METADATA: Versions(0, 5),
    Api.API_VERSIONS: Versions(0, 3),
    Api.CREATE_TOPICS: Versions(2, 3),
}
# Older librdkafkas compress only where Produce v0 is named, so Kafka 4.0 names it too although it
# answers none below v3 (KAFKA-18659). The other APIs are told as they are.
ADVERTISED_LOWEST: Final[Mapping[Api, int]] = {Api.PRODUCE: 0}
REPLICATION_APIS: Final[Mapping[Api, Versions]] = {
    **CLIENT_APIS,
    Api.LEADER_AND_ISR: Versions(2, 2),
    Api.STOP_REPLICA: Versions(1, 1),
    Api.UPDATE_METADATA: Versions(5, 5),
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 2),
}
