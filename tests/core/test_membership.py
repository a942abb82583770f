"""G2: members join, are assigned, send heartbeats, and go; each rule beside what it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.committed_offsets import (
    OffsetAndMetadata,
    OffsetCommitRecord,
)
from neaptide.clusters.broker.replication.group.consumer_group import ConsumerGroup
from neaptide.clusters.broker.replication.group.group_metadata import (
    Group,
    GroupMetadataRecord,
    GroupState,
    Member,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import (
    LEADER_DURING_DELETE,
    LeaderAndIsr,
    TextTooLongError,
    TopicPartition,
)
from tests.core.given import LIVE, A, B, C, G, GroupCoordinator, T, broker, did, one

RANGE = (("range", b"r"),)
NOTHING: Mapping[str, str] = {}
BOTH = (("sticky", b"s"), ("range", b"r"))


class Coordinator(GroupCoordinator):
    def __init__(self, isr: tuple[int, ...] = (A,), settings: Mapping[str, str] = NOTHING) -> None:
        super().__init__("2.8", isr, {"group.initial.rebalance.delay.ms": "0", **settings})

    @property
    def group(self) -> Group:
        return self.broker.groups["g"]

    def join(
        self,
        member: str = "",
        *,
        new: str = "x",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = RANGE,
        **more: Any,
    ) -> tuple[Effect, ...]:
        given = {"protocol_type": "consumer", "session_timeout_ms": 10_000, **more}
        return self.do(
            events.JoinGroupRequested(
                self.number(),
                "g",
                member,
                new,
                instance,
                "client",
                "/127.0.0.1",
                rebalance_timeout_ms=30_000,
                protocols=protocols,
                **given,
            )
        )

    def sync(self, member: str, generation: int, **assigned: bytes) -> tuple[Effect, ...]:
        return self.do(
            events.SyncGroupRequested(self.number(), "g", member, None, generation, assigned)
        )

    def beat(self, member: str, generation: int) -> Error:
        done = self.do(events.HeartbeatRequested(self.number(), "g", member, None, generation))
        return one(done, effects.RespondHeartbeat).error

    def leave(self, *members: str, instance: str | None = None) -> effects.RespondLeaveGroup:
        named = tuple((member, instance) for member in members)
        done = self.do(events.LeaveGroupRequested(self.number(), "g", named))
        return one(done, effects.RespondLeaveGroup)

    def silent(self, member: str) -> tuple[Effect, ...]:
        return self.do(events.TimerFired(events.MemberExpiration("g", member)))

    def commit(self, member: str, generation: int) -> Error:
        committed = (OffsetCommitRecord("g", T, OffsetAndMetadata(5)),)
        done = self.do(
            events.OffsetCommitRequested(self.number(), "g", generation, committed, member)
        )
        [(_, error)] = one(done, effects.RespondOffsetCommit).results
        return error


def stable(
    members: tuple[str, ...] = ("x", "y"), settings: Mapping[str, str] = NOTHING
) -> Coordinator:
    """A group whose members have their assignments; the first leads it."""
    here = Coordinator(settings=settings)
    here.join(new=members[0])
    for member in members[1:]:
        here.join(new=member)
        here.join(members[0])
    generation = here.group.generation_id
    for member in members[1:]:
        here.sync(member, generation)
    here.sync(members[0], generation, **{member: member.encode() for member in members})
    assert here.group.state is GroupState.STABLE
    return here


# --- joining -------------------------------------------------------------------------------------


def test_g2_the_first_member_leads_and_learns_of_all() -> None:
    here = Coordinator()
    joined = one(here.join(new="x"), effects.RespondJoinGroup)
    assert (joined.error, joined.member_id, joined.leader) == (Error.NONE, "x", "x")
    assert (joined.generation_id, joined.protocol) == (1, "range")
    assert joined.members == (("x", None, b"r"),)


def test_g2_a_second_member_waits_until_the_first_has_joined_again() -> None:
    here = Coordinator()
    here.join(new="x")
    assert not did(here.join(new="y"), effects.RespondJoinGroup)
    assert here.beat("x", 1) is Error.REBALANCE_IN_PROGRESS
    done = here.join("x")
    answers = {a.member_id: a for a in done if isinstance(a, effects.RespondJoinGroup)}
    assert set(answers) == {"x", "y"}
    assert {a.generation_id for a in answers.values()} == {2}
    assert [len(answers[name].members) for name in ("x", "y")] == [2, 0]  # the leader alone


def test_g2_who_does_not_join_again_in_time_is_left_out() -> None:
    here = Coordinator()
    here.join(new="x")
    here.join(new="y")
    done = here.do(events.TimerFired(events.RebalanceExpiration("g")))
    joined = one(done, effects.RespondJoinGroup)
    assert (joined.member_id, joined.leader, joined.generation_id) == ("y", "y", 2)
    assert set(here.group.members) == {"y"}


def test_kip_134_the_first_rebalance_waits_for_more_members() -> None:
    here = Coordinator(settings={"group.initial.rebalance.delay.ms": "3000"})
    done = here.join(new="x")
    assert did(done, effects.SetTimer) == [effects.SetTimer(events.RebalanceExpiration("g"), 3_000)]
    assert not did(here.join(new="y"), effects.RespondJoinGroup)
    again = here.do(events.TimerFired(events.RebalanceExpiration("g")))
    assert not did(again, effects.RespondJoinGroup)  # one has joined meanwhile
    done = here.do(events.TimerFired(events.RebalanceExpiration("g")))
    assert len(did(done, effects.RespondJoinGroup)) == 2
    assert here.group.generation_id == 1


def test_kip_134_before_0_11_nobody_waits() -> None:
    assert broker("0.10", None).settings.group_initial_rebalance_delay_ms == 0
    assert broker("0.11", None).settings.group_initial_rebalance_delay_ms == 3_000


def test_kip_394_who_must_know_its_id_is_given_one_first() -> None:
    here = Coordinator()
    refused = one(here.join(new="x", must_know_member_id=True), effects.RespondJoinGroup)
    assert (refused.error, refused.member_id) == (Error.MEMBER_ID_REQUIRED, "x")
    assert not here.group.members
    joined = one(here.join("x", must_know_member_id=True), effects.RespondJoinGroup)
    assert joined.error is Error.NONE


def test_kip_394_an_id_that_nobody_joins_with_is_forgotten() -> None:
    here = Coordinator()
    here.join(new="x", must_know_member_id=True)
    here.silent("x")
    assert not here.broker.groups
    assert one(here.join("x"), effects.RespondJoinGroup).error is Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"member": "nobody"}, Error.UNKNOWN_MEMBER_ID),
        ({"protocols": ()}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("other", b""),)}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 5_999}, Error.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, Error.INVALID_SESSION_TIMEOUT),
    ],
)
def test_g2_who_does_not_fit_is_refused_and_the_group_goes_on(
    more: dict[str, Any], error: Error
) -> None:
    here = stable(members=("x",))
    given = {"member": "", **more}
    assert one(here.join(**{"new": "z", **given}), effects.RespondJoinGroup).error is error
    assert here.beat("x", 1) is Error.NONE


def test_kip_389_a_full_group_takes_nobody_but_its_members() -> None:
    here = stable(settings={"group.max.size": "2"})
    refused = one(here.join(new="z"), effects.RespondJoinGroup)
    assert refused.error is Error.GROUP_MAX_SIZE_REACHED
    assert not did(here.join("x"), effects.RespondJoinGroup)  # waits for y, as it should


def test_g2_the_protocol_is_one_that_all_have_and_most_want() -> None:
    here = Coordinator()
    here.join(new="x", protocols=BOTH)
    assert here.group.protocol == "sticky"
    here.join(new="y", protocols=RANGE)
    here.join("x", protocols=BOTH)
    assert here.group.protocol == "range"


def test_g2_a_follower_that_joins_again_unchanged_is_answered_at_once() -> None:
    here = stable()
    again = one(here.join("y"), effects.RespondJoinGroup)
    assert (again.generation_id, again.members) == (here.group.generation_id, ())
    assert here.group.state is GroupState.STABLE


def test_g2_a_leader_that_joins_again_or_a_change_begins_a_rebalance() -> None:
    here = stable()
    here.join("x")
    assert here.group.state is GroupState.PREPARING_REBALANCE
    here = stable()
    here.join("y", protocols=(("range", b"other topics"),))
    assert here.group.state is GroupState.PREPARING_REBALANCE


# --- assignments ---------------------------------------------------------------------------------


def test_g2_each_member_gets_what_the_leader_assigns_it() -> None:
    here = Coordinator()
    here.join(new="x")
    here.join(new="y")
    here.join("x")
    assert not did(here.sync("y", 2), effects.RespondSyncGroup)
    done = here.sync("x", 2, x=b"one", y=b"two")
    given = [one.assignment for one in did(done, effects.RespondSyncGroup)]
    assert sorted(given) == [b"one", b"two"]
    assert one(here.sync("y", 2), effects.RespondSyncGroup).assignment == b"two"


def test_g2_no_member_is_assigned_anything_before_the_log_has_it() -> None:
    """The generation is a record; B has to have it too."""
    here = Coordinator(isr=(A, B))
    here.join(new="x")
    done = here.sync("x", 1, x=b"all")
    [appended] = did(done, effects.AppendToLog)
    [record] = appended.batches[0].identity  # type: ignore[misc]
    assert isinstance(record, GroupMetadataRecord)
    assert (record.generation_id, record.members[0].assignment) == (1, b"all")
    assert not did(done, effects.RespondSyncGroup)
    done = here.do(events.FetchRequested(900, B, 0, 0, (events.FetchedPartition(G, 1, 1 << 20),)))
    assert one(done, effects.RespondSyncGroup).assignment == b"all"


def test_g2_a_generation_that_cannot_be_written_is_begun_again() -> None:
    here = Coordinator(isr=(A, B))
    here.join(new="x")
    done = here.sync("x", 1, x=b"all")
    timer = next(
        effect.timer
        for effect in did(done, effects.SetTimer)
        if isinstance(effect.timer, events.DelayedOperationExpired)
    )
    done = here.do(events.TimerFired(timer))
    assert one(done, effects.RespondSyncGroup).error is Error.REBALANCE_IN_PROGRESS
    assert here.group.state is GroupState.PREPARING_REBALANCE


def test_g2_the_end_of_the_leaders_connection_does_not_stop_the_generation() -> None:
    here = Coordinator(isr=(A, B))
    here.join(new="x")
    here.sync("x", 1, x=b"all")
    here.do(events.RequestAbandoned(here.last))
    here.do(events.FetchRequested(900, B, 0, 0, (events.FetchedPartition(G, 1, 1 << 20),)))
    assert here.group.state is GroupState.STABLE


@pytest.mark.parametrize(
    ("member", "generation", "error"),
    [
        ("nobody", 2, Error.UNKNOWN_MEMBER_ID),
        ("x", 1, Error.ILLEGAL_GENERATION),
        ("x", 3, Error.ILLEGAL_GENERATION),
        ("x", 2, Error.NONE),
    ],
)
def test_g2_what_names_another_member_or_generation_is_refused(
    member: str, generation: int, error: Error
) -> None:
    here = stable()
    assert here.beat(member, generation) is error
    assert one(here.sync(member, generation), effects.RespondSyncGroup).error is error
    assert here.commit(member, generation) is error


def test_g2_a_member_that_waits_for_its_assignment_learns_of_the_next_rebalance() -> None:
    here = Coordinator()
    here.join(new="x")
    here.join(new="y")
    here.join("x")
    here.sync("y", 2)
    done = here.join(new="z")
    assert one(done, effects.RespondSyncGroup).error is Error.REBALANCE_IN_PROGRESS
    session = effects.SetTimer(events.MemberExpiration("g", "y"), 10_000)
    assert session in did(done, effects.SetTimer)
    assert one(here.sync("x", 2), effects.RespondSyncGroup).error is Error.REBALANCE_IN_PROGRESS


def test_g2_a_commit_while_the_assignment_is_awaited_is_refused() -> None:
    here = Coordinator()
    here.join(new="x")
    assert here.commit("x", 1) is Error.REBALANCE_IN_PROGRESS
    here.sync("x", 1, x=b"")
    assert here.commit("x", 1) is Error.NONE


def test_g2_who_is_no_member_commits_to_a_group_without_members_only() -> None:
    here = Coordinator()
    assert here.commit("", -1) is Error.NONE
    assert here.commit("x", 1) is Error.UNKNOWN_MEMBER_ID
    here = stable(members=("x",))
    assert here.commit("", -1) is Error.UNKNOWN_MEMBER_ID


# --- going ---------------------------------------------------------------------------------------


def test_g2_a_member_that_leaves_or_is_silent_makes_the_others_join_again() -> None:
    for end in (Coordinator.leave, Coordinator.silent):
        here = stable()
        end(here, "y")
        assert set(here.group.members) == {"x"}
        assert here.beat("x", 2) is Error.REBALANCE_IN_PROGRESS


def test_g2_the_last_member_leaves_a_group_that_is_empty_and_has_its_commits() -> None:
    here = stable(members=("x",))
    assert here.commit("x", 1) is Error.NONE
    here.leave("x")
    assert (here.group.state, here.group.generation_id) == (GroupState.EMPTY, 2)
    done = here.do(events.OffsetFetchRequested(7, (events.WantedOffsets("g", None),)))
    assert one(done, effects.RespondOffsetFetch).groups[0].results == ((T, OffsetAndMetadata(5)),)
    assert one(here.join(new="z"), effects.RespondJoinGroup).generation_id == 3


def test_g2_whoever_waits_for_an_answer_is_not_silent() -> None:
    here = stable()
    here.join("x")
    here.silent("x")
    assert "x" in here.group.members
    here.silent("y")  # it has not joined
    assert set(here.group.members) == {"x"}


def test_g2_each_heartbeat_moves_the_end_of_the_session() -> None:
    here = stable(members=("x",))
    done = here.do(events.HeartbeatRequested(1, "g", "x", None, 1))
    assert did(done, effects.SetTimer) == [
        effects.SetTimer(events.MemberExpiration("g", "x"), 10_000)
    ]


def test_g2_who_is_unknown_cannot_leave() -> None:
    here = stable(members=("x",))
    assert here.leave("nobody", "x").members == (
        ("nobody", None, Error.UNKNOWN_MEMBER_ID),
        ("x", None, Error.NONE),
    )


# --- static members ------------------------------------------------------------------------------


def with_static() -> Coordinator:
    here = Coordinator()
    here.join(new="x1", instance="x")
    here.sync("x1", 1, x1=b"mine")
    return here


def test_kip_345_a_static_member_that_starts_again_has_its_place_without_a_rebalance() -> None:
    here = with_static()
    joined = one(here.join(new="x2", instance="x"), effects.RespondJoinGroup)
    assert (joined.error, joined.member_id, joined.generation_id) == (Error.NONE, "x2", 1)
    assert joined.leader == "x1"  # so that it does not assign
    done = here.do(events.SyncGroupRequested(5, "g", "x2", "x", 1, {}))
    assert one(done, effects.RespondSyncGroup).assignment == b"mine"


def test_kip_345_who_was_replaced_is_fenced() -> None:
    here = with_static()
    here.join(new="x2", instance="x")
    done = here.do(events.HeartbeatRequested(5, "g", "x1", "x", 1))
    assert one(done, effects.RespondHeartbeat).error is Error.FENCED_INSTANCE_ID
    done = here.do(events.HeartbeatRequested(5, "g", "x2", "x", 1))
    assert one(done, effects.RespondHeartbeat).error is Error.NONE


def test_kip_345_a_static_member_that_does_not_join_again_stays() -> None:
    here = with_static()
    here.join(new="y")
    here.do(events.TimerFired(events.RebalanceExpiration("g")))
    assert set(here.group.members) == {"x1", "y"}
    assert here.group.leader == "y"


def test_kip_345_an_operator_takes_a_static_member_out_by_its_name() -> None:
    here = with_static()
    assert here.leave("", instance="x").members == (("", "x", Error.NONE),)
    assert not here.group.members


# --- another coordinator -------------------------------------------------------------------------


def test_g2_another_coordinator_goes_on_with_the_members_of_the_log() -> None:
    here = stable()
    record = here.group.record({"x": b"one", "y": b"two"})
    there = Coordinator()
    there.do(events.CommittedOffsetsRead(G, {}, (record,)))
    assert there.beat("y", 2) is Error.NONE
    assert one(there.sync("y", 2), effects.RespondSyncGroup).assignment == b"two"
    there.silent("x")
    assert set(there.group.members) == {"y"}


def test_g2_who_leads_no_more_sends_all_members_away() -> None:
    here = stable()
    here.join("x")
    done = here.lead(B, 1)
    assert one(done, effects.RespondJoinGroup).error is Error.NOT_COORDINATOR
    assert not here.broker.groups
    assert here.beat("x", 2) is Error.NOT_COORDINATOR
    assert one(here.join(new="z"), effects.RespondJoinGroup).error is Error.NOT_COORDINATOR


def test_g2_what_is_kept_of_a_group_is_what_it_was() -> None:
    member = Member("x", "i", "c", "/h", 30_000, 10_000, RANGE)
    group = Group("g", GroupState.STABLE, 3, "consumer", "range", "x", {"x": member})
    record = group.record({"x": b"all"})
    there = Coordinator()
    there.do(events.CommittedOffsetsRead(G, {}, (record,)))
    assert there.group == replace(group, members={"x": replace(member, assignment=b"all")})


# --- operators -----------------------------------------------------------------------------------


def test_g2_groups_are_described_and_listed_in_their_states() -> None:
    here = stable(members=("x",))
    done = here.do(events.DescribeGroupsRequested(5, ("g", "other")))
    (group, error), (other, none) = one(done, effects.RespondDescribeGroups).results
    assert (group.state, set(group.members), error) == (GroupState.STABLE, {"x"}, Error.NONE)
    assert (other.state, none) == (GroupState.DEAD, Error.NONE)
    for states, found in (((), ["g"]), (("stable",), ["g"]), (("empty",), [])):
        done = here.do(events.ListGroupsRequested(5, states))
        assert [one.group for one in one_list(done)] == found


def one_list(done: tuple[Effect, ...]) -> tuple[Group | ConsumerGroup, ...]:
    return one(done, effects.RespondListGroups).groups


def test_g2_a_group_is_deleted_with_its_commits_when_nobody_is_in_it() -> None:
    here = stable(members=("x",))
    here.commit("x", 1)

    def delete(*names: str) -> dict[str, Error]:
        done = here.do(events.DeleteGroupsRequested(5, names))
        return dict(one(done, effects.RespondDeleteGroups).results)

    assert delete("g", "other") == {
        "g": Error.NON_EMPTY_GROUP,
        "other": Error.GROUP_ID_NOT_FOUND,
    }
    here.leave("x")
    assert delete("g") == {"g": Error.NONE}
    assert delete("g") == {"g": Error.GROUP_ID_NOT_FOUND}
    done = here.do(events.OffsetFetchRequested(7, (events.WantedOffsets("g", None),)))
    assert one(done, effects.RespondOffsetFetch).groups[0].results == ()


def test_c5_positions_in_a_deleted_topic_go_and_with_the_last_of_them_an_empty_group() -> None:
    of_all = Coordinator()
    other = TopicPartition("other", 0)
    for group, partitions in (("gone", (T,)), ("kept", (T, other))):
        committed = tuple(
            OffsetCommitRecord(group, one, OffsetAndMetadata(5)) for one in partitions
        )
        of_all.do(events.OffsetCommitRequested(of_all.number(), group, -1, committed))
    deleted = events.PartitionState(T, LeaderAndIsr(LEADER_DURING_DELETE, 0, (), 1), (A,), {})
    done = of_all.do(events.UpdateMetadataRequested(1, C, 1, (deleted,), LIVE))
    assert of_all.broker.committed_offsets[G] == {("kept", other): OffsetAndMetadata(5)}
    written = [each.batches[0].identity for each in did(done, effects.AppendToLog)]
    tombstone = OffsetCommitRecord("gone", T, None)
    assert (tombstone, GroupMetadataRecord("gone", is_deleted=True)) in written
    assert (OffsetCommitRecord("kept", T, None),) in written


def test_g2_offsets_of_a_group_that_reads_are_not_deleted() -> None:
    here = stable(members=("x",))
    here.commit("x", 1)
    asked = events.OffsetDeleteRequested(5, "g", (T,))
    answer = one(here.do(asked), effects.RespondOffsetDelete)
    assert answer.results == ((T, Error.GROUP_SUBSCRIBED_TO_TOPIC),)
    here.leave("x")
    answer = one(here.do(asked), effects.RespondOffsetDelete)
    assert (answer.error, answer.results) == (Error.NONE, ((T, Error.NONE),))
    assert not here.broker.committed_offsets[G]


@pytest.mark.parametrize("field", ["group", "client_id", "protocol_type", "group_instance_id"])
def test_a10_who_has_no_room_in_a_record_is_no_member(field: str) -> None:
    """Else the broker could not write the group down later, when nobody waits for an error."""
    one = Coordinator()
    asked: Any = events.JoinGroupRequested(
        1, "g", "", "x", None, "client", "/127.0.0.1", 10_000, 30_000, "consumer", RANGE
    )
    with pytest.raises(TextTooLongError):
        one.do(replace(asked, **{field: "é" * 16_384}))
    assert one.broker.groups == {}
    one.do(replace(asked, **{field: "e" * 32_767}))
    assert len(one.broker.groups) == 1
