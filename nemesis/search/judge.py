"""What a world that has ended proves: the anomalies of the Spark checks, counted in the process.

It decides during a search, where there is no run directory. The rules are those of the checkers;
a test holds the two together on thousands of runs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from neaptide.clusters.simulation.clients import Outcome, Poll, Send, sent_by
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.ending import Ended, log_of
from neaptide.nemesis.search.looking import each, promised
from neaptide.nemesis.search.moved import poll_anomalies
from neaptide.nemesis.search.observed import assigned
from neaptide.nemesis.search.regressed import commit_regressions
from neaptide.nemesis.search.targets import ANOMALOUS

WORST_FIRST = ("diverged", "lost", "duplicated", "reordered", "skipped")
_WORST_OF_ALL = (*WORST_FIRST, ANOMALOUS, "unknown", "unavailable", "held")  # of several partitions
# Anomaly → the outcome that it proves.
OUTCOMES = {
    "replica-divergence": "diverged",
    "lost-write": "lost",
    "unseen": "lost",
    "committed-then-lost": "lost",
    "inconsistent-offsets": "lost",
    "duplicate": "duplicated",
    "commit-regression": "duplicated",
    "nonmonotonic-poll": "duplicated",
    "int-nonmonotonic-poll": "reordered",
    "reordered": "reordered",
    "nonmonotonic-send": "reordered",
    "poll-skip": "skipped",
    "int-poll-skip": "skipped",
    "G1a": ANOMALOUS,
    "high-watermark-regression": ANOMALOUS,
}


@dataclass(frozen=True, slots=True)
class Judged:
    """`evidence`: of a broken invariant, what was seen: which broker, offset, record, epoch."""

    outcome: str
    anomalies: tuple[tuple[str, int], ...]
    evidence: str = ""


def judge(world: World, ended: Ended) -> Judged:
    """Never `held` for want of evidence. Several partitions are judged one by one."""
    if not ended.others:
        return _judge_one(world, ended)
    judged = []
    for one, of in zip(each(world), (ended, *ended.others), strict=True):
        if _values(one):
            judged.append(_judge_one(one, of))
    outcomes = [one.outcome for one in judged]
    anomalies = sum((Counter(dict(one.anomalies)) for one in judged), Counter[str]())
    worst = next((word for word in _WORST_OF_ALL if word in outcomes), "unknown")
    return Judged(worst, tuple(sorted(anomalies.items())))


def _judge_one(world: World, ended: Ended) -> Judged:
    found: Counter[str] = Counter(_differences(world, ended))
    values = _values(world)
    is_complete = _is_complete(ended, has_transactions=world.spec.transactions is not None)
    for value in values.values():
        found.update(_of_value(value, ended, _highest_read(world), is_complete=is_complete))
    for sent in _by_process(values):
        found["reordered"] += _reordered(sent)
        found["nonmonotonic-send"] += _sends_back(sent)
    if not world.partition.partition:  # the wire is watched for partition 0 alone
        found["high-watermark-regression"] += world.network.shown.marks_gone_back
    known = _known(world)
    found["inconsistent-offsets"] += sum(len(held) > 1 for held in known.values())
    found.update(poll_anomalies(_polls(world), known, ended.start_offset))
    number = world.partition.partition
    of_groups = (one for one in world.clients.group_operations if one.partition == number)
    found["commit-regression"] += commit_regressions(
        of_groups, ended.end_offset, is_complete=is_complete
    )
    has_acked = bool(promised(world))
    is_unproven = bool(found["unproven-difference"]) or (has_acked and not is_complete)
    outcome = "unknown" if is_unproven else _worst(found)
    if outcome == "held":
        is_proved = ended.level and is_complete and (has_acked or bool(values))
        # Where nothing was sent nothing was tried: nothing is known of the service either.
        outcome = ("held" if has_acked else "unavailable") if is_proved else "unknown"
    return Judged(outcome, tuple(sorted((name, n) for name, n in found.items() if n)))


def _is_complete(ended: Ended, *, has_transactions: bool) -> bool:
    """Whether all was read that there is. A log from which nothing is read, and of which retention
    has not deleted all, on any broker, is read too: it has lost what it had. Not where all may have
    been aborted."""
    if ended.final is None or ended.end_offset is None:
        return False
    if has_transactions and ended.end_offset and not ended.final:
        return False
    return bool(ended.final) or not ended.end_offset or ended.deleted_before < ended.end_offset


def _worst(found: Counter[str]) -> str:
    proved = [OUTCOMES[name] for name, count in found.items() if count and name in OUTCOMES]
    return next((word for word in (*WORST_FIRST, ANOMALOUS) if word in proved), "held")


# --- one value -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Value:
    """What happened to one record: how its send ended, where it was read."""

    send: Send
    outcome: Outcome
    main: list[int] = field(default_factory=list)
    final: list[int] = field(default_factory=list)

    @property
    def is_acked(self) -> bool:
        return self.outcome.kind == "ok"

    @property
    def places(self) -> set[int]:
        places = {*self.main, *self.final}
        is_known = self.is_acked and self.outcome.offset is not None
        return {*places, self.outcome.offset or 0} if is_known else places


def _values(world: World) -> dict[str, _Value]:
    """Of the partition that is looked at. What is acknowledged without a promise is unknown."""
    clients, number, acks = world.clients, world.partition.partition, world.spec.acks_promised
    values = {}
    for value, (send, outcome) in clients.sends.items():
        if send.partition == number:
            is_promise = outcome.kind != "ok" or acks is None or send.acks in acks
            values[value] = _Value(send, outcome if is_promise else replace(outcome, kind="info"))
    for send in clients.unsettled:
        if send.partition == number:
            values[send.value] = _Value(send, Outcome("invoke", world.now_us))
    for poll in _polls(world):
        for offset, value in poll.records:
            one = values[value]
            (one.final if poll.phase == "final" else one.main).append(offset)
    return values


def _polls(world: World) -> tuple[Poll, ...]:
    number = world.partition.partition
    return tuple(poll for poll in world.clients.polls if poll.partition == number)


def _of_value(
    value: _Value, ended: Ended, highest_read: int, *, is_complete: bool
) -> Iterator[str]:
    start, acked_at = ended.start_offset, value.outcome.offset
    if value.is_acked and is_complete and not value.final and (acked_at or 0) >= start:
        is_above = acked_at is not None and acked_at > highest_read
        yield "unseen" if is_above and not value.main else "lost-write"
    if is_complete and _has_moved(value, start):
        yield "committed-then-lost"
    if len(value.places) > 1:
        yield "duplicate"
    if value.outcome.kind == "fail" and (value.main or value.final):
        yield "G1a"


def _has_moved(value: _Value, start_offset: int) -> bool:
    """Read before healing outside of where the final reads find it, and not deleted since."""
    if not value.main:
        return False
    greatest, least = max(value.main), min(value.main)
    if greatest >= start_offset and (not value.final or greatest > max(value.final)):
        return True
    return bool(value.final) and start_offset <= least < min(value.final)


def _by_process(values: dict[str, _Value]) -> Iterator[list[_Value]]:
    """The records of each process, in the order in which it sent them."""
    outcomes = [
        (one.send, None if one.outcome.kind == "invoke" else one.outcome) for one in values.values()
    ]
    processes = sent_by(outcomes, 0, 1)
    sent = defaultdict[int, list[_Value]](list)
    for one in sorted(values.values(), key=lambda one: one.send.number):
        sent[processes[one.send.number]].append(one)
    yield from sent.values()


def _reordered(sent: list[_Value]) -> int:
    """Acknowledged records that stand in the log before the one that was sent before them."""
    places = [min(one.final) for one in sent if one.is_acked and one.final]
    return sum(place < before for before, place in pairwise(places))


def _sends_back(sent: list[_Value]) -> int:
    """Records that may be there, at a place before that of the one that was sent before them."""
    places = [_place(one) for one in sent if one.outcome.kind != "fail"]
    return sum(
        place is not None and before is not None and place < before
        for before, place in pairwise(places)
    )


def _place(value: _Value) -> int | None:
    """Where it was acknowledged; without that, the first place at which it was read."""
    if value.is_acked and value.outcome.offset is not None:
        return value.outcome.offset
    return min(value.places, default=None)


# --- all offsets ---------------------------------------------------------------------------------


def _highest_read(world: World) -> int:
    offsets = (offset for poll in _polls(world) for offset, _ in poll.records)
    return max(offsets, default=-1)


def _known(world: World) -> dict[int, set[str]]:
    """What acknowledgements and reads vouch for at each offset."""
    known: dict[int, set[str]] = {}
    for value, offset in promised(world).items():
        if offset is not None:
            known.setdefault(offset, set()).add(value)
    for poll in _polls(world):
        for offset, value in poll.records:
            known.setdefault(offset, set()).add(value)
    return known


def _differences(world: World, ended: Ended) -> dict[str, int]:
    copies: dict[int, set[tuple[int, object]]] = {}
    replicas = assigned(world, world.partition)
    for broker_id in replicas:
        for offset, epoch, value in log_of(world, broker_id):
            copies.setdefault(offset, set()).add((epoch, value))
    below = min(
        (world.disks[b].high_watermarks.get(world.partition, 0) for b in replicas), default=0
    )
    differ = [offset for offset, held in copies.items() if len(held) > 1]
    proved = sum(ended.level or offset < below for offset in differ)
    return {"replica-divergence": proved, "unproven-difference": len(differ) - proved}
