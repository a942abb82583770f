"""Steps about links: what passes between two ends, whatever it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from neaptide.clusters.hosts.toxiproxy import TOXICS, Stream, Toxic, ToxicKind
from neaptide.clusters.nearest import did_you_mean
from neaptide.nemesis.gate.model import Purpose
from neaptide.nemesis.shapes import SHAPES, Deaf, Shape
from neaptide.nemesis.steps.language import (
    BrokerName,
    Delay_ms,
    End,
    Flag,
    Means,
    Names,
    Replicas,
    Step,
    step,
)

FAMILY: Final = "Links"


@step(FAMILY, "cut", '{ from = "A", to = "B", purpose = "replication", both = true }')
@dataclass(frozen=True, slots=True)
class Cut(Step):
    """No byte passes from one end of the link to the other. The ends of links are brokers, `client`
    and `coordination`."""

    source: Annotated[End, Field(alias="from")]
    """One end."""
    destination: Annotated[End, Field(alias="to")]
    """The other end."""
    passes: ClassVar[bool] = True
    purpose: Purpose | None = None
    """Which link of the two. Not set: all."""
    both: Flag = False
    """Cut the other direction too."""

    def words(self) -> str:
        way, join = ("between", "and") if self.both else ("from", "to")
        what = f" ({self.purpose})" if self.purpose else ""
        return f"cuts the link {way} {self.source} {join} {self.destination}{what}"

    def brief(self) -> str:
        return f"cut {self.source}{'↔' if self.both else '→'}{self.destination}"


@step(
    FAMILY,
    "partition",
    '{ shape = "one", brokers = ["A", "B", "C"] }',
    words="cuts many links, in the shape {0.shape} of {0.order}",
)
@dataclass(frozen=True, slots=True)
class PartitionNetwork(Step):
    """Many links are cut, in a shape: see [shapes](../nemesis.md#when)."""

    passes: ClassVar[bool] = True

    shape: Shape
    """Who receives from whom."""
    brokers: Replicas
    """The brokers, in the order that says which of them has which part: the first is the one that
    is cut off, the bridge, the one that is mute."""
    first: BrokerName | None = None
    """Who has the first part, if that is a role."""

    @property
    def order(self) -> str:
        return ", ".join(dict.fromkeys((self.first, *self.brokers) if self.first else self.brokers))

    def brief(self) -> str:
        return f"partition {self.shape}"

    def cuts(self, first: str | None) -> tuple[Deaf, ...]:
        """`first`: the broker that has the role now."""
        order = self.brokers
        if first in order:
            order = (first, *(broker for broker in order if broker != first))
        return SHAPES[self.shape](order)


@step(FAMILY, "heal", '{ from = "A", to = "B" }', "{}")
@dataclass(frozen=True, slots=True)
class Heal(Step):
    """Undoes the cuts between two ends, in both directions. `{}`: undoes all cuts, delays and
    toxics. Bytes that waited in the link are lost with its connection."""

    source: Annotated[End | None, Field(alias="from")] = None
    """One end."""
    destination: Annotated[End | None, Field(alias="to")] = None
    """The other end."""

    def check(self, names: Names) -> None:
        if (self.source is None) != (self.destination is None):
            raise ValueError(f"{'from' if self.source is None else 'to'!r} is missing")
        if self.source is None:
            names.toxics.clear()

    def words(self) -> str:
        if self.source is None:
            return "heals all cuts, delays and toxics"
        return f"heals the link between {self.source} and {self.destination}"


@step(
    FAMILY,
    "slow",
    '{ from = "B", to = "A", delay_ms = 300 }',
    words="slows bytes from {0.source} to {0.destination} by {0.delay_ms} ms",
)
@dataclass(frozen=True, slots=True)
class Slow(Step):
    """Delays the bytes that one broker sends to the other for replication. 0: no longer."""

    source: Annotated[BrokerName, Field(alias="from")]
    """The sender."""
    destination: Annotated[BrokerName, Field(alias="to")]
    """The receiver."""
    delay_ms: Delay_ms
    """The delay in milliseconds."""
    purpose: Purpose = "replication"
    """Only `"replication"`; for other links use `toxic`."""

    def check(self, names: Names) -> None:
        if self.purpose != "replication":
            raise ValueError("is for what brokers fetch from each other; of other links a toxic")


_ENDS: Final[Mapping[Purpose, str]] = {
    "client": "its clients",
    "replication": "its followers",
    "coordination": "the coordination service",
}


@step(
    FAMILY,
    "toxic",
    '{ broker = "A", purpose = "client", stream = "upstream", type = "latency", latency_ms = 300 }',
)
@dataclass(frozen=True, slots=True)
class AddToxic(Step):
    """Changes the bytes of a link, as a bad network does, until `end_toxic` or `heal = {}`: see
    [toxics](#toxics)."""

    needs: ClassVar[Means | None] = "toxics"
    passes: ClassVar[bool] = True

    broker: BrokerName
    """The broker whose link it is."""
    purpose: Purpose
    """The link to its clients, to its followers, or from it to the coordination service."""
    stream: Stream
    """`upstream`: towards the broker or the coordination service. `downstream`: its responses."""
    kind: Annotated[ToxicKind, Field(alias="type")]
    """The toxic."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    called: Annotated[str | None, Field(alias="name")] = None
    """Its name. Not set: `latency A client upstream`."""

    @property
    def name(self) -> str:
        return self.called or f"{self.kind} {self.broker} {self.purpose} {self.stream}"

    @property
    def toxic(self) -> Toxic:
        given = {
            name: self.attributes.get(name, known.default)
            for name, known in TOXICS[self.kind].items()
        }
        return Toxic(self.kind, self.stream, given)

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> dict[str, Any]:
        known = {name for attributes in TOXICS.values() for name in attributes}
        return {key: value for key, value in table.items() if key not in known} | {
            "attributes": {key: value for key, value in table.items() if key in known}
        }

    def to_table(self, table: dict[str, Any]) -> dict[str, Any]:
        attributes: dict[str, Any] = table.pop("attributes", {})
        return table | attributes

    @classmethod
    def keys(cls, schema: dict[str, Any]) -> dict[str, Any]:
        del schema["properties"]["attributes"]
        for attributes in TOXICS.values():
            for name, known in attributes.items():
                schema["properties"][name] = {
                    "type": "integer",
                    "minimum": known.least,
                    "description": "A key of the toxic: see [toxics](#toxics).",
                }
        return schema

    def check(self, names: Names) -> None:
        known = TOXICS[self.kind]
        for name, value in self.attributes.items():
            if name not in known:
                raise ValueError(f"{name!r} is not known here{did_you_mean(name, known)}")
            if not isinstance(value, int) or isinstance(value, bool):
                raise ValueError(f"{name!r} must be a whole number, not {value!r}")
        for name, attribute in known.items():
            if attribute.default is None and name not in self.attributes:
                raise ValueError(f"{name!r} is missing")
        problem = self.toxic.problem()
        if problem is not None:
            raise ValueError(problem)
        if self.name in names.toxics:
            raise ValueError(f"there is a toxic {self.name!r} already; give this one another name")
        names.toxics.add(self.name)

    def words(self) -> str:
        numbers = ", ".join(f"{name} = {value}" for name, value in self.toxic.attributes.items())
        return (
            f"puts a toxic on the link between {self.broker} and {_ENDS[self.purpose]}:"
            f" {self.kind}, {self.stream} ({numbers})  [{self.name}]"
        )


@step(
    FAMILY, "end_toxic", '{ name = "latency A client upstream" }', words="ends the toxic {0.name}"
)
@dataclass(frozen=True, slots=True)
class EndToxic(Step):
    """The link is as before. If no connection had the toxic, the run has missed its aim."""

    name: str
    """The toxic's name."""

    def check(self, names: Names) -> None:
        if self.name not in names.toxics:
            known = ", ".join(sorted(names.toxics)) or "none"
            raise ValueError(f"no toxic {self.name!r} is there; there are {known}")
        names.toxics.discard(self.name)
