"""Which scenarios depend on a client, and what a client must be able to do for them."""

from __future__ import annotations

import sys

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.harness.comparing.client import depends_on_client, needs, plan
from neaptide.harness.play.scenario import clients_of
from neaptide.harness.scenarios.catalog import documented
from neaptide.harness.scenarios.predictions import of_any_client
from neaptide.nemesis.scenario import Scenario
from neaptide.workloads.errors import ClientsError
from neaptide.workloads.program import ABILITIES, Program, find_program


def scenario(name: str) -> Scenario:
    return next(found for _, found in documented([name]) if found.name == name)


def program(*can: str) -> Program:
    return Program(["./mine"], ("./mine",), "mine", "1.2", frozenset(can))


@pytest.mark.parametrize(
    ("name", "depends", "abilities"),
    [
        ("acks-1-loss", False, set()),
        ("hanging-transaction", False, {"transactions"}),  # it has a producer of its own
        ("retry-duplicate-plain", True, set()),
        ("retry-duplicate-idempotent", True, {"idempotence"}),
        ("aborted-read", True, {"transactions"}),
        ("rebalance-duplicate", True, {"groups"}),
        ("consumer-truncation", True, set()),
    ],
)
def test_what_a_scenario_needs_of_a_client(name: str, depends: bool, abilities: set[str]) -> None:
    assert depends_on_client(scenario(name)) is depends
    assert needs(scenario(name)) == abilities


def test_what_a_client_cannot_do_is_not_played() -> None:
    names = ["retry-duplicate-idempotent", "rebalance-duplicate", "aborted-read"]
    planned = plan(program("groups"), ["neaptide:4.0"], names, repeat=2)
    assert [cell.scenario.name for cell in planned.cells] == ["rebalance-duplicate"] * 2
    assert all(cell.program == program("groups") for cell in planned.cells)
    assert planned.not_played == {
        "retry-duplicate-idempotent": "mine 1.2 has no idempotence",
        "aborted-read": "mine 1.2 has no transactions",
    }


def test_what_a_system_does_not_serve_is_not_played() -> None:
    planned = plan(program(*ABILITIES), ["neaptide:0.8", "neaptide:4.0"], ["aborted-read"], 1)
    assert [str(cell.system) for cell in planned.cells] == ["neaptide:4.0"]
    [why] = planned.not_played.values()
    assert why.startswith("neaptide:0.8 does not serve it: ")


def test_a_scenario_that_needs_no_client_is_refused() -> None:
    with pytest.raises(UsageError, match="acks-1-loss does not depend on a client"):
        plan(program(), ["neaptide:4.0"], ["acks-1-loss"], 1)


def test_all_that_depend_on_a_client_are_played_where_none_is_named() -> None:
    planned = plan(program(*ABILITIES), ["neaptide:4.0"], [], 1)
    played = {cell.scenario.name for cell in planned.cells}
    assert played | planned.not_played.keys() == {
        one.name for _, one in documented([]) if depends_on_client(one)
    }
    assert len(played) >= 15


def test_errors_of_librdkafkas_own_are_expected_of_no_other_client() -> None:
    texts = [one.condition.text for one in scenario("consumer-truncation").expect_seen]
    left = [
        one.condition.text for one in of_any_client(scenario("consumer-truncation").expect_seen)
    ]
    assert set(texts) - set(left) == {"notified(reader) is _AUTO_OFFSET_RESET"}
    others = scenario("rebalance-duplicate").expect_seen
    assert of_any_client(others) == others


def test_a_run_says_whose_client_it_drove() -> None:
    mine = {"client": "mine", "version": "1.2", "command": ["./mine"]}
    plain = scenario("retry-duplicate-plain")
    assert clients_of(scenario("aborted-read"), None) is None
    assert clients_of(scenario("aborted-read"), program()) == {"program": mine}
    assert clients_of(plain, program()) == {**(clients_of(plain, None) or {}), "program": mine}


SAYS = 'import sys; sys.stdin.readline(); print(\'{"id": 1, "client": "mine", "can": ["%s"]}\')'


def test_a_program_is_found_and_says_what_it_can() -> None:
    asked = [sys.executable, "-c", SAYS % "groups"]
    found = find_program(asked)
    assert (str(found), found.can, found.asked) == ("mine", frozenset({"groups"}), asked)


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (["kafka-pythn"], "There is no program kafka-pythn. Clients that ship: confluent-kafka,"),
        (["aiokafka", "more"], "aiokafka is a client that ships, and takes no arguments."),
        (
            [sys.executable, "-c", SAYS % "fly"],
            "mine says that it can fly; what is known is groups, idempotence, transactions.",
        ),
    ],
)
def test_a_program_that_cannot_be_one_is_refused(asked: list[str], why: str) -> None:
    with pytest.raises(ClientsError) as refused:
        find_program(asked)
    assert why in str(refused.value)
