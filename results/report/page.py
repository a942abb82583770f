"""What a page about one run shows: texts, tables, diagrams, plots. Pure but for the plots.

The same for the report file and for the page that `neaptide serve` makes of the same templates; how
a page leads elsewhere is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from neaptide.results.report import evidence, lag, over_time, plots
from neaptide.results.report.closeup import Closeup, around, close_up
from neaptide.results.report.diagram import draw
from neaptide.results.report.fate import fates
from neaptide.results.report.layout import Drawing, lay_out
from neaptide.results.report.rounds import first_drawn, rounds_about
from neaptide.results.report.rows import Row, RunData, fault_of
from neaptide.results.report.story import Arrow, Badge, Line, Moment, Story
from neaptide.results.run import legend_of
from neaptide.results.verdicts import allowed_in

_STORY_OPERATIONS_MAX: Final = 400
_STORY_ROUNDS_MAX: Final = 5_000
_GONE_MAX: Final = 5
_FATES_MAX: Final = 5


@dataclass(frozen=True, slots=True)
class Plot:
    """One picture over time. `title`: what it shows, for who cannot see it."""

    name: str
    title: str
    is_there: Callable[[RunData], bool]
    draw: Callable[[RunData], str | None]
    # Whether `report.html` has it too. To load Matplotlib takes half a second: not for what the
    # diagram of a scenario's rounds shows anyway.
    is_in_report: Callable[[RunData], bool] = lambda _: True


PLOTS: Final = (
    Plot(
        "load",
        "Sends by outcome, latency, unseen records and lag, availability over time",
        lambda data: data.series.num_rows > 0,
        over_time.load,
    ),
    Plot(
        "lag",
        "Time since each follower's last fetch",
        lambda data: data.fetch_rounds.num_rows > 0 and _measures(data),
        lag.lag,
    ),
    Plot(
        "leaders",
        "Leader of each partition over time",
        lambda data: data.run.kind == "random" and bool(data.rows_of("leader")),
        plots.leaders,
    ),
    Plot(
        "watermarks",
        "Log end offset and high watermark of each follower over time",
        lambda data: data.fetch_rounds.num_rows > 0,
        plots.watermarks,
        lambda data: data.run.kind == "random",
    ),
)


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a diagram in words; `anchor` is its id in the page."""

    anchor: str
    at: str
    source: str
    destination: str
    says: str


@dataclass(frozen=True, slots=True)
class CloseupPicture:
    """The rounds around one record, as a diagram."""

    record: str
    partition: int
    diagram: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class FoundRow:
    """One record of which something was found; `link`: to its round, None where none is drawn."""

    anomalies: str
    record: str
    place: str
    acknowledged: str
    read: str
    on_disk: str
    link: str | None


UNJUDGED: Final = "unjudged"  # a run that came to its end, and that nobody has judged so far

# What each proof says, for readers who know no name of it.
PROOF_WORDS: Final[Mapping[str, str]] = {
    "readable": "every file of the run can be read",
    "finished": "the run ended by itself",
    "enough-acknowledged": "enough records were acknowledged",
    "rows": "no recorded row is missing",
    "understood": "every recorded row is in words that are known",
    "placed": "every send names its partition",
    "final-reads": "every partition was read to its end",
    "replicas-read": "the log of every replica was read",
    "replicas-level": "all replicas were level at the end",
    "aims": "every aimed fault hit its aim",
    "clients": "every client ended by itself, with an answer to every send",
    "processes": "nothing else ended but by a fault",
    "clock": "no operation completed before it was invoked",
    "losses": "of every record that no read found it is known whether it is lost",
    "values": "of every record it is known which send it came from",
    "inputs": "the inputs of the stream are known",
    "share-group": "the share group came to rest",
    "cycles": "the graph of transactions was searched in full",
}

# Where an anomaly's round is to be seen, by record and partition: None where nowhere.
LinkTo = Callable[[str, int], str | None]


def page_of(
    data: RunData, drawn_plots: Sequence[str], link_to: LinkTo = lambda record, partition: None
) -> dict[str, Any]:
    """What the templates `run_summary.html` and `run_body.html` use.

    `drawn_plots`: HTML of each plot. `link_to`: where a record's rounds are that this page does not
    draw.
    """
    outcome = data.verdict.get("outcome", "unknown")
    verdict = data.verdict.get("verdict", "unknown")
    shown, more = evidence.records(data)
    under_load = data.run.kind == "random"
    is_waiting = data.run.status == "finished" and data.verdict.get("is_there") is False
    drawing = drawing_of(data)
    found = close_up(data) if under_load else None
    closeup = None if found is None else drawing_around(data, found)
    rounds = _story_rounds(data) if found is None else found.rounds
    return {
        "run": data.run,
        "legend": legend_of(data.run.brokers),
        "badge": UNJUDGED if is_waiting else verdict if under_load else outcome,
        "verdict": verdict,
        "outcome": outcome,
        "agrees": data.run.expected == outcome if data.run.expected else None,
        "is_judged": "verdict" in data.verdict,
        "reasons": data.verdict.get("reasons", []),
        "proofs": _proofs(data.verdict.get("proofs", {})),
        "operations": data.verdict.get("operations", data.operation_rows),
        "is_cut": data.is_cut,
        "counts": evidence.anomaly_counts(data),
        "allowed": list(allowed_in(data.verdict).items()),
        "records": _found_rows(shown, rounds, closeup or drawing, link_to),
        "more_records": more,
        "fates": [str(fate) for fate in fates(data, _FATES_MAX)],
        "diagram": draw(drawing, anchored=closeup is None, prefix="all-"),
        "messages": messages_of(drawing) if closeup is None else (),
        "left_out": drawing.left_out,
        "closeup": None
        if found is None or closeup is None
        else CloseupPicture(found.record, found.partition, draw(closeup), messages_of(closeup)),
        "steps": data.left_out,
        "logs": _final_logs(data) if not under_load else [],
        "plots": drawn_plots,
        "faults": [
            (f"{begun_s:.2f} s", f"{ended_s - begun_s:.2f} s", name)
            for begun_s, ended_s, name in plots.fault_spans(data.rows_of("nemesis"))
        ],
    }


def _measures(data: RunData) -> bool:
    return any(fault_of(row)[0] == "measured" for row in data.rows_of("nemesis"))


def _found_rows(
    shown: Iterable[evidence.RecordEvidence],
    rounds: Sequence[Row],
    drawing: Drawing,
    link_to: LinkTo,
) -> list[FoundRow]:
    """`rounds`: those that the drawing is made of."""
    drawn = {message.anchor for message in drawing.messages}
    return [
        FoundRow(
            each.anomalies,
            each.record,
            each.place,
            each.acknowledged,
            each.read,
            each.on_disk,
            _link(each, rounds, drawn, link_to),
        )
        for each in shown
    ]


def _link(
    found: evidence.RecordEvidence, rounds: Sequence[Row], drawn: Collection[str], link_to: LinkTo
) -> str | None:
    topic, partition, offset = (found.about[name] for name in ("topic", "partition", "offset"))
    if partition is None:
        return None
    place = first_drawn(rounds_about(rounds, topic, partition, offset), drawn)
    return f"#{place}" if place else link_to(found.record, partition)


def messages_of(drawing: Drawing) -> tuple[Message, ...]:
    return tuple(_message(moment) for moment in drawing.messages)


def _message(moment: Arrow | Badge) -> Message:
    at = f"{moment.at_ns / 1e9:.3f} s"
    match moment:
        case Arrow():
            return Message(moment.anchor, at, moment.source, moment.destination, moment.says)
        case Badge():
            return Message(moment.anchor, at, moment.lifeline, "", moment.says)


def drawing_of(data: RunData) -> Drawing:
    """The whole story of partition 0, laid out."""
    guilty = {str(row["value"]) for row in data.anomalies if row["value"] is not None}
    return lay_out(moments_of(data), lifelines(data), guilty, data.run.brokers)


def drawing_around(data: RunData, found: Closeup) -> Drawing:
    """The rounds around one record, laid out."""
    moments = Story(data.names, found.partition).in_order(found.operations, found.rounds)
    return lay_out(moments, lifelines(data), {found.record}, data.run.brokers)


def closeup_picture(data: RunData, record: str, partition: int) -> CloseupPicture | None:
    """Of any record that was acknowledged; None: no round around it is known."""
    found = around(data, record, partition)
    if found is None:
        return None
    drawing = drawing_around(data, found)
    return CloseupPicture(record, partition, draw(drawing), messages_of(drawing))


def _proofs(held: Mapping[str, bool | None]) -> list[tuple[str, str]]:
    """Each thing that had to hold, in words, and whether it did; those that did not come first."""
    words = {False: "no", True: "yes", None: "not needed"}
    rows = [(PROOF_WORDS.get(name, name.replace("-", " ")), words[held[name]]) for name in held]
    return sorted(rows, key=lambda row: list(words.values()).index(row[1]))


def lifelines(data: RunData) -> list[str]:
    """Brokers from left to right: in the order in which they are assigned, the leader first."""
    names = list(data.run.brokers)
    schedule = data.run.schedule
    if isinstance(schedule, dict):
        topics = schedule.get("cluster", {}).get("topics", {})
        for topic in topics.values():
            first = [str(name) for name in topic.get("assignment", [[]])[0]]
            return [*first, *(name for name in names if name not in first)]
    return names


def _sent_to(schedule: Any) -> dict[str, str]:
    """By record, the broker that a scenario's step says it is sent to; a step need not say it."""
    steps = schedule.get("step") if isinstance(schedule, dict) else None
    sent_to: dict[str, str] = {}
    for step in steps if isinstance(steps, list) else ():
        fields = step.get("produce") if isinstance(step, dict) else None
        if isinstance(fields, dict) and isinstance(fields.get("to"), str):
            many = fields.get("records")
            records = many if isinstance(many, list) else [fields.get("record")]
            sent_to |= {str(one): fields["to"] for one in records}
    return sent_to


def moments_of(data: RunData) -> list[Moment]:
    """The story of partition 0; under load, of faults, leaders and the records in question only."""
    operations = _operations_of_interest(data)
    story = Story(data.names, 0, _sent_to(data.run.schedule))
    moments = story.in_order(operations, _story_rounds(data))
    gone = evidence.nowhere(data)[:_GONE_MAX]
    if gone and moments:
        text = f"at the end, on no replica: {', '.join(gone)}"
        moments.append(Line(moments[-1].at_ns, text, "bad"))
    return moments


def _story_rounds(data: RunData) -> list[Row]:
    """Of partition 0; none under load."""
    if data.run.kind != "scenario":
        return []
    chosen = data.fetch_rounds.filter(pc.equal(data.fetch_rounds["partition"], 0))
    rows: list[Row] = chosen.sort_by("requested_ns").slice(0, _STORY_ROUNDS_MAX).to_pylist()
    return rows


def _operations_of_interest(data: RunData) -> list[Row]:
    table = data.operations
    few = pc.is_in(table["f"], pa.array(["nemesis", "leader"]))
    values = {row["value"] for row in data.anomalies if row["value"] is not None}
    if data.run.kind == "scenario":
        wanted = table
    else:
        named = pc.is_in(table["value"], pa.array(sorted(values)[:10], pa.string()))
        wanted = table.filter(pc.or_(few, named))
    rows: list[Row] = wanted.sort_by("invoked_ns").slice(0, _STORY_OPERATIONS_MAX).to_pylist()
    return rows


def _final_logs(data: RunData) -> list[tuple[str, list[tuple[int, str, bool]]]]:
    """Each replica's log as its disk had it: (offset, value, whether another replica differs)."""
    rows = sorted(
        (row for row in data.replicas.slice(0, 2_000).to_pylist() if row["partition"] == 0),
        key=lambda row: (row["broker"], row["offset"] or 0),
    )
    by_offset: dict[int, set[str | None]] = {}
    for row in rows:
        if row["offset"] is not None:
            by_offset.setdefault(row["offset"], set()).add(row["value"])
    logs: dict[str, list[tuple[int, str, bool]]] = {}
    for row in rows:
        name = data.names.get(row["broker"], str(row["broker"]))
        log = logs.setdefault(name, [])
        if row["offset"] is not None:
            differs = len(by_offset[row["offset"]]) > 1
            held = "control record" if row["control"] else str(row["value"])
            log.append((row["offset"], held, differs))
    return list(logs.items())
