"""The form of a scenario file: its tables and their keys, and the JSON Schema for editors.

What a value means, and whether it fits the others, is read by `nemesis.scenario`.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, Strict

from neaptide.nemesis.steps import VERBS, schema_of
from neaptide.nemesis.steps.document import Common
from neaptide.nemesis.steps.language import plain
from neaptide.results.outcomes import PREDICTED

Subject = Literal[
    "replication", "durability", "epochs", "producers", "groups", "transactions", "operations"
]
SUBJECTS: Final = get_args(Subject)
Kind = Literal["bug", "by design", "client"]
UNHELD: Final = tuple(outcome for outcome in PREDICTED if outcome != "held")
Settings = dict[str, Any]
Systems = list[str]
Whole = Annotated[int, Strict()]
Flag = Annotated[bool, Strict()]


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class TopicTable(_Table):
    assignment: list[Annotated[list[str], Field(min_length=1)]] = Field(min_length=1)
    """The replicas of each partition, in the order of preference: the first is preferred."""
    settings: Settings = {}
    """Settings of the topic, as Kafka names them."""


class ClusterTable(_Table):
    brokers: list[str] = Field(min_length=1)
    """The names of the brokers."""
    topics: dict[str, TopicTable]
    """The topic, and where it matters `__consumer_offsets` and `__transaction_state`."""
    settings: Settings = {}
    """Settings of the brokers, as Kafka names them."""
    start_order: list[str] | None = None
    """Not set: as in `brokers`. With ZooKeeper the first to start is the controller."""
    controllers: Annotated[Whole, Field(ge=1)] = 1
    """How many there are, where controllers are nodes of their own."""


class ClientsTable(_Table):
    idempotence: Flag = False
    """Whether the producer is idempotent."""
    max_in_flight: Whole = 1
    """How many requests the producer sends before the first is answered."""
    retries: Whole = 0
    """How often the producer sends a record again."""
    retry_backoff_ms: Whole = 50
    """How long it waits before that."""


class RoundTable(_Table):
    follower: str
    """A broker of the scenario."""
    fetch_offset: Whole
    """The offset that its request asks for."""
    records: Flag
    """Whether the response has records."""
    high_watermark: Whole
    """The high watermark of the response."""


class ExpectTable(BaseModel):
    """Outcome → systems, in a table that may have more."""

    model_config = ConfigDict(frozen=True, extra="allow", use_attribute_docstrings=True)

    rounds: list[RoundTable] = []
    """Fetch rounds that move something, in their order, as the documents show them."""
    seen: dict[str, Systems] = {}
    """Condition → systems on which it holds once all steps are done."""
    __pydantic_extra__: dict[str, Systems]


class File(_Table):
    title: str
    """What happens, in one line."""
    source: list[str] = []
    """Where this is described: a KIP, an issue, an article."""
    teaches: Subject | None = None
    """The subject under which `neaptide list` shows it."""
    kind: dict[str, Kind] = {}
    """Outcome → why it is not `held`: a bug of the brokers, what they do by design, or a client."""
    run: str | None = None
    """Of the schedule of a random run: the arguments of `neaptide run` that say its load. Its steps
    have times (`at`), and their brokers may be roles."""
    found: dict[str, Any] = {}
    """When and how it was found, for people."""
    cluster: ClusterTable
    """The brokers and the topic."""
    clients: ClientsTable = ClientsTable()
    """The producer that `produce` uses."""
    step: list[dict[str, Any]]
    """What is done, step by step. A step has one verb."""
    expect: ExpectTable = Field(default_factory=lambda: ExpectTable.model_validate({}))
    """What is predicted for each system, as `lost = ["kafka:0.8..0.10"]`."""
    not_served: dict[str, str] = {}
    """System → what it lacks that the scenario needs."""


KEYS: Final = tuple(
    key
    for table in (File, ClusterTable, TopicTable, ClientsTable, ExpectTable, RoundTable)
    for key in table.model_fields
)


def scenario_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a scenario file.

    It knows one file, and not what names in it stand for: a step that names a broker that is not
    there is found by `neaptide explain`.
    """
    made = File.model_json_schema()
    tables = {name: _table(table) for name, table in made["$defs"].items()}
    outcomes = {"items": {"type": "string"}, "type": "array"}
    tables["ExpectTable"]["properties"] |= {
        outcome: {**outcomes, "description": f"Systems on which the outcome is `{outcome}`."}
        for outcome in PREDICTED
    }
    tables["ExpectTable"]["additionalProperties"] = False
    file = _table(made)
    file["properties"]["kind"]["propertyNames"] = {"enum": list(UNHELD)}
    file["properties"]["step"]["items"] = {"$ref": "#/$defs/Step"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A scenario of neaptide",
        **file,
        "$defs": {**tables, "Step": _step()},
    }


def _step() -> dict[str, Any]:
    """One verb, or an `until`."""
    common = _table(Common.model_json_schema())["properties"]
    one = [{"required": [verb]} for verb in VERBS]
    waits = {"required": ["until"], "not": {"anyOf": one}}
    return {
        "type": "object",
        "properties": {**{verb: schema_of(verb) for verb in VERBS}, **common},
        "oneOf": [*one, waits],
        "additionalProperties": False,
    }


def _table(schema: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in schema.items() if key not in ("title", "$defs")}
    return {**kept, "properties": {key: plain(of) for key, of in schema["properties"].items()}}
