"""Mutants: the core with one rule broken, each to be found by the search, or named with a reason.

A mutant that nothing finds is a rule that nothing checks. What is broken is a field of a
generation's row, or one function of the core, the service or the disk, which another one replaces
(broken_rules) for as long as `applied` lasts. The search is told what it needs to see it: faults,
acknowledgements, settings. `hidden` says why a mutant cannot be found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from clusters.broker.replication import (
    control,
    controlling,
    election,
    eligible,
    following,
    leading,
    log,
    offsets,
    partition,
    step,
    truncation,
)
from clusters.broker.replication import messages as told
from clusters.broker.replication.generation import (
    GENERATIONS,
    CaughtUp,
    EpochAssignment,
    Generation,
    SameLeader,
    Truncation,
)
from clusters.simulation.disk import Disk
from clusters.simulation.service import Service
from nemesis.search import broken_rules as broken
from nemesis.search.mutant import ONE, POWER, READS, TORN, UNCLEAN, ZOMBIES, Mutant
from nemesis.search.sequence_mutants import SEQUENCES

_V2_1: Final = GENERATIONS["2.1"]
_V2_0: Final = GENERATIONS["2.0"]
_V4_0: Final = GENERATIONS["4.0"]


def _row(name: str, sentence: str, rules: Generation, **rest: Any) -> Mutant:
    """One field of a generation's row is another one."""
    return Mutant(name, sentence, rules, **rest)


def _rule(name: str, owner: Any, rule: str, by: Any, sentence: str, **rest: Any) -> Mutant:
    """One function is another one."""
    return Mutant(name, sentence, replaced=((owner, rule, by),), **rest)


def _moves_hw(name: str, by: Any, sentence: str, **rest: Any) -> Mutant:
    return _rule(name, partition, "maybe_increment_high_watermark", by, sentence, **rest)


_TRUNCATION: Final = (
    _row(
        "truncates-to-high-watermark",
        "A follower of a new leader truncates to its own high watermark.",
        replace(_V2_1, truncation=Truncation.TO_HIGH_WATERMARK),
    ),
    _row(
        "kip-101-only",
        "The leader's answer does not name the epoch that it is for.",
        replace(_V2_1, truncation=Truncation.TO_EPOCH_END_OFFSET),
        topic_settings=ONE,
    ),
    _rule(
        "truncates-one-too-far",
        truncation,
        "truncate",
        broken.truncates_one_too_far,
        "Where a follower truncates, it takes one record more away.",
        topic_settings=ONE,
    ),
    _rule(
        "truncates-one-too-little",
        truncation,
        "truncate",
        broken.truncates_one_too_little,
        "Where a follower truncates, it leaves one record too many.",
    ),
    _rule(
        "truncates-nothing",
        truncation,
        "truncate",
        broken.truncates_nothing,
        "A follower keeps what its new leader never had.",
    ),
    _rule(
        "fetches-without-an-answer",
        step._HANDLERS,
        told.FetcherRequestFailed,  # type: ignore[arg-type]
        broken.fetches_without_an_answer,
        "A follower whose question for the epoch's end fails truncates to its high watermark.",
    ),
    _rule(
        "epochs-not-truncated",
        log,
        "truncate_to",
        broken.keeps_epochs,
        "A log that is cut keeps the epochs of what was cut off.",
        topic_settings=ONE,
    ),
    _rule(
        "empty-epochs-kept",
        truncation,
        "_forget_empty_epochs",
        broken.forgets_no_epoch,
        "A follower asks again and again for an epoch in which it led and wrote nothing.",
        topic_settings=ONE,
    ),
    _rule(
        "epoch-ends-at-log-end",
        offsets,
        "_end_of",
        broken.answers_its_log_end,
        "A leader answers that every epoch ends where its log ends.",
    ),
    _rule(
        "starts-afresh-always",
        following,
        "_adjust",
        broken.starts_afresh_always,
        "A follower that is out of range drops its whole log, whatever the leader has.",
        hidden="from 2.0 on a follower truncates before it fetches, so it is out of range only"
        " where its leader deleted what it needs: then its whole log is to be dropped anyway",
    ),
    _rule(
        "serves-any-offset",
        leading,
        "_fetch_error",
        broken.serves_any_offset,
        "A leader does not refuse a fetch offset that is past its log.",
        hidden="from 2.0 on a follower truncates before it fetches, and fencing keeps those of"
        " other epochs away: nobody fetches past the leader's log",
    ),
)
_EPOCHS: Final = (
    _row(
        "unfenced",
        "A request that is meant for another leader epoch is answered.",
        replace(_V2_1, fences_leader_epochs=False),
        topic_settings=ONE,
        faults=ZOMBIES,
        steps_only=True,
    ),
    _row(
        "same-leader-fetches-on",
        "A follower that missed an epoch goes on fetching from the leader that it had.",
        replace(_V2_0, same_leader=SameLeader.FETCHES_ON),
        topic_settings=ONE,
        faults=ZOMBIES,
        steps_only=True,
    ),
    _row(
        "fetches-on-in-the-old-epoch",
        "A follower of the same leader goes on in the old epoch, in which it is refused.",
        replace(_V2_1, same_leader=SameLeader.FETCHES_ON),
    ),
    _row(
        "epochs-on-first-append",
        "A leader notes its epoch with its first record only.",
        replace(_V2_1, epoch_assignment=EpochAssignment.ON_FIRST_APPEND),
        topic_settings=ONE,
    ),
    _row(
        "epochs-never",
        "Nobody notes epochs, so followers fall back on the high watermark.",
        replace(_V2_1, epoch_assignment=EpochAssignment.NEVER),
    ),
    _rule(
        "followers-note-no-epochs",
        partition,
        "append_as_follower",
        broken.notes_no_epochs,
        "A follower does not note the epochs of what it appends.",
    ),
    _rule(
        "epochs-not-written",
        Disk,
        "carry_out",
        broken.writes_no_epochs,
        "The epoch checkpoint is read at the start, and never written.",
    ),
)
_ISR: Final = (
    _row(
        "joins-before-the-epoch-start",
        "A follower joins the ISR before it has what the leader's epoch began with.",
        replace(_V2_1, isr_needs_epoch_start=False),
    ),
    _rule(
        "joins-below-high-watermark",
        partition,
        "may_join_isr",
        broken.joins_where(lambda led, leader, end: end >= leader.epoch_start_offset),
        "A follower joins the ISR although it has not reached the high watermark.",
    ),
    _rule(
        "joins-one-short",
        partition,
        "may_join_isr",
        broken.joins_where(
            lambda led, leader, end: end >= max(leader.epoch_start_offset, led.high_watermark) - 1
        ),
        "A follower joins the ISR when one committed record is still missing.",
    ),
    _rule(
        "joins-on-any-fetch",
        partition,
        "may_join_isr",
        broken.joins_where(lambda led, leader, end: True),
        "A follower joins the ISR with its first fetch.",
    ),
    _rule(
        "takes-the-isr-it-wanted",
        partition,
        "abandon_isr_change",
        broken.takes_what_it_wanted,
        "A leader that lost the race to write an ISR believes in what it wanted to write.",
        topic_settings=ONE,
    ),
    _rule(
        "takes-the-old-isr",
        partition,
        "doubt_isr_change",
        broken.takes_the_old_isr,
        "A leader whose session ends over an ISR change believes that it was not written.",
        topic_settings=ONE,
    ),
    _rule(
        "isr-never-shrinks",
        partition,
        "out_of_sync_replicas",
        broken.nobody_is_out_of_sync,
        "A leader never takes anybody out of the ISR.",
        hidden="only availability suffers: the high watermark waits for who is stuck",
    ),
    _row(
        "caught-up-on-any-fetch",
        "A follower that fetches counts as caught up, however far behind it is.",
        replace(_V2_1, caught_up=CaughtUp.ON_ANY_FETCH),
        hidden="only availability suffers: the high watermark waits for who is behind",
    ),
)
_HIGH_WATERMARK: Final = (
    _moves_hw(
        "hw-of-the-majority",
        broken.moves_to(broken.majority),
        "The high watermark is what most replicas have.",
    ),
    _moves_hw(
        "hw-is-log-end",
        broken.moves_to(broken.log_end),
        "The high watermark is the leader's log end.",
    ),
    _moves_hw(
        "hw-of-the-fastest",
        broken.moves_to(broken.fastest),
        "The high watermark is what the fastest of the ISR has.",
    ),
    _moves_hw(
        "pending-expansion-ignored",
        broken.waits_for(broken.written_isr, for_caught_up=False),
        "The high watermark does not wait for one whose joining is being written.",
    ),
    _moves_hw(
        "pending-shrink-counts-at-once",
        broken.waits_for(broken.without_leaving),
        "The high watermark does not wait for one whose leaving is being written.",
        topic_settings=ONE,
    ),
    _moves_hw(
        "caught-up-outsiders-ignored",
        broken.waits_for(broken.maximal_isr, for_caught_up=False),
        "The high watermark does not wait for one who is caught up and not yet in the ISR.",
        hidden="only its joining gets harder: from when it is written on it is waited for",
    ),
    _moves_hw(
        "hw-goes-back",
        broken.goes_back,
        "The high watermark follows the slowest of the ISR, back too.",
    ),
    _rule(
        "believes-all-level",
        partition,
        "make_leader",
        broken.believes_all_level,
        "A new leader believes that its followers have all that it has.",
    ),
    _rule(
        "followers-believe-all-committed",
        partition,
        "append_as_follower",
        broken.believes_its_log_committed,
        "A follower takes all that it has for committed.",
    ),
    _rule(
        "hw-read-as-log-end",
        Disk,
        "stored",
        broken.reads_log_end_as_high_watermark,
        "A broker that starts takes all that it has for committed.",
    ),
    _rule(
        "hw-not-read",
        Disk,
        "stored",
        broken.reads_no_high_watermark,
        "A broker that starts knows no high watermark.",
        hidden="from 0.11 on it only delays: a high watermark that is too low decides nothing",
    ),
    _rule(
        "hw-not-truncated",
        partition,
        "truncate_to",
        broken.keeps_high_watermark,
        "A high watermark stays where it was when the log before it is cut.",
        settings=UNCLEAN,
    ),
)
_ACKS: Final = (
    _rule(
        "acks-at-append",
        leading,
        "produce_outcome",
        broken.acks_at_append,
        "acks=all is acknowledged when the leader has it.",
    ),
    _rule(
        "acks-at-min-insync",
        leading,
        "produce_outcome",
        broken.acks_at_min_insync,
        "acks=all is acknowledged when min.insync.replicas have it, not the ISR.",
    ),
    _rule(
        "acks-whatever-the-isr",
        leading,
        "produce_outcome",
        broken.acks_whatever_the_isr,
        "An ISR that became too small after the append does not keep the acknowledgement back.",
        faults=POWER,
    ),
    Mutant(
        "min-insync-not-checked",
        "min.insync.replicas is checked neither before nor after the append.",
        replaced=(
            (leading, "_refusal", broken.appends_under_min_isr),
            (leading, "produce_outcome", broken.acks_whatever_the_isr),
        ),
        faults=POWER,
    ),
    _rule(
        "appends-under-min-isr",
        leading,
        "_refusal",
        broken.appends_under_min_isr,
        "min.insync.replicas is not checked before the append.",
        hidden="it is checked again before the acknowledgement, which is not given",
    ),
    _rule(
        "acks-on-stepping-down",
        leading,
        "produce_outcome",
        broken.acks_on_stepping_down,
        "A leader that steps down acknowledges what it was still waiting for.",
    ),
    _rule(
        "appends-as-follower",
        leading,
        "_refusal",
        broken.appends_as_follower,
        "A follower appends what a client sends it.",
    ),
    _rule(
        "reads-to-log-end",
        leading,
        "_readable_end",
        broken.reads_to_log_end,
        "Consumers read what is not committed.",
        faults=READS,
        steps_only=True,
    ),
    _rule(
        "parks-unwatched",
        leading,
        "_park",
        broken.parks_unwatched,
        "A parked request is not found by what completes it.",
    ),
    _rule(
        "stays-parked",
        leading,
        "_unpark",
        broken.stays_parked,
        "A parked request that is answered stays parked.",
    ),
)
_CONTROL: Final = (
    _rule(
        "stale-controller-obeyed",
        control,
        "_is_stale",
        broken.believes_any_controller,
        "A controller of an earlier epoch is obeyed, and its epoch believed.",
    ),
    _rule(
        "stale-controller-heard",
        control,
        "_is_stale",
        broken.never_stale,
        "A controller of an earlier epoch is obeyed.",
        hidden="the leader epochs that it tells are old too, or what it wrote while it was one:"
        " those are refused, or right",
    ),
    _rule(
        "older-leader-epoch-obeyed",
        control,
        "_become",
        broken.becomes_where(lambda epoch, known: False),
        "A state of an earlier leader epoch is obeyed.",
        hidden="controllers alone tell of leader epochs: an earlier one is refused by its own"
        " epoch, and what one of them tells arrives in order",
    ),
    _rule(
        "equal-leader-epoch-obeyed",
        control,
        "_become",
        broken.becomes_where(lambda epoch, known: epoch < known),
        "A state of the same leader epoch is obeyed again.",
    ),
    _rule(
        "controller-writes-unfenced",
        Service,
        "_write",
        broken.writes_for_any_controller,
        "A controller writes whatever epoch it is of.",
    ),
    _rule(
        "isr-writes-without-version",
        Service,
        "_write",
        broken.writes_any_version,
        "A leader writes its ISR over whatever was written meanwhile.",
    ),
    _rule(
        "dead-and-back-is-in-sync",
        controlling,
        "_decide",
        broken.forgets_who_fell,
        "A replica that died and is back before that is decided does not leave the ISR.",
        faults=POWER,
    ),
    _rule(
        "elects-unclean",
        election,
        "next_state",
        broken.elects_unclean,
        "With nobody of the ISR alive, another replica leads.",
    ),
    _rule(
        "elects-the-first",
        election,
        "next_state",
        broken.elects_the_first,
        "The first replica that lives leads, be it in the ISR or not.",
    ),
    _rule(
        "elects-in-the-old-epoch",
        election,
        "next_state",
        broken.elects_in_the_old_epoch,
        "A new leader leads in the epoch of the old one.",
    ),
    _rule(
        "takes-all-living-as-in-sync",
        election,
        "next_state",
        broken.takes_all_living_as_in_sync,
        "After an election, all that live are in the ISR.",
    ),
    _rule(
        "keeps-the-dead-in-sync",
        election,
        "next_state",
        broken.keeps_the_dead_in_sync,
        "The controller leaves the dead in the ISR.",
        hidden="only availability suffers: the high watermark waits for the dead until the leader"
        " takes them out",
    ),
)
_ELIGIBLE: Final = (
    _rule(
        "hw-moves-under-min-isr",
        partition,
        "is_under_min_isr",
        broken.never_under_min_isr,
        "The high watermark moves while the ISR is smaller than min.insync.replicas.",
        rules=_V4_0,
        acks=("0", "all"),
        faults=(*POWER, "consume"),
    ),
    _rule(
        "trusts-the-torn",
        controlling,
        "_decide",
        broken.trusts_the_torn,
        "A replica that comes back from an unclean shutdown stays eligible.",
        rules=_V4_0,
        faults=POWER,
        steps_only=True,
    ),
    _rule(
        "torn-not-seen-by-a-new-controller",
        eligible,
        "came_back_torn",
        broken.nobody_came_back_torn,
        "A new controller does not ask who came back torn before it was one.",
        rules=_V4_0,
        faults=TORN,
        steps_only=True,
    ),
    Mutant(
        "eligible-for-ever",
        "Who was once eligible stays it when the ISR is large enough again.",
        _V4_0,
        (
            (eligible, "next_elr", broken.never_clears_eligible),
            (partition, "next_elr", broken.never_clears_eligible),
        ),
    ),
    _rule(
        "prefers-the-last-leader",
        eligible,
        "next_state",
        broken.prefers_the_last_leader,
        "The last leader, back from an unclean shutdown, is elected over one who is eligible.",
        rules=_V4_0,
        faults=TORN,
        steps_only=True,
    ),
)
_ANSWERS: Final = (
    _rule(
        "late-answers-taken",
        following,
        "_take_answer",
        broken.takes_late_answers,
        "A follower takes an answer to an earlier request.",
        hidden="answers die with their connection, and each connection has one request in flight",
    ),
    _rule(
        "answers-always-meant",
        following,
        "_still_meant",
        broken.means_always,
        "A follower takes an answer about a state that it has left.",
        hidden="a partition that is followed anew has a new fetcher, unless others share it;"
        " here there is one partition",
    ),
    _rule(
        "appends-with-gaps",
        log,
        "follows",
        broken.follows_always,
        "A follower does not check that what it got continues its log.",
        hidden="no leader answers what was not asked: the check is a second lock",
    ),
)
MUTANTS: Final = (
    *_TRUNCATION,
    *_EPOCHS,
    *_ISR,
    *_HIGH_WATERMARK,
    *_ACKS,
    *_CONTROL,
    *_ELIGIBLE,
    *_ANSWERS,
    *SEQUENCES,
)
BY_NAME: Final[Mapping[str, Mutant]] = {mutant.name: mutant for mutant in MUTANTS}
assert len(BY_NAME) == len(MUTANTS)


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """While it lasts, this process plays by the mutant's rule."""
    before = [_put(owner, name, rule) for owner, name, rule in mutant.replaced]
    try:
        yield
    finally:
        for (owner, name, _), rule in zip(mutant.replaced, before, strict=True):
            _put(owner, name, rule)


def _put(owner: Any, name: Any, rule: Any) -> Any:
    """Puts a rule in its place: a module's, a class's or a table's. Returns what was there."""
    if isinstance(owner, dict):
        before, owner[name] = owner[name], rule
        return before
    before = getattr(owner, name)
    setattr(owner, name, rule)
    return before
