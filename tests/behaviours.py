"""The table of docs/behaviours.md: which tests show each behaviour of our broker, at which level.

`python -m tests.behaviours` writes the names of the tests into the page, by the ids in their names
(`test_r8_f4_…` shows R8 and F4). What the page says of a row is written by hand, also the reason
where a level has no test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "behaviours.md"
LEVELS: Final = ("core", "live", "real")
NONE: Final = "–"  # what a cell without tests begins with; a reason follows
_IDS: Final = re.compile(r"test_((?:[rfiecpg]\d+_)+)")
# Fixtures that are brokers of ours, and then Apache Kafka's.
_ON_EVERY_SYSTEM: Final = ("alone", "own_or_kafka")


class Test(NamedTuple):
    name: str
    file: str
    levels: frozenset[str]


class Row(NamedTuple):
    id: str
    behaviour: str
    since: str
    cells: tuple[str, ...]  # by LEVELS


@cache
def all_tests() -> tuple[Test, ...]:
    """Those with ids in their names."""
    return tuple(_found())


def _found() -> Iterator[Test]:
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text(encoding="utf-8")
        if _IDS.search(text) is None:
            continue
        is_live = "pytest.mark.live" in text
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and ids_of(node.name):
                yield Test(node.name, str(file.relative_to(ROOT)), _levels(node, file, is_live))


def _levels(test: ast.FunctionDef, file: Path, is_live: bool) -> frozenset[str]:
    if not is_live:
        return frozenset({"core"})
    if any(argument.arg in _ON_EVERY_SYSTEM for argument in test.args.args):
        return frozenset({"live", "real"})
    return frozenset({"real" if file.parent.name == "kafka" else "live"})


def ids_of(name: str) -> tuple[str, ...]:
    found = _IDS.match(name)
    return tuple(found[1].upper().rstrip("_").split("_")) if found else ()


def by_row() -> Mapping[tuple[str, str], list[str]]:
    """The names of tests, by id and level."""
    found: dict[tuple[str, str], list[str]] = {}
    for test in all_tests():
        for row in ids_of(test.name):
            for level in test.levels:
                found.setdefault((row, level), []).append(test.name)
    return found


# --- the page ------------------------------------------------------------------------------------


def rows(page: str) -> list[Row]:
    split = (line.strip("|").split(" | ") for line in page.splitlines() if _is_row(line))
    stripped = ([cell.strip() for cell in cells] for cells in split)
    return [Row(cells[0], cells[1], cells[2], tuple(cells[3:])) for cells in stripped]


def _is_row(line: str) -> bool:
    return re.match(r"\| [RFIECPG]\d+ \|", line) is not None


def with_tests(page: str) -> str:
    """The page with the names of the tests that there are now."""
    found = by_row()
    named = {row.id: row for row in rows(page)}

    def filled(line: str) -> str:
        row = named[line.split()[1]]
        cells = [
            "<br>".join(f"`{name}`" for name in sorted(found[row.id, level]))
            if (row.id, level) in found
            else cell
            for level, cell in zip(LEVELS, row.cells, strict=True)
        ]
        return "| " + " | ".join((row.id, row.behaviour, row.since, *cells)) + " |"

    lines = [filled(line) if _is_row(line) else line for line in page.splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(with_tests(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
