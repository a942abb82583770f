"""F13, F14: who is throttled gets no records for now (KIP-73); from Fetch v11 on followers serve
consumers, and the leader sends them there (KIP-392).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.broker.replication.broker import Broker
from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.events import CONSUMER
from neaptide.clusters.broker.replication.model import BrokerRegistration
from neaptide.clusters.broker.replication.settings import InvalidSettingError
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import NOW, A, B, C, T, fetch, leading

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def _near_by(generation: str = "4.0", **settings: Any) -> Broker:
    """A leads ten records and tells of B and C in rack r1, and of itself in r0."""
    one = leading(
        generation,
        records=10,
        high_watermark=8,
        **{"replica_selector_class": RACK_AWARE, **settings},
    )
    live = (BrokerRegistration(A, (), "r0"), *(BrokerRegistration(b, (), "r1") for b in (B, C)))
    step(one, events.UpdateMetadataRequested(1, C, 1, (), live), NOW)
    return one


def _read(one: Broker, rack: str | None, offset: int = 0) -> effects.FetchedResult:
    asked = replace(fetch(CONSUMER, offset, max_wait_ms=0), rack=rack)
    [answer] = _answers(step(one, asked, NOW))
    [result] = answer.results
    return result


def test_f14_a_consumer_is_sent_to_the_longest_log_of_its_rack() -> None:
    one = _near_by()
    assert _read(one, "r1").preferred_read_replica == -1  # nobody has fetched yet
    step(one, fetch(B, 5), NOW)
    step(one, fetch(C, 9, request=501), NOW)
    result = _read(one, "r1")
    assert (result.preferred_read_replica, result.records, result.high_watermark) == (C, None, 8)
    assert _read(one, "r1", 9).preferred_read_replica == C
    for number, replica in enumerate((C, B)):
        step(one, fetch(replica, 10, request=600 + number), NOW + number)
    assert _read(one, "r1").preferred_read_replica == B  # who caught up last


def test_f14_the_leader_serves_whom_no_follower_is_nearer_to() -> None:
    one = _near_by()
    for number, replica in enumerate((B, C)):
        step(one, fetch(replica, 7, start=2, request=600 + number), NOW)
    for rack, offset in (("r0", 3), ("r2", 3), ("", 3), (None, 3), ("r1", 1), ("r1", 8)):
        result = _read(one, rack, offset)
        assert result.preferred_read_replica == -1, (rack, offset)
        assert (result.records is None) == (offset == 8), (rack, offset)
    assert _read(one, "r1", 7).preferred_read_replica == C
    assert _read(_near_by(replica_selector_class=""), "r1").preferred_read_replica == -1


@pytest.mark.parametrize(("generation", "sent"), [("2.8", C), ("4.0", -1)])
def test_f14_from_3_4_on_none_is_sent_to_who_is_not_in_sync(generation: str, sent: int) -> None:
    one = leading(
        generation, (A, B), records=10, high_watermark=8, replica_selector_class=RACK_AWARE
    )
    live = (BrokerRegistration(A, ()), BrokerRegistration(B, ()), BrokerRegistration(C, (), "r1"))
    step(one, events.UpdateMetadataRequested(1, C, 1, (), live), NOW)
    step(one, fetch(C, 5), NOW)
    assert _read(one, "r1").preferred_read_replica == sent


def test_f14_who_may_be_served_elsewhere_does_not_wait_here() -> None:
    one = _near_by()
    step(one, fetch(B, 8), NOW)
    done = step(one, replace(fetch(CONSUMER, 8, max_wait_ms=500), rack="r1"), NOW)
    assert [answer.results[0].preferred_read_replica for answer in _answers(done)] == [B]


def _answers(done: tuple[effects.Effect, ...]) -> list[effects.RespondFetch]:
    return [answer for answer in done if isinstance(answer, effects.RespondFetch)]


def _follower() -> Broker:
    """A follows B with ten records, of which five are committed as far as A knows."""
    return given.fetching("4.0", end=10, high_watermark=5, epochs={0: 0})


def test_f14_a_follower_serves_a_consumer_up_to_its_own_high_watermark() -> None:
    one = _follower()
    result = _read(one, "")
    assert (result.error, result.high_watermark) == (Error.NONE, 5)
    assert result.records == effects.LogSlice(0, 5, 1_048_576)
    assert _read(one, "", 7).records is None
    assert _read(one, "", 11).error is Error.OFFSET_OUT_OF_RANGE


def test_f14_a_follower_serves_neither_brokers_nor_clients_of_before() -> None:
    one = _follower()
    assert _read(one, None).error is Error.NOT_LEADER_OR_FOLLOWER
    [answer] = _answers(step(one, fetch(C, 0, max_wait_ms=0), NOW))
    assert answer.results[0].error is Error.NOT_LEADER_OR_FOLLOWER
    stale = replace(fetch(CONSUMER, 0, max_wait_ms=0, believed=5), rack="")
    [answer] = _answers(step(one, stale, NOW))
    assert answer.results[0].error is Error.UNKNOWN_LEADER_EPOCH


def test_f14_a_consumer_waits_for_the_followers_high_watermark() -> None:
    one = _follower()
    assert _answers(step(one, replace(fetch(CONSUMER, 5), rack=""), NOW)) == []
    assert _answers(step(one, given.fetch_answer(one, high_watermark=5), NOW)) == []
    done = step(one, given.fetch_answer(one, high_watermark=8), NOW)
    assert [answer.results[0].records for answer in _answers(done)] == [
        effects.LogSlice(5, 8, 1_048_576)
    ]


def test_f14_no_other_selector_is_known() -> None:
    with pytest.raises(InvalidSettingError, match=r"replica\.selector\.class may be org\.apache"):
        leading("4.0", replica_selector_class="com.example.Nearest")


# --- F13 -----------------------------------------------------------------------------------------


def _throttled(one: Broker, replica: int, *, max_wait_ms: int = 0) -> list[effects.RespondFetch]:
    asked = replace(fetch(replica, 3, max_wait_ms=max_wait_ms), throttled=frozenset({T}))
    return _answers(step(one, asked, NOW))


def test_f13_a_throttled_replica_gets_no_records_unless_it_is_in_sync() -> None:
    one = leading("2.1", (A, B), records=10, high_watermark=8)
    [behind] = _throttled(one, C)
    assert (behind.results[0].records, behind.results[0].error) == (None, Error.NONE)
    [in_sync] = _throttled(one, B)
    assert in_sync.results[0].records == effects.LogSlice(3, 10, 1_048_576)
    [allowed] = _answers(step(one, fetch(C, 3, max_wait_ms=0), NOW))
    assert allowed.results[0].records is not None


def test_f13_a_throttled_replica_waits_for_its_whole_time() -> None:
    one = leading("2.1", (A, B), records=10, high_watermark=8)
    assert _throttled(one, C, max_wait_ms=500) == []
    assert _answers(step(one, given.produce(acks=1), NOW)) == []
    [answer] = _answers(step(one, events.TimerFired(events.DelayedOperationExpired(500)), NOW))
    assert answer.results[0].records is None
