"""Steps about single messages, which the gate carries out; the simulation holds and drops too.

A message travels from its source to its destination: a Fetch response goes from the leader to the
follower. What a rule may say of messages is `gate.where`, which APIs there are `gate.apis`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import AfterValidator, Field

from neaptide.clusters.broker.replication.group.committed_offsets import OFFSETS_TOPIC
from neaptide.nemesis.gate.apis import APIS, RULES_NAME, error_number
from neaptide.nemesis.gate.model import CLIENT, Action, MessageKind, Purpose
from neaptide.nemesis.gate.where import parse_where
from neaptide.nemesis.steps.language import (
    CONTROLLER,
    BrokerName,
    Count,
    Names,
    RuleName,
    Step,
    Whole,
    one_of_brokers,
    step,
)

FAMILY: Final = "Messages"
# Of what replicas ask each other, any of it, of what a controller sends to brokers, of what a
# leader asks of it, and of what transaction coordinators and leaders ask each other.
Api = Literal[
    "fetch",
    "offset_for_leader_epoch",
    "any",
    "leader_and_isr",
    "stop_replica",
    "update_metadata",
    "alter_partition",
    "write_txn_markers",
    "add_partitions_to_txn",
]
ALTER_PARTITION: Final[Api] = "alter_partition"

_OF_REPLICAS: Final = ("fetch", "offset_for_leader_epoch", "any")

_EXAMPLES: Final = (
    '{ response = "fetch", from = "C", to = "A", where = "high_watermark >= 2" }',
    '{ request = "fetch", from = "A", to = "C", times = 1 }',
)
# Written out, for the types of pydantic: `RULES_NAME` is what there is.
_ApiName = Annotated[str, Field(json_schema_extra={"enum": [*RULES_NAME]})]
_Speaker = Annotated[str, AfterValidator(one_of_brokers(CLIENT, CONTROLLER))]
_Times = Annotated[Whole | None, Field(description="How many messages at most. Not set: no limit.")]


def _declare(rule: str, names: Names) -> None:
    if rule in names.rules:
        raise ValueError(f"the rule {rule!r} exists already; give this one another name")
    names.rules.add(rule)


@dataclass(frozen=True, slots=True)
class MessageRule(Step):
    """What happens to messages of one kind, on one way, from now on."""

    action: ClassVar[Action]
    done: ClassVar[str]  # as `words` begins; the fields of the step may stand in it

    source: Annotated[_Speaker, Field(alias="from")]
    """Who sends the message: a broker, `client` or `controller`."""
    destination: Annotated[_Speaker, Field(alias="to")]
    """Who receives it: a broker, `client` or `controller`."""
    request: _ApiName | None = None
    """The API of the request, by Kafka's name: `fetch`, `produce`, …, or `any`."""
    response: _ApiName | None = None
    """The API of the response; a rule has either `request` or `response`."""
    where: str = ""
    """Comparisons of the message's fields, joined by `and`. Empty: every such message."""
    times: _Times = None
    topic: str | None = None
    """The topic whose numbers `where` is about. Not set: the scenario's own."""
    rule: str | None = None
    """The name of the rule. Not set: `request A→B` or `response C→A`."""

    @classmethod
    def of(
        cls,
        message: MessageKind,
        api: str,
        source: str,
        destination: str,
        where: str = "",
        **more: Any,
    ) -> Self:
        """About requests of an API, or responses."""
        more[message] = api
        return cls(source, destination, where=where, **more)

    @property
    def name(self) -> str:
        return self.rule or f"{self.message} {self.source}→{self.destination}"

    @property
    def message(self) -> MessageKind:
        return "request" if self.response is None else "response"

    @property
    def api(self) -> str:
        """Kafka's name, as "fetch" or "offset_commit"; "any"."""
        return self.request or self.response or "any"

    @property
    def purpose(self) -> Purpose:
        """Of the link between the two."""
        ends = (self.source, self.destination)
        if CLIENT in ends:
            return "client"
        return "coordination" if CONTROLLER in ends else "replication"

    def to_table(self, table: dict[str, Any]) -> dict[str, Any]:
        return {self.message: self.api, **table}

    def check(self, names: Names) -> None:
        if (self.request is None) == (self.response is None):
            raise ValueError('needs either request = "fetch" or response = "fetch"')
        if self.api not in RULES_NAME:
            raise ValueError(
                f"{self.message} = {self.api!r} must be one of {', '.join(RULES_NAME)}"
            )
        if self.source not in names.brokers and self.destination not in names.brokers:
            raise ValueError(f"{self.source} and {self.destination} do not speak to each other")
        if self.api == ALTER_PARTITION and self.purpose != "coordination":
            side = "to" if self.message == "request" else "from"
            raise ValueError(
                f'{self.api} is between a leader and its controller: {side} = "controller"'
            )
        parse_where(self.where)
        known = self.purpose == "replication" and names.has_groups and self.where
        if self.topic is not None and (self.topic != OFFSETS_TOPIC or not known):
            raise ValueError(
                f"topic = {self.topic!r} goes with a where, in a cluster that has it; the one to"
                f" name is {OFFSETS_TOPIC}"
            )
        _declare(self.name, names)

    def words(self) -> str:
        kind = "message" if self.api == "any" else self.api
        times = {None: "every", 1: "the next"}.get(self.times, f"the next {self.times}")
        condition = f" for which {self.where}" if self.where else ""
        done = self.done.format(step=self)
        ends = f"from {self.source} to {self.destination}"
        return f"{done} {times} {kind} {self.message} {ends}{condition}  [{self.name}]"

    def brief(self) -> str:
        what = self.message if self.api in _OF_REPLICAS else self.api
        return f"{self.verb} {what} {self.source}→{self.destination}"


@step(FAMILY, "hold", *_EXAMPLES)
@dataclass(frozen=True, slots=True)
class Hold(MessageRule):
    """The gate keeps matching messages, and everything behind them on that connection, until
    `release`, `discard` or `deliver`."""

    action: ClassVar[Action] = "hold"
    done: ClassVar[str] = "holds"


@step(FAMILY, "drop", *_EXAMPLES)
@dataclass(frozen=True, slots=True)
class Drop(MessageRule):
    """Loses matching messages. On TCP this breaks the connection."""

    action: ClassVar[Action] = "drop"
    done: ClassVar[str] = "loses, and so breaks the connection of,"


@step(
    FAMILY,
    "delay",
    '{ request = "fetch", from = "B", to = "A", delay_ms = 300 }',
    '{ response = "fetch", from = "A", to = "B", delay_ms = 300 }',
)
@dataclass(frozen=True, slots=True)
class Delay(MessageRule):
    """Delays matching messages, and everything behind them."""

    action: ClassVar[Action] = "delay"
    done: ClassVar[str] = "delays by {step.delay_ms} ms"
    delay_ms: Count = field(kw_only=True)
    """The delay in milliseconds."""


@step(
    FAMILY,
    "answer",
    '{ response = "produce", from = "A", to = "client", error = "NOT_ENOUGH_REPLICAS" }',
    '{ request = "produce", from = "client", to = "A", error = "REQUEST_TIMED_OUT" }',
)
@dataclass(frozen=True, slots=True)
class Answer(MessageRule):
    """The response carries this error instead of its own content. A matching Produce request is
    not passed on, and is answered with the error."""

    action: ClassVar[Action] = "answer"
    done: ClassVar[str] = "answers with {step.error}"
    error: str = field(kw_only=True)
    """Kafka's name of the error."""

    def check(self, names: Names) -> None:
        error_number(self.error)
        MessageRule.check(self, names)
        if self.message == "request" and self.api != "produce":
            raise ValueError(
                "of requests only a produce can be answered in place of its leader; of all else"
                " the response"
            )


@step(FAMILY, "cap", '{ api = "produce", version = 7, from = "A" }')
@dataclass(frozen=True, slots=True)
class Cap(Step):
    """In its ApiVersions responses the broker offers no version of the API above this one: a new
    client then uses an old protocol."""

    api: Annotated[str, Field(json_schema_extra={"enum": [*APIS]})]
    """The API, by Kafka's name."""
    version: Whole
    """The highest version that is offered."""
    source: Annotated[BrokerName, Field(alias="from")]
    """The broker."""
    times: _Times = None
    rule: str | None = None
    """The name of the rule. Not set: `cap produce A`."""

    @property
    def name(self) -> str:
        return self.rule or f"cap {self.api} {self.source}"

    def check(self, names: Names) -> None:
        if self.api not in APIS:
            raise ValueError(f"api = {self.api!r} must be one of {', '.join(APIS)}")
        _declare(self.name, names)

    def words(self) -> str:
        above = f"{self.api} above version {self.version}"
        return f"makes {self.source} offer no {above}  [{self.name}]"


_ENDS: Final = '{ rule = "response C→A" }'


@step(FAMILY, "release", _ENDS, words="releases what {0.rule} holds, and ends that rule")
@dataclass(frozen=True, slots=True)
class Release(Step):
    """Ends a hold: the messages go on, in order. Ends a drop too."""

    rule: RuleName


@step(FAMILY, "discard", _ENDS, words="throws away what {0.rule} holds, and ends that rule")
@dataclass(frozen=True, slots=True)
class Discard(Step):
    """Ends a hold: the messages are thrown away."""

    rule: RuleName


@step(FAMILY, "deliver", _ENDS, words="delivers what {0.rule} holds, although its sender has gone")
@dataclass(frozen=True, slots=True)
class Deliver(Step):
    """Ends a hold of requests whose senders have gone: the requests arrive after all. If a sender
    is still connected, the run has missed its aim."""

    rule: RuleName
