"""Anomalies as cases of SQL: a condition under which a row is one, and what is told of it.

The SQL is DuckDB's, in the tasks that judge (`checkers.judging`). A query for anomalies gives the
columns of `FOUND`, of which `part` is a topic partition of one run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FOUND: Final = (
    "part INTEGER, anomaly VARCHAR, log_offset BIGINT, value VARCHAR, operation BIGINT,"
    " evidence VARCHAR"
)


@dataclass(frozen=True, slots=True)
class Case:
    """An anomaly, and the condition under which a row is one."""

    when: str
    anomaly: str  # an SQL struct

    @property
    def sql(self) -> str:
        return f"CASE WHEN {self.when} THEN {self.anomaly} END"


def case(name: str, when: str, *, offset: str, operation: str, evidence: str) -> Case:
    """`evidence` is a list of columns, which become the keys of a JSON object, without nulls."""
    return Case(
        when,
        f"struct_pack(anomaly := {name}, log_offset := CAST({offset} AS BIGINT), "
        f"operation := CAST({operation} AS BIGINT), "
        f"evidence := CAST({json_of(evidence)} AS VARCHAR))",
    )


def json_of(columns: str) -> str:
    """A JSON object of columns (`a, b.c AS d`), without those that are null."""
    return f"json_merge_patch('{{}}', to_json({packed(columns)}))"


def packed(columns: str) -> str:
    """A struct of columns: `a, b.c AS d`."""
    fields = []
    for column in _split(columns):
        value, _, name = column.rpartition(" AS ")
        fields.append(f'"{name}" := {value or name}')
    return f"struct_pack({', '.join(fields)})"


def found(rows: str, value: str, *cases: Case) -> str:
    """The cases that hold, of the rows of a table or query."""
    those = ", ".join(one.sql for one in cases)
    return (
        f"SELECT part, told.anomaly, told.log_offset, CAST(value AS VARCHAR), told.operation,"
        f" told.evidence FROM (SELECT part, {value} AS value,"
        f" unnest(list_filter([{those}], lambda one: one IS NOT NULL)) AS told"
        f" FROM {rows} WHERE {' OR '.join(f'({one.when})' for one in cases)})"
    )


def _split(columns: str) -> list[str]:
    """At the commas outside all brackets."""
    parts, depth = [""], 0
    for letter in columns:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]
