"""The steps of a schedule, as frozen values: what is done, to whom. Doing it is elsewhere.

Brokers are named as in the scenario. A message travels from its source to its destination: a Fetch
response goes from the leader to the follower.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # whoever reads steps, as the command line does, loads no disks and no hosts
    from neaptide.clusters.disks.damage import DamageKind, DiskFile
    from neaptide.clusters.hosts.io_faults import Call, Errno
    from neaptide.clusters.hosts.toxiproxy import Toxic

InFlight = Literal["discarded", "delivered"]
Message = Literal["request", "response"]
# Of what replicas ask each other, any of it, of what a controller sends to brokers, and of what a
# leader asks of it.
Api = Literal[
    "fetch",
    "offset_for_leader_epoch",
    "any",
    "leader_and_isr",
    "stop_replica",
    "update_metadata",
    "alter_partition",
]
ALTER_PARTITION: Api = "alter_partition"
Purpose = Literal["client", "replication", "coordination"]
Election = Literal["preferred", "unclean"]
Acks = Literal["0", "1", "all"]


@dataclass(frozen=True, slots=True)
class ActiveController:
    """Whichever node is the active controller when the step begins; `name` stands for it then."""

    name: str | None = None

    def __str__(self) -> str:
        return "the active controller"


@dataclass(frozen=True, slots=True)
class NamedController:
    """The node that an earlier step called so."""

    name: str

    def __str__(self) -> str:
        return self.name


Node = str | ActiveController | NamedController  # a text is a broker's name


@dataclass(frozen=True, slots=True)
class Produce:
    """Sends records, in order, and does not wait.

    `to`: by a client that knows this broker only, and believes what it says of who leads.
    `size_bytes`: how long each value is made, by what follows the record's name in it.
    """

    records: tuple[str, ...]
    acks: Acks = "all"
    partition: int = 0
    to: str | None = None
    size_bytes: int | None = None

    @property
    def values(self) -> tuple[str, ...]:
        return tuple(filled(record, self.size_bytes) for record in self.records)


@dataclass(frozen=True, slots=True)
class Consume:
    """Reads from the beginning to the high watermark, once.

    `group`: as a consumer of this group, from where the group goes on; then it commits how far it
    has come, where it has read anything, and waits until that is acknowledged.
    """

    partition: int = 0
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """Sends unnamed records to all partitions, at a rate, and polls, until `stop_load`."""

    rate: float
    acks: Acks = "all"


@dataclass(frozen=True, slots=True)
class StopLoad:
    """Ends the load; returns when every send has completed."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Lets no such message pass from now on; what is behind it waits too."""

    name: str
    message: Message
    api: str  # Kafka's name, as "fetch" or "offset_commit"; "any"
    source: str  # a broker, "client" or "controller"
    destination: str
    where: str = ""
    times: int | None = None
    topic: str | None = None  # of which `where` speaks; None: the scenario's own
    purpose: Purpose = "replication"  # of the link


@dataclass(frozen=True, slots=True)
class Drop:
    """Loses such messages; on TCP that breaks the connection."""

    name: str
    message: Message
    api: str  # Kafka's name, as "fetch" or "offset_commit"; "any"
    source: str  # a broker, "client" or "controller"
    destination: str
    where: str = ""
    times: int | None = None
    topic: str | None = None  # of which `where` speaks; None: the scenario's own
    purpose: Purpose = "replication"  # of the link


@dataclass(frozen=True, slots=True)
class Delay:
    """Such messages, and what is behind them, leave `delay_ms` later."""

    name: str
    message: Message
    api: str  # Kafka's name, as "fetch" or "offset_commit"; "any"
    source: str  # a broker, "client" or "controller"
    destination: str
    where: str = ""
    times: int | None = None
    topic: str | None = None  # of which `where` speaks; None: the scenario's own
    purpose: Purpose = "replication"  # of the link
    delay_ms: int = 1


@dataclass(frozen=True, slots=True)
class Answer:
    """Such responses say an error in place of what they said.

    Such a Produce request goes no further, and is answered so.
    """

    name: str
    message: Message
    api: str  # Kafka's name, as "fetch" or "offset_commit"; "any"
    source: str  # a broker, "client" or "controller"
    destination: str
    where: str = ""
    times: int | None = None
    topic: str | None = None  # of which `where` speaks; None: the scenario's own
    purpose: Purpose = "replication"  # of the link
    error: str = ""


@dataclass(frozen=True, slots=True)
class Cap:
    """Clients that ask a broker for its versions are offered no later one of an API."""

    name: str
    api: str
    version: int
    source: str  # the broker
    times: int | None = None


@dataclass(frozen=True, slots=True)
class Deliver:
    """Ends a hold of requests whose senders have gone: they arrive all the same."""

    rule: str


@dataclass(frozen=True, slots=True)
class Release:
    """Ends a hold (or a drop): what was held goes on, in order."""

    rule: str


@dataclass(frozen=True, slots=True)
class Discard:
    """Ends a hold: what was held is thrown away."""

    rule: str


@dataclass(frozen=True, slots=True)
class Kill:
    """SIGKILL. What the broker had sent and nobody has received is delivered, or discarded."""

    broker: Node
    in_flight: InFlight


@dataclass(frozen=True, slots=True)
class PowerOff:
    """SIGKILL, and the page cache is gone: what was not flushed is cut from the logs.

    `survives`: records up to and including this one happened to reach the disk all the same.
    """

    broker: str
    survives: str | None = None


@dataclass(frozen=True, slots=True)
class KillTogether:
    """SIGKILL for several brokers at one moment: none can react to another's death."""

    brokers: tuple[str, ...]
    in_flight: InFlight


@dataclass(frozen=True, slots=True)
class PowerOffTogether:
    """The power fails for several at one moment. `survives`: on each of their disks."""

    brokers: tuple[str, ...]
    survives: str | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """A clean shutdown."""

    broker: Node


@dataclass(frozen=True, slots=True)
class Restart:
    """Starts a broker that is down."""

    broker: Node


@dataclass(frozen=True, slots=True)
class Pause:
    """SIGSTOP: the process exists, and does nothing."""

    broker: Node


@dataclass(frozen=True, slots=True)
class Resume:
    broker: Node


@dataclass(frozen=True, slots=True)
class RemoveVoter:
    """In KRaft a controller leaves the quorum, and goes on as an observer (KIP-853)."""

    broker: Node


@dataclass(frozen=True, slots=True)
class AddVoter:
    """A controller that runs and is no voter becomes one."""

    broker: Node


@dataclass(frozen=True, slots=True)
class Reassign:
    """An operator gives a partition these replicas, in this order: the first is preferred."""

    replicas: tuple[str, ...]
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Elect:
    """An operator asks for an election of a partition's leader.

    Of the preferred replica; or, unclean, of whoever lives, where nobody of the ISR does (KIP-460).
    """

    partition: int = 0
    election: Election = "preferred"


@dataclass(frozen=True, slots=True)
class MoveController:
    """An operator deletes `/controller`: the brokers elect another controller, or the same."""


@dataclass(frozen=True, slots=True)
class Cut:
    """No byte passes from source to destination; both ways where `both`."""

    source: str
    destination: str
    purpose: Purpose | None = None
    both: bool = False


@dataclass(frozen=True, slots=True)
class Slow:
    """Delays the bytes that one broker sends to another for replication; 0: no longer."""

    source: str
    destination: str
    delay_ms: int
    purpose: Purpose = "replication"


@dataclass(frozen=True, slots=True)
class AddToxic:
    """Bytes of a link are late, few, sliced, cut short or lost, until the toxic ends.

    The link is that to a broker from its clients or followers, or that from a broker to the
    coordination service; in KRaft that to the controllers, whoever asks.
    """

    name: str
    broker: str
    purpose: Purpose
    toxic: Toxic


@dataclass(frozen=True, slots=True)
class EndToxic:
    """The link is as before."""

    name: str


@dataclass(frozen=True, slots=True)
class Heal:
    """Undoes the cuts between these two; or all of them, what was slowed, and toxics."""

    source: str | None = None
    destination: str | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """Notes how long after a broker's last fetch the step's condition came true.

    In units of a broker setting; `above` and `at_most` say what is predicted.
    """

    since_last_fetch_of: str
    unit: str
    above: float
    at_most: float
    slack_ms: int = 0


# --- clients that a scenario drives, by name -----------------------------------------------------

ClientKind = Literal["producer", "consumer", "raw_producer"]


@dataclass(frozen=True, slots=True)
class OpenClient:
    """Starts a client in a process of its own; a transactional producer is initialised.

    A `raw_producer` is a transactional one that takes no care of what arrives late: see
    workloads.raw_producer.
    """

    name: str
    kind: ClientKind
    group: str | None = None
    transactional_id: str | None = None
    settings: tuple[tuple[str, str], ...] = ()  # by librdkafka's names


@dataclass(frozen=True, slots=True)
class Begin:
    """A transactional producer begins a transaction."""

    client: str


@dataclass(frozen=True, slots=True)
class Send:
    """A producer sends records, in order. `waits`: until each has its end."""

    client: str
    records: tuple[str, ...]
    partition: int = 0
    waits: bool = True


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """Commits or aborts."""

    client: str
    commits: bool


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A consumer joins its group and stays in it. It takes no records yet."""

    client: str


@dataclass(frozen=True, slots=True)
class Assign:
    """A consumer assigns itself a partition, from its start or from where its group goes on."""

    client: str
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Poll:
    """A consumer takes a number of records. They are not handled yet."""

    client: str
    records: int


@dataclass(frozen=True, slots=True)
class Handle:
    """A consumer processes the records that it has taken."""

    client: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    """A consumer commits how far it has taken records, or `offset`, and waits where it is sync."""

    client: str
    waits: bool = True
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """A consumer does not poll any more; its heartbeats go on."""

    client: str


@dataclass(frozen=True, slots=True)
class Wake:
    """A consumer that had stalled goes on."""

    client: str


@dataclass(frozen=True, slots=True)
class Die:
    """SIGKILL for a client: what it has sent is still on its way."""

    client: str


@dataclass(frozen=True, slots=True)
class Leave:
    """A client closes. A consumer leaves its group, and commits if it commits by itself."""

    client: str


@dataclass(frozen=True, slots=True)
class SetClock:
    """Sets a broker's clock this far ahead of the real one; 0: right again."""

    broker: str
    ahead_ms: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Damages the disk of a broker that is down."""

    broker: str
    kind: DamageKind
    file: DiskFile = "segment"  # the newest of its kind
    partition: int = 0


@dataclass(frozen=True, slots=True)
class KeepSnapshot:
    """Copies the log directory of a broker that is down, for `put_back`."""

    broker: str


@dataclass(frozen=True, slots=True)
class PutBack:
    """The log directory of a broker that is down is as the snapshot has it."""

    broker: str


@dataclass(frozen=True, slots=True)
class Inject:
    """System calls of a broker on these files fail, or take longer, until `end_injections`."""

    broker: str
    call: Call
    error: Errno | None = None
    delay_ms: int = 0
    nth: int = 1
    file: DiskFile = "segment"
    partition: int = 0


@dataclass(frozen=True, slots=True)
class EndInjections:
    """If no call was affected, the aim is missed."""

    broker: str


@dataclass(frozen=True, slots=True)
class Await:
    """Does nothing: the step only waits for its condition."""


# Of these a process of its own is needed: the simulation has no clocks and disks to set or damage.
OfMachine = SetClock | Damage | KeepSnapshot | PutBack | Inject | EndInjections
OfQuorum = RemoveVoter | AddVoter
OfOperators = Reassign | Elect | MoveController
OfLinks = Cut | Slow | AddToxic | EndToxic | Heal
MessageRule = Hold | Drop | Delay | Answer
ToClient = (
    OpenClient
    | Begin
    | Send
    | EndTransaction
    | Subscribe
    | Assign
    | Poll
    | Handle
    | CommitOffsets
    | Stall
    | Wake
    | Die
    | Leave
)
Step = (
    MessageRule
    | ToClient
    | Produce
    | Consume
    | Load
    | StopLoad
    | Cap
    | Deliver
    | Release
    | Discard
    | Kill
    | PowerOff
    | KillTogether
    | PowerOffTogether
    | Stop
    | Restart
    | Pause
    | Resume
    | OfQuorum
    | OfOperators
    | OfLinks
    | Measure
    | OfMachine
    | Await
)


_NEW_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


def verb_of(step: Step) -> str:
    """What a step is called in files and histories: `power_off`. One for several brokers has none:
    in both it is one for each."""
    return _NEW_WORD.sub("_", type(step).__name__).lower()


_FILLING = " "  # between a record's name, which has none, and what makes its value long


def filled(record: str, size_bytes: int | None) -> str:
    """The value of a record: its name, made as long as is asked for."""
    if size_bytes is None:
        return record
    return (record + _FILLING).ljust(size_bytes, ".")


def record_of(value: str) -> str:
    """The name of the record that has this value."""
    return value.partition(_FILLING)[0]
