"""One row a play of a night: what was asked, what it came to. All that trends are made of.

`rows.parquet` of a night; runs themselves may be thinned out, their rows stay. Pure but for the
reading and writing of that file.
"""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from neaptide.harness.nightly.state import Ended, Play
from neaptide.results.errors import StoreError
from neaptide.results.outcomes import WORST_FIRST
from neaptide.results.run import Run

ROWS_FILE: Final = "rows.parquet"
# What is said of a row beside its verdict.
# new: an anomaly that no earlier night and no known file has. known: one that has. came back: a
# known schedule that lost nothing before, or should not, loses. quiet: a known schedule that should
# lose does not.
News = Literal["", "new", "known", "came back", "quiet"]
Row = Mapping[str, Any]

RATE: Final = pa.struct(
    [
        pa.field("fault", pa.string()),  # "none": the seconds without any
        pa.field("seconds", pa.int64()),  # of load, in which it lasted
        pa.field("acknowledged", pa.int64()),  # records, in these seconds
        pa.field("available_s", pa.int64()),  # of these seconds, those with an acknowledgement
    ]
)
SCHEMA: Final = pa.schema(
    [
        pa.field("night", pa.string(), nullable=False),
        pa.field("play", pa.string(), nullable=False),  # unique in its night
        pa.field("kind", pa.string(), nullable=False),  # see state.Kind
        pa.field("of", pa.string(), nullable=False),  # the known file or the finding; "": of none
        pa.field("system", pa.string(), nullable=False),
        pa.field("host", pa.string(), nullable=False),
        pa.field("workload", pa.string(), nullable=False),
        pa.field("client", pa.string(), nullable=False),
        pa.field("faults", pa.string(), nullable=False),
        pa.field("settings", pa.string(), nullable=False),  # all else that was varied, name=value
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("run", pa.string()),  # name of the run directory; null: there is none
        pa.field("verdict", pa.string(), nullable=False),  # valid | anomalous | unknown
        pa.field("outcome", pa.string(), nullable=False),
        pa.field("expected", pa.string()),  # null: nothing is
        pa.field("news", pa.string(), nullable=False),
        pa.field("key", pa.string(), nullable=False),  # of the anomaly; "": there is none
        pa.field("anomalies", pa.string(), nullable=False),  # JSON, name → count
        pa.field("reasons", pa.list_(pa.string()), nullable=False),
        pa.field("acknowledged", pa.int64(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),  # of a search: schedules
        pa.field("aimed", pa.int64(), nullable=False),
        pa.field("missed", pa.int64(), nullable=False),  # aims that were missed
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("rates", pa.list_(RATE), nullable=False),
        pa.field("repeat", pa.string(), nullable=False),  # the command
    ]
)


# A live run is no exact repetition: what lost nothing once may lose the next time.
QUIET_PLAYS: Final = 3


@dataclass(frozen=True, slots=True)
class Known:
    """What is known before a night: keys of anomalies; known files that lost nothing lately."""

    keys: frozenset[str] = frozenset()
    quiet: frozenset[str] = frozenset()


# --- keys ----------------------------------------------------------------------------------------

_NOT_OF_A_KEY: Final = ("host", "faults", "brokers")


def key_of(values: Mapping[str, str], outcome: str) -> str:
    """The same key: the same anomaly. Whatever may be why is in it, what brought it about is not.

    `lost neaptide:0.10 append confluent-kafka acks=all idempotence=no`.
    """
    named = [values["system"], values["workload"], values["client"]]
    return " ".join([outcome, *named, *_settings(values, _NOT_OF_A_KEY)])


def _key_of_play(play: Play, outcome: str) -> str:
    """A known file says which anomaly it was saved for."""
    saved_for = play.finding.split(" ")[:2]
    if saved_for == [outcome, play.values["system"]]:
        return play.finding
    return key_of(play.values, outcome)


def settings_text(values: Mapping[str, str]) -> str:
    return " ".join(_settings(values, ("host", "faults")))


def _settings(values: Mapping[str, str], without: Collection[str]) -> list[str]:
    left_out = (*without, "system", "workload", "client")
    return [
        f"{name.removeprefix('set ')}={value}"
        for name, value in values.items()
        if name not in left_out
    ]


def news_of(play: Play, verdict: str, outcome: str, key: str, known: Known) -> News:
    """What there is to say of a verdict, given what was known before the night."""
    if verdict not in ("valid", "anomalous"):
        return ""
    is_bad = verdict == "anomalous"
    if play.kind == "known":
        if is_bad and (play.expected == "held" or play.of in known.quiet):
            return "came back"
        if is_bad:
            return "known"
        return "quiet" if play.expected not in (None, "held", outcome) else ""
    if not is_bad or key == play.of:  # of which this is a play
        return ""
    is_known = key in known.keys
    if play.kind not in ("pairs", "swarm"):
        return "" if is_known else "new"  # something else than what was looked for
    return "known" if is_known else "new"


def known_after(rows: Iterable[Row], keys: Collection[str] = ()) -> Known:
    """What earlier nights make known. `keys`: those that known files name."""
    found = set(keys)
    quiet: Counter[str] = Counter()  # plays since it lost
    for row in rows:
        if row["key"]:
            found.add(row["key"])
        if row["kind"] == "known" and row["verdict"] == "valid":
            quiet[row["of"]] += 1
        elif row["kind"] == "known" and row["verdict"] == "anomalous":
            quiet[row["of"]] = 0
    return Known(
        frozenset(found), frozenset(of for of, plays in quiet.items() if plays >= QUIET_PLAYS)
    )


# --- rows ----------------------------------------------------------------------------------------


def row_of(
    night: str,
    ended: Ended,
    verdict: Mapping[str, Any],
    known: Known,
    run: Run | None = None,
    rates: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """`verdict`: as verdict.json has it."""
    play = ended.play
    word = verdict["outcome"]
    key = _key_of_play(play, word) if verdict["verdict"] == "anomalous" else ""
    missed = sum(one.fault == "rounds" for one in run.missed) if run is not None else 0
    return {
        "night": night,
        "play": play.name,
        "kind": play.kind,
        "of": play.of,
        "system": play.values["system"],
        "host": play.values["host"],
        "workload": play.values["workload"],
        "client": play.values["client"],
        "faults": play.values["faults"],
        "settings": settings_text(play.values),
        "seed": play.seed,
        "run": None if ended.run is None else Path(ended.run).name,
        "verdict": verdict["verdict"],
        "outcome": word,
        "expected": play.expected,
        "news": news_of(play, verdict["verdict"], word, key, known),
        "key": key,
        "anomalies": json.dumps(dict(verdict["anomalies"])),
        "reasons": list(verdict["reasons"]),
        "acknowledged": int(verdict.get("acknowledged", 0)),
        "operations": int(verdict["operations"]),
        "aimed": 0 if run is None else run.aimed,
        "missed": missed,
        "seconds": ended.seconds,
        "rates": [dict(rate) for rate in rates],
        "repeat": run.repeat if run is not None and run.repeat else _command(play),
    }


def _command(play: Play) -> str:
    return shlex.join(["neaptide", *play.words])


def unknown(why: str) -> dict[str, Any]:
    """The verdict of what left no run."""
    return {
        "verdict": "unknown",
        "outcome": "unknown",
        "anomalies": {},
        "operations": 0,
        "reasons": [f"{why.rstrip('.')}."],
    }


def of_search(found: Mapping[str, Any]) -> dict[str, Any]:
    """The verdict of a search, from what `explore --json` printed: the worst of what it found."""
    outcomes = [one["outcome"] for one in found["found"]]
    broken = [one["invariant"] for one in found["broken"]]
    if not found["schedules"]:
        return unknown("The search came to no schedule in its time")
    worst = min(outcomes, key=[*WORST_FIRST, *outcomes].index, default="held")
    return {
        "verdict": "anomalous" if outcomes or broken else "valid",
        "outcome": worst if outcomes or not broken else "unknown",
        "anomalies": {name: outcomes.count(name) for name in dict.fromkeys(outcomes)}
        | {name: broken.count(name) for name in dict.fromkeys(broken)},
        "operations": found["schedules"],
        "reasons": [],
    }


def write_rows(directory: Path, rows: Sequence[Row]) -> None:
    """Whole, in place of what was there. Raises StoreError."""
    path = directory / ROWS_FILE
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], SCHEMA), temporary)
        temporary.replace(path)
    except OSError as error:
        raise StoreError(f"Cannot write {path}: {error.strerror}.") from error
