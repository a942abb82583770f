"""The APIs that rules may name: Kafka's number of each, and its first flexible version (KIP-482).

A row for each; names are those of Kafka's message definitions. Nothing is decoded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.errors import UsageError

_NEVER: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class ApiRow:
    key: int
    flexible_from: int = _NEVER


APIS: Final[Mapping[str, ApiRow]] = {
    "produce": ApiRow(0, 9),
    "fetch": ApiRow(1, 12),
    "list_offsets": ApiRow(2, 6),
    "metadata": ApiRow(3, 9),
    "offset_commit": ApiRow(8, 8),
    "offset_fetch": ApiRow(9, 6),
    "find_coordinator": ApiRow(10, 3),
    "join_group": ApiRow(11, 6),
    "heartbeat": ApiRow(12, 4),
    "leave_group": ApiRow(13, 4),
    "sync_group": ApiRow(14, 4),
    "api_versions": ApiRow(18, 3),
    "init_producer_id": ApiRow(22, 2),
    "offset_for_leader_epoch": ApiRow(23, 4),
    "add_partitions_to_txn": ApiRow(24, 3),
    "add_offsets_to_txn": ApiRow(25, 3),
    "end_txn": ApiRow(26, 3),
    "write_txn_markers": ApiRow(27, 1),
    "txn_offset_commit": ApiRow(28, 3),
    "vote": ApiRow(52, 0),
    "begin_quorum_epoch": ApiRow(53, 1),
    "end_quorum_epoch": ApiRow(54, 1),
    "alter_partition": ApiRow(56, 0),
    "broker_registration": ApiRow(62, 0),
    "broker_heartbeat": ApiRow(63, 0),
    "allocate_producer_ids": ApiRow(67, 0),
    "consumer_group_heartbeat": ApiRow(68, 0),
}
# Of a controller with ZooKeeper to brokers: rules know them by their names, a LeaderAndIsr by its
# leader epochs too.
CONTROLLER_NAMES: Final[Mapping[int, str]] = {
    4: "leader_and_isr",
    5: "stop_replica",
    6: "update_metadata",
}
RULES_NAME: Final = (*APIS, *CONTROLLER_NAMES.values(), "any")
NAMES: Final[Mapping[int, str]] = {row.key: name for name, row in APIS.items()}
PRODUCE: Final = APIS["produce"].key
API_VERSIONS: Final = APIS["api_versions"].key


def response_is_flexible(api_key: int, version: int) -> bool:
    """Whether a response's header has tags; that of ApiVersions never has, so that all read it."""
    name = NAMES.get(api_key)
    return name is not None and api_key != API_VERSIONS and version >= APIS[name].flexible_from


def error_number(name: str) -> int:
    """Kafka's number of an error. Raises UsageError with how names are written."""
    if name in Error.__members__:
        return int(Error[name])
    from kio.schema.errors import ErrorCode  # here: most scenarios name what our broker has, too

    try:
        return int(ErrorCode[name.lower()])
    except KeyError:
        raise UsageError(
            f"{name!r} is no error of Kafka: write it like NOT_ENOUGH_REPLICAS or REQUEST_TIMED_OUT"
        ) from None
