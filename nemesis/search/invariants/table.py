"""The invariants, by name: each a sentence and a look; and what a generation is known to break."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from neaptide.clusters.broker.replication.errors import IllegalReplicaStateError
from neaptide.clusters.broker.replication.generation import Truncation
from neaptide.clusters.simulation.parts import WorldSpec
from neaptide.nemesis.search.invariants import (
    fetches,
    leadership,
    moved,
    promises,
    replicas,
    terms,
    transactions,
    waiting,
)
from neaptide.nemesis.search.invariants.seen import OfService, OfStep

# What the core raises where it is led where no rule leads: a find of its own.
CORE_ERRORS: Final = (IllegalReplicaStateError, AssertionError, LookupError, ValueError)
CORE_RAISES: Final = "core-raises"
RECOVERS: Final = "recovers"


@dataclass(frozen=True, slots=True)
class Invariant:
    """`of_step` is asked after a broker's step, `of_service` after one of the service.

    Each answers with what it saw, where the invariant is broken.
    """

    name: str
    sentence: str
    of_step: OfStep | None = None
    of_service: OfService | None = None


INVARIANTS: Final = (
    Invariant(
        "single-leader-per-epoch",
        "In a leader epoch there is one leader at most.",
        leadership.single_leader,
    ),
    Invariant(
        "monotonic-leader-epoch",
        "The leader epoch never goes back, neither on a broker that runs nor in the service.",
        leadership.monotonic_leader_epoch,
        leadership.monotonic_leader_epoch_of_service,
    ),
    Invariant(
        "monotonic-controller-epoch",
        "The controller epoch never goes back, neither on a broker that runs nor in the service.",
        leadership.monotonic_controller_epoch,
        leadership.monotonic_controller_epoch_of_service,
    ),
    Invariant(
        "leader-epoch-of-its-controller",
        "A leader epoch begins by the word of who is controller then.",
        of_service=leadership.leader_epoch_of_its_controller,
    ),
    Invariant(
        "reassignment-is-remembered",
        "A reassignment that was begun is asked for until the partition has these replicas.",
        of_service=moved.reassignment_is_remembered,
    ),
    Invariant(
        "replicas-that-lead",
        "Who leads by the service's word is a replica.",
        of_service=moved.leader_is_a_replica,
    ),
    Invariant(
        "monotonic-high-watermark",
        "A leader's high watermark never goes back, nor does it when a follower takes the lead.",
        replicas.monotonic_high_watermark,
    ),
    Invariant(
        "high-watermark-in-log",
        "A high watermark is not negative, and not past the log end offset.",
        replicas.high_watermark_in_log,
    ),
    Invariant(
        "log-start-below-high-watermark",
        "A log does not start above the high watermark.",
        replicas.log_start_below_high_watermark,
    ),
    Invariant(
        "log-start-by-retention",
        "No log starts above what retention has deleted.",
        replicas.log_start_by_retention,
    ),
    Invariant(
        "epochs-begin-in-log",
        "No leader epoch that a broker knows begins past the log end offset.",
        replicas.epochs_begin_in_log,
    ),
    Invariant(
        "truncation-gets-on",
        "A follower that asks again where an epoch ends asks for no later epoch than it received.",
        replicas.truncation_gets_on,
    ),
    Invariant(
        "fallen-leader-stays-fallen",
        "A controller that saw a leader fall names nobody leader in that epoch.",
        leadership.fallen_leader_stays_fallen,
    ),
    Invariant(
        "leader-in-isr",
        "The ISR contains the leader.",
        leadership.leader_in_isr,
        leadership.leader_in_isr_of_service,
    ),
    Invariant(
        "isr-of-replicas",
        "Nobody is in a leader's ISR, or may soon be, who is no replica.",
        leadership.isr_of_replicas,
    ),
    Invariant(
        "weak-isr",
        "What a leader believes to be committed is on all of the ISR in which it believes.",
        replicas.weak_isr,
    ),
    Invariant(
        "strong-isr",
        "What any leader ever reported as committed is the same on all of the service's ISR.",
        replicas.strong_isr,
        replicas.strong_isr_of_service,
    ),
    Invariant(
        "acked-is-committed",
        "What is acknowledged to acks=all lies below the high watermark.",
        promises.acked_is_committed,
    ),
    Invariant(
        "acked-commit-is-committed",
        "What is acknowledged of a group's positions lies below the high watermark.",
        promises.acked_commit_is_committed,
    ),
    Invariant(
        "acked-by-min-insync",
        "What is acknowledged to acks=all has an ISR of min.insync.replicas.",
        promises.acked_by_min_insync,
    ),
    Invariant(
        "reads-below-high-watermark",
        "A consumer is sent nothing that is not below the high watermark.",
        promises.reads_below_high_watermark,
    ),
    Invariant(
        "answered-high-watermark",
        "No answer carries more than the leader's high watermark.",
        promises.answers_no_more_than_high_watermark,
    ),
    Invariant(
        "high-watermark-waits",
        "The high watermark moves only where all have got that may be in the ISR.",
        promises.high_watermark_waits,
    ),
    Invariant(
        "isr-as-written",
        "An ISR in which a leader believes as written was written, with that version.",
        promises.isr_as_written,
    ),
    Invariant(
        "written-isr-is-counted",
        "A leader counts everybody who is in the ISR that is written in its leader epoch.",
        promises.written_isr_is_counted,
    ),
    Invariant(
        "core-and-disk-agree",
        "What the core believes of its log (start, end, epochs) is what the disk holds.",
        replicas.core_and_disk_agree,
    ),
    Invariant(
        "producers-of-the-log",
        "What is remembered of producers is what the log says of them.",
        replicas.producers_of_the_log,
    ),
    Invariant(
        "coordinator-leads",
        "Who speaks for a group leads its partition.",
        waiting.coordinator_leads,
    ),
    Invariant(
        "transactions-of-the-log",
        "What a replica knows of open transactions is what its log says of them.",
        transactions.transactions_of_the_log,
    ),
    Invariant(
        "reads-below-stable",
        "A consumer of committed records is sent nothing from the first open transaction on.",
        transactions.reads_below_stable,
    ),
    Invariant(
        "written-before-its-end",
        "Nothing of a transaction is appended once its end was answered, or it has a successor.",
        transactions.written_before_its_end,
    ),
    Invariant(
        "new-epoch-each",
        "A producer that begins has a later epoch than all before it with its transactional id.",
        transactions.new_epoch_each,
    ),
    Invariant(
        "one-decision",
        "A marker ends one transaction, and all markers of a transaction say the same.",
        transactions.one_decision,
    ),
    Invariant(
        "answered-state-is-committed",
        "What a transaction coordinator answers lies below the high watermark of its log.",
        transactions.answered_is_committed,
    ),
    Invariant(
        "markers-are-decided",
        "A marker is sent once its transaction is decided so, in the coordinator's committed log.",
        transactions.markers_are_decided,
    ),
    Invariant(
        "answered-marker-is-committed",
        "A leader answers for a marker once it lies below the high watermark.",
        transactions.answered_marker_is_committed,
    ),
    Invariant(
        "complete-after-markers",
        "A transaction is over when all of its partitions have its marker.",
        transactions.complete_after_markers,
    ),
    Invariant(
        "transaction-coordinator-leads",
        "Who coordinates transactions leads their partition, in the epoch that it names.",
        transactions.coordinator_of_its_epoch,
    ),
    Invariant(
        "parked-is-watched",
        "Every parked request is watched by a partition, and none is watched that is not parked.",
        waiting.parked_is_watched,
    ),
    Invariant(
        "waits-on-a-leader",
        "What waits for its acknowledgement waits on a leader.",
        waiting.waits_on_a_leader,
    ),
    Invariant(
        "epochs-are-fenced",
        "From KIP-320 on a leader answers and counts nobody who names another leader epoch.",
        fetches.epochs_are_fenced,
    ),
    Invariant(
        "counts-what-is-asked",
        "What a leader counts of a follower's log is where that follower fetches from.",
        fetches.counts_what_is_asked,
    ),
    Invariant(
        "epochs-end-as-in-the-log",
        "Where a leader says that an epoch ends, there it ends in its log.",
        fetches.epochs_end_as_in_the_log,
    ),
    Invariant(
        "fetched-is-prefix",
        "Who fetches in its leader's epoch has, before its offset, what the leader has.",
        fetches.fetched_is_prefix,
    ),
    Invariant(
        "times-out-by-its-timer",
        "A request times out where its time is over, and not before.",
        waiting.times_out_by_its_timer,
    ),
    Invariant(
        "answered-once",
        "A request is answered once, while somebody waits for the answer.",
        waiting.answered_once,
    ),
    Invariant(
        "outcome-is-kept",
        "What became of a partition of a produce request stays, whatever becomes of the others.",
        waiting.outcome_is_kept,
    ),
    Invariant(
        "epochs-of-the-log",
        "The epochs that a broker notes begin where they begin in its records.",
        replicas.epochs_of_the_log,
    ),
    Invariant(
        "knows-by-fetches",
        "What a leader knows of a follower's log end is by that one's fetches in its own term.",
        terms.knows_by_fetches,
    ),
    Invariant(
        "fetches-from-the-leader",
        "A follower asks the leader that it was named, and nobody else.",
        terms.fetches_from_the_leader,
    ),
    Invariant(
        "cut-by-an-answer-of-now",
        "A log is cut by an answer only that was asked for in the leader epoch of now.",
        terms.cut_by_an_answer_of_now,
    ),
    Invariant(
        "moves-by-the-written-isr",
        "With KIP-966 the high watermark moves while min.insync.replicas are in the written ISR.",
        terms.moves_by_the_written_isr,
    ),
    Invariant(
        "moves-as-far-as-it-may",
        "After each of its steps a leader's high watermark is as high as the rules allow.",
        terms.moves_as_far_as_it_may,
    ),
    Invariant(
        "waits-for-something",
        "Nobody waits for an acknowledgement whose outcome is known.",
        terms.waits_for_something,
    ),
)
SENTENCES: Final[Mapping[str, str]] = {
    **{one.name: one.sentence for one in INVARIANTS},
    CORE_RAISES: "The core never comes to where its own rules forbid to be.",
    RECOVERS: "Once all is healed, every replica is level and in the ISR, and all can be read.",
}

# --- what a generation is known to break ---------------------------------------------------------

_ISR_PROPERTIES: Final = frozenset({"weak-isr", "strong-isr", "fetched-is-prefix"})
_OF_FENCED_CONTROLLERS: Final = frozenset(
    {"leader-epoch-of-its-controller", "reassignment-is-remembered"}
)


def allowed_to_break(
    spec: WorldSpec, *, loses_pages: bool, deposes: bool = False
) -> frozenset[str]:
    """What breaks by design here: what a search for mistakes must not be held up by.

    Where page caches are lost or unclean leaders elected, committed records go. Before KIP-320
    nobody names the epoch in which a request is meant. Where a controller that is deposed while it
    lives is not fenced (up to 2.0), what it still writes counts.
    """
    unclean = spec.settings.unclean_leader_election_enable
    rules = spec.rules
    truncates_blindly = rules.truncation is Truncation.TO_HIGH_WATERMARK
    allowed: frozenset[str] = frozenset()
    if unclean or loses_pages or truncates_blindly or not rules.fences_leader_epochs:
        allowed |= _ISR_PROPERTIES
    if deposes and not rules.fences_controller_writes:
        allowed |= _OF_FENCED_CONTROLLERS
    return allowed
