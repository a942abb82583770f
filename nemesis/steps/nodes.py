"""Steps that end, stop and start nodes: brokers by their names, controllers by their role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, cast

from pydantic import Field, PlainSerializer, PlainValidator, ValidationInfo, WithJsonSchema

from neaptide.nemesis.gate.model import InFlight
from neaptide.nemesis.steps.language import (
    Names,
    Record,
    Step,
    broker_or_role,
    each_once,
    instead_of,
    names_in,
    step,
)

FAMILY: Final = "Brokers"


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
Several = tuple[str, ...]  # brokers, at one moment: none can react to another's end


def _node(given: Any, info: ValidationInfo) -> Node | Several:
    names = names_in(info)
    match given:
        case str():
            return broker_or_role(given, names)
        case ActiveController(str(called)):
            if called in names.brokers or not called.isidentifier():
                raise ValueError(f"as = {called!r} must be a word that names no broker")
        case NamedController(name):
            if name not in names.controllers:
                known = ", ".join(("active", *sorted(names.controllers)))
                raise ValueError(f"controller = {name!r} must be one of {known}")
        case tuple():
            return each_once("brokers", given, names)
        case ActiveController():
            pass
        case _:
            raise ValueError(f"'broker' must be a text, not {given!r}")
    return cast(Node, given)


_BROKER: Final = {"type": "string", "description": "A broker of the scenario."}
_Node = Annotated[Node, PlainValidator(_node), PlainSerializer(str), WithJsonSchema(_BROKER)]
_Nodes = Annotated[
    Node | Several, PlainValidator(_node), PlainSerializer(str), WithJsonSchema(_BROKER)
]
_InFlight = Annotated[
    InFlight,
    Field(description="What becomes of messages that the broker has sent and nobody has received."),
]
_INSTEAD: Final[Mapping[str, dict[str, Any]]] = {
    "brokers": {
        "type": "array",
        "items": {"type": "string"},
        "description": "Several brokers, instead of `broker`: all at one moment.",
    },
    "controller": {
        "type": "string",
        "description": 'Instead of `broker`: `"active"`, or a name that an earlier step gave with'
        " `as`.",
    },
    "as": {
        "type": "string",
        "description": "A name for the node that is the active controller now.",
    },
}


class _OnNode(Step):
    """A step whose `broker` may be a controller in the file, or several brokers.

    `instead`: the keys that may stand in its place.
    """

    __slots__ = ()
    instead: ClassVar[tuple[str, ...]] = ("controller", "as")

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> dict[str, Any]:
        if "broker" in table:
            return table
        if "brokers" in table and "brokers" in cls.instead:
            several = table.pop("brokers")
            if not isinstance(several, list):
                raise ValueError(f"'brokers' must be a list, not {several!r}")
            table["broker"] = tuple(several)
        elif "controller" in table and "controller" in cls.instead:
            name, called = str(table.pop("controller")), table.get("as")
            if name == "active":
                table.pop("as", None)
                table["broker"] = ActiveController(None if called is None else str(called))
            else:
                table["broker"] = NamedController(name)
        return table

    def to_table(self, table: dict[str, Any]) -> dict[str, Any]:
        del table["broker"]
        match getattr(self, "broker", None):
            case ActiveController(None):
                return {"controller": "active", **table}
            case ActiveController(called):
                return {"controller": "active", "as": called, **table}
            case NamedController(name):
                return {"controller": name, **table}
            case tuple(several):
                return {"brokers": list(several), **table}
            case broker:
                return {"broker": broker, **table}

    @classmethod
    def keys(cls, schema: dict[str, Any]) -> dict[str, Any]:
        others = {key: _INSTEAD[key] for key in cls.instead}
        return instead_of(schema, "broker", **others)

    def check(self, names: Names) -> None:
        node = getattr(self, "broker", None)
        if isinstance(node, ActiveController) and node.name is not None:
            names.controllers.add(node.name)


def in_words(nodes: Node | Several) -> str:
    return f"{', '.join(nodes)} at one moment" if isinstance(nodes, tuple) else str(nodes)


def each_of(nodes: Node | Several) -> tuple[Node, ...]:
    return nodes if isinstance(nodes, tuple) else (nodes,)


@step(
    FAMILY,
    "kill",
    '{ broker = "C", in_flight = "discarded" }',
    '{ brokers = ["A", "B"], in_flight = "delivered" }',
    '{ controller = "active", as = "old", in_flight = "discarded" }',
)
@dataclass(frozen=True, slots=True)
class Kill(_OnNode):
    """SIGKILL."""

    instead: ClassVar[tuple[str, ...]] = ("brokers", "controller", "as")
    passes: ClassVar[bool] = True
    broker: _Nodes
    in_flight: _InFlight

    def words(self) -> str:
        had = "they had" if isinstance(self.broker, tuple) else "it had"
        return f"kills {in_words(self.broker)} (SIGKILL); what {had} sent is {self.in_flight}"


@step(
    FAMILY,
    "power_off",
    '{ broker = "B", survives = "m1" }',
    '{ brokers = ["A", "B"] }',
)
@dataclass(frozen=True, slots=True)
class PowerOff(_OnNode):
    """SIGKILL, and everything that was not flushed to disk is gone."""

    instead: ClassVar[tuple[str, ...]] = ("brokers", "controller", "as")
    passes: ClassVar[bool] = True
    broker: _Nodes
    survives: Record | None = None
    """Records up to this one reached the disk by chance."""

    def words(self) -> str:
        kept = f"; records up to {self.survives} had reached the disk" if self.survives else ""
        who = in_words(self.broker)
        return f"cuts the power of {who}: what was not flushed to disk is gone{kept}"

    def brief(self) -> str:
        return Step.brief(self) + (f" after {self.survives}" if self.survives else "")


@step(
    FAMILY,
    "stop",
    '{ broker = "B" }',
    '{ controller = "active" }',
    words="shuts {0.broker} down cleanly",
)
@dataclass(frozen=True, slots=True)
class Stop(_OnNode):
    """A clean shutdown."""

    passes: ClassVar[bool] = True
    broker: _Node


@step(
    FAMILY, "restart", '{ broker = "B" }', '{ controller = "old" }', words="starts {0.broker} again"
)
@dataclass(frozen=True, slots=True)
class Restart(_OnNode):
    """Starts a broker that is down."""

    broker: _Node


@step(
    FAMILY,
    "pause",
    '{ broker = "B" }',
    '{ controller = "active", as = "old" }',
    words="pauses {0.broker} (SIGSTOP)",
)
@dataclass(frozen=True, slots=True)
class Pause(_OnNode):
    """SIGSTOP: the process stands still."""

    passes: ClassVar[bool] = True
    broker: _Node


@step(
    FAMILY,
    "resume",
    '{ broker = "B" }',
    '{ controller = "old" }',
    words="resumes {0.broker} (SIGCONT)",
)
@dataclass(frozen=True, slots=True)
class Resume(_OnNode):
    """SIGCONT."""

    broker: _Node


class OfQuorum(_OnNode):
    """A step that changes the voters of a KRaft quorum (KIP-853)."""

    __slots__ = ()


@step(
    FAMILY,
    "remove_voter",
    '{ controller = "active", as = "old" }',
    '{ broker = "B" }',
    words="removes {0.broker} from the voters of the quorum",
)
@dataclass(frozen=True, slots=True)
class RemoveVoter(OfQuorum):
    """A controller of Apache Kafka in KRaft leaves the quorum, and goes on as an observer
    (RemoveRaftVoter, KIP-853). The active controller then resigns. The step ends when the others
    have committed it."""

    passes: ClassVar[bool] = True
    broker: _Node


@step(
    FAMILY,
    "add_voter",
    '{ controller = "old" }',
    '{ broker = "B" }',
    words="makes {0.broker} a voter of the quorum again",
)
@dataclass(frozen=True, slots=True)
class AddVoter(OfQuorum):
    """A controller that runs and has left the quorum is a voter again (AddRaftVoter)."""

    broker: _Node
