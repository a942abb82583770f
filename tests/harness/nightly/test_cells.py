"""Every pair that can be is covered; nothing that cannot be is played; a seed says it all."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neaptide.clusters.errors import UsageError
from neaptide.harness.nightly.asked import means_of, refusal, run_words, search_words, space
from neaptide.harness.nightly.cells import (
    Cell,
    Space,
    Values,
    cells,
    fault_names,
    pairs,
    pairs_of,
    possible_pairs,
    space_of,
    swarm,
)
from neaptide.harness.nightly.plan import Plan, read_plan

BOUND = {"system": ("a", "b", "c"), "host": ("x", "y"), "faults": ("kill", "kill,pause", "cut")}
FREE = {"set m": ("1", "2"), "set n": ("1", "2", "3")}


def not_together(values: Values) -> str | None:
    """Three rules: of two axes, of two axes, and of all three."""
    if values["system"] == "a" and values["host"] == "y":
        return "no a on y"
    if values["host"] == "x" and "cut" in values["faults"]:
        return "no cut on x"
    if values["system"] == "b" and values["host"] == "y" and values["faults"] == "kill":
        return "no kill of b on y"
    return None


SPACE = space_of(BOUND, FREE, not_together)


def test_every_pair_that_can_be_is_covered_by_fewer_cells_than_there_are() -> None:
    for seed in range(20):
        rows = pairs(SPACE, seed)
        covered = {pair for row in rows for pair in pairs_of(row)}
        assert covered == possible_pairs(SPACE)
        assert all(not_together(row) is None for row in rows)
        assert len(rows) < len(SPACE.combos) * 6


def test_the_pairs_that_can_be_are_those_of_all_combinations_that_can() -> None:
    by_hand = {
        pair
        for combo in SPACE.combos
        for m in FREE["set m"]
        for n in FREE["set n"]
        for pair in pairs_of({**dict(zip(BOUND, combo, strict=True)), "set m": m, "set n": n})
    }
    assert possible_pairs(SPACE) == by_hand


@settings(max_examples=60)
@given(st.data())
def test_of_any_rules_every_pair_that_can_be_is_covered(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    bound = {f"axis{n}": tuple(f"{n}{v}" for v in range(size)) for n, size in enumerate(sizes)}
    refused = data.draw(st.sets(st.tuples(*(st.sampled_from(vs) for vs in bound.values()))))

    def why(values: Values) -> str | None:
        return "no" if tuple(values.values()) in refused else None

    try:
        drawn = space_of(bound, {"set free": ("1", "2")}, why)
    except UsageError:
        return
    rows = pairs(drawn, data.draw(st.integers(0, 5)))
    assert {pair for row in rows for pair in pairs_of(row)} == possible_pairs(drawn)
    assert all(why({axis: row[axis] for axis in bound}) is None for row in rows)


def test_the_reasons_are_counted_and_nothing_at_all_is_an_error() -> None:
    assert SPACE.refused == {"no a on y": 3, "no cut on x": 3, "no kill of b on y": 1}
    with pytest.raises(UsageError, match="Nothing in the plan goes together: never"):
        space_of(BOUND, FREE, lambda _: "never.")


def test_a_plan_that_is_too_large_is_refused() -> None:
    many = {f"axis{n}": tuple(map(str, range(10))) for n in range(5)}
    with pytest.raises(UsageError, match="The plan has 100000 combinations"):
        space_of(many, {}, lambda _: None)


def test_first_the_pairs_then_what_is_drawn_and_the_same_of_one_seed() -> None:
    first = list(islice(cells(SPACE, 7, not_together), 60))
    assert first == list(islice(cells(SPACE, 7, not_together), 60))
    assert first != list(islice(cells(SPACE, 8, not_together), 60))
    assert [cell.number for cell in first] == list(range(1, 61))
    count = len(pairs(SPACE, 7))
    assert [cell.by for cell in first] == ["pairs"] * count + ["swarm"] * (60 - count)
    assert len({cell.seed for cell in first}) == 60
    assert all(0 <= cell.seed < 2**31 for cell in first)


def test_what_is_drawn_can_be_and_has_faults_of_its_own() -> None:
    drawn = [swarm(SPACE, 3, number, not_together) for number in range(100)]
    assert all(not_together(values) is None for values in drawn)
    assert {values["faults"] for values in drawn} >= {"kill", "pause", "kill,pause", "cut"}
    assert {values["set n"] for values in drawn} == {"1", "2", "3"}


def test_faults_of_several_sets_are_in_the_order_of_the_table() -> None:
    assert fault_names(["rounds,kill", "pause, kill", "none"]) == ["kill", "pause", "rounds"]


# --- of a plan -----------------------------------------------------------------------------------

PLAN = read_plan(
    {
        "systems": ["neaptide:0.10", "neaptide:2.1", "kafka:3.9.1"],
        "workloads": ["append", "txn"],
        "clients": ["confluent-kafka", "aiokafka"],
        "faults": ["rounds,kill", "members", "clock"],
        "idempotence": [False, True],
        "brokers": [1, 3],
        "settings": {"min.insync.replicas": ["1", "2"]},
        "rate": 300,
    },
    "plan",
)


def there(plan: Plan) -> Space:
    return space(plan, means_of(plan, lambda _: None))


def test_what_the_command_refuses_is_left_out() -> None:
    found = there(PLAN)
    axes = list(found.bound)
    by_axis = [dict(zip(axes, combo, strict=True)) for combo in found.combos]
    assert by_axis
    for values in by_axis:
        own = values["system"].startswith("neaptide:")
        before_0_11 = values["system"] == "neaptide:0.10"
        assert not (before_0_11 and values["workload"] == "txn")
        assert not (before_0_11 and values["idempotence"] == "yes")
        assert not (values["faults"] == "rounds,kill" and values["brokers"] == "1")
        simulated = values["host"] == "simulation"
        assert not (simulated and (not own or values["client"] != "confluent-kafka"))
        assert not (simulated and values["workload"] == "txn")
    assert any("needs --brokers 3 or more, not 1" in why for why in found.refused)
    assert {values["host"] for values in by_axis} == {"local", "simulation"}
    assert any(v["system"].startswith("neaptide:") and v["faults"] == "members" for v in by_axis)


def test_a_cell_is_a_command_that_repeats_it() -> None:
    values = {
        "system": "neaptide:2.1", "host": "local", "workload": "append", "client": "aiokafka",
        "faults": "rounds,kill", "acks": "1", "idempotence": "no", "brokers": "3",
        "set min.insync.replicas": "1",
    }  # fmt: skip
    means = means_of(PLAN, lambda _: None)
    assert refusal(PLAN, means, values) is None
    words = run_words(PLAN, means, Cell(1, "pairs", values, 99))
    text = " ".join(words)
    assert words[:4] == ["run", "append", "--system", "neaptide:2.1"]
    for option in (
        "--nemesis rounds,kill", "--time 60", "--rate 300", "--acks 1", "--client aiokafka",
        "--set min.insync.replicas=1", "--seed 99",
    ):  # fmt: skip
        assert option in text


def test_a_search_knows_what_the_simulation_has_of_the_faults() -> None:
    values = {
        "system": "neaptide:2.1", "faults": "rounds,partition,power-off", "acks": "all",
        "idempotence": "yes", "set min.insync.replicas": "1",
    }  # fmt: skip
    words = search_words(values, 5, 20.0, Path("save"), "lost")
    text = " ".join(words)
    assert "--nemesis hold,cut,power_off,wait" in text
    assert "--outcome lost --first" in text
    assert "--idempotence" in text
    assert "--set min.insync.replicas=1" in text
    assert "--workers 1" in text
