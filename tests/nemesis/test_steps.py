"""Each step is one declaration: what it says of itself is whole, and each target has its method."""

from __future__ import annotations

import inspect
from typing import Any, Final

import pytest

from neaptide.harness.live.target import LiveTarget
from neaptide.nemesis.search.perform import Performer
from neaptide.nemesis.steps import (
    FAMILIES,
    VERBS,
    Cast,
    KillClient,
    Measure,
    Names,
    ScenarioError,
    Step,
    ToClient,
    examples_of,
    read_step,
    schema_of,
    table_of,
)

EXAMPLES: Final = [(verb, example) for verb in VERBS for example in examples_of(verb)]
# What steps before that of the example have named.
NAMED: Final[dict[str, Any]] = {
    "restart": {"controllers": {"old"}},
    "resume": {"controllers": {"old"}},
    "add_voter": {"controllers": {"old"}},
    "release": {"rules": {"response C→A"}},
    "discard": {"rules": {"response C→A"}},
    "deliver": {"rules": {"response C→A"}},
    "end_toxic": {"toxics": {"latency A client upstream"}},
}


def names_before(verb: str) -> Names:
    names = Names(
        brokers={"A": 0, "B": 1, "C": 2},
        records=("m1", "m2", "m3"),
        has_groups=True,
        clients={"x": "consumer", "p": "producer"},
        is_timed=verb in ("cast", "kill_client"),
    )
    for key, value in NAMED.get(verb, {}).items():
        getattr(names, key).update(value)
    return names


def read(verb: str, table: Any) -> Step:
    return read_step(verb, table, names_before(verb), ScenarioError)


@pytest.mark.parametrize(("verb", "example"), EXAMPLES, ids=lambda value: str(value)[:40])
def test_an_example_is_read_and_written_and_read_again(verb: str, example: dict[str, Any]) -> None:
    step = read(verb, example)
    assert read(verb, table_of(step)) == step
    assert set(table_of(step)) <= set(schema_of(verb)["properties"])
    for name in names_in(example):
        assert name in step.words(), "a sentence names whom it is about"
    assert "{" not in step.words()


def names_in(example: dict[str, Any]) -> list[str]:
    said = [example.get(key) for key in ("broker", "client", "record", "from", "to", "name")]
    return [name for name in said if isinstance(name, str)]


@pytest.mark.parametrize("verb", VERBS)
def test_a_step_says_what_it_does_and_what_each_key_means(verb: str) -> None:
    schema = schema_of(verb)
    assert schema["description"].endswith((".", "`.", ")."))
    for key, said in schema["properties"].items():
        assert said.get("description"), key
        assert "type" in said, key
    assert set(schema["required"]) <= set(schema["properties"])
    shown = {key for example in examples_of(verb) for key in example}
    assert shown <= set(schema["properties"])


def test_every_step_is_of_a_family_and_every_target_does_it_by_its_verb() -> None:
    assert [one.verb for family in FAMILIES.values() for one in family] != []
    assert {one.verb for family in FAMILIES.values() for one in family} == set(VERBS)
    for verb, step in VERBS.items():
        # A client does it; the player; the nemesis of a random run.
        if issubclass(step, ToClient) or step in (Measure, Cast, KillClient):
            continue
        for target in (LiveTarget, Performer):
            method = getattr(target, verb, None)
            if method is None and target is Performer:
                continue  # the simulation cannot do all
            asked = inspect.signature(method).parameters["step"].annotation  # type: ignore[arg-type]
            assert f"steps.{step.__name__}" in asked, (target, verb)


def test_a_method_of_the_simulation_is_called_like_a_step() -> None:
    """One with another name would be a verb that nothing asks for."""
    others = {"do", "wait"}
    methods = {name for name, _ in inspect.getmembers(Performer, inspect.isfunction)}
    assert {name for name in methods if not name.startswith("_")} - others <= set(VERBS)


@pytest.mark.parametrize(
    ("verb", "table", "says"),
    [
        ("kill", {"broker": ["A"], "in_flight": "discarded"}, "'broker' must be a text"),
        ("kill", {"brokers": "A", "in_flight": "discarded"}, "'brokers' must be a list"),
        ("kill", {"brokers": [["A"]], "in_flight": "discarded"}, "['A'] is no broker"),
        ("stop", {"brokers": ["A", "B"]}, "'broker' is missing"),
        ("stop", {"broker": "A", "controller": "active"}, "'controller' is not known here"),
        ("stop", {"controller": "new"}, "controller = 'new' must be one of active"),
        ("heal", {"from": "A"}, "'to' is missing"),
        ("load", {"rate": True}, "'rate' must be a number, not True"),
        ("load", {"rate": "10"}, "'rate' must be a number, not '10'"),
        ("send", {"client": "p", "record": "m1", "records": ["m2"]}, "needs a record"),
        ("produce", {"records": [1]}, "'records' must be a text, not 1"),
        ("commit", {"client": "x", "waits": 1}, "'waits' must be true or false, not 1"),
        ("commit", {"client": "p"}, "client = 'p' must be one that an earlier step has opened: x"),
        ("poll", {"client": "x", "records": 0}, "records = 0 must be 1 or more"),
        ("consume", {"partition": 1}, "partition = 1 must be one of the topic's 1, from 0"),
        ("power_off", {"broker": "A", "survives": "m9"}, "survives = 'm9': no step produces that"),
        (
            "toxic",
            {"broker": "A", "purpose": "client", "stream": "upstream", "type": "latency",
             "latency_ms": "1"},
            "'latency_ms' must be a whole number, not '1'",
        ),
    ],
)  # fmt: skip
def test_what_a_key_cannot_say_is_one_sentence(verb: str, table: Any, says: str) -> None:
    with pytest.raises(ScenarioError) as refused:
        read(verb, table)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
