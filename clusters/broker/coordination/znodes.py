"""Kafka's znodes: their paths, and their contents as JSON. Pure: nothing here speaks to ZooKeeper.

The paths, keys and versions are Kafka's own, so that whoever knows them recognises a cluster by
zkCli. Reading takes what a real Kafka wrote too: unknown keys are left alone, brokers that name no
endpoints (0.8) have the one that their host and port say.
Source: "Kafka data structures in Zookeeper" in Kafka's wiki, KIP-103 (listeners), and znodes that
Kafka 3.9 wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote, unquote

from neaptide.clusters.broker.replication.model import (
    NO_LEADER,
    BrokerRegistration,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    SecurityProtocol,
    TopicConfiguration,
    TopicPartition,
)

BROKER_IDS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONFIGS: Final = "/config"
CONFIG_CHANGE: Final = f"{CONFIGS}/changes/config_change_"  # a sequential znode
ISR_CHANGES: Final = "/isr_change_notification"
ISR_CHANGE_PREFIX: Final = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX: Final = f"{LOG_DIR_EVENTS}/log_dir_event_"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER_ID: Final = "/cluster/id"
PRODUCER_IDS: Final = "/latest_producer_id_block"
ADMIN: Final = "/admin"
PREFERRED_REPLICA_ELECTION: Final = f"{ADMIN}/preferred_replica_election"
REASSIGN_PARTITIONS: Final = f"{ADMIN}/reassign_partitions"
DELETE_TOPICS: Final = f"{ADMIN}/delete_topics"

PERSISTENT_PARENTS: Final = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    CONFIGS,
    f"{CONFIGS}/changes",
    f"{CONFIGS}/topics",
    f"{CONFIGS}/brokers",
    f"{CONFIGS}/users",
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    "/cluster",
    ADMIN,
    DELETE_TOPICS,
)


class MalformedZnodeError(Exception):
    """A znode holds something else than Kafka's JSON."""

    def __init__(self, what: str, data: bytes) -> None:
        super().__init__(f"{what} in ZooKeeper is malformed: {data[:200]!r}")


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(partition: TopicPartition) -> str:
    return f"{partitions_path(partition.topic)}/{partition.partition}"


def state_path(partition: TopicPartition) -> str:
    return f"{partition_path(partition)}/state"


def partition_of_state_path(path: str) -> TopicPartition:
    """The opposite of `state_path`."""
    *_, topic, _, partition, _ = path.split("/")
    return TopicPartition(topic, int(partition))


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


# An entity that has settings, as Kafka writes its path: topics/T, brokers/0, brokers/<default>.
ALL_BROKERS: Final = "brokers/<default>"
USERS: Final = "users"
GROUPS: Final = "groups"


def topic_entity(topic: str) -> str:
    return f"topics/{topic}"


def broker_entity(broker_id: int) -> str:
    return f"brokers/{broker_id}"


def user_entity(user: str) -> str:
    return _entity(USERS, user)


def group_entity(group: str) -> str:
    return _entity(GROUPS, group)


def _entity(kind: str, name: str) -> str:
    """Whatever it is called, it is one part of a path (Kafka's Sanitizer)."""
    return f"{kind}/{quote(name, safe='').replace('~', '%7E')}"


def name_of(entity: str) -> str:
    """Of a user or a group."""
    return unquote(entity.partition("/")[2])


def config_path(entity: str) -> str:
    return f"{CONFIGS}/{entity}"


def topic_config_path(topic: str) -> str:
    return config_path(topic_entity(topic))


# --- /brokers/ids/N ------------------------------------------------------------------------------


def encode_broker(registration: BrokerRegistration, timestamp_ms: int) -> bytes:
    endpoints = registration.endpoints
    content: dict[str, Any] = {
        "features": {},
        "listener_security_protocol_map": {e.listener: e.protocol.name for e in endpoints},
        "endpoints": [f"{e.listener}://{e.host}:{e.port}" for e in endpoints],
        "jmx_port": -1,
        "port": endpoints[0].port if endpoints else -1,
        "host": endpoints[0].host if endpoints else None,
        "version": 5,
        "timestamp": str(timestamp_ms),
    }
    if registration.rack is not None:
        content["rack"] = registration.rack
    if registration.unclean_shutdown:  # of this project alone: Kafka has it in KRaft only
        content["unclean_shutdown"] = True
    return _encode(content)


def decode_broker(broker_id: int, data: bytes, epoch: int) -> BrokerRegistration:
    what = f"broker {broker_id}"
    content = _decode(what, data)
    try:
        protocols = content.get("listener_security_protocol_map") or {}
        endpoints = [_endpoint(text, protocols) for text in content.get("endpoints") or ()]
        if not endpoints:
            endpoints = [Endpoint("PLAINTEXT", content["host"], int(content["port"]))]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedZnodeError(what, data) from error
    unclean = content.get("unclean_shutdown") is True
    return BrokerRegistration(broker_id, tuple(endpoints), content.get("rack"), epoch, unclean)


def _endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Before Kafka 0.10.2 there is no map, and a listener is named as what is spoken on it."""
    listener, separator, address = text.partition("://")
    host, _, port = address.rpartition(":")
    if not separator:
        raise ValueError(text)
    by_name = listener if listener in SecurityProtocol.__members__ else "PLAINTEXT"
    protocol = SecurityProtocol[protocols.get(listener, by_name)]
    return Endpoint(listener, host, int(port), protocol)


# --- /brokers/topics/T, its partitions' states, /config/topics/T ---------------------------------


def encode_assignment(
    assignment: Mapping[int, Sequence[int]], topic_id: str | None = None
) -> bytes:
    """`topic_id` as Kafka 2.8 and later write it (KIP-516); None: as those before do."""
    partitions = {str(number): list(assignment[number]) for number in sorted(assignment)}
    if topic_id is None:
        return _encode({"version": 1, "partitions": partitions})
    moving: dict[str, Any] = {"adding_replicas": {}, "removing_replicas": {}}
    return _encode({"version": 3, "topic_id": topic_id, "partitions": partitions, **moving})


def decode_topic(topic: str, data: bytes, config: bytes | None) -> TopicConfiguration:
    """A topic from its znode and from the one of its settings, which may be missing."""
    what = f"topic {topic}"
    content = _decode(what, data)
    try:
        assignment = _replicas(content.get("partitions"))
        adding = _replicas(content.get("adding_replicas"))
        removing = _replicas(content.get("removing_replicas"))
    except (AttributeError, TypeError, ValueError) as error:
        raise MalformedZnodeError(what, data) from error
    settings = {} if config is None else decode_settings(topic, config)
    topic_id = content.get("topic_id")
    if topic_id is not None and not isinstance(topic_id, str):
        raise MalformedZnodeError(what, data)
    return TopicConfiguration(assignment, settings, adding, removing, topic_id)


def with_topic_id(topic: str, data: bytes, topic_id: str) -> bytes:
    """A topic's znode with an id, as Kafka 2.8 and later have it; all else in it stays."""
    content = _decode(f"topic {topic}", data)
    kept = {"partitions": content.get("partitions") or {}}
    for key in ("adding_replicas", "removing_replicas"):
        kept[key] = content.get(key) or {}
    return _encode({**content, **kept, "version": 3, "topic_id": topic_id})


def with_partitions(topic: str, data: bytes, assignment: Mapping[int, Sequence[int]]) -> bytes:
    """A topic's znode with these replicas of all of its partitions; all else in it stays."""
    partitions = {str(number): list(assignment[number]) for number in sorted(assignment)}
    return _encode({**_decode(f"topic {topic}", data), "partitions": partitions})


def _replicas(partitions: Any) -> dict[int, tuple[int, ...]]:
    """By partition, in order."""
    named = (partitions or {}).items()
    return dict(sorted((int(p), tuple(int(b) for b in replicas)) for p, replicas in named))


def with_assignment(
    partition: TopicPartition, data: bytes, assignment: ReplicaAssignment, *, names_moves: bool
) -> bytes:
    """A topic's znode with other replicas of one partition; all else in it stays.

    `names_moves`: which of them come and go is said too, as Kafka 2.4 and later do (KIP-455).
    """
    what = f"topic {partition.topic}"
    content = _decode(what, data)
    number = str(partition.partition)
    try:
        content["partitions"] = {**content["partitions"], number: list(assignment.replicas)}
        if names_moves:
            content["version"] = max(2, int(content["version"]))
            for key, moved in (
                ("adding_replicas", assignment.adding),
                ("removing_replicas", assignment.removing),
            ):
                others = {p: b for p, b in content.get(key, {}).items() if p != number}
                content[key] = {**others, number: list(moved)} if moved else others
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedZnodeError(what, data) from error
    return _encode(content)


def encode_settings(settings: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(settings)})


def encode_config_change(entity: str) -> bytes:
    """What Kafka's brokers are notified by."""
    return _encode({"version": 2, "entity_path": entity})


def decode_settings(entity: str, data: bytes) -> dict[str, str]:
    config = _decode(f"the configuration of {entity}", data).get("config", {})
    return {str(name): str(value) for name, value in config.items()}


def encode_state(state: LeaderAndIsr) -> bytes:
    """As Kafka does; the last two keys, where they say something, are this project's own."""
    content: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.elr:
        content["elr"] = list(state.elr)
    if state.last_known_leader != NO_LEADER:
        content["last_known_leader"] = state.last_known_leader
    return _encode(content)


def decode_state(
    partition: TopicPartition, data: bytes, version: int, written_at: int = -1
) -> LeaderAndIsr:
    what = f"the state of partition {partition}"
    content = _decode(what, data)
    try:
        return LeaderAndIsr(
            leader=int(content["leader"]),
            leader_epoch=int(content["leader_epoch"]),
            isr=tuple(int(broker) for broker in content["isr"]),
            controller_epoch=int(content["controller_epoch"]),
            version=version,
            elr=tuple(int(broker) for broker in content.get("elr", ())),
            last_known_leader=int(content.get("last_known_leader", NO_LEADER)),
            written_at=written_at,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedZnodeError(what, data) from error


# --- /isr_change_notification/isr_change_N, /admin/preferred_replica_election --------------------


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    named = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return _encode({"version": 1, "partitions": named})


def decode_partitions(name: str, data: bytes) -> tuple[TopicPartition, ...]:
    try:
        return tuple(
            TopicPartition(str(entry["topic"]), int(entry["partition"]))
            for entry in _decode(name, data)["partitions"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedZnodeError(name, data) from error


# --- /log_dir_event_notification/log_dir_event_N -------------------------------------------------

_LOG_DIR_FAILURE: Final = 1


def encode_log_dir_event(broker_id: int) -> bytes:
    return _encode({"version": 1, "broker": broker_id, "event": _LOG_DIR_FAILURE})


def decode_log_dir_event(name: str, data: bytes) -> tuple[int, ...]:
    try:
        return (int(_decode(name, data)["broker"]),)
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedZnodeError(name, data) from error


# --- /admin/reassign_partitions ------------------------------------------------------------------


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    named = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
        for tp, replicas in targets.items()
    ]
    return _encode({"version": 1, "partitions": named})


def decode_reassignments(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    what = "the reassignment of partitions"
    try:
        return {
            TopicPartition(str(entry["topic"]), int(entry["partition"])): tuple(
                int(replica) for replica in entry["replicas"]
            )
            for entry in _decode(what, data)["partitions"]
        }
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedZnodeError(what, data) from error


# --- /latest_producer_id_block -------------------------------------------------------------------


def encode_producer_ids(broker_id: int, first: int, last: int) -> bytes:
    """Numbers as texts: so Kafka has them."""
    block = {"block_start": str(first), "block_end": str(last)}
    return _encode({"version": 1, "broker": broker_id, **block})


def decode_producer_ids(data: bytes) -> int:
    """The first id after the latest block; Kafka makes the znode empty before there is one."""
    what = "the latest block of producer ids"
    if not data:
        return 0
    try:
        return int(_decode(what, data)["block_end"]) + 1
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedZnodeError(what, data) from error


# --- /controller, /controller_epoch, /cluster/id -------------------------------------------------


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return _encode({"version": 1, "brokerid": broker_id, "timestamp": str(timestamp_ms)})


def decode_controller(data: bytes) -> int:
    try:
        return int(_decode("the controller", data)["brokerid"])
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedZnodeError("the controller", data) from error


def encode_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_epoch(data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise MalformedZnodeError("the controller epoch", data) from error


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    try:
        return str(_decode("the cluster id", data)["id"])
    except KeyError as error:
        raise MalformedZnodeError("the cluster id", data) from error


def _encode(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def _decode(what: str, data: bytes) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except ValueError as error:
        raise MalformedZnodeError(what, data) from error
    if not isinstance(content, dict):
        raise MalformedZnodeError(what, data)
    return content
