"""One fetch round in words, its place in a page, and which round an anomaly is about. Pure.

A round's request and response each have an anchor, the same wherever the round is drawn, so that a
page can lead from an anomaly to the message by which it came about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from neaptide.results.report.rows import Row

Part = Literal["request", "response", "truncation"]
_MS: Final = 1e6
_S: Final = 1e9


def anchor(row: Row, part: Part) -> str:
    """The id of an element: `round-0-2-0-e1-14-response`; `ex` where the epoch is not known."""
    epoch = "x" if row["leader_epoch"] is None else row["leader_epoch"]
    where = f"{row['follower']}-{row['leader']}-{row['partition']}-e{epoch}-{row['round']}"
    return f"round-{where}-{part}"


def _name(names: Mapping[int, str], broker: int) -> str:
    return names.get(broker, str(broker))


def _where(row: Row) -> str:
    known = row["leader_epoch"] is not None
    epoch = f"epoch {row['leader_epoch']}" if known else "an epoch that is not known"
    return f"{row['topic']}-{row['partition']}, round {row['round']} of {epoch}"


def _at(ns: int | None) -> str:
    return f"at {ns / _S:.3f} s" if ns is not None else "never"


def _held(row: Row) -> str:
    return f" Held {row['held_ns'] / _MS:,.0f} ms." if row["held_ns"] else ""


def request_in_words(row: Row, names: Mapping[int, str]) -> str:
    """What the request said, and what became of it."""
    who = f"Fetch request of {_name(names, row['follower'])} to {_name(names, row['leader'])}"
    passed = f"It reached the gate {_at(row['requested_ns'])}"
    is_kept = row["response_fate"] is None and row["request_fate"] != "passed"
    held = _held(row) if is_kept else ""
    gone = (
        f", the leader {_at(row['forwarded_ns'])}."
        if row["forwarded_ns"] is not None
        else f" and never the leader: {row['request_fate']}."
    )
    return f"{who}, {_where(row)}: from offset {row['fetch_offset']}. {passed}{gone}{held}"


def response_in_words(row: Row, names: Mapping[int, str]) -> str:
    """What the response said, and what became of it."""
    who = f"Fetch response of {_name(names, row['leader'])} to {_name(names, row['follower'])}"
    said = []
    if row["error"]:
        said.append(f"error {row['error']}")
    mark = row["high_watermark"]
    said.append("no high watermark" if mark is None else f"high watermark {mark}")
    size = row["records_bytes"]
    said.append(f"{size} bytes of records" if size else "no records")
    if row["log_start_offset"] is not None:
        said.append(f"log start offset {row['log_start_offset']}")
    passed = f"It reached the gate {_at(row['responded_ns'])}"
    gone = (
        f", the follower {_at(row['delivered_ns'])}."
        if row["delivered_ns"] is not None
        else f" and never the follower: {row['response_fate'] or 'no response'}."
    )
    return f"{who}, {_where(row)}: {', '.join(said)}. {passed}{gone}{_held(row)}"


def rounds_about(
    rounds: Iterable[Row], topic: str | None, partition: int | None, offset: int | None
) -> list[str]:
    """Anchors of the messages by which what stood at an offset was lost, the most important
    first: where it was truncated, the high watermark above it that did not arrive, what brought it.
    """
    if partition is None or offset is None:
        return []
    truncated, withheld, brought = [], [], []
    furthest: dict[int, int] = {}
    mine = [row for row in rounds if (row["topic"], row["partition"]) == (topic, partition)]
    for row in sorted(mine, key=lambda row: row["requested_ns"]):
        follower, asked = row["follower"], row["fetch_offset"]
        if asked <= offset < furthest.get(follower, 0):
            truncated.append(anchor(row, "truncation"))
        furthest[follower] = asked
        mark = row["high_watermark"]
        if mark is not None and mark > offset and row["delivered_ns"] is None:
            withheld.append(anchor(row, "response"))
        if asked <= offset and row["records_bytes"]:
            brought.append(anchor(row, "response"))
    return [*truncated, *withheld, *brought]


def first_drawn(candidates: Iterable[str], drawn: Collection[str]) -> str | None:
    """The first of these messages that is in a picture; None: none is."""
    return next((each for each in candidates if each in drawn), None)
