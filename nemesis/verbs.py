"""The verbs of a scenario's steps: what each may say, and the step that it becomes.

A step may speak of brokers and records of its scenario, and of rules and controllers that a step
before it has named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.clusters.disks.damage import DamageKind, DiskFile
from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.io_faults import Call, Errno
from neaptide.clusters.hosts.toxiproxy import TOXICS, Stream, Toxic
from neaptide.nemesis.fields import Fields, ScenarioError
from neaptide.nemesis.gate.apis import APIS, RULES_NAME, error_number
from neaptide.nemesis.gate.model import CLIENT
from neaptide.nemesis.gate.where import parse_where
from neaptide.nemesis.steps import (
    ALTER_PARTITION,
    Acks,
    ActiveController,
    AddToxic,
    AddVoter,
    Answer,
    Assign,
    Begin,
    Cap,
    ClientKind,
    CommitOffsets,
    Consume,
    Cut,
    Damage,
    Delay,
    Deliver,
    Die,
    Discard,
    Drop,
    Elect,
    Election,
    EndInjections,
    EndToxic,
    EndTransaction,
    Handle,
    Heal,
    Hold,
    InFlight,
    Inject,
    KeepSnapshot,
    Kill,
    KillTogether,
    Leave,
    Load,
    Measure,
    Message,
    MoveController,
    NamedController,
    Node,
    OpenClient,
    Pause,
    Poll,
    PowerOff,
    PowerOffTogether,
    Produce,
    Purpose,
    PutBack,
    Reassign,
    Release,
    RemoveVoter,
    Restart,
    Resume,
    Send,
    SetClock,
    Slow,
    Stall,
    Step,
    Stop,
    StopLoad,
    Subscribe,
    Wake,
)

_PRODUCERS: Final = ("producer", "raw_producer")
_SPEAKERS: Final = ("client", "controller")  # that are no brokers


@dataclass(slots=True)
class Names:
    """What a step may name. All but `brokers` and `records` grow from step to step."""

    brokers: Mapping[str, int] = field(default_factory=dict)
    records: tuple[str, ...] = ()
    rules: set[str] = field(default_factory=set)
    controllers: set[str] = field(default_factory=set)  # what steps called the active controller
    has_groups: bool = False  # there is a topic for the positions of groups
    groups: set[str] = field(default_factory=set)
    clients: dict[str, ClientKind] = field(default_factory=dict)  # that steps have opened
    toxics: set[str] = field(default_factory=set)  # that are there now
    partitions: int = 1  # of the scenario's topic

    def broker(self, name: str, complain: Callable[[str], ScenarioError]) -> str:
        if name not in self.brokers:
            raise complain(f"{name!r} is no broker; there are {', '.join(self.brokers)}")
        return name

    def broker_of(self, fields: Fields, key: str = "broker") -> str:
        return self.broker(fields.take(key, str), fields.complain)

    def node_of(self, fields: Fields) -> Node:
        """A broker by name, or a controller: the active one, or one that a step has named."""
        if "controller" not in fields.values:
            return self.broker_of(fields)
        name = str(fields.take("controller", str))
        if name != "active":
            if name not in self.controllers:
                known = ", ".join(("active", *sorted(self.controllers)))
                raise fields.complain(f"controller = {name!r} must be one of {known}")
            return NamedController(name)
        called = fields.take("as", str, None)
        if called is not None:
            if called in self.brokers or not called.isidentifier():
                raise fields.complain(f"as = {called!r} must be a word that names no broker")
            self.controllers.add(called)
        return ActiveController(called)

    def partition_of(self, fields: Fields) -> int:
        """One that the scenario's topic has."""
        partition = int(fields.take("partition", int, 0))
        if not 0 <= partition < self.partitions:
            raise fields.complain(
                f"partition = {partition} must be one of the topic's {self.partitions}, from 0"
            )
        return partition

    def rule_of(self, fields: Fields) -> str:
        rule = str(fields.take("rule", str))
        if rule not in self.rules:
            known = ", ".join(sorted(self.rules)) or "none yet"
            raise fields.complain(f"no earlier step has the rule {rule!r}; there are {known}")
        return rule


def _produce(names: Names, fields: Fields) -> Produce:
    records = tuple(str(record) for record in fields.take("records", list, []))
    one = fields.take("record", str, None)
    if (one is None) == (not records):
        raise fields.complain('needs a record = "m1", or a list of records')
    return Produce(
        records or (one,),
        fields.choose("acks", get_args(Acks), "all"),
        fields.take("partition", int, 0),
        names.broker_of(fields, "to") if "to" in fields.values else None,
        _size_of(fields, records or (one,)),
    )


def _size_of(fields: Fields, records: tuple[str, ...]) -> int | None:
    size: int | None = fields.take("bytes", int, None)
    least = max(map(len, records)) + 1
    if size is not None and size < least:
        raise fields.complain(f"bytes = {size} is too short for {max(records, key=len)!r}")
    return size


def _consume(names: Names, fields: Fields) -> Consume:
    partition, group = fields.take("partition", int, 0), fields.take("group", str, None)
    if group is None:
        return Consume(partition)
    if not names.has_groups:
        raise fields.complain(
            "a group needs a topic for its positions: topics.__consumer_offsets = { assignment = …"
            " }"
        )
    if not group.isidentifier() or group in names.brokers or group in names.records:
        raise fields.complain(
            f"group = {group!r} must be a word that names neither a broker nor a record"
        )
    names.groups.add(group)
    return Consume(partition, group)


def _load(names: Names, fields: Fields) -> Load:
    rate = fields.take("rate", float)
    if rate <= 0:
        raise fields.complain(f"rate = {rate:g} must be more than 0 records a second")
    return Load(rate, fields.choose("acks", get_args(Acks), "all"))


def _message_rule(names: Names, fields: Fields) -> dict[str, Any]:
    kinds = [kind for kind in get_args(Message) if kind in fields.values]
    if len(kinds) != 1:
        raise fields.complain('needs either request = "fetch" or response = "fetch"')
    api = fields.choose(kinds[0], RULES_NAME)
    source, destination = _speaker(names, fields, "from"), _speaker(names, fields, "to")
    purpose = _purpose(names, fields, source, destination)
    if api == ALTER_PARTITION and purpose != "coordination":
        side = "to" if kinds[0] == "request" else "from"
        raise fields.complain(
            f'{api} is between a leader and its controller: {side} = "controller"'
        )
    where = fields.take("where", str, "")
    try:
        parse_where(where)
    except UsageError as error:
        raise fields.complain(str(error)) from None
    return {
        "name": _rule_name(names, fields, f"{kinds[0]} {source}→{destination}"),
        "message": kinds[0],
        "api": api,
        "source": source,
        "destination": destination,
        "where": where,
        "times": fields.take("times", int, None),
        "topic": _topic(names, fields, where) if purpose == "replication" else None,
        "purpose": purpose,
    }


def _rule_name(names: Names, fields: Fields, default: str) -> str:
    name = str(fields.take("rule", str, default))
    if name in names.rules:
        raise fields.complain(f"the rule {name!r} exists already; give this one another name")
    names.rules.add(name)
    return name


def _speaker(names: Names, fields: Fields, key: str) -> str:
    """Who sends or receives messages that rules are about."""
    name = str(fields.take(key, str))
    if name not in (*names.brokers, *_SPEAKERS):
        raise fields.complain(
            f"{name!r} is no broker; there are {', '.join((*names.brokers, *_SPEAKERS))}"
        )
    return name


def _purpose(names: Names, fields: Fields, source: str, destination: str) -> Purpose:
    """Of the link between two who speak to each other."""
    others = [name for name in (source, destination) if name not in names.brokers]
    if len(others) == 2:
        raise fields.complain(f"{source} and {destination} do not speak to each other")
    if not others:
        return "replication"
    return "client" if others == [CLIENT] else "coordination"


def _delay(names: Names, fields: Fields) -> Delay:
    delay_ms = fields.take("delay_ms", int)
    if delay_ms < 1:
        raise fields.complain(f"delay_ms = {delay_ms} must be 1 or more")
    return Delay(**_message_rule(names, fields), delay_ms=delay_ms)


def _answer(names: Names, fields: Fields) -> Answer:
    error = fields.take("error", str)
    try:
        error_number(error)
    except UsageError as wrong:
        raise fields.complain(str(wrong)) from None
    step = Answer(**_message_rule(names, fields), error=error)
    if step.message == "request" and step.api != "produce":
        raise fields.complain(
            "of requests only a produce can be answered in place of its leader; of all else the"
            " response"
        )
    return step


def _cap(names: Names, fields: Fields) -> Cap:
    api, version = fields.choose("api", tuple(APIS)), fields.take("version", int)
    source = names.broker_of(fields, "from")
    name = _rule_name(names, fields, f"cap {api} {source}")
    return Cap(name, api, version, source, fields.take("times", int, None))


# --- clients that a scenario drives --------------------------------------------------------------


def _open_client(names: Names, fields: Fields) -> OpenClient:
    name, kind = fields.take("name", str), fields.choose("kind", get_args(ClientKind))
    if not name.isidentifier() or name in names.clients or name in names.brokers:
        raise fields.complain(f"name = {name!r} must be a word that names nobody else")
    group = fields.take("group", str, None)
    transactional_id = fields.take("transactional_id", str, None)
    settings = fields.take("settings", dict, {})
    if (group is not None and kind != "consumer") or (transactional_id and kind == "consumer"):
        raise fields.complain("a group goes with a consumer, a transactional_id with a producer")
    if kind == "raw_producer" and transactional_id is None:
        raise fields.complain("a raw_producer needs a transactional_id")
    if group is not None:
        if not group.isidentifier():
            raise fields.complain(f"group = {group!r} must be a word")
        names.groups.add(group)
    names.clients[name] = kind
    given = tuple(
        (key, str(value).lower() if isinstance(value, bool) else str(value))
        for key, value in settings.items()
    )
    return OpenClient(name, kind, group, transactional_id, given)


def _client(names: Names, fields: Fields, kind: ClientKind | None = None) -> str:
    name = str(fields.take("client", str))
    kinds = _PRODUCERS if kind == "producer" else (kind,)
    known = [one for one, its in names.clients.items() if kind is None or its in kinds]
    if name not in known:
        raise fields.complain(
            f"client = {name!r} must be one that an earlier step has opened:"
            f" {', '.join(known) or 'there is none'}"
        )
    return name


def _send(names: Names, fields: Fields) -> Send:
    records = tuple(str(record) for record in fields.take("records", list, []))
    one = fields.take("record", str, None)
    if (one is None) == (not records):
        raise fields.complain('needs a record = "m1", or a list of records')
    return Send(
        _client(names, fields, "producer"),
        records or (one,),
        fields.take("partition", int, 0),
        fields.take("waits", bool, True),
    )


def _poll(names: Names, fields: Fields) -> Poll:
    count = fields.take("records", int)
    if count < 1:
        raise fields.complain(f"records = {count} must be 1 or more")
    return Poll(_client(names, fields, "consumer"), count)


def _commit_offsets(names: Names, fields: Fields) -> CommitOffsets:
    return CommitOffsets(
        _client(names, fields, "consumer"),
        fields.take("waits", bool, True),
        fields.take("offset", int, None),
    )


def _of_consumer(step: Callable[[str], Step]) -> Callable[[Names, Fields], Step]:
    return lambda names, fields: step(_client(names, fields, "consumer"))


def _topic(names: Names, fields: Fields, where: str) -> str | None:
    """Whose numbers a rule's condition is about."""
    topic: str | None = fields.take("topic", str, None)
    if topic is None:
        return None
    if topic != OFFSETS_TOPIC or not names.has_groups or not where:
        raise fields.complain(
            f"topic = {topic!r} goes with a where, in a cluster that has it; the one to name is"
            f" {OFFSETS_TOPIC}"
        )
    return topic


def _power_off(names: Names, fields: Fields) -> PowerOff | PowerOffTogether:
    survives = fields.take("survives", str, None)
    if survives is not None and survives not in names.records:
        raise fields.complain(f"survives = {survives!r}: no step produces that record")
    if "brokers" in fields.values:
        return PowerOffTogether(_brokers(names, fields), survives)
    return PowerOff(names.broker_of(fields), survives)


def _kill(names: Names, fields: Fields) -> Kill | KillTogether:
    in_flight = fields.choose("in_flight", get_args(InFlight))
    if "brokers" in fields.values:
        return KillTogether(_brokers(names, fields), in_flight)
    return Kill(names.node_of(fields), in_flight)


def _brokers(names: Names, fields: Fields) -> tuple[str, ...]:
    """Several, each once."""
    given = [names.broker(str(one), fields.complain) for one in fields.take("brokers", list)]
    if not given or len(set(given)) != len(given):
        raise fields.complain("brokers must name each broker once")
    return tuple(given)


def _reassign(names: Names, fields: Fields) -> Reassign:
    replicas = tuple(
        names.broker(str(one), fields.complain) for one in fields.take("replicas", list)
    )
    if not replicas or len(set(replicas)) != len(replicas):
        raise fields.complain("replicas must name each broker once")
    return Reassign(replicas, names.partition_of(fields))


def _elect(names: Names, fields: Fields) -> Elect:
    election = fields.choose("election", get_args(Election), "preferred")
    return Elect(names.partition_of(fields), election)


def _cut(names: Names, fields: Fields) -> Cut:
    return Cut(
        _end(names, fields, "from"),
        _end(names, fields, "to"),
        fields.choose("purpose", get_args(Purpose), None),
        fields.take("both", bool, False),
    )


def _slow(names: Names, fields: Fields) -> Slow:
    delay_ms = fields.take("delay_ms", int)
    if delay_ms < 0:
        raise fields.complain(f"delay_ms = {delay_ms} must be 0 or more")
    if fields.take("purpose", str, "replication") != "replication":
        raise fields.complain("is for what brokers fetch from each other; of other links a toxic")
    source, destination = names.broker_of(fields, "from"), names.broker_of(fields, "to")
    return Slow(source, destination, delay_ms)


def _toxic(names: Names, fields: Fields) -> AddToxic:
    broker, purpose = names.broker_of(fields), fields.choose("purpose", get_args(Purpose))
    kind = fields.choose("type", tuple(TOXICS))
    stream = fields.choose("stream", get_args(Stream))
    given = {
        name: fields.take(name, int, ... if known.default is None else known.default)
        for name, known in TOXICS[kind].items()
    }
    toxic = Toxic(kind, stream, given)
    problem = toxic.problem()
    if problem is not None:
        raise fields.complain(problem)
    name = str(fields.take("name", str, f"{kind} {broker} {purpose} {stream}"))
    if name in names.toxics:
        raise fields.complain(f"there is a toxic {name!r} already; give this one another name")
    names.toxics.add(name)
    return AddToxic(name, broker, purpose, toxic)


def _end_toxic(names: Names, fields: Fields) -> EndToxic:
    name = str(fields.take("name", str))
    if name not in names.toxics:
        known = ", ".join(sorted(names.toxics)) or "none"
        raise fields.complain(f"no toxic {name!r} is there; there are {known}")
    names.toxics.discard(name)
    return EndToxic(name)


def _end(names: Names, fields: Fields, key: str) -> str:
    name = str(fields.take(key, str))
    if name not in names.brokers and name not in ("client", "coordination"):
        raise fields.complain(
            f"{name!r} is no end of a link; there are"
            f" {', '.join(names.brokers)}, client, coordination"
        )
    return name


def _heal(names: Names, fields: Fields) -> Heal:
    if not fields.values:
        names.toxics.clear()
        return Heal()
    return Heal(_end(names, fields, "from"), _end(names, fields, "to"))


def _measure(names: Names, fields: Fields) -> Measure:
    return Measure(
        names.broker_of(fields, "since_last_fetch_of"),
        fields.take("unit", str),
        fields.take("above", float),
        fields.take("at_most", float),
        fields.take("slack_ms", int, 0),
    )


def _damage(names: Names, fields: Fields) -> Damage:
    return Damage(
        names.broker_of(fields),
        fields.choose("kind", get_args(DamageKind)),
        fields.choose("file", get_args(DiskFile), "segment"),
        fields.take("partition", int, 0),
    )


def _inject(names: Names, fields: Fields) -> Inject:
    delay_ms, nth = fields.take("delay_ms", int, 0), fields.take("nth", int, 1)
    error = fields.choose("error", get_args(Errno), None)
    if delay_ms < 0 or nth < 1:
        raise fields.complain("delay_ms must be 0 or more, and nth 1 or more")
    if error is None and delay_ms == 0:
        raise fields.complain('needs an error = "EIO", a delay_ms, or both')
    return Inject(
        names.broker_of(fields),
        fields.choose("call", get_args(Call)),
        error,
        delay_ms,
        nth,
        fields.choose("file", get_args(DiskFile), "segment"),
        fields.take("partition", int, 0),
    )


VERBS: Final[Mapping[str, Callable[[Names, Fields], Step]]] = {
    "produce": _produce,
    "consume": _consume,
    "load": _load,
    "stop_load": lambda names, fields: StopLoad(),
    "hold": lambda names, fields: Hold(**_message_rule(names, fields)),
    "drop": lambda names, fields: Drop(**_message_rule(names, fields)),
    "delay": _delay,
    "answer": _answer,
    "cap": _cap,
    "deliver": lambda names, fields: Deliver(names.rule_of(fields)),
    "release": lambda names, fields: Release(names.rule_of(fields)),
    "discard": lambda names, fields: Discard(names.rule_of(fields)),
    "kill": _kill,
    "power_off": _power_off,
    "stop": lambda names, fields: Stop(names.node_of(fields)),
    "restart": lambda names, fields: Restart(names.node_of(fields)),
    "pause": lambda names, fields: Pause(names.node_of(fields)),
    "resume": lambda names, fields: Resume(names.node_of(fields)),
    "remove_voter": lambda names, fields: RemoveVoter(names.node_of(fields)),
    "add_voter": lambda names, fields: AddVoter(names.node_of(fields)),
    "reassign": _reassign,
    "elect": _elect,
    "move_controller": lambda names, fields: MoveController(),
    "cut": _cut,
    "slow": _slow,
    "toxic": _toxic,
    "end_toxic": _end_toxic,
    "heal": _heal,
    "measure": _measure,
    "set_clock": lambda names, fields: SetClock(
        names.broker_of(fields), fields.take("ahead_ms", int)
    ),
    "damage": _damage,
    "keep_snapshot": lambda names, fields: KeepSnapshot(names.broker_of(fields)),
    "put_back": lambda names, fields: PutBack(names.broker_of(fields)),
    "inject": _inject,
    "end_injections": lambda names, fields: EndInjections(names.broker_of(fields)),
    "open": _open_client,
    "begin_transaction": lambda names, fields: Begin(_client(names, fields, "producer")),
    "send": _send,
    "commit_transaction": lambda names, fields: EndTransaction(
        _client(names, fields, "producer"), commits=True
    ),
    "abort_transaction": lambda names, fields: EndTransaction(
        _client(names, fields, "producer"), commits=False
    ),
    "subscribe": _of_consumer(Subscribe),
    "assign": lambda names, fields: Assign(
        _client(names, fields, "consumer"), fields.take("partition", int, 0)
    ),
    "poll": _poll,
    "handle": _of_consumer(Handle),
    "commit": _commit_offsets,
    "stall": _of_consumer(Stall),
    "wake": _of_consumer(Wake),
    "die": lambda names, fields: Die(_client(names, fields)),
    "leave": lambda names, fields: Leave(_client(names, fields)),
}
