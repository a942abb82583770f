"""E1-E4: leader epochs, and how each generation makes a follower's log a prefix of its leader's."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.follower.replica_fetcher import Delayed, Truncating
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.model import EpochEntry
from neaptide.clusters.broker.replication.partition import leader_epoch_file_cache
from neaptide.clusters.broker.replication.step import step
from tests.core import given
from tests.core.given import LEADER_OF_A, NOW, A, B, C, T
from tests.core.world import cluster

EPOCHS = (EpochEntry(1, 2), EpochEntry(3, 5), EpochEntry(4, 9))


# --- E1 ------------------------------------------------------------------------------------------


def test_e1_each_leader_change_is_a_new_epoch_noted_with_its_first_record() -> None:
    world = cluster("0.11", (C, B, A))
    world.produce("m0")
    world.advance(600)
    world.kill(C)
    world.advance(1_200)
    assert world.service.states[T].leader_epoch == 1
    world.produce("m1")
    world.advance(600)
    for broker in (A, B):
        assert world.disks[broker].logs[T].epochs == ((0, 0), (1, 1))


def test_e1_an_epoch_without_records_leaves_no_entry_on_0_11() -> None:
    leader = given.leading(records=3)
    done = step(leader, given.leader_and_isr(A, 5), NOW)
    assert not given.did(done, effects.WriteLeaderEpochCheckpoint)
    done = step(leader, given.produce(), NOW)
    entries = (EpochEntry(0, 0), EpochEntry(5, 3))
    assert effects.WriteLeaderEpochCheckpoint(T, entries) in done


def test_e1_before_0_11_no_epoch_is_recorded() -> None:
    leader = given.leading("0.10")
    done = step(leader, given.produce(), NOW)
    assert not given.did(done, effects.WriteLeaderEpochCheckpoint)
    (append,) = given.did(done, effects.AppendToLog)
    assert append.batches[0].leader_epoch == -1


def test_e1_a_state_of_the_same_or_an_older_leader_epoch_is_refused() -> None:
    leader = given.leading()
    step(leader, given.leader_and_isr(A, 2), NOW)
    before = given.of(leader)
    for epoch in (1, 2):
        (answer,) = given.did(step(leader, given.leader_and_isr(B, epoch), NOW))
        assert answer == effects.RespondControl(
            900, Error.NONE, ((T, Error.STALE_CONTROLLER_EPOCH),)
        )
    assert given.of(leader) == before


@pytest.mark.parametrize(
    ("end_offset", "left"),
    [(12, EPOCHS), (10, EPOCHS), (9, EPOCHS[:2]), (6, EPOCHS[:2]), (5, EPOCHS[:1]), (2, ())],
)
def test_e1_truncation_forgets_the_epochs_that_begin_at_or_after_the_new_end(
    end_offset: int, left: tuple[EpochEntry, ...]
) -> None:
    assert leader_epoch_file_cache.truncate_from_end(EPOCHS, end_offset) == left


@pytest.mark.parametrize(
    ("start_offset", "left"),
    [
        (1, EPOCHS),
        (3, ((1, 3), (3, 5), (4, 9))),
        (5, ((3, 5), (4, 9))),
        (11, ((4, 11),)),
    ],
)
def test_e1_deleting_old_records_keeps_the_epoch_of_the_first_one_left(
    start_offset: int, left: tuple[EpochEntry, ...]
) -> None:
    assert leader_epoch_file_cache.truncate_from_start(EPOCHS, start_offset) == left


def test_e1_a_known_or_older_epoch_is_not_assigned_again() -> None:
    assert leader_epoch_file_cache.assign(EPOCHS, 4, 20) == EPOCHS
    assert leader_epoch_file_cache.assign(EPOCHS, 2, 20) == EPOCHS
    assert leader_epoch_file_cache.assign(EPOCHS, -1, 20) == EPOCHS
    assert leader_epoch_file_cache.assign(EPOCHS, 7, 20) == (*EPOCHS, (7, 20))


# --- E2 ------------------------------------------------------------------------------------------


def test_e2_before_0_11_a_new_follower_cuts_its_log_at_its_high_watermark() -> None:
    follower = given.broker("0.10", given.stored(5, 3))
    done = given.did(step(follower, given.leader_and_isr(B), NOW))
    assert done[0] == effects.TruncateLog(T, 3)
    (fetch,) = given.did(tuple(done), effects.SendFetch)
    assert fetch.partitions[0].fetch_offset == 3


def test_e2_from_0_11_it_cuts_nothing_before_the_leader_says_where_its_epoch_ends() -> None:
    follower = given.broker("0.11", given.stored(5, 3, epochs={0: 0, 2: 3}))
    done = step(follower, given.leader_and_isr(B, 4), NOW)
    assert not given.did(done, effects.TruncateLog, effects.SendFetch)
    (asked,) = given.did(done, effects.SendOffsetForLeaderEpoch)
    assert asked.partitions == (events.EpochAsked(T, 2, 4),)


@pytest.mark.parametrize(
    ("answered", "end_offset", "entries"),
    [
        (4, 4, ((0, 0), (2, 3))),
        (5, 5, ((0, 0), (2, 3))),
        (9, 5, ((0, 0), (2, 3))),  # the leader has more of that epoch: nothing is cut
        (1, 1, ((0, 0),)),
        (-1, 2, ((0, 0),)),  # the leader does not know the epoch: the high watermark has to do
    ],
)
def test_e2_from_0_11_it_cuts_its_log_at_the_end_of_its_epoch_on_the_leader(
    answered: int, end_offset: int, entries: tuple[tuple[int, int], ...]
) -> None:
    follower = given.following(epoch=4, end=5, high_watermark=2, epochs={0: 0, 2: 3})
    done = step(follower, given.epochs_answer(follower, answered), NOW)
    assert given.of(follower).log.end_offset == end_offset
    assert given.of(follower).log.epochs == entries
    assert bool(given.did(done, effects.TruncateLog)) == (end_offset < 5)
    (fetch,) = given.did(done, effects.SendFetch)
    assert fetch.partitions[0].fetch_offset == end_offset


def test_e2_a_cut_inside_a_batch_ends_before_it_and_the_round_begins_again() -> None:
    follower = given.following(epoch=4, end=5, high_watermark=2, epochs={0: 0, 2: 3})
    step(follower, given.epochs_answer(follower, 4), NOW)
    early = given.fetch_answer(follower, 4, epoch=4)
    step(follower, events.LogTruncated(T, 3), NOW)
    assert given.of(follower).log.end_offset == 3
    assert given.of(follower).log.epochs == ((0, 0),)
    done = step(follower, early, NOW)
    (fetch,) = given.did(done)
    assert fetch.partitions[0].fetch_offset == 3


def test_e2_the_same_leader_in_a_newer_epoch_means_no_truncation() -> None:
    follower = given.fetching(end=5, high_watermark=2, epochs={0: 0})
    done = step(follower, given.leader_and_isr(B, 1), NOW)
    assert given.did(done) == [effects.RespondControl(900, Error.NONE, ((T, Error.NONE),))]
    assert given.of(follower).leader_epoch == 1


@pytest.mark.parametrize(("checkpointed", "log_end", "expected"), [(3, 5, 3), (9, 5, 5), (0, 5, 0)])
def test_e2_a_restarted_replica_begins_with_its_checkpointed_high_watermark(
    checkpointed: int, log_end: int, expected: int
) -> None:
    one = given.broker("0.11", given.stored(log_end, checkpointed, epochs={0: 0}))
    step(one, given.leader_and_isr(B), NOW)
    assert given.of(one).high_watermark == expected


# --- E3, E4 --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (4, 12),  # the leader's own epoch: its log end offset
        (3, 9),  # older: where the next one starts
        (1, 5),
        (2, 5),  # one that it never had: where the next later one starts
        (0, -1),  # before all that it knows
        (5, -1),  # after all that it knows
        (-1, -1),
    ],
)
def test_e3_the_leader_says_where_an_epoch_ends(asked: int, answer: int) -> None:
    assert leader_epoch_file_cache.end_offset_for(EPOCHS, asked, 12) == answer


def test_e3_a_leader_that_knows_no_epoch_answers_one_that_knows_none_with_its_end() -> None:
    assert leader_epoch_file_cache.end_offset_for((), -1, 12) == 12
    assert leader_epoch_file_cache.end_offset_for((), 0, 12) == -1


def test_e3_who_does_not_lead_says_so() -> None:
    follower = given.following()
    asked = events.OffsetForLeaderEpochRequested(7, (events.EpochAsked(T, 0),))
    result = effects.EpochEndOffsetResult(T, Error.NOT_LEADER_OR_FOLLOWER, -1)
    assert given.did(step(follower, asked, NOW)) == [
        effects.RespondOffsetForLeaderEpoch(7, (result,))
    ]
    leader = given.leading(records=3)
    result = effects.EpochEndOffsetResult(T, Error.NONE, 3)
    assert given.did(step(leader, asked, NOW)) == [
        effects.RespondOffsetForLeaderEpoch(7, (result,))
    ]


def test_e4_without_an_answer_nothing_is_cut() -> None:
    follower = given.following(epoch=4, end=5, high_watermark=2, epochs={0: 0, 2: 3})
    before = given.of(follower)
    lost = events.FetcherRequestFailed(LEADER_OF_A, given.in_flight(follower))
    step(follower, lost, NOW)
    assert given.of(follower) == before
    assert follower.fetchers[LEADER_OF_A].followed[T].state == Delayed(NOW + 1_000, Truncating())


def test_e4_a_survivor_leads_in_a_new_epoch_with_all_that_it_has() -> None:
    follower = given.following(epoch=4, end=5, high_watermark=2, epochs={0: 0, 2: 3})
    late = given.epochs_answer(follower, 0)
    step(follower, given.leader_and_isr(A, 5, (A,)), NOW)
    before = follower.copy()
    assert step(follower, late, NOW) == ()
    assert follower == before
    assert (given.of(follower).log.end_offset, given.of(follower).high_watermark) == (5, 5)
