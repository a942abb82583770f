"""What a cluster under test can do, whatever it is made of and wherever it runs.

Faults, schedules and runs speak to this; they never ask what kind of brokers there are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

if TYPE_CHECKING:  # every command reads this file
    from neaptide.clusters.hosts.io_faults import IoFault
    from neaptide.clusters.security import ClientSecurity

# Elections happen when a schedule makes them happen: no broker hands over its partitions when it is
# stopped, and no controller moves leaders back.
STILL: Final[Mapping[str, str]] = {
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "false",
}


# What can be done to the disk of a broker that is down, and to which of its files.
DamageKind = Literal[
    "flipped-bit", "flipped-record-bit", "torn-tail", "lost-file", "lost-directory"
]
DiskFile = Literal["segment", "index", "timeindex", "epochs", "high-watermarks", "recovery-points"]


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """Assigned replicas by partition, in preference order (broker ids), and settings."""

    name: str
    assignment: Mapping[int, tuple[int, ...]]
    settings: Mapping[str, str]

    def judged_by(self, brokers: Mapping[str, str]) -> dict[str, str]:
        """What is said of retention, compaction and unclean elections, here or else for all topics
        of the brokers."""
        said = {}
        for name, of_brokers in _JUDGED_BY.items():
            value = self.settings.get(name)
            named = (brokers[one] for one in of_brokers if one in brokers)
            value = next(named, None) if value is None else value
            if value is not None:
                said[name] = value
        return said


UNCLEAN: Final = "unclean.leader.election.enable"
# A topic's settings that a check has to know, and those of brokers that stand for them. A limit
# that is below 0 is none, in whatever unit.
_JUDGED_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "cleanup.policy": ("log.cleanup.policy",),
    "retention.bytes": ("log.retention.bytes",),
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    UNCLEAN: (UNCLEAN,),
}


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Brokers in the order in which they start, and the settings that all of them have."""

    brokers: Sequence[int]
    settings: Mapping[str, str]
    topic: TopicSpec
    offsets: TopicSpec | None = None  # `__consumer_offsets`, where consumers are of groups
    transactions: TopicSpec | None = None  # `__transaction_state`, where a scenario places it
    controllers: int = 1  # where controllers are nodes of their own
    clocks: bool = False  # the clocks of brokers can be set
    changes_voters: bool = False  # in KRaft: who is a voter of the quorum can change (KIP-853)
    more: tuple[TopicSpec, ...] = ()  # further topics with records; conditions are about `topic`
    security: ClientSecurity | None = None  # of the listener of clients; None: plain text

    def settings_of(self, broker: int) -> dict[str, str]:
        """With the broker's id for each `{broker}`, as in `broker.rack=rack-{broker}`."""
        return {
            name: value.replace("{broker}", str(broker)) for name, value in self.settings.items()
        }

    @property
    def topics(self) -> tuple[TopicSpec, ...]:
        """All that clients write to and read from."""
        return (self.topic, *self.more)

    @property
    def internal(self) -> tuple[TopicSpec, ...]:
        """Topics of Kafka's own that are made before it would make them."""
        return tuple(one for one in (self.offsets, self.transactions) if one is not None)


@dataclass(frozen=True, slots=True)
class Listeners:
    """Where others reach a broker: through the links' proxies, not at its own ports.

    `host` is where the proxies listen.
    """

    client_port: int
    replication_port: int
    coordination_port: int
    host: str = "127.0.0.1"
    quorum: Mapping[int, int] = field(default_factory=dict)  # in KRaft: port by controller


@dataclass(frozen=True, slots=True)
class PartitionView:
    """What the coordination service says of a partition. `leader` None: it has none.

    `version` grows by one with each state that it had; None: it is not known, or none is missed.
    `replicas`: where they are part of the state.
    """

    partition: int
    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...] = ()  # eligible leader replicas (KIP-966)
    replicas: tuple[int, ...] = ()
    version: int | None = None

    def to_json(self) -> str:
        """As the history has it."""
        said: dict[str, Any] = {"leader": self.leader, "isr": list(self.isr)}
        said |= {"eligible": list(self.eligible)} if self.eligible else {}
        said |= {"replicas": list(self.replicas)} if self.replicas else {}
        return json.dumps(said if self.version is None else said | {"version": self.version})


class Cluster(Protocol):
    """Brokers are named by id. Starting and stopping are effects; nothing here waits for time."""

    def ports(self, broker: int) -> tuple[int, int]:
        """The broker's own (client, replication) ports: where the links lead to."""
        ...

    @property
    def coordination_port(self) -> int: ...

    @property
    def controllers(self) -> Sequence[int]:
        """Nodes that are controllers and nothing else; empty where controllers are brokers."""
        ...

    @property
    def quorum(self) -> Mapping[int, int]:
        """In KRaft: every controller's own port, by node; empty where ZooKeeper is used."""
        ...

    async def start_coordination(self) -> None: ...

    def find_lost_coordination(self) -> str | None:
        """A sentence if ZooKeeper no longer runs; in KRaft the controllers are nodes."""
        ...

    async def start(self, broker: int, through: Listeners) -> None: ...

    def is_up(self, broker: int) -> bool: ...

    def is_stopped(self, broker: int) -> bool:
        """Whether its process stands still, whoever made it so."""
        ...

    async def kill(self, broker: int) -> None: ...

    async def stop(self, broker: int) -> None: ...

    async def pause(self, broker: int) -> None: ...

    async def resume(self, broker: int) -> None: ...

    async def remember(self) -> None:
        """The run is over, brokers still run: what makes the next start quicker may be kept."""
        ...

    async def lose_page_cache(self, broker: int, keep: Mapping[int, int]) -> Mapping[int, int]:
        """A dead broker's logs lose what was not flushed, but keep up to these offsets.

        By partition of the topic; returns how many offsets each lost.
        """
        ...

    async def set_clock(self, broker: int, ahead_ms: int) -> None:
        """How far a broker's clock is ahead of the real one, from now on, dead or alive.

        Only where ClusterSpec.clocks.
        """
        ...

    async def damage(
        self, broker: int, kind: DamageKind, file: DiskFile, partition: int, seed: int
    ) -> str:
        """Damages the disk of a dead broker; what was done. Raises UsageError."""
        ...

    async def keep_snapshot(self, broker: int) -> None:
        """Of a broker's log directory, for `put_back`."""
        ...

    async def put_back(self, broker: int) -> None:
        """A dead broker's log directory is as the snapshot has it. Raises UsageError."""
        ...

    async def inject(self, broker: int, fault: IoFault, file: DiskFile, partition: int) -> None:
        """Calls of a living broker on these files fail, until `end_injections`.

        Raises MissingPartError, HostError.
        """
        ...

    async def end_injections(self, broker: int) -> int:
        """How many calls were met."""
        ...

    async def remove_voter(self, node: int) -> None:
        """A controller leaves the quorum, and goes on as an observer. Returns when a majority of
        the others knows. Raises RefusedError."""
        ...

    async def add_voter(self, node: int, through: Listeners) -> None:
        """A controller that runs and is no voter becomes one. Raises RefusedError."""
        ...

    async def forget_session(self, broker: int) -> None:
        """The coordination service drops a dead broker's session now."""
        ...

    def high_watermark_checkpoint(self, broker: int, partition: int) -> int | None: ...
    def recovery_point_checkpoint(self, broker: int, partition: int) -> int | None: ...
    def cleaner_checkpoint(self, broker: int, partition: int) -> int | None: ...

    def log_offsets(self, broker: int, partition: int) -> tuple[int, int] | None:
        """(log start offset, log end offset) as the files show them, alive or dead."""
        ...

    async def read_replicas(self, broker: int) -> list[dict[str, Any]]:
        """Rows of neaptide.results.schema.REPLICAS from a dead broker's disk."""
        ...

    def logs(self) -> Mapping[str, Path]: ...
