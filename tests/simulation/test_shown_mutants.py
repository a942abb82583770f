"""Mutants that take more than a search stumbles over: the schedule that shows each, step by step.

Under the same schedule the generation whose rule is broken does what it should.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from neaptide.clusters.broker.replication.generation import GENERATIONS, Generation
from neaptide.harness.scenarios.catalog import documented
from neaptide.nemesis import steps
from neaptide.nemesis.gate.model import MessageKind
from neaptide.nemesis.scenario import load_scenario
from neaptide.nemesis.search.explore import Found, watched_world
from neaptide.nemesis.search.hunt import is_of_the_unbroken
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.mutants import BY_NAME, MUTANTS, Mutant, applied, transactions
from neaptide.nemesis.search.play import simulate
from neaptide.nemesis.search.shrink import Schedule, replay
from neaptide.nemesis.search.targets import Target, target_of
from tests.simulation.searches import FOUND, ONE_ON_AN_OLDER_EPOCH
from tests.simulation.worlds import SETTINGS

SHOWN_BY = {
    "kip-101-only": "kip-279-divergence",
    "unfenced": "kip-320-divergence",
    "meets-at-the-leaders-end": "kip-279-divergence",
}
SHOWN_BY_SCENARIO = {"diverges-by-offset-alone": "fast-failover-divergence"}


@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_found_schedule_shows_the_mutant(name: str) -> None:
    mutant, scenario = BY_NAME[name], load_scenario(FOUND[SHOWN_BY[name]])
    with applied(mutant):
        assert simulate(scenario, mutant.rules).judged.outcome == "diverged"
    assert simulate(scenario, GENERATIONS["2.1"]).judged.outcome != "diverged"


@pytest.mark.parametrize("name", SHOWN_BY_SCENARIO)
def test_a_documented_scenario_shows_the_mutant(name: str) -> None:
    mutant, ((_, scenario),) = BY_NAME[name], documented([SHOWN_BY_SCENARIO[name]])
    with applied(mutant):
        assert simulate(scenario, mutant.rules).judged.outcome == "diverged"
    assert simulate(scenario, mutant.rules).judged.outcome == "held"


def _hold(message: MessageKind, source: str, to: str, where: str = "") -> steps.Hold:
    return steps.Hold.of(message, "fetch", source, to, where, rule=f"{message} {source}→{to}")


def _hold_epochs(message: MessageKind, source: str, to: str) -> steps.Hold:
    api: steps.Api = "offset_for_leader_epoch"
    return steps.Hold.of(message, api, source, to, rule=f"epochs, {message} {source}→{to}")


def _kill(broker: str) -> steps.Kill:
    return steps.Kill(broker, "discarded")


def _cut_off(broker: str) -> steps.Cut:
    return steps.Cut(broker, "coordination", "coordination", both=True)


M1, M2, M3 = (steps.Produce((record,)) for record in ("m1", "m2", "m3"))
# A has fallen behind C, and has left the ISR.
A_IS_OUT = (_hold("request", "A", "C"), M1, steps.Await())
# C's word that A is in the ISR again comes to the service after the controller, who is A, has
# written that B is dead; and C learns that it lost before it learns why.
A_RACE_LOST = (
    *A_IS_OUT,
    steps.Cut("C", "coordination", "coordination"),
    steps.Release("request A→C"),
    steps.Cut("A", "C", "replication"),
    _kill("B"),
    steps.Heal("C", "coordination"),
)
# B is controller next, and sends C what it has read. C gets it when it has let A in meanwhile. Who
# forgets that acknowledges m2 without A, who leads next.
TOLD_LATE = (
    *A_IS_OUT,
    steps.Cut("B", "C", "replication"),
    _cut_off("A"),
    steps.Await(),
    steps.Heal("A", "coordination"),
    steps.Release("request A→C"),
    steps.Heal("B", "C"),
    _hold("response", "C", "A"),
    M2,
    _kill("B"),
    _kill("C"),
)
# B is cut back to nothing, and must forget that epoch 1 began at offset 1: it leads next, and C,
# who has m1 of epoch 0, asks it where that ended.
CUT_BACK = (
    _hold("response", "C", "A"),
    M1,
    _hold("response", "B", "A"),
    _kill("C"),
    M2,
    _kill("B"),
    steps.Restart("B"),
    _kill("A"),
    _hold_epochs("response", "B", "C"),
    steps.Restart("C"),
    M3,
    steps.Release("epochs, response B→C"),
)
# C led in epoch 2 and wrote nothing; A leads next, with a record of epoch 1 that C never had.
LED_FOR_NOTHING = (
    M1,
    _kill("C"),
    steps.Restart("C"),
    _hold("response", "B", "C"),
    M2,
    _hold_epochs("request", "A", "C"),
    _kill("B"),
    _kill("C"),
    steps.Restart("C"),
)
# B, a zombie, has m1, which C's successor A never had. C leads again, and B learns of that, but not
# of what was between, before its fetches come through.
AN_EPOCH_MISSED = (
    _cut_off("B"),
    steps.Await(),
    _hold("response", "C", "A"),
    M1,
    _hold("request", "B", "C"),
    _kill("C"),
    steps.Restart("C"),
    M2,
    _kill("A"),
    steps.Heal("B", "coordination"),
    steps.Release("request B→C"),
    M3,
)
# A has m1, and does not know that it is committed. It has m2 of epoch 1 too; B, who leads in
# epoch 2, does not know of epoch 1.
NOTHING_WRITTEN_YET = (
    _hold("response", "D", "A", "high_watermark >= 1"),
    _hold("response", "D", "C", "high_watermark >= 1"),
    M1,
    _hold("request", "B", "C"),
    _kill("D"),
    M2,
    _hold("response", "B", "A"),
    _kill("C"),
    _kill("B"),
)
# C does not learn that B's joining is written; m1 is acknowledged without B, who leads next.
JOINING = (
    _kill("B"),
    steps.Cut("coordination", "C", "coordination"),
    steps.Restart("B"),
    _hold("response", "C", "B"),
    M1,
    _kill("C"),
)
# C leads on for those who do not know, wants all others, who lack m1, out of the ISR, and does not
# reach it.
LEAVING = (
    _cut_off("C"),
    steps.Produce(("m1",), to="C"),
    steps.Await(),
    steps.Produce(("m2",), to="C"),
    steps.Await(),
    steps.Produce(("m3",), to="C"),
)
# All that had m1 shut down cleanly, but the last one, which has lost it: who leads?
ONE_IS_TORN = (steps.Stop("A"), M1, steps.Stop("C"), steps.PowerOff("B"))
# B is to be in the ISR again when it loses what it has; it is elected with nothing.
JOINING_AS_ANOTHER = (
    _kill("B"),
    steps.Hold.of("request", "alter_partition", "C", "controller", rule="change"),
    steps.Restart("B"),
    M1,
    _hold("request", "B", "C"),
    steps.PowerOff("B"),
    steps.Restart("B"),
    steps.Release("change"),
    _kill("C"),
)

SHOWN: Mapping[str, tuple[Schedule, str]] = {
    "epochs-not-truncated": (CUT_BACK, "diverged"),
    "same-leader-fetches-on": (AN_EPOCH_MISSED, "diverged"),
    "epochs-on-first-append": (NOTHING_WRITTEN_YET, "lost"),
    "equal-leader-epoch-obeyed": (TOLD_LATE, "lost"),
    "pending-expansion-ignored": (JOINING, "lost"),
    "pending-shrink-counts-at-once": (LEAVING, "lost"),
    "torn-not-seen-by-a-new-controller": (ONE_IS_TORN, "lost"),
    "prefers-the-last-leader": (ONE_IS_TORN, "lost"),
    "isr-changes-name-no-epochs": (JOINING_AS_ANOTHER, "lost"),
}
BROKEN: Mapping[str, tuple[Schedule, str]] = {
    "epochs-not-truncated": (CUT_BACK, "epochs-begin-in-log"),
    "empty-epochs-kept": (LED_FOR_NOTHING, "truncation-gets-on"),
    "epochs-on-first-append": (NOTHING_WRITTEN_YET, "strong-isr"),
    "equal-leader-epoch-obeyed": (TOLD_LATE, "written-isr-is-counted"),
    "takes-the-isr-it-wanted": (A_RACE_LOST, "isr-as-written"),
    "isr-writes-without-version": (A_RACE_LOST, "monotonic-leader-epoch"),
    "pending-expansion-ignored": (JOINING, "strong-isr"),
}


def test_every_mutant_that_is_said_to_be_shown_is_shown() -> None:
    by_message = {  # test_mutants_by_message
        "controller-writes-unfenced",
        "later-fall-counted-already",
        "takes-the-old-isr",
    }
    of_sequences = {"forgets-all-when-cut", "late-sequences-taken"}  # below, test_idempotence
    of_commits = {  # test_groups, test_swarm
        "positions-read-to-high-watermark",
        "unacknowledged-commit-is-known",
    }
    of_transactions = {mutant.name for mutant in transactions.MUTANTS}  # test_transactions
    said = {mutant.name for mutant in MUTANTS if mutant.shown}
    by_schedules = {*SHOWN_BY, *SHOWN_BY_SCENARIO, *SHOWN, *BROKEN}
    assert said <= {*by_schedules, *by_message, *of_sequences, *of_commits, *of_transactions}


def _target(mutant: Mutant, rules: Generation, *, watched: bool) -> Target:
    settings = {**SETTINGS, **mutant.settings}
    return target_of(
        rules,
        settings,
        mutant.topic_settings,
        mutant.acks,
        mutant.faults,
        watched=watched,
        names=mutant.brokers,
        idempotence=mutant.idempotence,
    )


def _played(mutant: Mutant, schedule: Schedule, *, is_broken: bool, watched: bool) -> str:
    """The outcome of a schedule, with the rule or without it."""
    rules = mutant.rules if is_broken else GENERATIONS[mutant.rules.name]
    target = _target(mutant, rules, watched=watched)
    ready = watched_world(target)
    assert not isinstance(ready, Judged)
    judged = replay(target, ready, schedule)
    assert judged is not None
    return judged.outcome


@pytest.mark.parametrize("name", SHOWN)
def test_a_schedule_shows_what_the_mutant_loses(name: str) -> None:
    mutant, (schedule, outcome) = BY_NAME[name], SHOWN[name]
    with applied(mutant):
        assert _played(mutant, schedule, is_broken=True, watched=False) == outcome
    unbroken = _played(mutant, schedule, is_broken=False, watched=False)
    assert unbroken in ("held", "unavailable")


@pytest.mark.parametrize("name", BROKEN)
def test_a_schedule_shows_which_invariant_the_mutant_breaks(name: str) -> None:
    mutant, (schedule, invariant) = BY_NAME[name], BROKEN[name]
    with applied(mutant):
        broken = _played(mutant, schedule, is_broken=True, watched=True)
    assert broken == f"broken: {invariant}"
    unbroken = _played(mutant, schedule, is_broken=False, watched=True)
    assert unbroken in ("held", "unavailable")


@pytest.mark.parametrize(
    ("schedule", "is_its_own"), [(ONE_ON_AN_OLDER_EPOCH, False), (AN_EPOCH_MISSED, True)]
)
def test_what_the_unbroken_generation_does_as_well_shows_no_mutant(
    schedule: Schedule, is_its_own: bool
) -> None:
    mutant = BY_NAME["same-leader-fetches-on"]
    with applied(mutant):
        assert _played(mutant, schedule, is_broken=True, watched=False) == "diverged"
    target = _target(mutant, mutant.rules, watched=False)
    found = Found(0, schedule, Judged("diverged", ()), 0)
    assert is_of_the_unbroken(mutant, target, found) is not is_its_own


# B has m1 alone, A has m2 too, and nobody has acknowledged any; A is cut, and then leads.
M2_IS_CUT = (
    steps.Hold.of("request", "fetch", "B", "C", "fetch_offset >= 1", rule="B"),
    steps.Produce(("m1",)),
    steps.Produce(("m2",)),
    steps.Hold.of("request", "fetch", "A", "B", rule="A"),
    steps.Kill("C", "discarded"),
    steps.Kill("B", "discarded"),
)


def test_p4_a_follower_that_is_cut_and_elected_shows_what_it_has_forgotten() -> None:
    mutant = BY_NAME["forgets-all-when-cut"]
    with applied(mutant):
        assert _played(mutant, M2_IS_CUT, is_broken=True, watched=False) == "duplicated"
    assert _played(mutant, M2_IS_CUT, is_broken=False, watched=False) == "held"
