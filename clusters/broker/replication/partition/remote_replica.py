"""What a leader remembers of a follower: its log end offset, and when it had last caught up.

A remote replica has a log end offset, which moves by that follower's own fetches only, and no high
watermark at all (seed 000).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from neaptide.clusters.broker.replication.generation import CaughtUp
from neaptide.clusters.broker.replication.model import UNKNOWN_BROKER_EPOCH, UNKNOWN_OFFSET

NEVER_MS: Final = -(1 << 62)  # long before every time that a clock, whatever its zero, can show


@dataclass(frozen=True, slots=True)
class RemoteReplica:
    """Offsets are UNKNOWN_OFFSET until the follower has fetched from this leader."""

    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_log_end_offset: int = 0
    last_fetch_time_ms: int = NEVER_MS
    last_caught_up_time_ms: int = NEVER_MS
    broker_epoch: int = UNKNOWN_BROKER_EPOCH  # of the registration that its last fetch named


def record_fetch(
    replica: RemoteReplica,
    *,
    fetch_offset: int,
    log_start_offset: int,
    leader_log_end_offset: int,
    now_ms: int,
    rule: CaughtUp,
    broker_epoch: int = UNKNOWN_BROKER_EPOCH,
) -> RemoteReplica:
    """Takes a follower's fetch into account.

    It has caught up now if it fetches from the leader's log end offset, and had caught up at its
    previous fetch if it fetches from what was the log end offset then. Fetching alone is not
    catching up: a follower that is always behind would stay in the ISR for ever (seed 001).
    """
    caught_up_ms = replica.last_caught_up_time_ms
    if fetch_offset >= leader_log_end_offset or rule is CaughtUp.ON_ANY_FETCH:
        caught_up_ms = max(caught_up_ms, now_ms)
    elif fetch_offset >= replica.last_fetch_leader_log_end_offset:
        caught_up_ms = max(caught_up_ms, replica.last_fetch_time_ms)
    return replace(
        replica,
        log_end_offset=fetch_offset,
        log_start_offset=log_start_offset,
        last_fetch_leader_log_end_offset=leader_log_end_offset,
        last_fetch_time_ms=now_ms,
        last_caught_up_time_ms=caught_up_ms,
        broker_epoch=broker_epoch,
    )


def is_caught_up(replica: RemoteReplica, now_ms: int, lag_time_max_ms: int) -> bool:
    return now_ms - replica.last_caught_up_time_ms <= lag_time_max_ms


def is_at_end(replica: RemoteReplica, leader_log_end_offset: int) -> bool:
    return replica.log_end_offset == leader_log_end_offset
