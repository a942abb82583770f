"""A generation is a value: the rules that differ between Kafka's releases, by name.

The core consults these rules and knows no version number. A new generation is a new row in
GENERATIONS; a mutant is a row with one rule broken on purpose. Rules that never differed are plain
code elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


class Truncation(Enum):
    """How a follower of a new leader makes its log a prefix of the leader's."""

    TO_HIGH_WATERMARK = "to-high-watermark"  # up to 0.10: to its own, perhaps stale, HW
    TO_EPOCH_END_OFFSET = "to-epoch-end-offset"  # KIP-101: to where the leader says its epoch ends
    UNTIL_HISTORIES_MEET = "until-histories-meet"  # KIP-279: asks again until both know the epoch


class CaughtUp(Enum):
    """When a fetch counts as having caught up with the leader (lastCaughtUpTimeMs moves)."""

    AT_LOG_END_OFFSET = "at-log-end-offset"  # at the LEO now, or at the LEO of the previous fetch
    ON_ANY_FETCH = "on-any-fetch"  # 0.8, which has replica.lag.max.messages for who is slow


class EpochAssignment(Enum):
    """When a leader writes down the start offset of its leader epoch."""

    NEVER = "never"
    ON_FIRST_APPEND = "on-first-append"  # 0.11
    ON_BECOMING_LEADER = "on-becoming-leader"  # 2.0 (KAFKA-7415)


class SameLeader(Enum):
    """What a follower does about a newer leader epoch of the leader that it follows already."""

    FETCHES_ON = "fetches-on"
    TRUNCATES_WHERE_AN_EPOCH_WAS_MISSED = "truncates-where-an-epoch-was-missed"  # KAFKA-7164
    TRUNCATES = "truncates"  # 2.1: its requests must name the new epoch anyway


class FetchOfOthers(Enum):
    """What a leader answers to the fetch of a broker that is no replica of the partition."""

    ALL_FAILS = "all-fails"  # the whole request: UNKNOWN_SERVER_ERROR (KAFKA-5758, until 0.11.0.1)
    NO_RECORDS = "no-records"
    REFUSED = "refused"  # the partition: an error that has it tried again (KAFKA-13837, 3.3)


class CleanableUpTo(Enum):
    """Where the log cleaner has to end, if not at the segment that is appended to."""

    ACTIVE_SEGMENT = "active-segment"
    FIRST_UNSTABLE_OFFSET = "first-unstable-offset"  # 0.11, also above the high watermark
    LAST_STABLE_OFFSET = "last-stable-offset"  # 3.1: nor above the high watermark (KAFKA-13194)


class UnknownProducer(Enum):
    """What a leader answers to a sequence other than 0 of a producer that it knows nothing of."""

    OUT_OF_ORDER = "out-of-order"  # 0.11
    REFUSED = "refused"  # 1.0: UNKNOWN_PRODUCER_ID (KAFKA-5793)
    ACCEPTED = "accepted"  # 2.5: what was known of it was deleted (KIP-360)


class FetchSessions(Enum):
    """Whether a leader gives fetch sessions (KIP-227), and what makes one old."""

    NONE = "none"
    AGE_WHILE_USED = "age-while-used"  # from 1.1 on: their age counts from when they began
    AGE_WHILE_UNUSED = "age-while-unused"  # 2.5: from their last request (KAFKA-9137)


@dataclass(frozen=True, slots=True)
class Idempotence:
    """What a leader makes of the sequences of idempotent producers (KIP-98)."""

    # How many of a producer's last batches are known again when they come twice: one in 0.11, where
    # a client has one request in flight; five from 1.0 on (KAFKA-5494).
    duplicates_known: int
    unknown_producer: UnknownProducer
    # Whether a producer is forgotten when its last record is deleted (up to 2.3: KAFKA-7190).
    forgets_deleted: bool


@dataclass(frozen=True, slots=True)
class Generation:
    """The rules of one generation of the broker."""

    name: str
    truncation: Truncation
    epoch_assignment: EpochAssignment
    caught_up: CaughtUp
    same_leader: SameLeader
    # Each fetch of a follower names the epoch of its last record, and the leader answers where that
    # diverges from its own log; nobody asks for the end of an epoch before the first fetch (KIP-595
    # for ordinary partitions, from 2.7 on: KAFKA-10435).
    truncates_on_fetch: bool
    # An answer that says where a follower diverges moves its high watermark before it truncates (up
    # to 3.4: KAFKA-14704).
    takes_diverging_high_watermark: bool
    # A follower's high watermark is never below its log start offset, whatever its leader answers
    # (Log.updateHighWatermark, from 2.4 on).
    bounds_high_watermark: bool
    fetch_of_others: FetchOfOthers
    cleanable_up_to: CleanableUpTo
    # A record whose key is that of a marker, four bytes, has the log cleaner take earlier markers
    # away (up to 3.2.0: KAFKA-14055).
    cleans_markers_by_key: bool
    # A log directory that fails takes only its own replicas offline (KIP-112, from 1.0 on); before,
    # the broker ends.
    survives_failed_log_directories: bool
    # log.cleaner.enable: true from 0.9 on (KAFKA-2118).
    log_cleaner_enable: bool
    # Listeners of clients may have TLS and SASL (from 0.9 on; KIP-12, KIP-43, KIP-84).
    speaks_tls_and_sasl: bool
    # replica.lag.max.messages: too far behind is out of sync too (up to 0.8).
    lag_max_messages: bool
    # How often in replica.lag.time.max.ms leaders look for replicas that are out of sync: once in
    # 0.8, twice from 0.9 on.
    isr_checks_in_lag_time: int
    # Whether the high watermark also waits for replicas that have caught up and are not yet in the
    # ISR (KAFKA-4485, from 0.10.2 on).
    waits_for_caught_up: bool
    # Whether leaders report ISR changes to the controller (KAFKA-1367, from 0.9 on).
    reports_isr_changes: bool
    # acks may be any number of replicas in the ISR (up to 0.8).
    acks_above_one: bool
    # A follower whose log is longer than its leader's halts where unclean elections are off, and
    # does not truncate (up to 1.1).
    halts_on_shorter_leader: bool
    # A fetcher that cannot append to one partition goes on with the others (KIP-461, from 2.3 on);
    # before, it ends.
    fetcher_outlives_failed_partition: bool
    # An empty follower whose log starts inside the leader's first batch starts where that begins
    # (KAFKA-6975, from 1.1.1 on); before, it never gets it.
    starts_at_first_batch: bool
    # A controller's writes of partition states need its epoch still to be the last one (KAFKA-6082,
    # from 2.1 on); before, the version alone.
    fences_controller_writes: bool
    # A control request names the epoch of the broker that it is for; a broker that has registered
    # again since refuses it (KIP-380, from 2.2 on).
    checks_broker_epochs: bool
    # /admin/reassign_partitions may name brokers that do not live, for the time when they do (from
    # 0.9 on).
    reassigns_to_the_dead: bool
    # A topic's znode says which replicas come and go (KIP-455, from 2.4 on); before,
    # /admin/reassign_partitions alone says that a partition is reassigned.
    keeps_reassignments_in_topics: bool
    # Topics have ids: who creates a topic gives it one, and a controller does to those that have
    # none (KIP-516, from 2.8 on).
    topic_ids: bool
    # ISR changes go from the leader to the controller, which writes them (KIP-497, from 2.7 on);
    # before, the leader writes them itself.
    alters_partitions: bool
    # A broker that is not registered is not put into an ISR (KIP-841, from 3.3 on).
    fences_isr_members: bool
    # An ISR change names the registration of each member, as its last Fetch did; who has registered
    # again since is not put into the ISR (KIP-903, from 3.5 on).
    isr_names_broker_epochs: bool
    # Requests that name the leader epoch which they believe in are refused in any other (KIP-320).
    fences_leader_epochs: bool
    # A controller that takes a dead replica out of an ISR does so in a new leader epoch (up to 3.5;
    # with KRaft from 3.6 on in the same one, where the leader stays: KAFKA-15021).
    shrinks_in_new_epoch: bool
    # Who leaves an ISR that is too small stays eligible to lead, and the high watermark waits until
    # the ISR is large enough again (KIP-966).
    eligible_leader_replicas: bool
    # Consumers are sent to followers of the ISR alone (KAFKA-14372, from 3.4 on).
    prefers_in_sync_replicas: bool
    # min.insync.replicas counts no more replicas than the partition has (KAFKA-15583, from 3.7 on).
    caps_min_isr: bool
    # A replica joins the ISR only when its LEO has also reached the leader epoch's start offset
    # (KAFKA-7128: from 2.0.1 on).
    isr_needs_epoch_start: bool
    # A new leader whose high watermark has not reached the start offset of its epoch gives clients
    # no latest offset, and none by time past it (KIP-207, from 2.2 on).
    withholds_stale_offsets: bool
    # What these settings are where nothing is configured. unclean.leader.election.enable: true up
    # to 0.10 (KIP-106). replica.lag.time.max.ms: 30 s from 2.5 on (KIP-537). message.max.bytes and
    # zookeeper.session.timeout.ms: larger from 2.5 on too.
    unclean_leader_election_enable: bool
    replica_lag_time_max_ms: int
    message_max_bytes: int
    # message.timestamp.after.max.ms: how far ahead of the clock a record's time may be (an hour
    # from 4.0 on: KIP-1030).
    message_timestamp_after_max_ms: int
    zookeeper_session_timeout_ms: int
    # delete.topic.enable: true from 1.0 on (KAFKA-5384).
    delete_topic_enable: bool
    # Whether DeleteTopics is answered when the topic is gone (KRaft), and not already when the
    # controller's own metadata know it no more: then its name is not free yet.
    answers_when_deleted: bool
    # group.initial.rebalance.delay.ms: how long the first rebalance of a group waits for more
    # members (KIP-134, from 0.11 on).
    group_initial_rebalance_delay_ms: int
    # Whether a follower whose log ends where the leader's does has caught up whatever the time (it
    # has from 2.1 on).
    caught_up_at_log_end: bool
    # Idempotent producers, from 0.11 on; None: sequences are not looked at.
    idempotence: Idempotence | None
    # Whether a leader asks the coordinator before it takes the first batch of a transaction
    # (KIP-890, from 3.6 on).
    verifies_transactions: bool
    # Whether a group's coordinator assigns, for members that ask for it (KIP-848).
    consumer_protocol: bool
    # Whether offsets.commit.required.acks can be set (up to 3.9: KIP-1041).
    sets_commit_acks: bool
    # Whether `__consumer_offsets` is made with offsets.topic.replication.factor replicas or not at
    # all (KIP-115); before, with as many as there are brokers for.
    insists_on_offsets_replicas: bool
    # Whether records that fail their validation are INVALID_RECORD (KIP-467, 2.4); up to then they
    # are CORRUPT_MESSAGE.
    names_invalid_records: bool
    # Inter-broker Fetch version; log start offsets travel from v5 on, sessions from v7 on, leader
    # epochs from v9 on, the epoch of the last record fetched from v12 on, the follower's
    # registration from v15 on.
    fetch_version: int
    fetch_sessions: FetchSessions
    # Inter-broker ListOffsets version; leader epochs travel from v4 on.
    list_offsets_version: int

    @property
    def records_epochs(self) -> bool:
        return self.epoch_assignment is not EpochAssignment.NEVER

    @property
    def forgets_deleted_producers(self) -> bool:
        return self.idempotence is not None and self.idempotence.forgets_deleted


_V0_10: Final = Generation(
    name="0.10",
    truncation=Truncation.TO_HIGH_WATERMARK,
    epoch_assignment=EpochAssignment.NEVER,
    caught_up=CaughtUp.AT_LOG_END_OFFSET,
    same_leader=SameLeader.FETCHES_ON,
    truncates_on_fetch=False,
    takes_diverging_high_watermark=False,
    bounds_high_watermark=False,
    fetch_of_others=FetchOfOthers.ALL_FAILS,
    cleanable_up_to=CleanableUpTo.ACTIVE_SEGMENT,
    cleans_markers_by_key=True,
    survives_failed_log_directories=False,
    log_cleaner_enable=True,
    speaks_tls_and_sasl=True,
    lag_max_messages=False,
    isr_checks_in_lag_time=2,
    waits_for_caught_up=True,
    reports_isr_changes=True,
    acks_above_one=False,
    halts_on_shorter_leader=True,
    fetcher_outlives_failed_partition=False,
    starts_at_first_batch=False,
    fences_controller_writes=False,
    checks_broker_epochs=False,
    reassigns_to_the_dead=True,
    keeps_reassignments_in_topics=False,
    topic_ids=False,
    alters_partitions=False,
    fences_isr_members=False,
    isr_names_broker_epochs=False,
    fences_leader_epochs=False,
    shrinks_in_new_epoch=True,
    eligible_leader_replicas=False,
    prefers_in_sync_replicas=False,
    caps_min_isr=False,
    isr_needs_epoch_start=False,
    withholds_stale_offsets=False,
    unclean_leader_election_enable=True,
    replica_lag_time_max_ms=10_000,
    message_max_bytes=1_000_012,
    message_timestamp_after_max_ms=2**63 - 1,
    zookeeper_session_timeout_ms=6_000,
    delete_topic_enable=False,
    answers_when_deleted=False,
    group_initial_rebalance_delay_ms=0,
    caught_up_at_log_end=False,
    idempotence=None,
    verifies_transactions=False,
    consumer_protocol=False,
    sets_commit_acks=True,
    insists_on_offsets_replicas=False,
    names_invalid_records=False,
    fetch_version=4,
    fetch_sessions=FetchSessions.NONE,
    list_offsets_version=1,
)
_V0_8: Final = replace(
    _V0_10,
    name="0.8",
    caught_up=CaughtUp.ON_ANY_FETCH,
    lag_max_messages=True,
    log_cleaner_enable=False,
    speaks_tls_and_sasl=False,
    isr_checks_in_lag_time=1,
    waits_for_caught_up=False,
    reports_isr_changes=False,
    reassigns_to_the_dead=False,
    acks_above_one=True,
)
_V0_11: Final = replace(
    _V0_10,
    name="0.11",
    group_initial_rebalance_delay_ms=3_000,
    fetch_of_others=FetchOfOthers.NO_RECORDS,
    cleanable_up_to=CleanableUpTo.FIRST_UNSTABLE_OFFSET,
    truncation=Truncation.TO_EPOCH_END_OFFSET,
    epoch_assignment=EpochAssignment.ON_FIRST_APPEND,
    unclean_leader_election_enable=False,
    insists_on_offsets_replicas=True,
    idempotence=Idempotence(1, UnknownProducer.OUT_OF_ORDER, forgets_deleted=True),
    fetch_version=5,
)
_V2_0: Final = replace(
    _V0_11,
    name="2.0",
    survives_failed_log_directories=True,
    delete_topic_enable=True,
    isr_needs_epoch_start=True,
    truncation=Truncation.UNTIL_HISTORIES_MEET,
    epoch_assignment=EpochAssignment.ON_BECOMING_LEADER,
    same_leader=SameLeader.TRUNCATES_WHERE_AN_EPOCH_WAS_MISSED,
    halts_on_shorter_leader=False,
    starts_at_first_batch=True,
    idempotence=Idempotence(5, UnknownProducer.REFUSED, forgets_deleted=True),
    fetch_version=8,
    fetch_sessions=FetchSessions.AGE_WHILE_USED,
    list_offsets_version=3,
)
_V2_1: Final = replace(
    _V2_0,
    name="2.1",
    same_leader=SameLeader.TRUNCATES,
    fences_leader_epochs=True,
    fences_controller_writes=True,
    caught_up_at_log_end=True,
    fetch_version=10,
    list_offsets_version=4,
)
_V2_8: Final = replace(
    _V2_1,
    name="2.8",
    truncates_on_fetch=True,
    takes_diverging_high_watermark=True,
    bounds_high_watermark=True,
    checks_broker_epochs=True,
    fetcher_outlives_failed_partition=True,
    keeps_reassignments_in_topics=True,
    topic_ids=True,
    withholds_stale_offsets=True,
    replica_lag_time_max_ms=30_000,
    message_max_bytes=1_048_588,
    zookeeper_session_timeout_ms=18_000,
    idempotence=Idempotence(5, UnknownProducer.ACCEPTED, forgets_deleted=False),
    names_invalid_records=True,
    fetch_version=12,
    fetch_sessions=FetchSessions.AGE_WHILE_UNUSED,
    list_offsets_version=6,
)
_V4_0: Final = replace(
    _V2_8,
    name="4.0",
    answers_when_deleted=True,
    takes_diverging_high_watermark=False,
    fetch_of_others=FetchOfOthers.REFUSED,
    cleanable_up_to=CleanableUpTo.LAST_STABLE_OFFSET,
    cleans_markers_by_key=False,
    shrinks_in_new_epoch=False,
    eligible_leader_replicas=True,
    prefers_in_sync_replicas=True,
    caps_min_isr=True,
    reports_isr_changes=False,  # the controller makes them itself
    alters_partitions=True,
    fences_isr_members=True,
    isr_names_broker_epochs=True,
    message_timestamp_after_max_ms=3_600_000,
    verifies_transactions=True,
    consumer_protocol=True,
    sets_commit_acks=False,
    fetch_version=15,
)

GENERATIONS: Final = {
    generation.name: generation
    for generation in (_V0_8, _V0_10, _V0_11, _V2_0, _V2_1, _V2_8, _V4_0)
}
