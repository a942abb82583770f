"""G6: members of the classic protocol beside those of the consumer protocol, and the way from one
protocol to the other and back (KIP-848). Each rule beside what it leaves alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.group.consumer_group import (
    MemberMetadataRecord,
    MemberState,
)
from neaptide.clusters.broker.replication.group.consumer_protocol import (
    assignment_bytes,
    read_assignment,
)
from neaptide.clusters.broker.replication.group.group_metadata import (
    GroupMetadataRecord,
    GroupState,
)
from neaptide.clusters.broker.replication.interface import effects, events
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.replication.settings import InvalidSettingError
from tests.core.given import A, B, G, one, subscription
from tests.core.test_consumer_groups import NOBODY, Coordinator, parts

SESSION_MS, REBALANCE_MS = 10_000, 30_000
OFFSET = (TopicPartition("t", 0),)


class Both(Coordinator):
    """Members of the classic protocol answer their leader's assignments for themselves."""

    def __init__(self, **more: Any) -> None:
        super().__init__(group_initial_rebalance_delay_ms="0", **more)

    def joining(self, member: str, owned: Iterable[int] = (), **more: Any) -> tuple[Effect, ...]:
        given: dict[str, Any] = {
            "member_id": member,
            "new_member_id": "new",
            "group_instance_id": None,
            "client_id": "c",
            "client_host": "h",
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "protocol_type": "consumer",
            "protocols": (("cooperative-sticky", subscription(owned)),),
            **more,
        }
        return self.do(events.JoinGroupRequested(self.number(), "g", **given))

    def join_classic(
        self, member: str, owned: Iterable[int] = (), **more: Any
    ) -> effects.RespondJoinGroup:
        return one(self.joining(member, owned, **more), effects.RespondJoinGroup)

    def sync(self, member: str, generation: int, **more: Any) -> effects.RespondSyncGroup:
        given: dict[str, Any] = {"group_instance_id": None, "assignments": {}, **more}
        asked = events.SyncGroupRequested(
            self.number(), "g", member, generation_id=generation, **given
        )
        return one(self.do(asked), effects.RespondSyncGroup)

    def heartbeat(self, member: str, generation: int) -> Error:
        asked = events.HeartbeatRequested(self.number(), "g", member, None, generation)
        return one(self.do(asked), effects.RespondHeartbeat).error

    def leave(self, *members: tuple[str, str | None]) -> effects.RespondLeaveGroup:
        asked = events.LeaveGroupRequested(self.number(), "g", members)
        return one(self.do(asked), effects.RespondLeaveGroup)

    def of_two_classic_members(self) -> None:
        """`x` reads 0 and 1, `y` 2 and 3, in generation 2."""
        assert self.join_classic("", new_member_id="x").generation_id == 1
        self.sync("x", 1, assignments={"x": assigned(0, 1, 2, 3)})
        self.joining("", new_member_id="y")
        self.joining("x", (0, 1, 2, 3))
        self.do(events.SyncGroupRequested(self.number(), "g", "y", None, 2, {}))
        both = {"x": assigned(0, 1), "y": assigned(2, 3)}
        self.do(events.SyncGroupRequested(self.number(), "g", "x", None, 2, both))
        assert self.broker.groups["g"].state is GroupState.STABLE


def assigned(*numbers: int) -> bytes:
    return assignment_bytes(1, [TopicPartition("t", number) for number in numbers])


def numbers_of(answer: effects.RespondSyncGroup) -> list[int]:
    assert answer.error is Error.NONE
    return sorted(one.partition for one in read_assignment(answer.assignment))


# --- from the classic protocol --------------------------------------------------------------------


def test_g6_a_member_of_the_consumer_protocol_takes_a_classic_group_over() -> None:
    here = Both()
    here.of_two_classic_members()
    answer = here.join("z")
    assert (answer.error, answer.member_epoch, answer.assigned) == (Error.NONE, 3, NOBODY)
    assert "g" not in here.broker.groups
    x, y, z = (here.group.members[name] for name in "xyz")
    assert (x.assigned, y.assigned, z.assigned) == (parts(0, 1), parts(2, 3), NOBODY)
    assert (x.member_epoch, y.member_epoch) == (2, 2)
    assert x.topic_names == ("t",)
    assert x.classic is not None
    assert x.classic.session_timeout_ms == SESSION_MS
    assert z.classic is None


def test_g6_the_records_of_the_classic_group_end_in_the_same_batch() -> None:
    here = Both()
    here.of_two_classic_members()
    done = here.ask("z", 0, rebalance_timeout_ms=1, topic_names=("t",), owned=NOBODY)
    records = one(done, effects.AppendToLog).batches[0].identity
    assert isinstance(records, tuple)
    assert records[0] == GroupMetadataRecord("g", is_deleted=True)
    assert effects.SetTimer(events.MemberExpiration("g", "x"), SESSION_MS) in done
    assert effects.SetTimer(events.MemberExpiration("g", "z"), 45_000) in done


def test_g6_classic_members_join_again_give_up_and_read_what_is_left() -> None:
    here = Both()
    here.of_two_classic_members()
    here.join("z")
    target = {name: {p.partition for p in of} for name, of in here.group.targets.items()}
    assert {name: len(of) for name, of in target.items()} == {"x": 2, "y": 1, "z": 1}
    assert here.heartbeat("x", 2) is here.heartbeat("y", 2) is Error.REBALANCE_IN_PROGRESS
    assert here.commit("y", 2) is Error.NONE  # of what it is to give up
    x = here.join_classic("x", (0, 1))  # nothing is to change for it
    assert (x.generation_id, x.leader, x.protocol, x.members) == (3, "", "cooperative-sticky", ())
    assert numbers_of(here.sync("x", 3)) == [0, 1]
    assert here.heartbeat("x", 3) is Error.NONE
    done = here.joining("y", (2, 3))
    assert effects.SetTimer(events.RevocationExpiration("g", "y"), REBALANCE_MS) not in done
    y = one(done, effects.RespondJoinGroup)
    assert y.generation_id == 2  # it stays in its epoch until it has given up
    assert numbers_of(here.sync("y", 2)) == sorted(target["y"])
    assert here.heartbeat("y", 2) is Error.REBALANCE_IN_PROGRESS
    assert here.beat("z", 3).assigned is None
    assert here.join_classic("y", target["y"]).generation_id == 3
    assert numbers_of(here.sync("y", 3)) == sorted(target["y"])
    assert here.beat("z", 3).assigned == parts(*target["z"])
    assert here.heartbeat("y", 3) is Error.NONE


def test_g6_who_waits_in_a_classic_group_is_to_join_again() -> None:
    here = Both()
    here.of_two_classic_members()
    joining = here.number() + 1
    here.joining("x", (0, 1))  # y has not joined yet
    done = here.ask("z", 0, rebalance_timeout_ms=1, topic_names=("t",), owned=NOBODY)
    answers = [one for one in done if isinstance(one, effects.RespondJoinGroup)]
    assert [(one.request, one.error) for one in answers] == [(joining, Error.REBALANCE_IN_PROGRESS)]
    assert here.join_classic("x", (0, 1)).error is Error.NONE


@pytest.mark.parametrize(
    "policy", ["disabled", "downgrade", "DISABLED"], ids=["none", "down", "upper case"]
)
def test_g6_a_classic_group_stays_one_where_that_is_set(policy: str) -> None:
    here = Both(**{"group_consumer_migration_policy": policy})
    here.of_two_classic_members()
    assert here.join("z").error is Error.GROUP_ID_NOT_FOUND
    assert here.heartbeat("x", 2) is Error.NONE


def test_g6_a_policy_has_one_of_four_names() -> None:
    with pytest.raises(InvalidSettingError, match="bidirectional, upgrade, downgrade, disabled"):
        Both(**{"group_consumer_migration_policy": "both"})


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ({"protocol_type": "connect"}, "another type"),
        ({"protocols": (("range", b"r"),)}, "bytes that say nothing"),
    ],
)
def test_g6_what_is_no_group_of_consumers_is_not_taken_over(
    more: dict[str, Any], kept: str
) -> None:
    here = Both()
    assert here.join_classic("", new_member_id="x", **more).error is Error.NONE
    assert here.join("z").error is Error.GROUP_ID_NOT_FOUND, kept
    assert "x" in here.broker.groups["g"].members


def test_g6_a_classic_group_that_is_too_large_is_not_taken_over() -> None:
    here = Both(group_consumer_max_size="1")
    here.of_two_classic_members()
    assert here.join("z").error is Error.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("data", "error"),
    [(b"", Error.NONE), (b"generation 2", Error.GROUP_ID_NOT_FOUND)],
    ids=["empty", "there"],
)
def test_g6_a_classic_group_whose_assignor_has_data_of_its_own_is_not_taken_over(
    data: bytes, error: Error
) -> None:
    """As Kafka's from 4.0 on: nobody else could keep it for that assignor."""
    here = Both()
    assert here.join_classic("", new_member_id="x").generation_id == 1
    with_data = assigned(0, 1, 2, 3)[:-4] + struct.pack(">i", len(data)) + data
    here.sync("x", 1, assignments={"x": with_data})
    assert here.join("z").error is error


# --- and back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["leaves", "is silent"])
def test_g6_the_last_of_the_consumer_protocol_leaves_a_classic_group_behind(how: str) -> None:
    here = Both()
    here.of_two_classic_members()
    here.join("z")
    here.commit("x", 2)
    if how == "leaves":
        assert here.beat("z", -1).error is Error.NONE
    else:
        here.silent("z")
    assert "g" not in here.broker.consumer_groups
    group = here.broker.groups["g"]
    assert (group.state, set(group.members)) == (GroupState.PREPARING_REBALANCE, {"x", "y"})
    assert group.generation_id > 2
    assert here.heartbeat("x", group.generation_id) is Error.REBALANCE_IN_PROGRESS
    assert here.heartbeat("x", 2) is Error.ILLEGAL_GENERATION


def test_g6_a_classic_group_that_comes_back_is_in_the_log_with_what_members_had() -> None:
    here = Both()
    here.of_two_classic_members()
    here.join("z")
    assert here.heartbeat("x", 2) is Error.REBALANCE_IN_PROGRESS
    done = here.ask("z", -1)
    for timer in (events.ClassicMemberExpiration("g", "x"), events.MemberExpiration("g", "z")):
        assert effects.CancelTimer(timer) in done
    assert here.broker.expected == frozenset()
    records = one(done, effects.AppendToLog).batches[0].identity
    assert isinstance(records, tuple)
    assert MemberMetadataRecord("g", "z", None) in records
    assert isinstance(records[-1], GroupMetadataRecord)
    group = records[-1]
    assert (group.protocol, group.leader, group.protocol_type) == (
        "cooperative-sticky",
        "x",
        "consumer",
    )
    found = {one.member_id: read_assignment(one.assignment) for one in group.members}
    assert {name: len(of) for name, of in found.items()} == {"x": 2, "y": 1}
    assert effects.SetTimer(events.MemberExpiration("g", "x"), SESSION_MS) in done


@pytest.mark.parametrize("policy", ["upgrade", "disabled"])
def test_g6_a_group_stays_one_of_the_consumer_protocol_where_that_is_set(policy: str) -> None:
    here = Both(group_consumer_migration_policy=policy)
    here.join("z")
    assert here.join_classic("x").error is Error.NONE
    here.beat("z", -1)
    assert set(here.group.members) == {"x"}


def test_g6_a_static_member_that_is_classic_now_has_what_it_had() -> None:
    here = Both()
    here.join("z", group_instance_id="i")
    joined = here.join_classic("", group_instance_id="i", new_member_id="i-2")
    assert (joined.error, joined.member_id) == (Error.NONE, "i-2")
    group = here.broker.groups["g"]  # z was the last of the other protocol: nobody joins again
    assert (group.state, group.generation_id) == (GroupState.STABLE, joined.generation_id)
    answer = here.sync("i-2", joined.generation_id, group_instance_id="i")
    assert numbers_of(answer) == [0, 1, 2, 3]


def test_g6_a_static_member_goes_over_to_the_consumer_protocol_at_once() -> None:
    """It is known by its name: it has not to leave first."""
    here = Both()
    here.join("z")
    here.join_classic("", group_instance_id="i", new_member_id="i-1")
    answer = here.join("i-2", group_instance_id="i")
    assert (answer.error, set(here.group.members)) == (Error.NONE, {"z", "i-2"})
    assert here.group.members["i-2"].classic is None


# --- what a member of the classic protocol is answered --------------------------------------------


def mixed() -> Both:
    """`z`, of the consumer protocol, has given up two, which `x` reads, in epoch 2."""
    here = Both()
    here.join("z")
    assert here.join_classic("x").generation_id == 2
    target = here.group.target("z")
    here.beat("z", 1, owned=parts(0, 1, 2, 3))
    assert here.beat("z", 1, owned=target).member_epoch == 2
    assert here.heartbeat("x", 2) is Error.REBALANCE_IN_PROGRESS  # what it waited for is free
    assert here.join_classic("x").generation_id == 2
    assert len(numbers_of(here.sync("x", 2))) == 2
    return here


def test_g6_while_another_has_it_still_a_classic_member_just_waits() -> None:
    here = Both()
    here.join("z")
    here.join_classic("x")
    assert numbers_of(here.sync("x", 2)) == []
    assert here.heartbeat("x", 2) is Error.NONE
    assert here.group.members["x"].state is MemberState.UNRELEASED_PARTITIONS


def test_g6_a_classic_member_that_may_not_join_is_refused() -> None:
    here = Both(group_consumer_max_size="2")
    here.join("z")
    for more, error in (
        ({"session_timeout_ms": 1}, Error.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b"r"),)}, Error.UNKNOWN_SERVER_ERROR),
        ({"member_id": "i-1", "group_instance_id": "i"}, Error.UNKNOWN_MEMBER_ID),
    ):
        answer = here.join_classic("", **more)
        assert (answer.error, set(here.group.members)) == (error, {"z"}), more
    must = here.join_classic("", must_know_member_id=True)
    assert (must.error, must.member_id) == (Error.MEMBER_ID_REQUIRED, "new")
    assert here.join_classic("new", must_know_member_id=True).error is Error.NONE
    assert here.join_classic("", new_member_id="y").error is Error.GROUP_MAX_SIZE_REACHED


def test_g6_one_protocol_must_be_that_of_all_classic_members() -> None:
    here = mixed()
    other: dict[str, Any] = {"protocols": (("range", subscription()),)}
    assert here.join_classic("y", **other).error is Error.INCONSISTENT_GROUP_PROTOCOL
    both: dict[str, Any] = {
        "protocols": (*other["protocols"], ("cooperative-sticky", subscription()))
    }
    assert here.join_classic("y", **both).error is Error.NONE


def test_g6_only_classic_members_in_their_generation_are_answered() -> None:
    here = mixed()
    for name, generation, error in (
        ("x", 2, Error.NONE),
        ("x", 1, Error.ILLEGAL_GENERATION),
        ("z", 2, Error.UNKNOWN_MEMBER_ID),
        ("y", 2, Error.UNKNOWN_MEMBER_ID),
    ):
        assert here.heartbeat(name, generation) is here.sync(name, generation).error is error
    assert here.sync("x", 2, protocol_type="connect").error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert here.sync("x", 2, protocol="range").error is Error.INCONSISTENT_GROUP_PROTOCOL
    fine = here.sync("x", 2, protocol_type="consumer", protocol="cooperative-sticky")
    assert (fine.error, fine.protocol) == (Error.NONE, "cooperative-sticky")
    assert here.commit("x", 1) is Error.ILLEGAL_GENERATION
    assert here.commit("z", 1) is Error.STALE_MEMBER_EPOCH
    assert here.commit("x", 2) is here.commit("z", 2) is Error.NONE


def test_g6_a_member_that_is_behind_the_group_is_not_answered_its_assignment() -> None:
    here = mixed()
    here.join("y")
    assert here.sync("x", 2).error is Error.REBALANCE_IN_PROGRESS


def test_g6_a_static_member_is_known_by_its_name_and_its_id() -> None:
    here = Both()
    here.join("z")
    named: dict[str, Any] = {"group_instance_id": "i"}
    first = here.join_classic("", new_member_id="i-1", **named)
    again = here.join_classic("", new_member_id="i-2", **named)
    assert first.error is again.error is Error.NONE
    assert here.sync("i-1", 2, **named).error is Error.FENCED_INSTANCE_ID
    assert here.sync("i-2", again.generation_id, **named).error is Error.NONE
    assert here.join_classic("i-1", **named).error is Error.FENCED_INSTANCE_ID
    results = here.leave(("i-1", "i"), ("", "i"), ("", "j")).members
    assert [error for _, _, error in results] == [
        Error.FENCED_INSTANCE_ID,
        Error.NONE,
        Error.UNKNOWN_MEMBER_ID,
    ]
    assert set(here.group.members) == {"z"}


def test_g6_a_classic_member_that_leaves_gives_its_partitions_away() -> None:
    here = mixed()
    answer = here.leave(("x", None), ("z", None), ("y", None))
    assert [error for _, _, error in answer.members] == [
        Error.NONE,
        Error.UNKNOWN_MEMBER_ID,  # it has another way to leave
        Error.UNKNOWN_MEMBER_ID,
    ]
    assert here.beat("z", 2).assigned == parts(0, 1, 2, 3)


def test_g6_nobody_leaves_and_nothing_changes() -> None:
    here = mixed()
    before = here.group
    assert here.leave(("y", None)).members == (("y", None, Error.UNKNOWN_MEMBER_ID),)
    assert here.group == before


# --- in time --------------------------------------------------------------------------------------


def late(here: Both, member: str) -> tuple[Effect, ...]:
    return here.do(events.TimerFired(events.ClassicMemberExpiration("g", member)))


def test_g6_who_does_not_join_again_in_time_is_no_member_any_more() -> None:
    here = mixed()
    here.join("y")
    asked = events.HeartbeatRequested(here.number(), "g", "x", None, 2)
    timer = effects.SetTimer(events.ClassicMemberExpiration("g", "x"), REBALANCE_MS)
    assert timer in here.do(asked)
    assert timer not in here.do(asked)  # it runs from the first time
    late(here, "x")
    assert set(here.group.members) == {"y", "z"}


def test_g6_who_does_not_ask_for_its_assignment_in_time_is_no_member_any_more() -> None:
    here = Both()
    here.join("z")
    done = here.joining("x")
    assert effects.SetTimer(events.ClassicMemberExpiration("g", "x"), REBALANCE_MS) in done
    late(here, "x")
    assert set(here.group.members) == {"z"}


def test_g6_a_timer_of_one_that_is_in_time_is_over() -> None:
    here = mixed()  # x has joined, and has asked for its assignment
    late(here, "x")
    assert set(here.group.members) == {"x", "z"}


def test_g6_a_classic_member_has_its_own_session() -> None:
    here = mixed()
    asked = events.HeartbeatRequested(here.number(), "g", "x", None, 2)
    assert effects.SetTimer(events.MemberExpiration("g", "x"), SESSION_MS) in here.do(asked)
    here.silent("x")
    assert set(here.group.members) == {"z"}


def test_g6_the_next_coordinator_knows_who_is_classic() -> None:
    here, there = mixed(), Both()
    done = there.do(events.CommittedOffsetsRead(G, {}, consumer_groups=(here.group,)))
    assert effects.SetTimer(events.MemberExpiration("g", "x"), SESSION_MS) in done
    assert there.heartbeat("x", 2) is Error.NONE


def test_g6_a_coordinator_that_resigns_waits_for_nobody() -> None:
    here = Both()
    here.join("z")
    here.joining("x")
    done = here.lead(B, 1)
    assert effects.CancelTimer(events.ClassicMemberExpiration("g", "x")) in done
    assert here.broker.expected == frozenset()


def test_g6_an_answer_waits_until_its_records_are_committed() -> None:
    here = Both()
    here.isr = (A, B)
    here.lead(A, 1)
    here.do(events.CommittedOffsetsRead(G, {}))
    here.ask("z", 0, rebalance_timeout_ms=1, topic_names=("t",), owned=NOBODY)
    done = here.joining("x")
    assert not [one for one in done if isinstance(one, effects.RespondJoinGroup)]
    asked = events.FetchedPartition(
        G, here.broker.partitions[G].log.end_offset, 1_048_576, 0, 1, last_fetched_epoch=1
    )
    done = here.do(events.FetchRequested(here.number(), B, 500, 1, (asked,)))
    assert one(done, effects.RespondJoinGroup).error is Error.NONE
