"""The table of workloads: options, what goes together, and what the document prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.clusters.errors import UsageError
from neaptide.clusters.hosts.place import parse_place
from neaptide.harness.play.random_asked import RandomRun, check_load, check_own
from neaptide.harness.play.random_load import tasks_of
from neaptide.harness.scenarios.systems import parse_systems
from neaptide.workloads.catalog import WORKLOADS, Clients, Workload, find_workload
from neaptide.workloads.roles.table import ROLES, find_role

OWN, OWN_OLDEST, NEWEST, NOW, NEW, OLD, OLDEST = parse_systems(
    [
        "neaptide:2.1",
        "neaptide:0.8",
        "kafka:4.4.0",
        "kafka:3.9.1",
        "kafka:4.1.0",
        "kafka:0.10.2.2",
        "kafka:0.8.2.2",
    ]
)


def asked(workload: str, system: object = NOW, **more: object) -> RandomRun:
    given = {str(name): str(value) for name, value in dict(more.pop("options", {})).items()}  # type: ignore[call-overload]
    options = find_workload(workload).parse_options(given)
    run = RandomRun(workload, NOW, (), 1.0, 100.0, 1, options=options)
    return replace(run, system=system, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_workload_goes_with_a_kafka_of_today(name: str) -> None:
    system = NEWEST if name == "share" else NOW
    assert check_load(asked(name, system))
    assert {task.role for task, _ in tasks_of(asked(name, system))} <= set(ROLES)


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (asked("txn", OWN_OLDEST), "needs transactions, which neaptide:0.8 does not serve"),
        (
            asked("groups", OWN_OLDEST),
            "needs membership of groups, which neaptide:0.8 does not serve",
        ),
        (asked("txn", OLD), "which Apache Kafka has from 0.11 on, not kafka:0.10.2.2"),
        (asked("groups", OLDEST), "from 0.9 on"),
        (asked("txn", acks="1"), "needs --acks all"),
        (asked("stream", topics=2), "leave out --topics"),
        (asked("append", client="sarama"), "There is no client 'sarama'"),
        (asked("txn", client="java"), "it has no transactions here"),
        (asked("keyed", client="java"), "has tools for the workload append only"),
        (asked("append", client="java"), "--partitions 1"),
        (asked("append", OLD, client="java", partitions=1), "needs Apache Kafka 0.11 or later"),
        (asked("groups", client="aiokafka"), "it has no groups here"),
        (asked("groups", options={"churn": "reset"}), "needs a kind of reset, as --option resets="),
        (
            asked("groups", options={"resets": "shift-by"}),
            "resets=shift-by needs members that reset: --option churn=reset",
        ),
        (asked("rebalance", options={"resets": "to-latest"}), "churn=leave.stall.reset"),
        (asked("share"), "needs share groups, which Apache Kafka has from 4.2 on"),
        (asked("share", OWN_OLDEST), "needs share groups, which neaptide:0.8 does not serve"),
        (asked("share", NEWEST, client="kafka-python"), "it has no share groups here"),
        (asked("groups", options={"protocol": "consumer"}), "or Apache Kafka 4.0 or later"),
        (
            asked("groups", NEW, client="kafka-python", options={"protocol": "consumer"}),
            "it has no consumer protocol here",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_in_one_sentence(run: RandomRun, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_load(run)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"keys": "5"}, "has no option 'keys'"),
        ({"commit": "never"}, "must be one of auto, sync"),
        ({"reset": "beginning"}, "must be one of earliest, latest, error"),
        ({"resets": "earliest"}, "must be one of none, to-earliest, to-latest, to-current"),
    ],
)
def test_a_wrong_option_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_workload("groups").parse_options(given)


def test_the_simulation_has_no_brokers_for_a_workload() -> None:
    for workload in ("append", "txn"):
        with pytest.raises(UsageError, match="search it with `neaptide explore`"):
            check_own(asked(workload, OWN, place=parse_place("simulation")))
        assert check_own(asked(workload, OWN))


def test_a_number_must_be_one() -> None:
    with pytest.raises(UsageError, match="must be a whole number"):
        find_workload("keyed").parse_options({"keys": "many"})


def test_the_clients_that_may_be_killed_come_first() -> None:
    run = asked("txn", producers=3, consumers=2)
    assert [lives for _, lives in tasks_of(run)] == [False] * 5 + [True]


def test_a_run_says_how_to_repeat_it() -> None:
    run = asked("groups", producers=2, options={"commit": "async"})
    assert "--producers 2 --consumers 1 --option commit=async" in run.repeat()


def test_whose_coordinator_is_a_target_is_what_the_first_client_is_called() -> None:
    """As the client of that number calls itself."""
    group = replace(asked("groups"), options={"group": "mine"})
    assert group.coordinated == ("mine", "group")
    for workload, kind in (("txn", "txn"), ("stream", "stream"), ("bank", "teller")):
        assert asked(workload).coordinated == (f"neaptide-1-{kind}-0", "transaction")
    assert asked("append").coordinated is None


# --- of somebody's own ---------------------------------------------------------------------------

SHOP = Path(__file__).parents[1] / "sample_shop"
NOT_A_ROLE = Workload("w", "", (Clients(f"{__name__}:SHOP", "producers"),))
NO_ROLE = Workload("w", "", (Clients("nobody", "producers"),))


def test_a_workload_of_a_module_is_found_with_its_options_and_roles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(SHOP)
    run = check_load(asked("shop.load:ORDERS", options={"customers": 7}))
    assert run.options == {"customers": 7}
    assert "neaptide run shop.load:ORDERS " in run.repeat()
    assert "--option customers=7" in run.repeat()
    [producer, consumer] = [task for task, _ in tasks_of(run)]
    assert find_role(producer.role).sends
    assert consumer.role == "consumer"


def test_the_module_of_the_document_is_the_one_that_runs() -> None:
    document = (Path(__file__).parents[2] / "docs" / "workloads.md").read_text()
    code = document.split("In `shop/load.py`:\n\n```python\n")[1].split("```")[0]
    assert (SHOP / "shop" / "load.py").read_text().endswith(code)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.such:ORDERS", "cannot be loaded: No module named"),
        (f"{__name__}:NOTHING", "cannot be loaded: .* has no attribute 'NOTHING'"),
        (f"{__name__}:SHOP", "must be a neaptide.workloads.catalog.Workload"),
        ("not a name:at all", "cannot be loaded"),
    ],
)
def test_what_is_no_workload_is_refused_in_one_sentence(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        find_workload(name)


@pytest.mark.parametrize(
    ("name", "says"), [("NO_ROLE", "no role 'nobody'"), ("NOT_A_ROLE", "must be a class derived")]
)
def test_a_workload_whose_clients_are_none_is_refused(name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        check_load(asked(f"{__name__}:{name}"))
