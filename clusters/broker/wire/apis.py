"""Which requests the broker answers, and in which versions: what ApiVersions tells.

The versions are those of the Kafka of each generation where kio can still speak them (its lowest
are the lowest that KIP-896 left, so 0.8 and 0.10 speak as 0.11 does); ApiVersions goes higher so
that newer clients need not ask twice. Followers and the
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
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23


class Versions(NamedTuple):
    lowest: int
    highest: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.lowest <= version <= self.highest


_CLIENT_0_10: Final = {
    Api.PRODUCE: Versions(3, 5),
    Api.FETCH: Versions(4, 6),
    Api.LIST_OFFSETS: Versions(1, 2),
    Api.METADATA: Versions(0, 5),
    Api.OFFSET_COMMIT: Versions(2, 2),
    Api.OFFSET_FETCH: Versions(1, 2),
    Api.FIND_COORDINATOR: Versions(0, 0),
    Api.API_VERSIONS: Versions(0, 3),
    Api.CREATE_TOPICS: Versions(2, 3),
}
_CLIENT_0_11: Final = {  # idempotent producers (KIP-98)
    **_CLIENT_0_10,
    Api.OFFSET_COMMIT: Versions(2, 3),
    Api.OFFSET_FETCH: Versions(1, 3),
    Api.FIND_COORDINATOR: Versions(0, 1),
    Api.INIT_PRODUCER_ID: Versions(0, 0),
}
_CLIENT_2_0: Final = {
    **_CLIENT_0_11,
    Api.INIT_PRODUCER_ID: Versions(0, 1),
    Api.PRODUCE: Versions(3, 6),
    Api.FETCH: Versions(4, 8),  # sessions (KIP-227) are never given, which a client must live with
    Api.LIST_OFFSETS: Versions(1, 3),
    Api.METADATA: Versions(0, 6),
    Api.OFFSET_COMMIT: Versions(2, 4),
    Api.OFFSET_FETCH: Versions(1, 4),
    Api.FIND_COORDINATOR: Versions(0, 2),
}
_CLIENT_2_1: Final = {  # leader epochs (KIP-320)
    **_CLIENT_2_0,
    Api.PRODUCE: Versions(3, 7),
    Api.FETCH: Versions(4, 10),
    Api.LIST_OFFSETS: Versions(1, 4),
    # As Kafka 2.1. librdkafka believes leader epochs from Metadata v9 on only (KAFKA-9212), so it
    # does not validate its position here.
    Api.METADATA: Versions(0, 7),
    Api.OFFSET_COMMIT: Versions(2, 6),
    Api.OFFSET_FETCH: Versions(1, 5),
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 2),
}
_CLIENT_4_0: Final = {  # KIP-966 is between brokers; what else 4.0 offers to clients is not there
    **_CLIENT_2_1,
    Api.INIT_PRODUCER_ID: Versions(0, 5),
}
_CLIENT_APIS: Final[Mapping[str, Mapping[Api, Versions]]] = {
    "0.8": _CLIENT_0_10,
    "0.10": _CLIENT_0_10,
    "0.11": _CLIENT_0_11,
    "2.0": _CLIENT_2_0,
    "2.1": _CLIENT_2_1,
    "4.0": _CLIENT_4_0,
}
_BETWEEN_BROKERS: Final = {
    Api.LEADER_AND_ISR: Versions(2, 2),
    Api.STOP_REPLICA: Versions(1, 1),
    Api.UPDATE_METADATA: Versions(5, 5),
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 2),
}
# Older librdkafkas compress only where Produce v0 is named, so Kafka 4.0 names it too although it
# answers none below v3 (KAFKA-18659). The other APIs are told as they are.
ADVERTISED_LOWEST: Final[Mapping[Api, int]] = {Api.PRODUCE: 0}


def client_apis(generation: str) -> Mapping[Api, Versions]:
    """What a broker of this generation answers to clients."""
    return _CLIENT_APIS[generation]


def replication_apis(generation: str) -> Mapping[Api, Versions]:
    """What it answers to brokers: the same, and what only brokers ask."""
    return {**_CLIENT_APIS[generation], **_BETWEEN_BROKERS}
