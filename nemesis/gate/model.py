"""The nouns of the gate: links, rules, cuts, and its configuration. Values only, no IO.

A *link* is (from, to, purpose). An endpoint is a broker's id, or "client" (whoever uses a client
listener), or "coordination" (ZooKeeper). A message or a byte has a *source* and a *destination*
in the direction in which it travels: a Fetch request goes follower → leader, its response goes
leader → follower.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, get_args

from neaptide.clusters.errors import UsageError
from neaptide.nemesis.gate.apis import APIS, RULES_NAME, error_number
from neaptide.nemesis.gate.where import parse_where

Purpose = Literal["client", "replication", "coordination"]
Endpoint = int | str
CLIENT: Final = "client"
COORDINATION: Final = "coordination"
LOOPBACK: Final = "127.0.0.1"

Api = Literal["fetch", "offset_for_leader_epoch"]  # of replicas, which rounds are made of
MessageKind = Literal["request", "response"]
Action = Literal["hold", "drop", "delay", "answer", "cap"]
InFlight = Literal["discarded", "delivered"]
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a listener leads to."""

    port: int
    host: str = LOOPBACK


@dataclass(frozen=True, slots=True)
class LinkSpec:
    """One listener. `source` None: learned from each connection's requests.

    A link to a controller of a KRaft quorum is one of purpose coordination that speaks Kafka's
    protocol: its destination is the controller's node, its source whoever connects.
    """

    name: str
    purpose: Purpose
    source: Endpoint | None
    destination: Endpoint
    target: Target | None = None  # None: not yet known, connections are closed
    via: Target | None = None  # what is dialled in place of the target, and leads to it
    port: int = 0  # 0: the gate chooses
    shared: bool = False  # a replication link that clients use too: there is one listener
    reads: bool = False  # rules may be about any API of it, not about replicas' fetches alone


@dataclass(frozen=True, slots=True)
class GateConfig:
    """What a gate process is started with."""

    run: Path  # the run directory
    clock_origin_ns: int  # a time.monotonic_ns(): all *_ns are relative to it
    links: tuple[LinkSpec, ...]
    listen: str = LOOPBACK  # the address at which all links are reached

    def to_json(self) -> str:
        return json.dumps(
            {
                "run": str(self.run),
                "clock_origin_ns": self.clock_origin_ns,
                "links": [asdict(link) for link in self.links],
                "listen": self.listen,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> GateConfig:
        raw = json.loads(text)
        links = tuple(_link(link) for link in raw["links"])
        return cls(Path(raw["run"]), raw["clock_origin_ns"], links, raw["listen"])


def cluster_links(
    brokers: Sequence[int],
    *,
    replication: Mapping[int, int] | None = None,
    client: Mapping[int, int] | None = None,
    coordination: int | None = None,
    addresses: Mapping[int, str] | None = None,
) -> tuple[LinkSpec, ...]:
    """The links of a cluster: "replication-N", "client-N" and "coordination-N" of each broker N.

    The mappings are the brokers' real ports and addresses, as far as they are known;
    `coordination` is ZooKeeper's port.
    """
    links: list[LinkSpec] = []
    for n in brokers:
        address = (addresses or {}).get(n)
        replica, clients = _target(replication, n, address), _target(client, n, address)
        zookeeper = None if coordination is None else Target(coordination)
        links += [
            LinkSpec(
                f"replication-{n}",
                "replication",
                None,
                n,
                replica,
                shared=replica is not None and replica == clients,
            ),
            LinkSpec(f"client-{n}", "client", CLIENT, n, clients),
            LinkSpec(f"coordination-{n}", "coordination", n, COORDINATION, zookeeper),
        ]
    return tuple(links)


def quorum_links(
    ports: Mapping[int, int], addresses: Mapping[int, str] | None = None
) -> tuple[LinkSpec, ...]:
    """The links to the controllers of KRaft: "controller-N" of each node N, with its real port."""
    return tuple(
        LinkSpec(
            f"controller-{n}", "coordination", None, n, _target(ports, n, (addresses or {}).get(n))
        )
        for n in ports
    )


def _target(
    ports: Mapping[int, int] | None, broker: int, address: str | None = None
) -> Target | None:
    if ports is None or broker not in ports:
        return None
    return Target(ports[broker], address or LOOPBACK)


@dataclass(frozen=True, slots=True)
class Rule:
    """Which messages of a link the gate takes, and what it does with them.

    hold: the message waits, and what is behind it on that connection in that direction queues.
    drop: it is thrown away and the connection closed, for a message that TCP loses is a broken
    connection. delay: it, and so what is behind it, leaves `delay_ms` later. answer: a response
    says `error` in place of what it said; a Produce request goes no further, and is answered so.
    cap: an ApiVersions response offers no version of `capped_api` above `capped_version`.

    A field that is None matches all. A message is about many partitions: it matches if one of
    them does, and it is taken whole. On links that are not replicas' fetches a rule takes what the
    link `reads`.
    """

    id: str
    action: Action
    message: MessageKind
    api: str = "fetch"  # of apis.RULES_NAME
    source: Endpoint | None = None  # in the direction in which the message travels
    destination: Endpoint | None = None
    topic: str | None = None
    partition: int | None = None
    where: str = ""  # e.g. "high_watermark >= 2 and fetch_offset < 3"
    times: int | None = None  # how many messages it takes; None: all
    delay_ms: int = 0
    purpose: Purpose | None = "replication"  # of which links
    error: str = ""  # of Kafka, as NOT_ENOUGH_REPLICAS
    capped_api: str = ""
    capped_version: int = -1

    def __post_init__(self) -> None:
        _one_of("action", self.action, get_args(Action))
        _one_of("message", self.message, ("request", "response"))
        _one_of("api", self.api, RULES_NAME)
        parse_where(self.where)
        if self.action == "delay" and self.delay_ms <= 0:
            raise UsageError(f"rule {self.id!r} delays by {self.delay_ms} ms: give delay_ms >= 1")
        if self.times is not None and self.times < 1:
            raise UsageError(f"rule {self.id!r} takes {self.times} messages: give times >= 1")
        if self.action == "answer":
            self._check_answer()
        if self.action == "cap":
            _one_of("api", self.capped_api, APIS)
            if (self.message, self.api) != ("response", "api_versions"):
                raise UsageError(f"rule {self.id!r} caps what is no ApiVersions response")

    def _check_answer(self) -> None:
        error_number(self.error)
        if self.message == "request" and self.api != "produce":
            raise UsageError(
                f"rule {self.id!r}: of requests only a produce can be answered in place of its"
                " leader; of all else the response"
            )

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Rule:
        return from_dict(cls, raw)


@dataclass(frozen=True, slots=True)
class Cut:
    """No byte passes from source to destination. None: any endpoint, any purpose."""

    source: Endpoint | None
    destination: Endpoint | None
    purpose: Purpose | None = None

    def covers(self, source: Endpoint | None, destination: Endpoint | None, why: Purpose) -> bool:
        """Whether a direction of a connection is cut. An unknown end matches only None."""
        return (
            self.source in (None, source)
            and self.destination in (None, destination)
            and self.purpose in (None, why)
        )


@dataclass(frozen=True, slots=True)
class Slow:
    """Every byte of a direction leaves `delay_ms` after it came."""

    where: Cut
    delay_ms: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which rounds are reported as events. None: all."""

    id: str
    follower: int | None = None
    leader: int | None = None
    topic: str | None = None
    partition: int | None = None

    def covers(self, follower: int, leader: int, topic: str, partition: int) -> bool:
        return (
            self.follower in (None, follower)
            and self.leader in (None, leader)
            and self.topic in (None, topic)
            and self.partition in (None, partition)
        )


def from_dict(kind: type[_T], raw: Mapping[str, Any]) -> _T:
    """A dataclass from a mapping of its fields; UsageError says which name is none."""
    names = tuple(entry.name for entry in fields(cast(Any, kind)))
    for name in raw:
        _one_of(f"field of a {kind.__name__.lower()}", name, names)
    try:
        return kind(**raw)
    except TypeError as error:
        raise UsageError(f"a {kind.__name__.lower()} is not complete: {error}") from None


def _link(raw: Mapping[str, Any]) -> LinkSpec:
    ends = {end: None if raw.get(end) is None else Target(**raw[end]) for end in ("target", "via")}
    return LinkSpec(**{**raw, **ends})


def _one_of(what: str, value: object, allowed: Iterable[str]) -> None:
    allowed = tuple(allowed)
    if value not in allowed:
        raise UsageError(f"{value!r} is no {what}: must be one of {', '.join(allowed)}")
