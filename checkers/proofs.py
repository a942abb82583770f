"""What had to hold for a run to be called valid: each yes, no, or not needed.

Plain values. A proof that is "no" is a reason why the run is unknown; the sentence says what to
look at. docs/reference/anomalies.md has the table of them.

The rule: fail closed. What a run does not say is "no", unless the run has nothing of the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from neaptide.checkers.anomalies import ANOMALIES
from neaptide.checkers.material import EDN_SYSTEM, Material
from neaptide.results.run import Written

_NAMED_MAX: Final = 3
_NOTHING: Final = Written(files=0, rows=0)


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """What was counted in one partition; without topic: operations that are about none."""

    topic: str | None
    partition: int | None
    operations: int
    sends: int
    acked: int
    polled: int  # records that polls returned
    complete: bool  # its final reads are all there is to read
    final_records: int
    backward_operation: int | None = None  # one that completed before it was invoked


@dataclass(frozen=True, slots=True)
class Counts:
    """What was counted in one run."""

    anomalies: Mapping[str, int] = field(default_factory=dict)
    partitions: tuple[PartitionCounts, ...] = ()
    logs: frozenset[tuple[str, int, int]] = frozenset()  # topic, partition, broker: were read
    # Rows that are not in the words of the schema: what is wrong with the first, and how many.
    misfits: tuple[tuple[str, int], ...] = ()

    @property
    def acked(self) -> int:
        return sum(p.acked for p in self.partitions)

    @property
    def sends(self) -> int:
        return sum(p.sends for p in self.partitions)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a proof may rest on."""

    material: Material
    counts: Counts
    min_acked: int


@dataclass(frozen=True, slots=True)
class Proof:
    """One thing that had to hold: `reasons` yields why it does not, `needed` whether it has to.

    Where it does not hold a run is unknown, unless an anomaly is proved all the same; where it
    `blocks`, no anomaly is: what is missing could take it back.
    """

    name: str
    meaning: str
    reasons: Callable[[Seen], Iterator[str]]
    needed: Callable[[Seen], bool] = lambda seen: True
    blocks: Callable[[Seen], bool] = lambda seen: True


@dataclass(frozen=True, slots=True)
class Proved:
    """What could be proved of a run."""

    held: Mapping[str, bool | None]  # each proof: yes, no, or (null) not needed
    reasons: tuple[str, ...]  # why those that are "no" do not hold
    blocked: bool  # an anomaly proves nothing

    @property
    def lacking(self) -> set[str]:
        return {name for name, holds in self.held.items() if holds is False}


def proved(seen: Seen) -> Proved:
    held: dict[str, bool | None] = {}
    reasons: list[str] = []
    blocked = False
    for proof in PROOFS:
        if not proof.needed(seen):
            held[proof.name] = None
            continue
        why = list(proof.reasons(seen))
        held[proof.name] = not why
        reasons += why
        blocked = blocked or (bool(why) and proof.blocks(seen))
    return Proved(held, tuple(reasons), blocked)


def not_looked_at() -> dict[str, bool | None]:
    """Of a run that could not be checked nothing is proved."""
    return {proof.name: False for proof in PROOFS}


def _never(seen: Seen) -> bool:
    return False


# --- each proof ----------------------------------------------------------------------------------


def _readable(seen: Seen) -> Iterator[str]:
    yield from seen.material.reasons


def _finished(seen: Seen) -> Iterator[str]:
    run = seen.material.run
    if run is not None and run.status != "finished":
        why = f" ({run.stopped_early.rstrip('.')})" if run.stopped_early else ""
        yield f"The run did not finish: its status is {run.status}{why}."


def _aims_hit(seen: Seen) -> Iterator[str]:
    run = seen.material.run
    if run is not None and run.aim is not None and not run.aim.hit:
        why = run.aim.why.rstrip(".") if run.aim.why else "no reason was recorded"
        yield f"A fault missed its aim: {why}."


def _has_aim(seen: Seen) -> bool:
    return seen.material.run is not None and seen.material.run.aim is not None


def _enough_acknowledged(seen: Seen) -> Iterator[str]:
    acked = seen.counts.acked
    if acked == 0 and any(
        name in ANOMALIES and ANOMALIES[name].counts for name in seen.counts.anomalies
    ):
        yield "No acknowledgement came back: what was found is proved by what was read."
    elif acked == 0:
        yield "Nothing was acknowledged, so nothing could be lost."
    elif acked < seen.min_acked:
        yield f"Only {acked} records were acknowledged, fewer than --min-acked {seen.min_acked}."


def _rows_there(seen: Seen) -> Iterator[str]:
    """Compares what writers say they wrote with what is there."""
    run = seen.material.run
    if run is None:
        return
    if run.written is None:
        yield "run.json does not say how many rows each writer wrote, so that some may be missing."
        return
    for table in sorted({*run.written, *seen.material.written}):
        there = seen.material.written.get(table, {})
        said = run.written.get(table, {})
        for writer in sorted({*there, *said}):
            if writer not in said:
                yield f"{table}/ has files of the writer {writer!r}, which run.json does not name."
            elif there.get(writer, _NOTHING) != said[writer]:
                found = there.get(writer, _NOTHING)
                yield (
                    f"{table}/ has {found.rows} rows in {found.files} files of the writer"
                    f" {writer!r}, which wrote {said[writer].rows} rows in {said[writer].files}"
                    " files."
                )


def _understood(seen: Seen) -> Iterator[str]:
    for first, number in seen.counts.misfits[:_NAMED_MAX]:
        rows = "A row is" if number == 1 else f"{number} rows are"
        yield f"{rows} not in the words of the schema: {first}."
    more = sum(number for _, number in seen.counts.misfits[_NAMED_MAX:])
    if more:
        yield f"{more} more rows are not in the words of the schema."


def _read_to_the_end(seen: Seen) -> Iterator[str]:
    """A partition that was written to, also with unknown result, or read from."""
    where = sorted(
        (p.topic, p.partition, p)
        for p in seen.counts.partitions
        if (p.sends or p.polled) and not p.complete and p.topic is not None
        and p.partition is not None
    )  # fmt: skip
    for topic, partition, counts in where[:_NAMED_MAX]:
        final_read = seen.material.final_reads.get((topic, partition))
        if final_read is None:
            why = "there were no final reads of it"
        elif not final_read.reached:
            why = "its final reads did not reach the log end"
        else:
            why = "its final reads reached the log end but none was recorded"
        what = f"{counts.acked} acknowledged writes" if counts.acked else "The records"
        yield f"{what} of {topic}-{partition} cannot be judged: {why}."
    if len(where) > _NAMED_MAX:
        yield f"{len(where) - _NAMED_MAX} more partitions cannot be judged, for similar reasons."


def _placed(seen: Seen) -> Iterator[str]:
    unplaced = sum(p.sends for p in seen.counts.partitions if p.partition is None)
    if unplaced:
        yield f"{unplaced} sends do not name their partition."


def _has_replicas(seen: Seen) -> bool:
    if seen.material.hidden:
        return False
    return seen.material.run is None or seen.material.run.system != EDN_SYSTEM


def _replicas_read(seen: Seen) -> Iterator[str]:
    run = seen.material.run
    if run is None:
        return
    if not run.replicas_written:
        yield "The replicas' logs were not read at the end."
        return
    if not run.assigned:
        yield "run.json does not say which brokers hold which partition: logs may be missing."
        return
    assigned = {(one.topic, one.partition) for one in run.assigned if one.brokers}
    unsaid = sorted(_used(seen) - assigned)
    if unsaid:
        named = ", ".join(f"{topic}-{partition}" for topic, partition in unsaid[:_NAMED_MAX])
        more = f" and {len(unsaid) - _NAMED_MAX} more" if len(unsaid) > _NAMED_MAX else ""
        yield f"run.json does not say which brokers hold {named}{more}: logs may be missing."
    missing = [
        f"{one.topic}-{one.partition} of broker {broker}"
        for one in run.assigned
        for broker in one.brokers
        if (one.topic, one.partition, broker) not in seen.counts.logs
    ]
    if missing:
        more = f" and {len(missing) - _NAMED_MAX} more" if len(missing) > _NAMED_MAX else ""
        yield f"The logs of these replicas were not read: {', '.join(missing[:_NAMED_MAX])}{more}."


def _used(seen: Seen) -> set[tuple[str, int]]:
    """The partitions that a run has to do with."""
    counted = {
        (p.topic, p.partition)
        for p in seen.counts.partitions
        if (p.sends or p.polled) and p.topic is not None and p.partition is not None
    }
    return counted | set(seen.material.final_reads)


def _replicas_level(seen: Seen) -> Iterator[str]:
    run = seen.material.run
    if run is None:
        return
    unproven = seen.counts.anomalies.get("unproven-difference", 0)
    why = f" ({run.converged.why.rstrip('.')})" if run.converged and run.converged.why else ""
    if unproven:
        yield (
            f"The replicas differ at {unproven} offsets but were never level{why}: a truncation may"
            " still have been due."
        )
    elif run.converged is None:
        yield "run.json does not say whether the replicas became level."
    elif not run.converged.level:
        yield f"The replicas were never level{why}."


def _by_themselves(kinds: Collection[str]) -> Callable[[Seen], Iterator[str]]:
    def reasons(seen: Seen) -> Iterator[str]:
        run = seen.material.run
        for incident in run.incidents if run is not None else ():
            if incident.kind in kinds:
                yield f"{incident.why.rstrip('.')}."

    return reasons


def _in_order(seen: Seen) -> Iterator[str]:
    backward = went_back(seen.counts)
    if backward is not None:
        yield (
            f"The clock went back: operation {backward} completed before it was invoked, "
            "so that no order is known."
        )


def went_back(counts: Counts) -> int | None:
    """The first operation that completed before it was invoked."""
    backward = (p.backward_operation for p in counts.partitions)
    return min((n for n in backward if n is not None), default=None)


def _cycles_searched(seen: Seen) -> Iterator[str]:
    if "cycles-unsearched" in seen.counts.anomalies:
        yield (
            "The graph of transactions has more edges than a task can search (its evidence says how"
            " many): check a shorter run."
        )


def _no(doubt: str, sentence: str) -> Callable[[Seen], Iterator[str]]:
    """There is none of that anomaly; `sentence` says `{}` how many there are."""

    def why_not(seen: Seen) -> Iterator[str]:
        if count := seen.counts.anomalies.get(doubt, 0):
            yield sentence.format(count)

    return why_not


def _of_workload(name: str, doubt: str) -> Callable[[Seen], bool]:
    """A run of that workload, or one in which its anomaly was found, whatever it is called."""

    def applies(seen: Seen) -> bool:
        is_named = seen.material.run is not None and seen.material.run.name == name
        return is_named or doubt in seen.counts.anomalies

    return applies


PROOFS: Final = (
    Proof("readable", "run.json and every file of the run can be read.", _readable),
    Proof("finished", "The run ended by itself. It was not interrupted.", _finished),
    Proof(
        "enough-acknowledged",
        "At least `--min-acked` records were acknowledged (default: 1).",
        _enough_acknowledged,
        blocks=_never,
    ),
    Proof("rows", "Every row that a writer wrote is there, and no other row.", _rows_there),
    Proof(
        "understood",
        "Every row is in the words of [the schema](columns.md): nothing is unknown, out of its"
        " range, or null where it may not be.",
        _understood,
    ),
    Proof("placed", "Every send names its partition.", _placed),
    Proof(
        "final-reads",
        "Every partition that was written to or read from was read to its end after healing.",
        _read_to_the_end,
        blocks=_never,
    ),
    Proof(
        "replicas-read",
        "The log of every assigned replica was read from its disk (not of Jepsen's histories, nor"
        " of a cluster that ran already: there the verdict is about what clients saw).",
        _replicas_read,
        _has_replicas,
        # What is missing in a log that is not read may stand above the high watermark.
        blocks=lambda seen: not seen.material.level,
    ),
    Proof(
        "replicas-level",
        "All replicas were level when their logs were read (not where no logs are read).",
        _replicas_level,
        _has_replicas,
        blocks=_never,
    ),
    Proof("aims", "Every aimed fault hit its aim.", _aims_hit, _has_aim),
    Proof(
        "clients",
        "The clients ended by themselves, and every send had an answer.",
        _by_themselves(("client",)),
    ),
    Proof(
        "processes",
        "The gate, the recorder, brokers and the coordination service ended only by faults.",
        _by_themselves(("process", "recorder", "coordination")),
    ),
    Proof("clock", "No operation completed before it was invoked.", _in_order),
    Proof(
        "losses",
        "For every acknowledged record that no final read found, it is known whether it is lost.",
        _no(
            "unproven-loss",
            "{} acknowledged records were not read at the end, but may not be lost: they are on a"
            " replica's disk above the high watermark, or retention may have deleted them.",
        ),
        blocks=_never,
    ),
    Proof(
        "values",
        "Of each record it is known which send it came from: by its mark, or because its value was"
        " sent once.",
        _no(
            "sent-twice",
            "{} values were sent more than once, to records without a mark, so that nobody knows"
            " which of them was read: let each record have a mark, or a value of its own.",
        ),
        blocks=_never,
    ),
    Proof(
        "inputs",
        "It is known which inputs a stream had (only of the workload stream).",
        _no(
            "unproven-stream",
            "Nothing says which inputs the outputs of {} partitions belong to.",
        ),
        _of_workload("stream", "unproven-stream"),
        blocks=_never,
    ),
    Proof(
        "share-group",
        "The share group came to rest: what it was not given, it never would have been (only of the"
        " workload share).",
        _no(
            "unproven-share-group",
            "The share group did not come to rest in {} partitions: what it was not given yet it"
            " may still have been given.",
        ),
        _of_workload("share", "unproven-share-group"),
        blocks=_never,
    ),
    Proof(
        "cycles",
        "The graph of transactions was searched in full (only of runs with transactions).",
        _cycles_searched,
        lambda seen: seen.material.transactions,
        blocks=_never,
    ),
)


def table() -> str:
    """The proofs as a Markdown table: a part of docs/reference/anomalies.md."""
    lines = ["| proof | yes means |", "|---|---|"]
    return "\n".join([*lines, *(f"| {p.name} | {p.meaning} |" for p in PROOFS)]) + "\n"
