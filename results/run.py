"""`run.json`: what ran, how it went, and how to repeat it.

Written by the harness when a run starts (status `running`) and again whenever more is known; read
by the checkers and the report. Not here: histories (Parquet, see `results.schema`) and verdicts.

The rule: fields that only a finished run can know have an empty default, so that the file of a run
that was cut off still reads; a field with a wrong type is refused with a sentence that names it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Final, Literal, TypeVar, cast

from neaptide.results.errors import RunUnreadableError
from neaptide.results.reading import read_json
from neaptide.results.secrets import document_without_secrets, text_without_secrets

RUN_FILE: Final = "run.json"

Status = Literal["running", "finished", "interrupted", "not started"]
IncidentKind = Literal["client", "process", "recorder", "coordination"]
Kind = Literal["scenario", "random"]


@dataclass(frozen=True, slots=True)
class Aim:
    """Whether the faults hit their aim. A miss makes the run unknown."""

    hit: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class FinalRead:
    """How far the final reads of one partition got."""

    topic: str
    partition: int
    end_offset: int | None  # the log end as the cluster reported it; null: it never did
    reached: bool
    start_offset: int = 0  # the log start as the cluster reported it; what is below was deleted


@dataclass(frozen=True, slots=True)
class Converged:
    """Whether all replicas became level after healing."""

    level: bool
    why: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """What one writer wrote to one table; a check compares it with what is there."""

    files: int
    rows: int


@dataclass(frozen=True, slots=True)
class Assigned:
    """The brokers that hold a replica of one partition: the log of each is to be read."""

    topic: str
    partition: int
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Incident:
    """A failure of neaptide's own parts that no fault explains. It makes the run unknown.

    client: a process of clients died, hung, or left sends without an answer. process: the gate, a
    broker or a controller died without a fault. recorder: rows were not written. coordination:
    ZooKeeper died.
    """

    kind: IncidentKind
    why: str  # a sentence


class IncidentError(Exception):
    """A run cannot go on, and no fault was the cause."""

    def __init__(self, incident: Incident) -> None:
        super().__init__(incident.why)
        self.incident = incident


@dataclass(frozen=True, slots=True)
class MissedFault:
    """A fault of a random run that missed its aim. The load went on."""

    phase: int  # which act of the schedule, from 1; 0: it is in none
    at_s: float  # when it was to begin, since the load began
    fault: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run, as its `run.json` describes it."""

    neaptide: str  # version of neaptide
    name: str  # of the scenario or workload
    system: str
    host: str
    seed: int
    started_utc: str  # ISO 8601
    status: Status
    kind: Kind
    brokers: Mapping[str, int]  # name -> broker id
    title: str = ""
    source: tuple[str, ...] = ()
    schedule: Any = None  # the scenario as data
    expected: str | None = None  # the outcome that the documents predict
    aim: Aim | None = None  # null: nothing was aimed
    final_reads: tuple[FinalRead, ...] = ()
    converged: Converged | None = None
    replicas_written: bool = False
    # Whether anybody here could read replicas' logs: not where a cluster is just used.
    logs_readable: bool = True
    # By table and writer (the label in the names of its files); null: the run does not say.
    written: Mapping[str, Mapping[str, Written]] | None = None
    assigned: tuple[Assigned, ...] = ()
    incidents: tuple[Incident, ...] = ()
    min_acked: int = 1  # fewer acknowledged records prove nothing
    disagreements: tuple[str, ...] = ()  # predictions beyond the outcome that did not come true
    confirmed: tuple[str, ...] = ()  # those that did
    aimed: int = 0  # faults of a random run that were aimed at fetch rounds, and begun
    missed: tuple[MissedFault, ...] = ()
    stopped_early: str = ""  # why it was asked to end before its time; empty: it was not
    repeat: str = ""  # the command that repeats this run
    own: Any = None  # of a system of the user's own: what its file says, without secrets
    left: tuple[str, ...] = ()  # topics that stay on a cluster that was just used
    clients: Any = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As it is kept: without secrets."""
        said = asdict(self)
        for name in ("schedule", "clients"):
            said[name] = document_without_secrets(said[name])
        return {**said, "repeat": text_without_secrets(self.repeat)}

    @property
    def subscribes(self) -> bool:
        """Whether its consumers share partitions by a group, so that positions may jump."""
        return isinstance(self.clients, Mapping) and bool(self.clients.get("subscribe"))

    @property
    def of_application(self) -> bool:
        """Its clients are somebody's application, which sends what it likes."""
        return isinstance(self.clients, Mapping) and self.clients.get("client") == "application"

    @property
    def driven_client(self) -> str:
        """The program that the scenario drove (`neaptide client`), with its version; or nothing."""
        program = self.clients.get("program") if isinstance(self.clients, Mapping) else None
        return f"{program['client']} {program['version']}".strip() if program else ""

    @property
    def at_least_once(self) -> bool:
        """Whether its producers are not idempotent: then a record may be there twice."""
        return isinstance(self.clients, Mapping) and self.clients.get("idempotence") is False


def named_brokers(ids: Iterable[int]) -> dict[str, int]:
    """Brokers are called A, B, C …, in the order of their ids, as a scenario calls them."""
    letters = [*ascii_uppercase]
    names = [*letters, *(first + second for first in letters for second in letters)]
    return dict(zip(names, ids, strict=False))


def legend_of(brokers: Mapping[str, int]) -> str:
    """`A is broker 0, B is broker 1`; empty where ids are the names."""
    known = [
        f"{name} is broker {broker}" for name, broker in brokers.items() if name != f"{broker}"
    ]
    return ", ".join(known)


def parse_run(data: object) -> Run:
    """Build a `Run` from decoded JSON; unknown fields are ignored, wrong ones refused."""
    if not isinstance(data, Mapping):
        raise RunUnreadableError("it must be one JSON object")
    known = {f.name for f in fields(Run)}
    missing = [name for name in _REQUIRED if name not in data]
    if missing:
        raise RunUnreadableError(f"it lacks the field {missing[0]!r}")
    values: dict[str, Any] = {}
    for name, value in data.items():
        if name not in known:
            continue
        try:
            values[name] = _READERS.get(name, _text)(value)
        except (TypeError, ValueError, KeyError) as error:
            raise RunUnreadableError(f"its field {name!r} is wrong: {error}") from error
    return Run(**values)


def read_run(directory: Path) -> Run:
    """Read `run.json` of a run directory."""
    path = directory / RUN_FILE
    try:
        document = read_json(path)
    except FileNotFoundError as error:
        raise RunUnreadableError(f"{path} is missing: is this a run directory?") from error
    try:
        return parse_run(document)
    except RunUnreadableError as error:
        raise RunUnreadableError(f"{path} cannot be understood: {error}") from error


def _of(kind: type) -> Callable[[object], Any]:
    def read(value: object) -> Any:
        # bool is an int in Python, but never a number in a run.json
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise TypeError(f"expected {kind.__name__}, found {json.dumps(value)}")
        return value

    return read


def _within(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(_of(int)(value))
        if not least <= number <= most:
            raise ValueError(f"must be from {least} to {most}, found {number}")
        return number

    return read


_text: Final = _of(str)
_number: Final = _within(-(2**63), 2**63 - 1)
_count: Final = _within(0, 2**63 - 1)
_place: Final = _within(0, 2**31 - 1)  # a partition, a broker
_flag: Final = _of(bool)
_object: Final = _of(dict)

T = TypeVar("T")


def _list(value: object) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"expected list, found {json.dumps(value)}")
    return value


def _or_null(read: Callable[[object], T]) -> Callable[[object], T | None]:
    return lambda value: None if value is None else read(value)


def _one_of(*words: str) -> Callable[[object], str]:
    def read(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}, found {json.dumps(value)}")
        return str(value)

    return read


def _map_of(read: Callable[[object], T]) -> Callable[[object], dict[str, T]]:
    return lambda value: {key: read(item) for key, item in _object(value).items()}


def _final_read(value: object) -> FinalRead:
    item = _object(value)
    return FinalRead(
        topic=_text(item["topic"]),
        partition=_place(item["partition"]),
        end_offset=_or_null(_count)(item.get("end_offset")),
        reached=_flag(item["reached"]),
        start_offset=_count(item.get("start_offset", 0)),
    )


def _aim(value: object) -> Aim:
    item = _object(value)
    return Aim(_flag(item["hit"]), _text(item.get("why", "")))


def _converged(value: object) -> Converged:
    item = _object(value)
    return Converged(_flag(item["level"]), _text(item.get("why", "")))


def _written(value: object) -> Written:
    item = _object(value)
    return Written(_count(item["files"]), _count(item["rows"]))


def _assigned(value: object) -> Assigned:
    item = _object(value)
    brokers = tuple(_place(broker) for broker in _list(item["brokers"]))
    return Assigned(_text(item["topic"]), _place(item["partition"]), brokers)


def _missed(value: object) -> MissedFault:
    item = _object(value)
    at_s = float(item["at_s"])
    return MissedFault(_number(item["phase"]), at_s, _text(item["fault"]), _text(item["why"]))


def _incident(value: object) -> Incident:
    item = _object(value)
    kind = _one_of("client", "process", "recorder", "coordination")(item["kind"])
    return Incident(cast(IncidentKind, kind), _text(item["why"]))


_READERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "seed": _number,
    "status": _one_of("running", "finished", "interrupted", "not started"),
    "kind": _one_of("scenario", "random"),
    "brokers": _map_of(_number),
    "source": lambda value: tuple(_text(item) for item in _list(value)),
    "schedule": lambda value: value,
    "expected": _or_null(_text),
    "aim": _or_null(_aim),
    "final_reads": lambda value: tuple(_final_read(item) for item in _list(value)),
    "converged": _or_null(_converged),
    "replicas_written": _flag,
    "logs_readable": _flag,
    "own": lambda value: value,
    "left": lambda value: tuple(_text(item) for item in _list(value)),
    "written": _or_null(_map_of(_map_of(_written))),
    "assigned": lambda value: tuple(_assigned(item) for item in _list(value)),
    "min_acked": _number,
    "incidents": lambda value: tuple(_incident(item) for item in _list(value)),
    "disagreements": lambda value: tuple(_text(item) for item in _list(value)),
    "confirmed": lambda value: tuple(_text(item) for item in _list(value)),
    "aimed": _number,
    "missed": lambda value: tuple(_missed(item) for item in _list(value)),
    "clients": lambda value: value,
    "versions": _map_of(_text),
}

_REQUIRED: Final = (
    "neaptide",
    "name",
    "system",
    "host",
    "seed",
    "started_utc",
    "status",
    "kind",
    "brokers",
)
