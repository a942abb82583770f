"""Two runs side by side: where the first fetch round differs. Pure.

Each follower's rounds are compared with its rounds in the other run, one after the other, without
their times: what followers do at one moment comes in any order. Rounds that moved nothing are left
out, for there are as many of them as there was time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final

from neaptide.results.report.rounds import anchor
from neaptide.results.report.rows import Row
from neaptide.results.report.story import Arrow, Badge, Line, Moment

_PASSED: Final = ("passed", None)
_NUMBERS: Final = re.compile(r" \(round \d+\)|(?<=held) [\d.]+ (?:ms|s)\b")


@dataclass(frozen=True, slots=True)
class Step:
    """What one fetch round of a follower moved. None: not known."""

    follower: str
    leader: str
    leader_epoch: int | None
    fetch_offset: int
    brought_records: bool
    high_watermark: int | None  # that the follower received
    request_fate: str
    response_fate: str | None
    error: int | None
    truncated_from: int | None  # what it had asked from before, if that was further
    row: Row

    def same(self, other: Step) -> bool:
        """What is not known on one side differs from nothing."""
        epochs = (self.leader_epoch, other.leader_epoch)
        return self._key() == other._key() and (None in epochs or epochs[0] == epochs[1])

    def _key(self) -> tuple[object, ...]:
        return (
            self.leader,
            self.fetch_offset,
            self.brought_records,
            self.high_watermark,
            self.request_fate,
            self.response_fate,
            self.error,
        )

    def in_words(self) -> str:
        """`fetch from 1 to B in epoch 1, held`."""
        said = [f"{self.follower} asks {self.leader} from offset {self.fetch_offset}"]
        if self.truncated_from is not None:
            said[0] += f", although it had come to {self.truncated_from},"
        if self.leader_epoch is not None:
            said.append(f"in epoch {self.leader_epoch}")
        if self.request_fate not in _PASSED:
            return f"{' '.join(said)}; the request was {self.request_fate}"
        what = ["records"] if self.brought_records else []
        if self.high_watermark is not None:
            what.append(f"HW {self.high_watermark}")
        if self.error:
            what.append(f"error {self.error}")
        answer = " and ".join(what) or "nothing new"
        said.append(f"and gets {answer}")
        if self.response_fate not in _PASSED:
            said[-1] = f"and {answer} is {self.response_fate} on its way"
        return " ".join(said)


@dataclass(frozen=True, slots=True)
class Difference:
    """The first round of a follower that is not the same. None: there is none on that side."""

    follower: str
    first: Step | None
    second: Step | None

    def anchors(self) -> tuple[frozenset[str], frozenset[str]]:
        """Of the messages of each side, as diagrams have them."""
        return _anchors(self.first), _anchors(self.second)


def _anchors(step: Step | None) -> frozenset[str]:
    if step is None:
        return frozenset()
    parts = ("request", "response", "truncation")
    return frozenset(anchor(step.row, part) for part in parts)  # type: ignore[arg-type]


def steps_of(rounds: Sequence[Row], names: Mapping[int, str], partition: int = 0) -> list[Step]:
    """The rounds of one partition that moved something, in their order."""
    marks: dict[int, int] = {}
    asked: dict[int, int] = {}
    found = []
    mine = [row for row in rounds if row["partition"] == partition]
    topic = min((row["topic"] for row in mine), default=None)
    mine = [row for row in mine if row["topic"] == topic]
    for row in sorted(mine, key=lambda row: row["requested_ns"]):
        follower, leader = row["follower"], row["leader"]
        mark = row["high_watermark"] if row["responded_ns"] is not None else None
        is_delivered = mark is not None and row["delivered_ns"] is not None
        stopped = row["request_fate"] not in _PASSED or row["response_fate"] not in _PASSED
        before = asked.get(follower, 0)
        goes_back = row["fetch_offset"] < before
        news = mark is not None and mark > marks.get(follower, 0)
        asked[follower] = row["fetch_offset"]
        if not (row["records_bytes"] or news or stopped or goes_back):
            continue
        if is_delivered and mark is not None:
            marks[follower] = mark
        found.append(
            Step(
                names.get(follower, str(follower)),
                names.get(leader, str(leader)),
                row["leader_epoch"],
                row["fetch_offset"],
                bool(row["records_bytes"]),
                mark,
                row["request_fate"],
                row["response_fate"],
                row["error"] or None,
                before if goes_back else None,
                row,
            )
        )
    return found


def first_difference(first: Sequence[Step], second: Sequence[Step]) -> Difference | None:
    """Of all followers the one that differs earliest, by the time of either run; None: none does.

    Where one run simply ends sooner, that is a difference too, but a later one than any in what
    both did.
    """
    followers = dict.fromkeys(step.follower for step in (*first, *second))
    differences = []
    for follower in followers:
        mine = [step for step in first if step.follower == follower]
        others = [step for step in second if step.follower == follower]
        for one, other in zip_longest(mine, others):
            if one is None or other is None or not one.same(other):
                differences.append(Difference(follower, one, other))
                break
    return min(differences, key=_when, default=None)


def _when(difference: Difference) -> tuple[bool, int]:
    sides = [side for side in (difference.first, difference.second) if side is not None]
    return len(sides) < 2, min(side.row["requested_ns"] for side in sides)


@dataclass(frozen=True, slots=True)
class Pair:
    """One row of two stories. Empty texts: nothing of the kind happened on that side."""

    first: str
    second: str
    same: bool
    first_anchor: str = ""
    second_anchor: str = ""


def aligned(first: Sequence[Moment], second: Sequence[Moment]) -> Iterator[Pair]:
    """Two stories beside each other, what is alike on one row; without logs and without times."""
    ours, theirs = _texts(first), _texts(second)
    matcher = SequenceMatcher(None, [t for t, _ in ours], [t for t, _ in theirs], autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        for one, other in zip_longest(ours[i1:i2], theirs[j1:j2], fillvalue=("", "")):
            yield Pair(one[0], other[0], tag == "equal", one[1], other[1])


def _texts(moments: Sequence[Moment]) -> list[tuple[str, str]]:
    return [(text, _place(moment)) for moment in moments if (text := _text(moment))]


def _text(moment: Moment) -> str:
    """Without what is another number in each run: rounds are counted from an election on, and a
    hold lasts as long as it lasts."""
    match moment:
        case Arrow():
            text = _NUMBERS.sub("", moment.text)
            return f"{moment.source} → {moment.destination}: {text}"
        case Badge():
            return f"{moment.lifeline}: {moment.text}"
        case Line():
            return moment.text
    return ""


def _place(moment: Moment) -> str:
    return moment.anchor if isinstance(moment, Arrow | Badge) else ""
