"""Small histories beside what Jepsen's own checker was seen to say of them (`verdicts.json`).

The oracle says the same where it reads as Jepsen does; where ours reads otherwise, the difference
has a name, and docs/jepsen.md shows it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.differential import compare, corpus, history
from tests.differential.corpus import Kept

KEPT = {one.name: one for one in corpus.kept()}
DOCUMENT = Path(__file__).parents[2] / "docs" / "jepsen.md"
EDN = re.compile(
    r"### (?P<reason>.+)\n(?:.*\n)*?`(?P<name>[a-z0-9-]+)`.*\n+```clojure\n(?P<edn>[^`]*)```"
)


@pytest.fixture(params=KEPT, scope="module")
def one(request: pytest.FixtureRequest) -> Kept:
    return KEPT[request.param]


def test_every_record_has_its_history_and_the_other_way_round() -> None:
    assert len(KEPT) > 100
    assert corpus.recorded() == set(KEPT)


def test_what_differs_from_jepsen_has_a_name(one: Kept) -> None:
    found = compare.against_jepsen(one.entries, one.said, one.of_twin)
    assert (found.unexplained, found.reasons) == ((), one.differs)


def test_the_oracle_finds_what_is_on_record(one: Kept) -> None:
    assert {name for name, *_ in compare.reported(one.entries)} == one.ours
    assert compare.invalid(one.entries) != one.valid


def test_a_history_reads_back_as_it_was_written(one: Kept) -> None:
    assert history.text(one.entries) == one.path.read_text(encoding="utf-8")


def test_the_document_has_every_difference_with_its_history_and_both_verdicts() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    shown = {found["reason"]: found for found in EDN.finditer(text)}
    assert set(shown) == set(compare.REASONS)
    for reason, found in shown.items():
        kept = KEPT[found["name"]]
        assert reason in kept.differs
        assert found["edn"] == kept.path.read_text(encoding="utf-8")
        row = f"| {reason} | `{kept.name}` | {jepsens(kept)} | {ours(kept)} |"
        assert row in text


def jepsens(kept: Kept) -> str:
    if kept.said.throws:
        return "throws"
    bad = sorted(name for name in kept.said.bad if not name.endswith("-cycle-exists"))
    return f"invalid: {', '.join(bad)}" if bad else "valid"


def ours(kept: Kept) -> str:
    if not kept.valid:
        return f"anomalous: {', '.join(sorted(kept.ours))}"
    return "valid" if compare.acknowledges(kept.entries) else "unknown: nothing was acknowledged"
