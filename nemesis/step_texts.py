"""The verbs of scenario files in words: what each does, an example, what its keys mean.

For readers only: docs/reference/steps.md is made of it. Which keys a verb has, their types and
defaults are not written here: `asked_keys` reads the examples with the real reader and notes what
it asks for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from neaptide.nemesis.fields import Fields, ScenarioError
from neaptide.nemesis.verbs import VERBS, Names


@dataclass(frozen=True, slots=True)
class StepText:
    """`examples`: inline tables of TOML. `keys`: meanings that differ from those of `KEYS`."""

    does: str
    examples: tuple[str, ...]
    keys: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Key:
    """What the reader asks for. `default`: of Python's `...`, the key is required."""

    kind: type
    default: Any
    choices: tuple[str, ...] = ()

    @property
    def required(self) -> bool:
        return self.default is ...


# What a key means, in whatever step it is.
KEYS: Final[Mapping[str, str]] = {
    "acks": "As Kafka's producer setting.",
    "broker": "A broker of the scenario.",
    "brokers": "Several brokers, instead of `broker`: all at one moment.",
    "controller": 'Instead of `broker`: `"active"`, or a name that an earlier step gave with `as`.',
    "as": "A name for the node that is the active controller now.",
    "client": "A client that an earlier step has opened.",
    "partition": "The partition.",
    "record": "The name of a record, which is also its value.",
    "records": "Several records, in order, instead of `record`.",
    "request": "The API of the request, by Kafka's name: `fetch`, `produce`, …, or `any`.",
    "response": "The API of the response; a rule has either `request` or `response`.",
    "from": "Who sends the message: a broker, `client` or `controller`.",
    "to": "Who receives it: a broker, `client` or `controller`.",
    "where": "Comparisons of the message's fields, joined by `and`. Empty: every such message.",
    "times": "How many messages at most. Not set: no limit.",
    "topic": "The topic whose numbers `where` is about. Not set: the scenario's own.",
    "rule": "The name of the rule. Not set: `request A→B` or `response C→A`.",
    "in_flight": "What becomes of messages that the broker has sent and nobody has received.",
    "survives": "Records up to this one reached the disk by chance.",
    "file": "Which of the broker's files: the newest of its kind.",
    "delay_ms": "The delay in milliseconds.",
    "error": "Kafka's name of the error.",
    "waits": "Whether the step waits until the operation has completed.",
    "purpose": "Which link of the two: for clients, for replication, or for coordination.",
}

_RULE: Final = (
    '{ response = "fetch", from = "C", to = "A", where = "high_watermark >= 2" }',
    '{ request = "fetch", from = "A", to = "C", times = 1 }',
)
_CLIENT: Final = '{ client = "x" }'
_PRODUCER: Final = '{ client = "p" }'
_NAMED_RULE: Final = {"rule": "The name of the rule to end."}

GROUPS: Final[Mapping[str, Mapping[str, StepText]]] = {
    "Records": {
        "produce": StepText(
            "Sends records, and does not wait for their acknowledgement.",
            (
                '{ record = "m1", acks = "all" }',
                '{ records = ["m2", "m3"], acks = "1", to = "C", bytes = 20000 }',
            ),
            {
                "to": "A client of its own sends the records. It knows only this broker, and"
                " believes the broker's metadata.",
                "bytes": "The length of each value in bytes. Not set: the record's name alone.",
            },
        ),
        "load": StepText(
            "Sends unnamed records to all partitions, in bursts of fifty, and consumes them. The"
            " load ends with `stop_load`, or with the last step.",
            ('{ rate = 100, acks = "1" }',),
            {"rate": "Records per second."},
        ),
        "stop_load": StepText("Ends the load, and waits until every send has completed.", ("{}",)),
        "consume": StepText(
            "Reads the partition once, from its beginning to the high watermark. With a group: asks"
            " for the group's committed position, reads from there to the high watermark, and"
            " commits the new position if there was anything to read. It repeats a request that"
            " fails, for 20 s in all. The consumer is no member of the group.",
            ("{}", '{ group = "g" }'),
            {"group": "The group whose positions are read and committed."},
        ),
    },
    "Messages": {
        "hold": StepText(
            "The gate keeps matching messages, and everything behind them on that connection, until"
            " `release`, `discard` or `deliver`.",
            _RULE,
        ),
        "drop": StepText(
            "Loses matching messages. On TCP this breaks the connection.",
            _RULE,
        ),
        "delay": StepText(
            "Delays matching messages, and everything behind them.",
            (
                '{ request = "fetch", from = "B", to = "A", delay_ms = 300 }',
                '{ response = "fetch", from = "A", to = "B", delay_ms = 300 }',
            ),
        ),
        "answer": StepText(
            "The response carries this error instead of its own content. A matching Produce request"
            " is not passed on, and is answered with the error.",
            (
                '{ response = "produce", from = "A", to = "client",'
                ' error = "NOT_ENOUGH_REPLICAS" }',
                '{ request = "produce", from = "client", to = "A", error = "REQUEST_TIMED_OUT" }',
            ),
        ),
        "cap": StepText(
            "In its ApiVersions responses the broker offers no version of the API above this one:"
            " a new client then uses an old protocol.",
            ('{ api = "produce", version = 7, from = "A" }',),
            {
                "api": "The API, by Kafka's name.",
                "version": "The highest version that is offered.",
                "from": "The broker.",
                "rule": "The name of the rule. Not set: `cap produce A`.",
            },
        ),
        "release": StepText(
            "Ends a hold: the messages go on, in order. Ends a drop too.",
            ('{ rule = "response C→A" }',),
            _NAMED_RULE,
        ),
        "discard": StepText(
            "Ends a hold: the messages are thrown away.",
            ('{ rule = "response C→A" }',),
            _NAMED_RULE,
        ),
        "deliver": StepText(
            "Ends a hold of requests whose senders have gone: the requests arrive after all. If a"
            " sender is still connected, the run has missed its aim.",
            ('{ rule = "response C→A" }',),
            _NAMED_RULE,
        ),
    },
    "Brokers": {
        "kill": StepText(
            "SIGKILL.",
            (
                '{ broker = "C", in_flight = "discarded" }',
                '{ brokers = ["A", "B"], in_flight = "delivered" }',
                '{ controller = "active", as = "old", in_flight = "discarded" }',
            ),
        ),
        "power_off": StepText(
            "SIGKILL, and everything that was not flushed to disk is gone.",
            ('{ broker = "B", survives = "m1" }', '{ brokers = ["A", "B"] }'),
        ),
        "stop": StepText("A clean shutdown.", ('{ broker = "B" }', '{ controller = "active" }')),
        "restart": StepText(
            "Starts a broker that is down.", ('{ broker = "B" }', '{ controller = "old" }')
        ),
        "pause": StepText(
            "SIGSTOP: the process stands still.",
            ('{ broker = "B" }', '{ controller = "active", as = "old" }'),
        ),
        "resume": StepText("SIGCONT.", ('{ broker = "B" }', '{ controller = "old" }')),
        "remove_voter": StepText(
            "A controller of Apache Kafka in KRaft leaves the quorum, and goes on as an observer"
            " (RemoveRaftVoter, KIP-853). The active controller then resigns. The step ends when"
            " the others have committed it.",
            ('{ controller = "active", as = "old" }', '{ broker = "B" }'),
        ),
        "add_voter": StepText(
            "A controller that runs and has left the quorum is a voter again (AddRaftVoter).",
            ('{ controller = "old" }', '{ broker = "B" }'),
        ),
    },
    "Operators": {
        "reassign": StepText(
            "Gives a partition these replicas, in this order: the first is the preferred leader."
            " The step asks for it. Before Kafka 2.4 it does so by `/admin/reassign_partitions`,"
            " and waits 10 seconds for the end of another one; since then it does so by"
            " AlterPartitionReassignments (KIP-455), which replaces another one. It is over when"
            " `replicas is {…}`. At the end of the run every partition gets back the replicas that"
            " it began with.",
            (
                '{ replicas = ["B", "A"] }',
                '{ replicas = ["A", "B", "C"], partition = 0 }',
            ),
            {"replicas": "Brokers, each once."},
        ),
        "elect": StepText(
            "Asks for an election of a partition's leader. Preferred: the first of its replicas"
            " leads, if it is in the ISR. Unclean: any replica that lives leads, if nobody of the"
            " ISR lives (KIP-460: Kafka 2.4 and later).",
            ("{ }", '{ partition = 0, election = "unclean" }'),
            {"election": "Which election."},
        ),
        "move_controller": StepText(
            "Deletes `/controller`, as operators do: the brokers elect a controller again. In KRaft"
            ' there is no such znode; use `remove_voter = { controller = "active" }`.',
            ("{ }",),
        ),
    },
    "Links": {
        "cut": StepText(
            "No byte passes from one end of the link to the other. The ends of links are brokers,"
            " `client` and `coordination`.",
            ('{ from = "A", to = "B", purpose = "replication", both = true }',),
            {
                "from": "One end.",
                "to": "The other end.",
                "purpose": "Which link of the two. Not set: all.",
                "both": "Cut the other direction too.",
            },
        ),
        "heal": StepText(
            "Undoes the cuts between two ends, in both directions. `{}`: undoes all cuts, delays"
            " and toxics. Bytes that waited in the link are lost with its connection.",
            ('{ from = "A", to = "B" }', "{}"),
            {"from": "One end.", "to": "The other end."},
        ),
        "slow": StepText(
            "Delays the bytes that one broker sends to the other for replication. 0: no longer.",
            ('{ from = "B", to = "A", delay_ms = 300 }',),
            {
                "from": "The sender.",
                "to": "The receiver.",
                "purpose": 'Only `"replication"`; for other links use `toxic`.',
            },
        ),
        "toxic": StepText(
            "Changes the bytes of a link, as a bad network does, until `end_toxic` or `heal = {}`:"
            " see [toxics](#toxics).",
            (
                '{ broker = "A", purpose = "client", stream = "upstream", type = "latency",'
                " latency_ms = 300 }",
            ),
            {
                "broker": "The broker whose link it is.",
                "purpose": "The link to its clients, to its followers, or from it to the"
                " coordination service.",
                "stream": "`upstream`: towards the broker or the coordination service."
                " `downstream`: its responses.",
                "type": "The toxic.",
                "latency_ms": "A key of the toxic: see [toxics](#toxics).",
                "jitter_ms": "A key of the toxic: see [toxics](#toxics).",
                "name": "Its name. Not set: `latency A client upstream`.",
            },
        ),
        "end_toxic": StepText(
            "The link is as before. If no connection had the toxic, the run has missed its aim.",
            ('{ name = "latency A client upstream" }',),
            {"name": "The toxic's name."},
        ),
    },
    "Clocks and disks": {
        "set_clock": StepText(
            "Sets a broker's clock ahead of the real one. The process looks every second or two."
            " Its monotonic clock stays right.",
            ('{ broker = "A", ahead_ms = 172800000 }',),
            {"ahead_ms": "How far, in milliseconds. 0: right again."},
        ),
        "inject": StepText(
            "System calls of a broker on its files fail, or take longer.",
            (
                '{ broker = "A", call = "fsync", error = "EIO" }',
                '{ broker = "A", call = "write", delay_ms = 100, nth = 3, file = "segment" }',
            ),
            {
                "call": "The system call.",
                "error": "The error that it returns.",
                "delay_ms": "How much longer it takes, in milliseconds.",
                "nth": "The first call that is affected, counted from 1.",
            },
        ),
        "end_injections": StepText(
            "The broker's disk is well again. If no call was affected, the run has missed its aim.",
            ('{ broker = "A" }',),
        ),
        "damage": StepText(
            "Damages a file of a broker that is down.",
            ('{ broker = "A", kind = "flipped-bit", file = "segment" }',),
            {
                "kind": "The damage. `flipped-record-bit`: a bit that a checksum covers."
                " `lost-directory`: all files are gone.",
            },
        ),
        "keep_snapshot": StepText(
            "Copies the log directory of a broker that is down.", ('{ broker = "A" }',)
        ),
        "put_back": StepText(
            "Puts the copied log directory back. The broker must be down.", ('{ broker = "A" }',)
        ),
    },
    "Driven clients": {
        "open": StepText(
            "Starts a client in a process of its own. A transactional producer asks for its"
            " producer id and epoch. A `raw_producer` is a transactional producer from before"
            " KIP-360: it does not protect itself from its own late requests.",
            (
                '{ name = "y", kind = "consumer", group = "g", settings = { } }',
                '{ name = "q", kind = "producer", transactional_id = "t" }',
            ),
            {
                "name": "The name of the client, for later steps.",
                "kind": "What it is.",
                "group": "The group of a consumer.",
                "transactional_id": "Of a producer.",
                "settings": "Settings by librdkafka's names.",
            },
        ),
        "subscribe": StepText(
            "The consumer joins its group, and waits until it is assigned a partition. It then"
            " takes no records, but stays in the group.",
            (_CLIENT,),
        ),
        "assign": StepText(
            "The consumer assigns itself a partition, from its start or from the group's position.",
            (_CLIENT,),
        ),
        "poll": StepText(
            "The consumer takes a number of records, or receives an error.",
            ('{ client = "x", records = 2 }',),
            {"records": "How many."},
        ),
        "handle": StepText(
            "The consumer processes what it has taken. Only this counts as read: a record that was"
            " taken and never handled was passed over.",
            (_CLIENT,),
        ),
        "commit": StepText(
            "The consumer commits the position behind what it has taken.",
            (_CLIENT, '{ client = "x", offset = 1, waits = false }'),
            {"offset": "Another position."},
        ),
        "stall": StepText(
            "The consumer does not poll any more; its heartbeats go on, until"
            " `max.poll.interval.ms` is over.",
            (_CLIENT,),
        ),
        "wake": StepText("A stalled consumer polls again.", (_CLIENT,)),
        "begin_transaction": StepText("The producer begins a transaction.", (_PRODUCER,)),
        "send": StepText(
            "The producer sends records.",
            ('{ client = "p", record = "m1" }', '{ client = "p", records = ["m2"] }'),
        ),
        "commit_transaction": StepText("The producer commits its transaction.", (_PRODUCER,)),
        "abort_transaction": StepText("The producer aborts its transaction.", (_PRODUCER,)),
        "die": StepText("SIGKILL for the client.", (_CLIENT,)),
        "leave": StepText(
            "The client closes. A consumer leaves its group, and commits if it commits by itself.",
            (_CLIENT,),
        ),
    },
    "Measuring": {
        "measure": StepText(
            "Notes how long after a follower's last fetch the step's `until` became true.",
            (
                '{ since_last_fetch_of = "B", unit = "replica.lag.time.max.ms",'
                " above = 1.0, at_most = 1.5 }",
            ),
            {
                "since_last_fetch_of": "The follower.",
                "unit": "A broker setting: the time is measured in it.",
                "above": "The prediction: more than this.",
                "at_most": "The prediction: not more than this.",
                "slack_ms": "Milliseconds that are allowed beyond.",
            },
        ),
    },
}

STEPS: Final[Mapping[str, StepText]] = {
    verb: text for group in GROUPS.values() for verb, text in group.items()
}


@dataclass(slots=True)
class _Noting(Fields):
    """Reads as ever, and notes what is asked for."""

    asked: dict[str, Key] = field(default_factory=dict)

    def take(self, key: str, kind: type, default: Any = ...) -> Any:
        self.asked.setdefault(key, Key(kind, default))
        return Fields.take(self, key, kind, default)

    def choose(self, key: str, allowed: tuple[str, ...], default: Any = ...) -> Any:
        self.asked[key] = Key(str, default, allowed)
        return Fields.choose(self, key, allowed, default)


def asked_keys(verb: str) -> Mapping[str, Key]:
    """All keys that the reader of a verb asks for in its examples, in their order.

    A key is required where every example that could lack it would be refused: where the reader has
    no default for it in any of them, and all of them have it. Raises ScenarioError for an example
    that cannot be read.
    """
    asked: dict[str, list[Key]] = {}
    examples = STEPS[verb].examples
    for example in examples:
        noted = _read(verb, example)
        for key, one in noted.items():
            asked.setdefault(key, []).append(one)
    return {
        key: seen[0]
        if seen[0].required is False or len(seen) == len(examples)
        else Key(seen[0].kind, None, seen[0].choices)
        for key, seen in asked.items()
    }


def _read(verb: str, example: str) -> Mapping[str, Key]:
    names = Names(
        brokers={"A": 0, "B": 1, "C": 2},
        records=("m1", "m2", "m3"),
        has_groups=True,
        clients={"x": "consumer", "p": "producer"},
    )
    if verb in ("restart", "resume", "remove_voter", "add_voter"):
        names.controllers.add("old")
    if verb in ("release", "discard", "deliver"):
        names.rules.add("response C→A")
    if verb == "end_toxic":
        names.toxics.add("latency A client upstream")
    table = tomllib.loads(f"step = {example}")["step"]
    fields = _Noting(table, lambda message: ScenarioError(f"{verb} = {example}: {message}"))
    VERBS[verb](names, fields)
    fields.done()
    return fields.asked
