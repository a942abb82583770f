"""`--relation`: what a rule has seen of a run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from neaptide.checkers.check import relation
from neaptide.checkers.material import open_run
from neaptide.checkers.rules.conditions import RELATIONS, RULES, relations_of, text_of
from tests.checkers.histories import Story, final, send
from tests.harness.command import neaptide

LOSS = Story((send("a", 0), send("b", 1), send("c", 2), final((0, "a"), (2, "c"))))


def test_the_condition_of_a_rule_is_the_column_of_its_name() -> None:
    missing = [rule.name for rule in RULES if f" AS {rule.column}" not in text_of(rule.over)]
    assert missing == []


def test_a_relation_needs_what_it_reads_and_what_that_reads() -> None:
    names = [each.name for each in relations_of({"gone"})]
    assert names.index("records") < names.index("profiles") < names.index("gone") == len(names) - 1
    assert "steps" not in names
    assert relations_of({"operations"}) == ()


def test_no_part_of_a_relation_has_the_name_of_another() -> None:
    """Which relations one reads is known by the names in it alone."""
    parts = {
        (each.name, part)
        for each in RELATIONS
        for part in re.findall(r"^(?:WITH )?(\w+) AS \($", each.sql, re.MULTILINE)
    }
    assert ("shared", "done") in parts
    assert [one for one in parts if one[1] in {each.name for each in RELATIONS}] == []


@pytest.mark.spark
def test_what_is_shown_is_what_the_rule_has_seen(spark: SparkSession, tmp_path: Path) -> None:
    directory = LOSS.write(tmp_path / "loss")
    material = open_run(directory)
    [row] = relation(spark, material, "gone", rows_max=20).to_pylist()
    seen = row["value"], row["acked_offset"], row["lost_write"], row["unseen"]
    assert seen == ("b", 1, True, False)
    assert relation(spark, material, "operations", rows_max=3).num_rows == 3
    assert not (directory / "verdict.json").exists()


@pytest.mark.proof
@pytest.mark.spark
def test_the_command_shows_it(tmp_path: Path) -> None:
    run = str(LOSS.write(tmp_path / "loss"))
    done, document = neaptide(tmp_path, "check", run, "--relation", "gone", "--json")
    assert (done.returncode, document["relation"]) == (0, "gone")
    assert [row["value"] for row in document["rows"]] == ["b"]
