"""The JSON Schema of scenario files agrees with the reader, as other people's tools read it."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator

from neaptide.harness.scenarios.catalog import scenario_files
from neaptide.nemesis.scenario import ScenarioError, parse_scenario
from neaptide.nemesis.scenario_file import scenario_schema

SCHEMA: Final = scenario_schema()
GOOD: Final = scenario_files()["acks-1-loss"].read_text(encoding="utf-8")


def complaints(document: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(SCHEMA).iter_errors(document)]


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", scenario_files())
def test_a_scenario_that_ships_fits(name: str) -> None:
    text = scenario_files()[name].read_text(encoding="utf-8")
    assert complaints(tomllib.loads(text)) == []


def _without_title(document: dict[str, Any]) -> None:
    del document["title"]


def _two_verbs(document: dict[str, Any]) -> None:
    document["step"][0]["stop"] = {"broker": "A"}


def _nothing_done(document: dict[str, Any]) -> None:
    document["step"][0] = {"why": "nothing"}


WRONG: Final[dict[str, Callable[[dict[str, Any]], Any]]] = {
    "no title": _without_title,
    "a key that is not known": lambda document: document.update(titel="x"),
    "a subject that is not known": lambda document: document.update(teaches="cooking"),
    "a kind that is not known": lambda document: document.update(kind={"lost": "bad luck"}),
    "a kind of what holds": lambda document: document.update(kind={"held": "bug"}),
    "no brokers": lambda document: document["cluster"].update(brokers=[]),
    "a partition without replicas": lambda document: document["cluster"]["topics"].update(
        t={"assignment": [[]]}
    ),
    "no controllers": lambda document: document["cluster"].update(controllers=0),
    "no such outcome": lambda document: document["expect"].update(vanished=["kafka:3+"]),
    "no such step": lambda document: document["step"].append({"kil": {"broker": "A"}}),
    "no such key of a step": lambda document: document["step"].append(
        {"kill": {"broker": "A", "in_flight": "discarded", "when": "now"}}
    ),
    "no such value": lambda document: document["step"].append(
        {"kill": {"broker": "A", "in_flight": "lost"}}
    ),
    "a key is missing": lambda document: document["step"].append({"kill": {"broker": "A"}}),
    "two verbs in a step": _two_verbs,
    "a step that does nothing": _nothing_done,
}


@pytest.mark.parametrize("what", WRONG)
def test_it_finds_what_the_reader_finds(what: str) -> None:
    document = tomllib.loads(GOOD)
    WRONG[what](document)
    assert complaints(document)
    with pytest.raises(ScenarioError):
        parse_scenario("x", _toml(document), "x.toml")


def _toml(document: dict[str, Any]) -> str:
    import tomlkit

    return tomlkit.dumps(document)


def test_an_editor_checks_a_file_by_it(tmp_path: Path) -> None:
    """By taplo, which editors use for TOML."""
    taplo = Path(sys.executable).parent / "taplo"
    (tmp_path / "neaptide.schema.json").write_text(json.dumps(SCHEMA), encoding="utf-8")
    (tmp_path / ".taplo.toml").write_text(
        '[[rule]]\ninclude = ["**/*.neaptide.toml"]\n[rule.schema]\npath = "neaptide.schema.json"\n'
    )
    good, bad = tmp_path / "good.neaptide.toml", tmp_path / "bad.neaptide.toml"
    good.write_text(GOOD, encoding="utf-8")
    bad.write_text(GOOD.replace('acks = "1"', 'acks = "2"'), encoding="utf-8")
    done = {
        file: subprocess.run(
            [str(taplo), "check", str(file)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for file in (good, bad)
    }
    assert done[good].returncode == 0, done[good].stderr
    assert done[bad].returncode != 0
    assert '"2" is not one of ["0","1","all"]' in done[bad].stderr
