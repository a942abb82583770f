"""The plan of a night, PLAN.toml: what is varied, and how much disk it may take.

The rule: a plan is read whole before anything is started, and what is wrong with it is one sentence
with the file and the key. Whether a combination of it can be is not asked here (`cells`).
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from neaptide.clusters.duration import read_duration_s
from neaptide.clusters.errors import UsageError
from neaptide.harness.scenarios.systems import DEFAULT_SYSTEM
from neaptide.nemesis.drawn.schedule import parse_faults
from neaptide.workloads.catalog import find_workload
from neaptide.workloads.libraries.table import DEFAULT, LIBRARIES

_UNITS: Final = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([kMGT]?B)")


def parse_bytes(text: str) -> int:
    """`20GB`, in powers of ten. Raises ValueError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no size, as 20GB or 500MB")
    return int(float(found[1]) * _UNITS[found[2]])


T = TypeVar("T")


def _distinct(values: list[T]) -> list[T]:
    if len(set(values)) != len(values):
        raise ValueError("names something twice")
    return values


def _size(text: str) -> str:
    parse_bytes(text)
    return text


def _workload(name: str) -> str:
    try:
        return find_workload(name).name
    except UsageError as error:
        raise ValueError(str(error).rstrip(".")) from None


def _client(name: str) -> str:
    if name not in LIBRARIES:
        raise ValueError(f"there is no client {name!r}; it must be one of {', '.join(LIBRARIES)}")
    return name


def _faults(text: str) -> str:
    try:
        parse_faults(text)
    except UsageError as error:
        raise ValueError(str(error).rstrip(".")) from None
    return text


def _acks(text: str) -> str:
    if text not in ("0", "1", "all"):
        raise ValueError(f"{text!r} must be 0, 1 or all")
    return text


Some = Field(min_length=1)
Workload = Annotated[str, AfterValidator(_workload)]
Client = Annotated[str, AfterValidator(_client)]
Faults = Annotated[str, AfterValidator(_faults)]
Acks = Annotated[str, AfterValidator(_acks)]
Size = Annotated[str, AfterValidator(_size)]
Brokers = Annotated[int, Field(ge=1, le=9)]


class Plan(BaseModel):
    """What a night varies (lists: each value is one of several), and what all its runs share."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    systems: Annotated[list[str], Some, AfterValidator(_distinct)] = [DEFAULT_SYSTEM]
    hosts: Annotated[list[str], Some, AfterValidator(_distinct)] = ["local", "simulation"]
    workloads: Annotated[list[Workload], Some, AfterValidator(_distinct)] = ["append"]
    clients: Annotated[list[Client], Some, AfterValidator(_distinct)] = [DEFAULT]
    faults: Annotated[list[Faults], Some, AfterValidator(_distinct)] = [
        "rounds,kill",
        "kill,pause,cut",
        "partition,restart",
    ]
    acks: Annotated[list[Acks], Some, AfterValidator(_distinct)] = ["all"]
    idempotence: Annotated[list[bool], Some, AfterValidator(_distinct)] = [False]
    brokers: Annotated[list[Brokers], Some, AfterValidator(_distinct)] = [3]
    settings: dict[str, Annotated[list[str], Some, AfterValidator(_distinct)]] = {}

    # Of load of each run, in seconds, or as 90s.
    time: Annotated[float, BeforeValidator(read_duration_s), Field(ge=1, strict=False)] = 60
    rate: Annotated[float, Field(ge=1, strict=False)] | None = None  # records a second
    partitions: Annotated[int, Field(ge=1, le=1000)] = 4
    search: Annotated[float, Field(ge=1, strict=False)] = 30  # seconds of each search

    known: list[str] = []  # directories of schedules and scenarios that are played first
    shrink: Annotated[int, Field(ge=0)] = 20  # runs that make one finding smaller, at most
    repeat: Annotated[int, Field(ge=0)] = 3  # times that a finding is played again
    keep: Size = "20GB"  # of runs, over all nights

    @property
    def keep_bytes(self) -> int:
        return parse_bytes(self.keep)


def load_plan(path: Path) -> Plan:
    """Raises UsageError: one sentence. `known` is relative to the plan."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"The plan {path} cannot be read: {why}.") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"The plan {path} is not TOML: {error}.") from None
    plan = read_plan(raw, str(path))
    folder = path.absolute().parent
    return plan.model_copy(update={"known": [str(folder / name) for name in plan.known]})


def read_plan(raw: object, where: str) -> Plan:
    """Raises UsageError that names the key."""
    try:
        return Plan.model_validate(raw)
    except ValidationError as error:
        raise UsageError(f"{where}: {_sentence(error)}.") from None


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
    if first["type"] == "extra_forbidden":
        return f"there is no {key!r}; it must be one of {', '.join(Plan.model_fields)}"
    if first["type"] == "value_error":
        return f"{key}: {first['ctx']['error']}"
    return f"{key}: {_KINDS.get(first['type'], first['msg'][0].lower() + first['msg'][1:])}"


_KINDS: Final = {
    "list_type": 'it must be a list, as ["…"]',
    "string_type": 'it must be a text, as "…"',
    "int_type": "it must be a whole number",
    "float_parsing": "it must be a number",
    "float_type": "it must be a number",
    "bool_type": "it must be true or false",
    "dict_type": "it must be a table",
    "too_short": "it must not be empty",
}
