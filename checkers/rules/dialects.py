"""Where DuckDB and Spark SQL write the same thing differently: the whole list.

Everything else of the rules is in the part of SQL that both have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from neaptide.checkers.rules.conditions import Column, Rule

Fields = Sequence[tuple[str, str]]  # name and expression


class Dialect(ABC):
    """How an engine writes what the other writes in another way."""

    @abstractmethod
    def struct(self, fields: Fields) -> str:
        """One value with named fields."""

    @abstractmethod
    def json(self, fields: Fields) -> str:
        """A JSON object as text, without the fields that are null."""

    @abstractmethod
    def list_of(self, kind: str) -> str:
        """The type of a list."""

    @abstractmethod
    def each(self, relation: str, structs: str) -> str:
        """The rows of a relation, once for each of its structs (`hit`) that is not null."""

    def found(self, relation: str, rules: Sequence[Rule]) -> str:
        """All rules on one relation in one pass over it."""
        cases = ", ".join(f"CASE WHEN {r.column} THEN {self._case(r)} END" for r in rules)
        either = f"({' OR '.join(rule.column for rule in rules)}) IS TRUE"
        return (
            "SELECT run, topic, partition, hit.name, hit.log_offset, hit.value, hit.operation,"
            f" hit.evidence FROM {self.each(f'(SELECT * FROM {relation} WHERE {either})', cases)}"
        )

    def _case(self, rule: Rule) -> str:
        return self.struct(
            [
                ("name", f"'{rule.name}'"),
                ("log_offset", f"CAST({rule.at} AS BIGINT)"),
                ("value", f"CAST({rule.value} AS STRING)"),
                ("operation", f"CAST({rule.operation} AS BIGINT)"),
                ("evidence", self.json([_field(column) for column in rule.evidence])),
            ]
        )


class DuckDb(Dialect):
    def struct(self, fields: Fields) -> str:
        pairs = ", ".join(f'"{name}" := {value}' for name, value in fields)
        return f"struct_pack({pairs})"

    def json(self, fields: Fields) -> str:
        return f"CAST(json_merge_patch('{{}}', to_json({self.struct(fields)})) AS VARCHAR)"

    def list_of(self, kind: str) -> str:
        return f"{kind}[]"

    def each(self, relation: str, structs: str) -> str:
        hits = f"unnest(list_filter([{structs}], lambda one: one IS NOT NULL))"
        return f"(SELECT run, topic, partition, {hits} AS hit FROM {relation})"


class SparkSql(Dialect):
    def struct(self, fields: Fields) -> str:
        pairs = ", ".join(f"'{name}', {value}" for name, value in fields)
        return f"named_struct({pairs})"

    def json(self, fields: Fields) -> str:
        return f"to_json({self.struct(fields)})"

    def list_of(self, kind: str) -> str:
        return f"ARRAY<{kind}>"

    def each(self, relation: str, structs: str) -> str:
        hits = f"explode(filter(array({structs}), one -> one IS NOT NULL))"
        return f"{relation} LATERAL VIEW {hits} hits AS hit"


def _field(column: Column) -> tuple[str, str]:
    return column if isinstance(column, tuple) else (column, column)
