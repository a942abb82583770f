"""Mutants of truncation: where a follower cuts its log, and what a leader answers to it.

Not which epochs are noted (epochs), nor which answers are believed (answers).

Each broken rule is the core's own with one thing wrong, and keeps its signature.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.follower import (
    out_of_range,
    replica_fetcher,
    replica_fetcher_manager,
    truncation,
)
from neaptide.clusters.broker.replication.follower.replica_fetcher import (
    Fetching,
    FetchState,
    Truncating,
)
from neaptide.clusters.broker.replication.generation import Generation, Truncation
from neaptide.clusters.broker.replication.interface.events import (
    FetchedPartition,
    FetcherRequestFailed,
    FetchRequested,
    ListedOffset,
)
from neaptide.clusters.broker.replication.leader import fetch, log_offsets
from neaptide.clusters.broker.replication.leader.fencing import leader_error
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.partition import unified_log
from neaptide.clusters.broker.replication.partition.leader_epoch_file_cache import EpochEnd
from neaptide.clusters.broker.replication.partition.partition_rules import Partition
from neaptide.clusters.broker.replication.partition.unified_log import UnifiedLog
from neaptide.nemesis.search.mutants.mutant import ONE, V0_11, V2_1, V2_8, row, rule

# The core's own rules, whatever stands in their places while a mutant is searched.
_truncate = truncation.truncate.own
_log_truncate_to = unified_log.truncate_to.own
_on_request_failed = replica_fetcher_manager.on_request_failed.own
_diverging_epoch = fetch.diverging_epoch.own
_truncate_on_fetch = replica_fetcher_manager.truncate_on_fetch.own


def truncates_one_too_far(broker: Broker, led: Partition, offset: int) -> Partition:
    if offset >= led.log.end_offset:
        return led
    return _truncate(broker, led, max(led.log.start_offset, offset - 1))


def truncates_one_too_little(broker: Broker, led: Partition, offset: int) -> Partition:
    return _truncate(broker, led, offset + 1)


def truncates_nothing(broker: Broker, led: Partition, offset: int) -> Partition:
    return led


def fetches_without_an_answer(broker: Broker, event: FetcherRequestFailed, now_ms: int) -> None:
    fetcher = broker.fetchers.get(event.fetcher)
    for topic_partition, followed in tuple(fetcher.followed.items()) if fetcher else ():
        if isinstance(followed.state, Truncating):
            held = broker.partitions[topic_partition]
            _truncate(broker, held, held.high_watermark)
            broker.fetchers[event.fetcher] = replica_fetcher.follow(
                broker.fetchers[event.fetcher], topic_partition, replace(followed, state=Fetching())
            )
    _on_request_failed(broker, event, now_ms)


def keeps_epochs(log: UnifiedLog, offset: int) -> UnifiedLog:
    return replace(_log_truncate_to(log, offset), epochs=log.epochs)


def forgets_no_epoch(broker: Broker, held: Partition) -> None:
    """In place of `_forget_empty_epochs`."""


def answers_its_log_end(log: UnifiedLog, epoch: int, rules: Generation) -> EpochEnd:
    return EpochEnd(epoch, log.end_offset)


def starts_afresh_always(
    broker: Broker, leader: int, held: Partition, listed: ListedOffset, *, asked_earliest: bool
) -> FetchState | None:
    truncation.start_afresh(broker, held, listed.offset)
    return Fetching()


def serves_any_offset(broker: Broker, event: FetchRequested, asked: FetchedPartition) -> Error:
    return leader_error(broker, asked.partition, asked.current_leader_epoch)


def diverges_nowhere(log: UnifiedLog, asked: FetchedPartition) -> EpochEnd | None:
    return None


def diverges_by_epoch_alone(log: UnifiedLog, asked: FetchedPartition) -> EpochEnd | None:
    end = _diverging_epoch(log, asked)
    return end if end is not None and end.epoch < asked.last_fetched_epoch else None


def diverges_by_offset_alone(log: UnifiedLog, asked: FetchedPartition) -> EpochEnd | None:
    end = _diverging_epoch(log, asked)
    return end if end is not None and end.end_offset < asked.fetch_offset else None


def shows_always(log: UnifiedLog, asked: FetchedPartition) -> bool:
    return True


def ignores_divergence(
    broker: Broker, topic_partition: TopicPartition, diverging: EpochEnd
) -> None:
    """In place of `_truncate_on_fetch`."""


def truncates_to_own_mark(
    broker: Broker, topic_partition: TopicPartition, diverging: EpochEnd
) -> None:
    _truncate_on_fetch(broker, topic_partition, diverging)
    held = broker.partitions[topic_partition]
    _truncate(broker, held, held.high_watermark)


MUTANTS: Final = (
    row(
        "truncates-to-high-watermark",
        "A follower of a new leader truncates to its own high watermark.",
        replace(V2_1, truncation=Truncation.TO_HIGH_WATERMARK),
    ),
    row(
        "kip-101-only",
        "The leader's answer does not name the epoch that it is for.",
        replace(V2_1, truncation=Truncation.TO_EPOCH_END_OFFSET),
        topic_settings=ONE,
        shown="the found schedule kip-279-divergence",
    ),
    rule(
        "truncates-one-too-far",
        truncation.truncate,
        truncates_one_too_far,
        "Where a follower truncates, it takes one record more away.",
        topic_settings=ONE,
    ),
    rule(
        "truncates-one-too-little",
        truncation.truncate,
        truncates_one_too_little,
        "Where a follower truncates, it leaves one record too many.",
    ),
    rule(
        "truncates-nothing",
        truncation.truncate,
        truncates_nothing,
        "A follower keeps what its new leader never had.",
    ),
    rule(
        "fetches-without-an-answer",
        replica_fetcher_manager.on_request_failed,
        fetches_without_an_answer,
        "A follower whose question for the epoch's end fails truncates to its high watermark.",
    ),
    rule(
        "epochs-not-truncated",
        unified_log.truncate_to,
        keeps_epochs,
        "A log that is cut keeps the epochs of what was cut off.",
        rules=V0_11,  # from 2.0 on two other rules forget them in time
        faults=("kill", "hold"),
        steps_only=True,
        topic_settings=ONE,
        shown="a log that is cut back and leads before it has grown again",
    ),
    rule(
        "empty-epochs-kept",
        truncation.forget_empty_epochs,
        forgets_no_epoch,
        "A follower asks again and again for an epoch in which it led and wrote nothing.",
        topic_settings=ONE,
        faults=("kill", "hold"),
        steps_only=True,
        shown="a leader that wrote nothing and returns to one of an epoch between",
    ),
    rule(
        "epoch-ends-at-log-end",
        log_offsets.end_of,
        answers_its_log_end,
        "A leader answers that every epoch ends where its log ends.",
    ),
    rule(
        "starts-afresh-always",
        out_of_range.next_state,
        starts_afresh_always,
        "A follower that is out of range drops its whole log, whatever the leader has.",
        hidden="from 2.0 on a follower truncates before it fetches, so it is out of range only"
        " where its leader deleted what it needs: then its whole log is to be dropped anyway",
    ),
    rule(
        "serves-any-offset",
        fetch.fetch_error,
        serves_any_offset,
        "A leader does not refuse a fetch offset that is past its log.",
        hidden="from 2.0 on a follower truncates before it fetches, and fencing keeps those of"
        " other epochs away: nobody fetches past the leader's log",
    ),
    rule(
        "diverging-fetch-served",
        fetch.diverging_epoch,
        diverges_nowhere,
        "A leader sends records to a follower whose last fetched epoch diverges.",
        rules=V2_8,
        topic_settings=ONE,
    ),
    rule(
        "diverges-by-epoch-alone",
        fetch.diverging_epoch,
        diverges_by_epoch_alone,
        "A leader does not look whether the last fetched epoch ends before the fetch offset.",
        rules=V2_8,
        topic_settings=ONE,
    ),
    rule(
        "diverges-by-offset-alone",
        fetch.diverging_epoch,
        diverges_by_offset_alone,
        "A leader does not look whether the last fetched epoch is one that it never had.",
        rules=V2_8,
        topic_settings=ONE,
        steps_only=True,
        shown="the scenario fast-failover-divergence",
    ),
    rule(
        "diverging-fetch-counted",
        fetch.shows_log_end_offset,
        shows_always,
        "A leader counts the fetch offset of a follower that diverges.",
        rules=V2_8,
        topic_settings=ONE,
    ),
    rule(
        "diverging-epoch-ignored",
        replica_fetcher_manager.truncate_on_fetch,
        ignores_divergence,
        "A follower does not truncate where its leader answers that it diverges.",
        rules=V2_8,
        topic_settings=ONE,
    ),
    rule(
        "diverging-truncates-to-high-watermark",
        replica_fetcher_manager.truncate_on_fetch,
        truncates_to_own_mark,
        "A follower that diverges truncates to its own high watermark, not where it diverges.",
        rules=V2_8,
        topic_settings=ONE,
    ),
)
