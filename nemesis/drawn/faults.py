"""The faults of random runs: the table of their names, and how each is drawn as steps. Pure.

How many a fault is for is drawn before the run; who leads, and so who is meant by a role, is known
only when it begins (`steps.Role`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from neaptide.nemesis.acts import Act
from neaptide.nemesis.drawn.aims import draw_chain
from neaptide.nemesis.drawn.machines import Table, draw_disk, draw_moves, draw_toxic
from neaptide.nemesis.drawn.members import draw_members
from neaptide.nemesis.gate.model import COORDINATION
from neaptide.nemesis.shapes import SHAPES
from neaptide.nemesis.steps import VERBS, InFlight, Means

Scope = Literal[
    "one", "minority", "majority", "all", "leader", "follower", "controller", "coordinator"
]
OF_A_PARTITION: Final[tuple[Scope, ...]] = ("leader", "follower")
# Of ten faults three are for one broker, whoever it is; all at once are rare.
_WEIGHTS: Final[Mapping[Scope, float]] = {
    "one": 3,
    "minority": 1,
    "majority": 1,
    "all": 0.5,
    "leader": 2.5,
    "follower": 1,
    "controller": 1,
    "coordinator": 2.5,
}
_CLIENTS_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Given:
    """What a fault is drawn for.

    `faults`: all that were asked for. `aims`: how likely each shape of an aimed fault is.
    `coordinated`: the workload has a group, or transactions, and so a coordinator. `voters`: the
    cluster has a quorum that voters can leave.
    """

    brokers: Sequence[str]
    partitions: int
    faults: Sequence[str] = ()
    aims: Mapping[str, float] = field(default_factory=dict)
    coordinated: bool = False
    voters: bool = False

    def whom(self, rng: random.Random, scopes: Sequence[Scope] = ()) -> tuple[str, ...]:
        """Brokers, each once, or one role. `scopes`: of which to choose; none: of all."""
        allowed = [
            scope
            for scope in _WEIGHTS
            if (not scopes or scope in scopes) and (self.coordinated or scope != "coordinator")
        ]
        [scope] = rng.choices(allowed, [_WEIGHTS[scope] for scope in allowed])
        order = tuple(rng.sample(list(self.brokers), len(self.brokers)))
        partition, count = rng.randrange(self.partitions), len(order)
        match scope:
            case "leader" | "follower":
                return (f"{scope}({partition})",)
            case "controller" | "coordinator":
                return (scope,)
            case "one":
                return order[:1]
            case "minority":
                return order[: max(1, (count - 1) // 2)]
            case "majority":
                return order[: count // 2 + 1]
            case "all":
                return order


def _table(whom: Sequence[str]) -> Table:
    """The keys of a step that say whom it is for."""
    if tuple(whom) == ("controller",):
        return {"controller": "active"}
    return {"brokers": list(whom)} if len(whom) > 1 else {"broker": whom[0]}


# --- drawing -------------------------------------------------------------------------------------

Draw = Callable[[random.Random, Given, float, float], Iterator[Act]]  # when, and how long


def _act(at_s: float, lasts_s: float, verb: str, table: Mapping[str, Any]) -> Act:
    return Act(round(at_s, 3), round(lasts_s, 3) if VERBS[verb].passes else 0.0, ({verb: table},))


def _one(verb: str, draw: Callable[[random.Random, Given], Table]) -> Draw:
    """One step, whose table is drawn."""

    def drawn(rng: random.Random, given: Given, at_s: float, lasts_s: float) -> Iterator[Act]:
        yield _act(at_s, lasts_s, verb, draw(rng, given))

    return drawn


def _kill(rng: random.Random, given: Given) -> Table:
    return {**_table(given.whom(rng)), "in_flight": rng.choice(get_args(InFlight))}


def _down(verb: str) -> Draw:
    def draw(rng: random.Random, given: Given, at_s: float, lasts_s: float) -> Iterator[Act]:
        for one in given.whom(rng):
            yield _act(at_s, lasts_s, verb, _table((one,)))

    return draw


def _cut(rng: random.Random, given: Given) -> Table:
    """Between two brokers, or between one and the coordination service; one way or both."""
    source = rng.choice(given.brokers)
    if rng.random() < 0.3:
        return {"from": source, "to": COORDINATION, "purpose": "coordination", "both": True}
    other = rng.choice([broker for broker in given.brokers if broker != source])
    both = rng.random() < 0.5
    return {"from": source, "to": other, "purpose": "replication", "both": both}


def _partition(rng: random.Random, given: Given) -> Table:
    order = rng.sample(list(given.brokers), len(given.brokers))
    table: Table = {"shape": rng.choice(list(SHAPES)), "brokers": order}
    if rng.random() < 0.5:
        [table["first"]] = given.whom(rng, (*OF_A_PARTITION, "coordinator"))
    return table


def _clock(rng: random.Random, given: Given, at_s: float, lasts_s: float) -> Iterator[Act]:
    whom = given.whom(rng, [scope for scope in _WEIGHTS if scope != "controller"])
    for after_s, this_s, ahead_ms in draw_moves(rng, lasts_s):
        for one in whom:
            table = {"broker": one, "ahead_ms": ahead_ms}
            yield _act(at_s + after_s, this_s, "set_clock", table)


def _disk(rng: random.Random, given: Given, at_s: float, lasts_s: float) -> Iterator[Act]:
    partition = rng.randrange(given.partitions)
    [scope] = rng.choices(("one", *OF_A_PARTITION), (3, 2.5, 1))
    one = rng.choice(given.brokers) if scope == "one" else f"{scope}({partition})"
    yield _act(at_s, lasts_s, *draw_disk(rng, one, partition))


def _members(rng: random.Random, given: Given, at_s: float, lasts_s: float) -> Iterator[Act]:
    drawn = draw_members(rng, given.brokers, given.partitions, voters=given.voters)
    yield _act(at_s, lasts_s, *drawn)


def _rounds(rng: random.Random, given: Given, at_s: float, lasts_s: float) -> Iterator[Act]:
    power_off = "power-off" in given.faults
    yield Act(at_s, 0.0, draw_chain(rng, given.partitions, given.aims, power_off=power_off))


# --- the table -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One name that `--nemesis` takes. `verbs`: of its steps, which no other one has. `needs`:
    brokers, at least. `means`: what the machine must have. `lasts_s`: at least, at most."""

    what: str
    draw: Draw
    verbs: tuple[str, ...]
    needs: int = 1
    of_clients: bool = False  # nothing is done to the cluster
    alone: bool = False  # never at the same time as another fault
    means: Means | None = None
    lasts_s: tuple[float, float] = (1.0, 5.0)


FAULTS: Final[Mapping[str, FaultKind]] = {
    "kill": FaultKind(
        "SIGKILL of one broker, a minority, a majority, all; or of the leader, a follower, the"
        " controller. They are started again later",
        _one("kill", _kill),
        ("kill",),
    ),
    "pause": FaultKind("SIGSTOP, of the same brokers as kill", _down("pause"), ("pause",)),
    "restart": FaultKind("a clean shutdown, of the same brokers as kill", _down("stop"), ("stop",)),
    "power-off": FaultKind(
        "SIGKILL, of the same brokers as kill, and what was not flushed is gone: also a correct"
        " Kafka may lose acknowledged records",
        _one("power_off", lambda rng, given: _table(given.whom(rng))),
        ("power_off",),
    ),
    "cut": FaultKind(
        "no byte passes over a link between two brokers, or to the coordination service, in one"
        " direction or both",
        _one("cut", _cut),
        ("cut",),
        needs=2,
    ),
    "partition": FaultKind(
        f"many links are cut, in a shape: {', '.join(SHAPES)}",
        _one("partition", _partition),
        ("partition",),
        needs=2,
    ),
    "client": FaultKind(
        "SIGKILL of a client process. Another one takes its place later",
        _one("kill_client", lambda rng, _: {"number": rng.randrange(_CLIENTS_MAX)}),
        ("kill_client",),
        of_clients=True,
    ),
    "slow": FaultKind(
        "a link of a broker, to its clients, its followers or the coordination service, is slow,"
        " narrow, sliced, cut short, closed late, silent or reset",
        _one("toxic", lambda rng, given: draw_toxic(rng, given.brokers)),
        ("toxic",),
        means="toxics",
        lasts_s=(2.0, 6.0),
    ),
    "clock": FaultKind(
        "the clocks of the same brokers as kill jump, go forward and back, or drift",
        _clock,
        ("set_clock",),
        means="clocks",
        lasts_s=(4.0, 8.0),
    ),
    "disk": FaultKind(
        "writes or fsyncs of one broker fail or are slow; or the broker is killed and loses a bit,"
        " the end of a file, or a file that the others have",
        _disk,
        ("inject", "damage"),
        needs=3,
        means="calls",
        lasts_s=(3.0, 6.0),
    ),
    "members": FaultKind(
        "a partition is reassigned, a broker removed and added, preferred leaders elected, the"
        " controller moved, a voter of a KRaft quorum removed and added, a topic created and"
        " deleted, a partition added, a setting changed",
        _members,
        (
            *("reassign", "remove_broker", "elect", "move_controller", "remove_voter"),
            *("add_partition", "set_topic", "create_topic"),
        ),
        needs=3,
    ),
    "rounds": FaultKind(
        "aimed at fetch rounds: holds, drops or delays Fetch or OffsetForLeaderEpoch messages, and"
        " kills, pauses or cuts off a broker when that has succeeded",
        _rounds,
        ("cast",),
        needs=3,
        alone=True,
    ),
}
ALL: Final = "all"
NONE: Final = "none"


def kind_of(verb: str) -> str:
    """Of what kind an act is that begins with this verb; the verb itself, if of none."""
    return next((name for name, kind in FAULTS.items() if verb in kind.verbs), verb)


def faults_of(schedule: Sequence[Act]) -> tuple[str, ...]:
    """The names of its faults, in the order of the table."""
    verbs = {act.verb for act in schedule}
    return tuple(name for name, kind in FAULTS.items() if verbs & set(kind.verbs))
