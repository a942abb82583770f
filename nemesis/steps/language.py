"""What a step of a scenario is, and how one is read, written and explained.

A step is one declaration: a frozen dataclass whose fields are the keys of its table in a scenario
file, each with its type, its unit, its default and what it means. Its docstring says what it does,
`words` is its sentence, `brief` a few words of it, and the decorator has its verb and examples.
From these pydantic reads and writes it, and the reference and the JSON Schema are made of them. A
step is carried out by the method of a target that is called like its verb: of live brokers in
`harness.target`, of the simulation in `nemesis.search.perform`.

So a new step is a class in its family's file, and a method of each target that can do it.
"""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    Strict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)

from neaptide.clusters.errors import UsageError
from neaptide.clusters.nearest import did_you_mean
from neaptide.nemesis.complaints import complaint
from neaptide.nemesis.gate.model import CLIENT, COORDINATION

Acks = Literal["0", "1", "all"]
ClientKind = Literal["producer", "consumer", "raw_producer"]
Means = Literal["toxics", "clocks", "calls"]  # what a place must have
CONTROLLER: Final = "controller"
RESERVED: Final = (CLIENT, CONTROLLER, COORDINATION)  # that are no brokers


class ScenarioError(UsageError):
    """A scenario file that says something that cannot be."""


Complain = Callable[[str], ScenarioError]


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
    is_timed: bool = False  # the file has `run`: roles may stand for brokers


class Step:
    """The base of all steps. `sentence`: of `words`, where it needs no more than the fields."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid", use_attribute_docstrings=True)
    verb: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[Means | None] = None
    sentence: ClassVar[str] = ""
    passes: ClassVar[bool] = False  # it can be undone after a while

    def words(self) -> str:
        """What is done, as a sentence without its full stop."""
        return self.sentence.format(self)

    def brief(self) -> str:
        """The same in a few words, where many steps are in a line."""
        whom = getattr(self, "broker", "")
        whom = ", ".join(whom) if isinstance(whom, tuple) else str(whom)
        return f"{self.verb.replace('_', ' ')} {whom}".rstrip()

    @classmethod
    def does(cls) -> str:
        """What such steps do, in the words of the docstring."""
        return " ".join(inspect.cleandoc(cls.__doc__ or "").split())

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> dict[str, Any]:
        """The fields that a table of a file stands for. Raises ValueError."""
        return table

    def to_table(self, table: dict[str, Any]) -> dict[str, Any]:
        """The table of a file that these fields come from."""
        return table

    @classmethod
    def keys(cls, schema: dict[str, Any]) -> dict[str, Any]:
        """The JSON Schema of the table, from that of the fields."""
        return schema

    def check(self, names: Names) -> None:
        """What one key does not show; and what later steps may name. Raises ValueError."""


VERBS: Final[dict[str, type[Step]]] = {}
# In the order of the reference; each is a file.
FAMILIES: Final[dict[str, list[type[Step]]]] = {
    family: []
    for family in (
        "Records",
        "Messages",
        "Brokers",
        "Operators",
        "Links",
        "Clocks and disks",
        "Driven clients",
        "Measuring",
    )
}
AnyStep = TypeVar("AnyStep", bound=Step)


def in_line(steps: Iterable[Step]) -> str:
    """A schedule in a line."""
    return ", ".join(step.brief() for step in steps)


def step(
    family: str, verb: str, *examples: str, words: str = ""
) -> Callable[[type[AnyStep]], type[AnyStep]]:
    """Declares the verb of a class, with examples as inline tables of TOML, and its sentence."""

    def declared(cls: type[AnyStep]) -> type[AnyStep]:
        cls.verb, cls.examples, cls.sentence = verb, examples, words
        VERBS[verb] = cls
        FAMILIES[family].append(cls)
        return cls

    return declared


# --- what keys may say ---------------------------------------------------------------------------


def names_in(info: ValidationInfo) -> Names:
    assert isinstance(info.context, Names)
    return info.context


def _broker(name: str, info: ValidationInfo) -> str:
    of = broker_or_role if info.field_name in ("broker", "first") else broker_of
    return of(name, names_in(info))


def broker_or_role(name: Any, names: Names) -> str:
    """In a file with `run` somebody is looked up when the step begins. Raises ValueError."""
    role = role_of(name) if names.is_timed else None
    if role is None or role.partition >= names.partitions:
        return broker_of(name, names)
    return str(name)


def broker_of(name: Any, names: Names) -> str:
    """Raises ValueError for who is no broker."""
    if not isinstance(name, str) or name not in names.brokers:
        raise ValueError(f"{name!r} is no broker; there are {', '.join(names.brokers)}")
    return name


@dataclass(frozen=True, slots=True)
class Role:
    """Who is meant when a step of a random run begins: `leader(2)`, `follower(2)`, which is the
    last assigned of the others in the ISR, `coordinator` of the workload's group or transactions,
    or `standby`, a voter of the quorum that is not the active controller."""

    name: str
    partition: int = 0


_ROLE: Final = re.compile(r"(leader|follower)\((\d+)\)|(coordinator|standby)")


def role_of(text: Any) -> Role | None:
    """None: it is no role."""
    found = _ROLE.fullmatch(text) if isinstance(text, str) else None
    return None if found is None else Role(found[1] or found[3], int(found[2] or 0))


def one_of_brokers(*others: str) -> Callable[[str, ValidationInfo], str]:
    """A broker, or one of `others`."""

    def check(name: str, info: ValidationInfo) -> str:
        known = (*names_in(info).brokers, *others)
        if name not in known:
            what = "end of a link" if COORDINATION in others else "broker"
            raise ValueError(f"{name!r} is no {what}; there are {', '.join(known)}")
        return name

    return check


def each_once(key: str, brokers: Sequence[Any], names: Names) -> tuple[str, ...]:
    """Raises ValueError for a list that does not name brokers, each once."""
    for name in brokers:
        broker_of(name, names)
    if not brokers or len(set(brokers)) != len(brokers):
        raise ValueError(f"{key} must name each broker once")
    return tuple(brokers)


def _replicas(brokers: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
    return each_once("replicas", brokers, names_in(info))


def _partition(partition: int, info: ValidationInfo) -> int:
    count = names_in(info).partitions
    if not 0 <= partition < count:
        raise ValueError(f"partition = {partition} must be one of the topic's {count}, from 0")
    return partition


def _record(record: str, info: ValidationInfo) -> str:
    if record not in names_in(info).records:
        raise ValueError(f"{info.field_name} = {record!r}: no step produces that record")
    return record


def _rule(rule: str, info: ValidationInfo) -> str:
    rules = names_in(info).rules
    if rule not in rules:
        known = ", ".join(sorted(rules)) or "none yet"
        raise ValueError(f"no earlier step has the rule {rule!r}; there are {known}")
    return rule


def _client_of(*kinds: ClientKind) -> Callable[[str, ValidationInfo], str]:
    def check(name: str, info: ValidationInfo) -> str:
        known = [one for one, its in names_in(info).clients.items() if not kinds or its in kinds]
        if name not in known:
            raise ValueError(
                f"client = {name!r} must be one that an earlier step has opened:"
                f" {', '.join(known) or 'there is none'}"
            )
        return name

    return check


Whole = Annotated[int, Strict()]
Count = Annotated[Whole, Field(ge=1)]
Delay_ms = Annotated[Whole, Field(ge=0)]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
BrokerName = Annotated[str, AfterValidator(_broker)]
Broker = Annotated[BrokerName, Field(description="A broker of the scenario.")]
Replicas = Annotated[tuple[str, ...], AfterValidator(_replicas)]
End = Annotated[str, AfterValidator(one_of_brokers(CLIENT, COORDINATION))]
Partition = Annotated[Whole, AfterValidator(_partition), Field(description="The partition.")]
Record = Annotated[str, AfterValidator(_record)]
RuleName = Annotated[str, AfterValidator(_rule), Field(description="The name of the rule to end.")]
_A_CLIENT: Final = Field(description="A client that an earlier step has opened.")
Client = Annotated[str, AfterValidator(_client_of()), _A_CLIENT]
Producer = Annotated[str, AfterValidator(_client_of("producer", "raw_producer")), _A_CLIENT]
Consumer = Annotated[str, AfterValidator(_client_of("consumer")), _A_CLIENT]
WithAcks = Annotated[Acks, Field(description="As Kafka's producer setting.")]


def as_text(value: Any) -> str:
    """A setting as Kafka has it in its files."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def instead_of(schema: dict[str, Any], key: str, **others: dict[str, Any]) -> dict[str, Any]:
    """The schema of a table where other keys may stand in the place of one."""
    properties: dict[str, Any] = {}
    for name, value in schema["properties"].items():
        properties[name] = value
        properties |= others if name == key else {}
    required = [name for name in schema["required"] if name != key]
    return {**schema, "properties": properties, "required": required}


class OfRecords(Step):
    """A step with records, whose table may say `record` where there is one."""

    __slots__ = ()

    @classmethod
    def from_table(cls, table: dict[str, Any]) -> dict[str, Any]:
        if ("record" in table) == bool(table.get("records")):
            raise ValueError('needs a record = "m1", or a list of records')
        if "record" in table:
            table["records"] = [table.pop("record")]
        return table

    def to_table(self, table: dict[str, Any]) -> dict[str, Any]:
        [*records] = table["records"]
        one = {"record": records[0]} if len(records) == 1 else {"records": records}
        return one | {key: value for key, value in table.items() if key != "records"}

    @classmethod
    def keys(cls, schema: dict[str, Any]) -> dict[str, Any]:
        one = "The name of a record, which is also its value, instead of `records`."
        return instead_of(schema, "records", record={"type": "string", "description": one})


# --- reading and writing -------------------------------------------------------------------------


_ADAPTERS: Final[dict[Any, TypeAdapter[Any]]] = {}


def _adapter(cls: Any) -> TypeAdapter[Any]:
    """Made when the first such step is read: all of them take a while."""
    if cls not in _ADAPTERS:
        _ADAPTERS[cls] = TypeAdapter(cls)
    return _ADAPTERS[cls]


@functools.cache
def schema_of(verb: str) -> Mapping[str, Any]:
    """The JSON Schema of a verb's table: each key with its type, default and meaning."""
    cls = VERBS[verb]
    made: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for one in filter(is_dataclass, reversed(cls.__mro__)):  # each explains its own fields
        made = _adapter(one).json_schema()
        for key, schema in made.get("properties", {}).items():
            properties[key] = properties.get(key, {}) | plain(schema)
    made = cls.keys({**made, "properties": properties})
    return {
        "description": cls.does(),
        "type": "object",
        "properties": made["properties"],
        "required": made.get("required", []),
        "additionalProperties": False,
    }


def plain(schema: Mapping[str, Any]) -> dict[str, Any]:
    """TOML has no null: a key is there or not. Titles only repeat the key's name."""
    kept = {key: value for key, value in schema.items() if key not in ("title", "anyOf")}
    if "description" in kept:
        kept["description"] = " ".join(kept["description"].split())
    if kept.get("default", ...) is None:
        del kept["default"]
    options = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    return {**options[0], **kept} if options else kept


def read_step(verb: str, raw: Any, names: Names, complain: Complain) -> Step:
    """Raises what `complain` makes of a sentence."""
    cls = VERBS.get(verb)
    if cls is None:
        near = did_you_mean(verb, VERBS)
        raise complain(f"{verb!r} is no step; must be one of {', '.join(VERBS)}{near}")
    if not isinstance(raw, Mapping):
        raise complain(f"{verb} must be a table, as in {verb} = {{ … }}")
    try:
        made: Step = _adapter(cls).validate_python(cls.from_table(dict(raw)), context=names)
        made.check(names)
    except ValidationError as error:
        known = tuple(schema_of(verb)["properties"])
        raise complain(f"{verb}: {complaint(error, raw, known)}") from None
    except (ValueError, UsageError) as error:
        raise complain(f"{verb}: {error}") from None
    return made


def table_of(made: Step) -> dict[str, Any]:
    """What `read_step` makes this step of."""
    dumped = _adapter(type(made)).dump_python(made, by_alias=True, exclude_defaults=True)
    return made.to_table(dumped)


def examples_of(verb: str) -> Iterator[dict[str, Any]]:
    for example in VERBS[verb].examples:
        yield tomllib.loads(f"step = {example}")["step"]
