"""Scenario files: what ships can be read; every mistake is named with its line and its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.hosts.toxiproxy import Toxic
from neaptide.clusters.producer import ProducerOptions
from neaptide.harness.play.scenario import cluster_spec
from neaptide.harness.scenarios.catalog import documented, scenario_files
from neaptide.nemesis.scenario import (
    Scenario,
    ScenarioError,
    expected_outcome,
    lacks,
    load_scenario,
    matches,
    parse_scenario,
)
from neaptide.nemesis.search.play import is_simulated
from neaptide.nemesis.steps import (
    ActiveController,
    AddToxic,
    Elect,
    EndToxic,
    Hold,
    Kill,
    MessageRule,
    MoveController,
    NamedController,
    Pause,
    PowerOff,
    Produce,
    Reassign,
    Resume,
    record_of,
)

HEAD = """
title = "a title"
[cluster]
brokers = ["A", "B"]
topics.t = { assignment = [["A", "B"]] }
"""


TOXIC = "broker = 'A', purpose = 'replication', stream = 'downstream'"


def parse(steps: str, head: str = HEAD) -> Scenario:
    return parse_scenario("mine", head + steps, "mine.toml")


# A follower that is ahead of its leader gives up there: then nothing is level, and nothing follows.
UNPREDICTED = {
    ("obeys-earlier-controller", "neaptide:0.10"),
    ("obeys-earlier-controller", "kafka:0.10.2.2"),
    ("last-replica-standing", "neaptide:0.10"),
    ("last-replica-standing", "kafka:0.10.2.2"),
}


def test_every_documented_scenario_can_be_read_and_says_what_to_expect() -> None:
    for path, scenario in documented([]):
        assert path.stem == scenario.name
        assert scenario.title
        assert scenario.source
        assert scenario.steps
        for system in ("neaptide:0.10", "neaptide:0.11", "kafka:0.10.2.2", "kafka:3.9.1"):
            said = expected_outcome(scenario, system), lacks(scenario, system)
            unsaid = 2 if (scenario.name, system) in UNPREDICTED else 1
            assert said.count(None) == unsaid, (scenario.name, system)


def test_the_documented_loss_reads_as_the_document_does() -> None:
    scenario = load_scenario(scenario_files()["hw-truncation-loss"])
    kinds = [type(scheduled.step) for scheduled in scenario.steps]
    assert kinds[:4] == [Produce, Hold, Hold, Produce]
    assert scenario.steps[1].step == Hold("C", "A", response="fetch", where="high_watermark >= 2")
    assert scenario.steps[1].step.name == "response C→A"
    assert scenario.steps[5].step == Kill("C", "discarded")
    assert scenario.topic.assignment == (("C", "B", "A"),)
    assert scenario.settings["unclean.leader.election.enable"] == "false"


def test_a_name_stands_for_its_variants_too() -> None:
    assert [s.name for _, s in documented(["unclean-election"])] == [
        "unclean-election-false",
        "unclean-election-true",
    ]


def test_a_power_failure_names_what_survives() -> None:
    scenario = parse_scenario(
        "mine",
        HEAD
        + '[[step]]\nproduce = { records = ["m1", "m2"] }\n'
        + '[[step]]\npower_off = { broker = "B", survives = "m1" }\n',
        "mine.toml",
    )
    assert scenario.steps[1].step == PowerOff("B", "m1")


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ("[[step]]\nkil = { broker = 'A' }", "mine.toml:6: step 1: 'kil' is no step; must be one"),
        ("[[step]]\nkill = { broker = 'A' }", "mine.toml:6: step 1: kill: 'in_flight' is missing"),
        ("[[step]]\nkill = { broker = 'X', in_flight = 'discarded' }", "'X' is no broker; there"),
        ("[[step]]\nkill = { broker = 'A', in_flight = 'lost' }", "must be one of discarded, del"),
        ("[[step]]\nkil = { broker = 'A' }", "did you mean 'kill'?"),
        ("[[stp]]\nuntil = 'level'", "'step' is missing; is 'stp' there in its place?"),
        (
            "[[step]]\nkill = { brokre = 'A', in_flight = 'discarded' }",
            "'broker' is missing; is 'brokre' there",
        ),
        ("[[step]]\nuntil = 'level'\n[expects]\nlost = []", "known here; did you mean 'expect'?"),
        ("[[step]]\nuntil = 'level'\n[expect]\nlsot = []", "did you mean 'lost'?"),
        (
            "[[step]]\nuntil = 'level'\n[expect]\nlost = ['kafak:0.8+']",
            "expect.lost: 'kafak:0.8+' is no system: it must begin with neaptide: or kafka:; did"
            " you mean 'kafka'?",
        ),
        (
            "[[step]]\nuntil = 'level'\n[expect]\nlost = ['kafka:o.8+']",
            "'kafka:o.8+' is no system: behind kafka: must be a version",
        ),
        (
            "[[step]]\nuntil = 'level'\n[not_served]\n'kafak:0.8' = 'x'",
            "not_served: 'kafak:0.8' is no system",
        ),
        (
            "[[step]]\nuntil = 'level'\n[expect.seen]\n'level' = ['kafak:0.8']",
            "expect.seen: 'kafak:0.8' is no system",
        ),
        (
            "[cluster.settings]\n'replica.lag.max.ms' = 1\n[[step]]\nuntil = 'level'",
            "cluster.settings: no release of Kafka has a setting 'replica.lag.max.ms'; did you"
            " mean 'replica.lag.time.max.ms'?",
        ),
        ("[[step]]\nkill = 'A'", "kill must be a table"),
        ("[[step]]\npause = { broker = 'A', hard = true }", "pause: 'hard' is not known here"),
        ("[[step]]\npause = { broker = 'A' }\nresume = { broker = 'A' }", "a step does one thing"),
        ("[[step]]\nwhy = 'nothing'", "does nothing"),
        ("[[step]]\nuntil = 'acked(m1)'", "no step produces the record m1"),
        (
            "[[step]]\nuntil = 'leader is A'\nwithin = 'soon'",
            "'soon' is no duration, as 90s, 30m or 1h30m",
        ),
        ("[[step]]\nproduce = {}", "needs a record"),
        ("[[step]]\nproduce = { record = 'm1', acks = 'some' }", "must be one of 0, 1, all"),
        ("[[step]]\nhold = { from = 'A', to = 'B' }", "needs either request"),
        (
            "[[step]]\nhold = { request = 'fetch', from = 'A', to = 'B', where = 'hw > 1' }",
            "must be one of round, fetch_offset",
        ),
        ("[[step]]\nproduce = { record = 'm1', bytes = 1 }", "bytes = 1 is too short for 'm1'"),
        ("[[step]]\nkill = { brokers = ['A', 'A'], in_flight = 'delivered' }", "each broker once"),
        (
            "[[step]]\nhold = { request = 'fetch', from = 'client', to = 'controller' }",
            "client and controller do not speak to each other",
        ),
        (
            "[[step]]\nhold = { request = 'shout', from = 'client', to = 'A' }",
            "must be one of prod",
        ),
        (
            "[[step]]\nanswer = { request = 'heartbeat', from = 'client', to = 'A',"
            " error = 'NONE' }",
            "only a produce can be answered in place of its leader",
        ),
        (
            "[[step]]\nanswer = { response = 'produce', from = 'A', to = 'client', error = 'X' }",
            "'X' is no error of Kafka",
        ),
        (
            "[[step]]\ndelay = { request = 'fetch', from = 'A', to = 'B', delay_ms = 0 }",
            "delay_ms = 0 must be 1 or more",
        ),
        ("[[step]]\ncap = { api = 'produce', from = 'A' }", "'version' is missing"),
        ("[[step]]\ndeliver = { rule = 'r' }", "no earlier step has the rule 'r'"),
        ("[[step]]\npoll = { client = 'x', records = 1 }", "must be one that an earlier step has"),
        ("[[step]]\nopen = { name = 'A', kind = 'consumer' }", "a word that names nobody else"),
        (
            "[[step]]\nopen = { name = 'p', kind = 'producer', group = 'g' }",
            "a group goes with a consumer",
        ),
        (
            "[[step]]\nopen = { name = 'p', kind = 'producer' }\n[[step]]\npoll = { client = 'p',"
            " records = 1 }",
            "there is none",
        ),
        ("[[step]]\nuntil = 'hits(r) >= 1'", "no earlier step has the rule r"),
        ("[[step]]\nuntil = 'level'\n[expect]\nbroken = []", "expect.broken: must be one of"),
        ("[[step]]\nload = { rate = 0 }", "must be more than 0"),
        ("[[step]]\nslow = { from = 'A', to = 'B', delay_ms = -1 }", "must be 0 or more"),
        ("[[step]]\nslow = { from = 'client', to = 'B', delay_ms = 1 }", "'client' is no broker"),
        (
            "[[step]]\nslow = { from = 'A', to = 'B', purpose = 'client', delay_ms = 1 }",
            "of other links a toxic",
        ),
        (f"[[step]]\ntoxic = {{ {TOXIC}, type = 'fog' }}", "type = 'fog' must be one of latency"),
        (f"[[step]]\ntoxic = {{ {TOXIC}, type = 'latency' }}", "'latency_ms' is missing"),
        (
            f"[[step]]\ntoxic = {{ {TOXIC}, type = 'bandwidth', kb_per_s = 0 }}",
            "kb_per_s = 0 must be 1 or more",
        ),
        (
            f"[[step]]\ntoxic = {{ {TOXIC}, type = 'timeout', latency_ms = 3 }}",
            "'latency_ms' is not known here",
        ),
        (2 * f"[[step]]\ntoxic = {{ {TOXIC}, type = 'timeout' }}\n", "give this one another name"),
        ("[[step]]\nend_toxic = { name = 'fog' }", "no toxic 'fog' is there; there are none"),
        (
            f"[[step]]\ntoxic = {{ {TOXIC}, type = 'timeout', name = 't' }}\n"
            "[[step]]\nheal = {}\n[[step]]\nend_toxic = { name = 't' }",
            "no toxic 't' is there",
        ),
        ("[[step]]\nproduce = { record = 'm1', to = 'X' }", "'X' is no broker"),
        (
            "[[step]]\nuntil = 'level'\n[expect.seen]\n'isr' = 'kafka:0.8'",
            "expect.seen: 'isr' must be a list",
        ),
        ("[[step]]\nuntil = 'level'\n[expect.seen]\n'acked(m9)' = []", "no step produces the"),
        ("[[step]]\nreassign = { replicas = ['A', 'A'] }", "replicas must name each broker once"),
        ("[[step]]\nreassign = { replicas = [] }", "replicas must name each broker once"),
        ("[[step]]\nreassign = { replicas = ['X'] }", "'X' is no broker"),
        (
            "[[step]]\nelect = { partition = 1 }",
            "partition = 1 must be one of the topic's 1, from 0",
        ),
        ("[[step]]\nelect = { election = 'dirty' }", "'dirty' must be one of preferred, unclean"),
        ("[[step]]\nmove_controller = { to = 'A' }", "'to' is not known here"),
        ("[[step]]\nrelease = { rule = 'r' }", "no earlier step has the rule 'r'"),
        ("[[step]]\ncut = { from = 'A', to = 'moon' }", "'moon' is no end of a link"),
        (
            "[[step]]\nmeasure = { since_last_fetch_of = 'B', unit = 'u', above = 1, at_most = 2 }",
            "a measure needs an until",
        ),
        ("[[step]]\nuntil = 'level'\n[expect]\nfine = ['neaptide:0.11']", "expect.fine: must be"),
        ("[[step]]\nuntil = 'level'\n[extra]\nx = 1", "'extra' is not known here"),
    ],
)
def test_a_mistake_is_named_with_its_remedy(steps: str, says: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse(steps)
    assert str(refused.value).startswith("mine.toml")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("head", "says"),
    [
        ("title = ", "is not valid TOML"),
        ("[cluster]\nbrokers = ['A']", "'title' is missing"),
        (
            "title = 't'\nstep = []\n[cluster]\nbrokers = ['A', 'A']\n"
            "topics.t = {assignment = [['A']]}",
            "each broker",
        ),
        ("title = 't'\nstep = []\n[cluster]\nbrokers = ['A']\ntopics = {}", "exactly one topic"),
        (
            "title = 't'\nstep = []\n[cluster]\nbrokers = ['A']\ntopics.t = {assignment = [['B']]}",
            "'B' is no broker",
        ),
        (
            "title = 't'\nstep = []\n[cluster]\nbrokers = ['A']\nstart_order = ['B']\n"
            "topics.t = {assignment = [['A']]}",
            "start_order must name every broker once",
        ),
    ],
)
def test_a_broken_head_is_named_too(head: str, says: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        parse("", head)
    assert says in str(refused.value)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("pattern", "system", "expected"),
    [
        ("neaptide:0.10", "neaptide:0.10", True),
        ("neaptide:0.10", "neaptide:0.11", False),
        ("neaptide:0.11+", "neaptide:0.11", True),
        ("neaptide:0.11+", "neaptide:2.1", True),
        ("neaptide:0.11+", "neaptide:0.10", False),
        ("kafka:0.10", "kafka:0.10.2.2", True),
        ("kafka:0.1", "kafka:0.10.2.2", False),
        ("kafka:0.11+", "kafka:4.1.0", True),
        ("kafka:0.11+", "neaptide:4.0", False),
        ("kafka:0.8..3.6", "kafka:0.8.2.2", True),
        ("kafka:0.8..3.6", "kafka:3.6.1", True),
        ("kafka:0.8..3.6", "kafka:3.7.0", False),
        ("kafka:0.9..3.6", "kafka:0.8.2.2", False),
        ("kafka:3.9", "kafka:3.9.1-kraft", True),
        ("kafka:0.11+", "kafka:4.1.0-combined", True),
        ("kafka:3.9-combined", "kafka:3.9.1-combined", True),
        ("kafka:3.9-combined", "kafka:3.9.1-kraft", False),
        ("kafka:3.9-combined", "kafka:3.9.1", False),
        ("kafka:0.8..3.9-zookeeper", "kafka:3.9.1", True),
        ("kafka:0.8..3.9-zookeeper", "kafka:3.9.1-kraft", False),
    ],
)
def test_a_pattern_matches_versions_not_letters(pattern: str, system: str, expected: bool) -> None:
    assert matches(pattern, system) is expected


CONTROLLER_PLAY = """
[[step]]
pause = { controller = "active", as = "old" }
until = "controller is not old and controller is not nobody"
[[step]]
resume = { controller = "old" }
"""


def test_the_active_controller_is_paused_and_resumed_under_the_name_that_it_was_given() -> None:
    scenario = parse_scenario("mine", HEAD + CONTROLLER_PLAY, "mine.toml")
    pause, resume = (scheduled.step for scheduled in scenario.steps)
    assert (pause, resume) == (Pause(ActiveController("old")), Resume(NamedController("old")))
    assert scenario.controllers == 1


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ('resume = { controller = "old" }', "controller = 'old' must be one of active"),
        ('pause = { controller = "active", as = "A" }', "as = 'A' must be a word that names no"),
        ('until = "controller is old"', "cannot read 'old'"),
    ],
)
def test_a_controller_that_no_step_has_named_is_refused(steps: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        parse(f"[[step]]\n{steps}\n")


# --- P4, P5: what producers are asked for ---------------------------------------------------------


LEVEL = "[[step]]\nuntil = 'level'\n"


def test_p4_clients_are_one_in_flight_without_retries_unless_a_file_says_more() -> None:
    assert parse(LEVEL).producer == ProducerOptions()
    said = "[clients]\nidempotence = true\nmax_in_flight = 5\n"
    assert parse(LEVEL + said).producer == ProducerOptions(idempotence=True, max_in_flight=5)


@pytest.mark.parametrize(
    ("clients", "says"),
    [
        ("idempotence = 1", "clients: 'idempotence' must be true or false"),
        ("max_in_flight = 0", "clients: max_in_flight must be 1 or more"),
        ("idempotence = true\nmax_in_flight = 6", "with idempotence, max_in_flight is at most 5"),
        ("retries = -1", "clients: retries must be 0 or more"),
        ("linger = 5", "clients: 'linger' is not known here"),
    ],
)
def test_p4_what_clients_cannot_be_is_refused(clients: str, says: str) -> None:
    with pytest.raises(ScenarioError, match=says):
        parse(f"{LEVEL}[clients]\n{clients}\n")


def test_p4_an_idempotent_producer_asks_for_acks_all() -> None:
    step = "[[step]]\nproduce = { record = 'm1', acks = '1' }\n"
    with pytest.raises(ScenarioError, match="with idempotence, acks must be all"):
        parse(f"[clients]\nidempotence = true\n{step}")
    assert parse(f"[clients]\nretries = 1\n{step}").producer.retries == 1


def test_a_rule_knows_its_link_by_who_speaks() -> None:
    scenario = parse_scenario(
        "mine",
        HEAD
        + '[[step]]\nhold = { request = "produce", from = "client", to = "A" }\n'
        + '[[step]]\ndrop = { request = "alter_partition", from = "A", to = "controller" }\n'
        + '[[step]]\ndelay = { request = "fetch", from = "A", to = "B", delay_ms = 5 }\n',
        "mine.toml",
    )
    rules = [scheduled.step for scheduled in scenario.steps]
    assert [rule.purpose for rule in rules if isinstance(rule, MessageRule)] == [
        "client",
        "coordination",
        "replication",
    ]
    assert not is_simulated(scenario)


def test_a_record_of_a_size_is_known_by_its_name() -> None:
    long = Produce(("b1",), size_bytes=20)
    [value] = long.values
    assert (len(value), record_of(value), Produce(("b1",)).values) == (20, "b1", ("b1",))


def test_a_system_may_lack_what_a_scenario_needs() -> None:
    text = HEAD + "[[step]]\nuntil = 'level'\n[not_served]\n'neaptide:0.8+' = 'no groups'\n"
    scenario = parse_scenario("mine", text, "mine.toml")
    assert lacks(scenario, "neaptide:2.1") == "no groups"
    assert lacks(scenario, "kafka:3.9.1") is None


def test_a_toxic_has_its_units_in_its_names_and_ends_by_its_own() -> None:
    text = (
        f"[[step]]\ntoxic = {{ {TOXIC}, type = 'latency', latency_ms = 300 }}\n"
        "[[step]]\nend_toxic = { name = 'latency A replication downstream' }\n"
    )
    scenario = parse_scenario("mine", HEAD + text, "mine.toml")
    begin, end = (scheduled.step for scheduled in scenario.steps)
    said = {"latency_ms": 300}
    assert begin == AddToxic("A", "replication", "downstream", "latency", said)
    assert begin.name == "latency A replication downstream"
    assert begin.toxic == Toxic("latency", "downstream", {**said, "jitter_ms": 0})
    assert end == EndToxic("latency A replication downstream")
    assert not is_simulated(scenario)
    assert "latency, downstream (latency_ms = 300, jitter_ms = 0)" in begin.words()


OPERATORS = """
[[step]]
reassign = { replicas = ["B", "A"] }
until = "replicas is {A, B} and preferred is B"
[[step]]
elect = { }
[[step]]
elect = { election = "unclean" }
[[step]]
move_controller = { }
"""


def test_operators_ask_for_replicas_leaders_and_another_controller() -> None:
    scenario = parse_scenario("mine", HEAD + OPERATORS, "mine.toml")
    done = [scheduled.step for scheduled in scenario.steps]
    assert done == [Reassign(("B", "A")), Elect(), Elect(0, "unclean"), MoveController()]
    assert [step.words() for step in done] == [
        "asks for the replicas B, A of partition 0",
        "asks for a preferred election for partition 0",
        "asks for an unclean election for partition 0",
        "deletes /controller: a controller is elected again",
    ]
    assert not is_simulated(scenario)  # for its unclean election


def test_the_topic_of_transactions_can_be_given_an_assignment() -> None:
    placed = HEAD + 'topics.__transaction_state = { assignment = [["B"], ["A", "B"]] }\n'
    scenario = parse("[[step]]\nuntil = 'level'", placed)
    assert scenario.transactions is not None
    assert scenario.transactions.assignment == (("B",), ("A", "B"))
    assert is_simulated(scenario)
    spec = cluster_spec(scenario)
    assert spec.settings["transaction.state.log.num.partitions"] == "2"
    assert [topic.name for topic in spec.internal] == ["__transaction_state"]
    assert spec.internal[0].settings == {"cleanup.policy": "compact"}
    assert spec.internal[0].assignment == {0: (1,), 1: (0, 1)}


def test_where_none_is_given_the_brokers_place_it() -> None:
    spec = cluster_spec(parse("[[step]]\nuntil = 'level'"))
    assert spec.internal == ()
    assert "transaction.state.log.num.partitions" not in spec.settings
