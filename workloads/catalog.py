"""The workloads by name: which clients there are, on which topics, with which options.

Who adds a workload adds a row here, and roles where those that exist do not do. A workload outside
of this project is a `Workload` of a module, named as `shop.load:ORDERS`. What is recorded is in
results.schema, what is checked in checkers.anomalies. docs/reference/workloads.md is made of these
rows.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Literal

from neaptide.clusters.errors import UsageError
from neaptide.clusters.nearest import did_you_mean
from neaptide.workloads.group_options import (
    BEGINNINGS,
    CHURNS,
    COMMITS,
    NO_RESETS,
    SHARE_LOCK_MS,
)
from neaptide.workloads.resets import KINDS

TRANSACTIONS, MEMBERSHIP, COMPACTION = "transactions", "membership of groups", "compaction"
SHARE_GROUPS = "share groups"


@dataclass(frozen=True, slots=True)
class Option:
    """One word of `--option NAME=VALUE`. `choices`: what it may be, where that is a list."""

    default: Any
    meaning: str
    choices: tuple[str, ...] = ()

    def parse(self, name: str, text: str) -> Any:
        """Raises UsageError."""
        if self.choices and text not in self.choices:
            raise UsageError(f"--option {name}={text} must be one of {', '.join(self.choices)}.")
        try:
            return type(self.default)(text)
        except ValueError:
            kind = "a whole number" if isinstance(self.default, int) else "a number"
            raise UsageError(f"--option {name}={text} must be {kind}.") from None


@dataclass(frozen=True, slots=True)
class Clients:
    """So many clients of one role: as --producers or --consumers says, or one.

    `role`: a name of workloads.roles.table, or the class of one, as `shop.load:OrderClient`.
    """

    role: str
    many: Literal["producers", "consumers", "one"]
    topics: Literal["all", "first", "last"] = "all"
    lives: bool = False  # no fault kills it


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload. `named`: its topics, where it does not take as many as one asks for."""

    name: str
    summary: str
    clients: tuple[Clients, ...]
    options: Mapping[str, Option] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()
    named: tuple[str, ...] = ()
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    broker_settings: Mapping[str, str] = field(default_factory=dict)
    rate: float = 5_000  # records a second, where nobody names another
    idempotence: bool = False  # its producers always are
    group: str | None = None  # whose members share the partitions
    transactional_id: str | None = None  # the kind of it that its producers have
    # What is said of each partition before it begins: rows with `f` "setting", by key; of one topic
    # alone where a key begins with its name and a colon.
    said: Callable[[Mapping[str, Any]], Mapping[str, str]] = lambda options: {}

    def topics(self, count: int) -> tuple[str, ...]:
        return self.named or ("t", *(f"t{number}" for number in range(1, count)))

    def parse_options(self, given: Mapping[str, str]) -> dict[str, Any]:
        """All options, as given or by default. Raises UsageError."""
        for name in given:
            if name not in self.options:
                there = ", ".join(self.options) or "none"
                raise UsageError(
                    f"The workload {self.name} has no option {name!r}; there are: {there}."
                )
        return {
            name: option.parse(name, given[name]) if name in given else option.default
            for name, option in self.options.items()
        }


_TIMEOUT: Final = Option(10_000, "after which a coordinator aborts an open transaction")
_ABORTS: Final = Option(0.05, "probability of an abort, at each step")
_OFFSETS: Final = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}
_OF_TRANSACTIONS: Final = {
    **_OFFSETS,
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
_OF_GROUPS: Final = {
    **_OFFSETS,
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
_OF_SHARE_GROUPS: Final = {
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "3",
    "group.share.min.record.lock.duration.ms": f"{SHARE_LOCK_MS}",
    "group.share.record.lock.duration.ms": f"{SHARE_LOCK_MS}",
    "group.share.min.session.timeout.ms": "5000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.heartbeat.interval.ms": "500",
    # How long a group whose first members saw a broker die waits; an internal setting, 30 s.
    "group.share.initialize.retry.interval.ms": "1000",
}
_WATCH: Final = Clients("stable-watch", "one", lives=True)


def _timeout_said(options: Mapping[str, Any]) -> Mapping[str, str]:
    return {"transaction.timeout.ms": str(options["transaction_timeout_ms"])}


def _stream_said(options: Mapping[str, Any]) -> Mapping[str, str]:
    return {**_timeout_said(options), "out:each.input": "in"}


def _share_said(options: Mapping[str, Any]) -> Mapping[str, str]:
    return {"share.group": str(options["share_group"])}


def _group_said(options: Mapping[str, Any]) -> Mapping[str, str]:
    return {
        "delivery": COMMITS[options["commit"]].delivery,
        "auto.offset.reset": "earliest" if options["reset"] == "earliest" else "other",
    }


_GROUP_OPTIONS: Final = {
    "group": Option("g", "the name of the group"),
    "commit": Option("sync", "how members commit; `before`: before they process", tuple(COMMITS)),
    "assignor": Option(
        "range", "how partitions are shared", ("range", "roundrobin", "cooperative")
    ),
    "protocol": Option("classic", "`consumer` is KIP-848's, from 4.0 on", ("classic", "consumer")),
    "work_ms": Option(20, "what it takes to process what a poll returned of a partition"),
    "reset": Option(
        "earliest", "where a group without a position begins: `auto.offset.reset`", BEGINNINGS
    ),
    "resets": Option(
        NO_RESETS,
        "how a member that joins again by `churn=reset` resets what it is assigned, as"
        " `kafka-consumer-groups --reset-offsets` does (KIP-122)",
        (NO_RESETS, *KINDS),
    ),
}
_CHURN_MEANING: Final = (
    "what members do: leave and join again, stop to poll for a while, or leave, join again and"
    " reset their positions"
)

_ALL: Final = (
    Workload(
        "append",
        "unique values, appended round robin; consumers read every partition",
        (Clients("producer", "producers"), Clients("consumer", "consumers")),
    ),
    Workload(
        "keyed",
        "values of keys in a compacted topic: the newest acknowledged one of each key must stay",
        (Clients("keyed-producer", "producers"), Clients("consumer", "consumers")),
        {"keys": Option(20, "of each producer")},
        frozenset({COMPACTION}),
        topic_settings={
            "cleanup.policy": "compact",
            "segment.bytes": "65536",
            "segment.ms": "2000",
            "min.cleanable.dirty.ratio": "0.01",
        },
        broker_settings={
            "log.cleaner.enable": "true",
            "log.cleaner.backoff.ms": "500",
            "log.cleaner.dedupe.buffer.size": "8388608",
            "log.cleaner.io.buffer.size": "262144",
        },
        said=lambda options: {"cleanup.policy": "compact"},
    ),
    Workload(
        "txn",
        "Jepsen's: sends and polls in one transaction, aborted by chance, positions in it",
        (Clients("txn-client", "producers"), Clients("consumer", "consumers"), _WATCH),
        {
            "steps": Option(4, "sends and polls in a transaction, at most"),
            "sends": Option(0.6, "probability that a step is a send"),
            "aborts": _ABORTS,
            "transaction_timeout_ms": _TIMEOUT,
        },
        frozenset({TRANSACTIONS}),
        broker_settings=_OF_TRANSACTIONS,
        idempotence=True,
        transactional_id="txn",
        said=_timeout_said,
    ),
    Workload(
        "stream",
        "consume, transform, produce, exactly once: each input is in one output",
        (
            Clients("producer", "producers", "first"),
            Clients("stream-task", "consumers"),
            Clients("consumer", "one", "last"),
            _WATCH,
        ),
        {"aborts": _ABORTS, "transaction_timeout_ms": _TIMEOUT},
        frozenset({TRANSACTIONS}),
        named=("in", "out"),
        rate=500,  # what tasks keep up with
        broker_settings=_OF_TRANSACTIONS,
        idempotence=True,
        transactional_id="stream",
        said=_stream_said,
    ),
    Workload(
        "bank",
        "money moved by transactions: the sum of every read to the last stable offset is 0",
        (Clients("teller", "producers"), Clients("auditor", "consumers"), _WATCH),
        {
            "accounts": Option(8, "in each partition"),
            "aborts": _ABORTS,
            "transaction_timeout_ms": _TIMEOUT,
        },
        frozenset({TRANSACTIONS}),
        broker_settings=_OF_TRANSACTIONS,
        idempotence=True,
        transactional_id="teller",
        said=_timeout_said,
    ),
    Workload(
        "groups",
        "members of a group process what they are assigned and commit how far they came",
        (Clients("producer", "producers"), Clients("member", "consumers")),
        {**_GROUP_OPTIONS, "churn": Option("none", _CHURN_MEANING, CHURNS)},
        frozenset({MEMBERSHIP}),
        broker_settings=_OF_GROUPS,
        group="g",
        said=_group_said,
    ),
    Workload(
        "rebalance",
        "the same with members that leave and stall: nobody owns what another one owns",
        (Clients("producer", "producers"), Clients("member", "consumers")),
        {**_GROUP_OPTIONS, "churn": Option("leave+stall", _CHURN_MEANING, CHURNS)},
        frozenset({MEMBERSHIP}),
        broker_settings=_OF_GROUPS,
        group="g",
        said=_group_said,
    ),
    Workload(
        "share",
        "members of a share group accept, release or reject records: none is passed over, and none"
        " that was accepted or rejected comes again",
        (Clients("producer", "producers"), Clients("share-member", "consumers")),
        {
            "share_group": Option("s", "the name of the share group"),
            "work_ms": Option(5, "what it takes to process what a poll returned"),
            "releases": Option(0.1, "probability that a record is released"),
            "rejects": Option(0.02, "probability that a record is rejected"),
            "churn": Option("none", "what members do: leave and join again", ("none", "leave")),
        },
        frozenset({SHARE_GROUPS}),
        rate=1_000,  # what members keep up with
        broker_settings=_OF_SHARE_GROUPS,
        said=_share_said,
    ),
)

WORKLOADS: Final[Mapping[str, Workload]] = {workload.name: workload for workload in _ALL}


@cache
def find_workload(name: str, scenarios: Iterable[str] = ()) -> Workload:
    """One of the table, or of a module of somebody's own: `shop.load:ORDERS`. Raises UsageError.

    `scenarios`: what else the name could have meant.
    """
    if ":" in name:
        return _find_own(name)
    if name not in WORKLOADS:
        otherwise = (
            f"; it must be one of {', '.join(WORKLOADS)}, or of a module of your own: module:NAME,"
            " or a scenario: one of `neaptide list`, or a file that ends in .toml."
        )
        near = did_you_mean(name, [*WORKLOADS, *scenarios])
        raise UsageError(f"There is no workload {name!r}{near or otherwise}")
    return WORKLOADS[name]


def _find_own(name: str) -> Workload:
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(
            f"The workload {name} cannot be loaded: {error}. It must be module:NAME, of a module"
            " in this directory, in an installed package or on PYTHONPATH."
        ) from None
    if not isinstance(found, Workload):
        raise UsageError(
            f"{name} is a {type(found).__name__}; it must be a neaptide.workloads.catalog.Workload."
        )
    return replace(found, name=name)
