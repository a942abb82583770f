"""The table of docs/behaviours.md names the tests that there are, and leaves no level open."""

from __future__ import annotations

import re

from tests.behaviours import LEVELS, NONE, PAGE, all_tests, by_row, ids_of, rows, with_tests

_NAME = re.compile(r"`(test_\w+)`")


def test_each_cell_names_the_tests_that_there_are() -> None:
    """`python -m tests.behaviours` writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tests(page)
    there = {test.name for test in all_tests()}
    named = {name for row in rows(page) for cell in row.cells for name in _NAME.findall(cell)}
    assert named
    assert named <= there


def test_every_id_in_the_name_of_a_test_has_its_row() -> None:
    listed = [row.id for row in rows(PAGE.read_text(encoding="utf-8"))]
    assert len(listed) == len(set(listed))
    assert {row for row, _ in by_row()} <= set(listed)


def test_no_row_lacks_a_level_without_a_reason() -> None:
    for row in rows(PAGE.read_text(encoding="utf-8")):
        assert len(row.cells) == len(LEVELS), row.id
        assert row.behaviour, row.id
        assert row.since, row.id
        for cell in row.cells:
            reason = cell.removeprefix(NONE).strip()
            assert _NAME.search(cell) or (cell.startswith(NONE) and len(reason) > 10), row.id


def test_an_id_is_a_letter_and_a_number_at_the_beginning() -> None:
    assert ids_of("test_r8_f10_segments") == ("R8", "F10")
    assert ids_of("test_f10_b1_a_log") == ("F10",)
    assert ids_of("test_a_reader_of_r8_files") == ()
