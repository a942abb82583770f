"""The matrix is put together from saved runs; each cell says what was seen, how often, and why."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from neaptide.results.errors import RunUnreadableError
from neaptide.results.matrix import assemble
from neaptide.results.outcomes import RULES_VERSION
from neaptide.results.report.matrix_page import write_matrix
from neaptide.results.store import write_run
from tests.results.matrices import MADE_BY, RUN, save

OTHER_RULES = [
    None,
    2,
    {},
    {"rules": RULES_VERSION - 1},
    {"rules": RULES_VERSION + 1},
    {"rules": str(RULES_VERSION)},
    {"rules": True},
]


def test_a_cell_says_how_many_of_how_many_agree(tmp_path: Path) -> None:
    runs = [save(tmp_path, str(number), "lost") for number in range(3)]
    [cell] = assemble(runs).cells
    assert (cell.status, cell.text) == ("agrees", "✓ lost 3/3")


def test_one_that_disagrees_makes_the_cell_disagree(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a", "lost"), save(tmp_path, "b", "held")]
    [cell] = assemble(runs).cells
    assert (cell.status, cell.text) == ("disagrees", "✗ lost or held, expected lost 1/2")


def test_one_that_could_not_conclude_is_unknown_and_says_why(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a", "lost"), save(tmp_path, "b", "unknown", reasons=("No end.",))]
    [cell] = assemble(runs).cells
    assert (cell.status, cell.agreeing) == ("unknown", 1)
    assert cell.repetitions[1].reasons == ("No end.",)


def test_a_prediction_that_did_not_come_true_disagrees_although_the_outcome_is_right(
    tmp_path: Path,
) -> None:
    run = save(tmp_path, "a", "lost", disagreements=("predicted isr_changes >= 4, seen 2",))
    [cell] = assemble([run]).cells
    assert (cell.status, cell.text) == ("disagrees", "✗ lost 0/1")


def test_a_run_that_was_not_checked_is_unknown(tmp_path: Path) -> None:
    [cell] = assemble([save(tmp_path, "a", None)]).cells
    assert (cell.status, cell.repetitions[0].reasons) == ("unknown", ("it was not checked",))


@pytest.mark.parametrize("made_by", OTHER_RULES)
def test_a_verdict_of_other_rules_is_none(tmp_path: Path, made_by: object) -> None:
    [cell] = assemble([save(tmp_path, "a", "lost", made_by=made_by)]).cells
    assert (cell.status, cell.agreeing, cell.observed) == ("unknown", 0, ("unknown",))
    [reason] = cell.repetitions[0].reasons
    assert f"judge it again (neaptide check {tmp_path / 'a'})" in reason


def test_the_twin_of_these_rules_is_believed_whatever_its_options(tmp_path: Path) -> None:
    made_by = MADE_BY | {"thorough": True, "min_acked": 7}
    [cell] = assemble([save(tmp_path, "a", "lost", made_by=made_by)]).cells
    assert (cell.status, cell.repetitions[0].reasons) == ("agrees", ())


def test_what_nobody_predicted_neither_agrees_nor_disagrees(tmp_path: Path) -> None:
    [cell] = assemble([save(tmp_path, "a", "held", expected=None)]).cells
    assert (cell.status, cell.text) == ("unpredicted", "· held 0/1")


def test_systems_are_in_order_of_their_versions(tmp_path: Path) -> None:
    systems = ("kafka:0.10.2.2", "neaptide:0.10", "kafka:4.1.0", "neaptide:0.8", "kafka:0.8.2.2")
    runs = [save(tmp_path, str(n), "lost", system=name) for n, name in enumerate(systems)]
    assert assemble(runs).systems == (
        "neaptide:0.8",
        "neaptide:0.10",
        "kafka:0.8.2.2",
        "kafka:0.10.2.2",
        "kafka:4.1.0",
    )


def test_a_directory_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunUnreadableError, match=r"run\.json is missing"):
        assemble([tmp_path])


def test_the_page_links_to_reports_says_reasons_and_escapes(tmp_path: Path) -> None:
    runs = [save(tmp_path / "runs", "a", "unknown", reasons=("It <broke>.",))]
    page = write_matrix(assemble(runs), tmp_path / "matrix.html").read_text(encoding="utf-8")
    assert 'href="runs/a/report.html"' in page
    assert "It &lt;broke&gt;." in page
    assert "A title &lt;with&gt; signs" in page
    assert "http" not in page


def test_markdown_and_json_by_the_ending_of_the_file(tmp_path: Path) -> None:
    matrix = assemble([save(tmp_path / "runs", "a", "lost")])
    markdown = write_matrix(matrix, tmp_path / "m.md").read_text(encoding="utf-8")
    assert markdown.splitlines() == [
        "| scenario | kind | `neaptide:0.10` |",
        "|---|---|---|",
        "| acks-1-loss | by design | ✓ lost 1/1 |",
    ]
    document = json.loads(write_matrix(matrix, tmp_path / "m.json").read_text(encoding="utf-8"))
    assert document["cells"][0]["agreeing"] == document["cells"][0]["of"] == 1


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        ({"kind": {"lost": "bug"}}, "bug"),
        ({"kind": {"diverged": "bug", "lost": "by design"}}, "diverged: bug, lost: by design"),
        ({"title": "a run of before"}, ""),
        (None, ""),
        ({"kind": "a stranger's"}, ""),
    ],
)
def test_the_kind_of_what_does_not_hold_is_what_the_scenario_of_the_run_says(
    tmp_path: Path, schedule: object, kind: str
) -> None:
    directory = save(tmp_path / "runs", "a", "lost")
    write_run(directory, replace(RUN, schedule=schedule))
    matrix = assemble([directory])
    assert matrix.to_json()["scenarios"][0]["kind"] == kind
    assert f'<td class="kind">{kind}</td>' in write_matrix(matrix, tmp_path / "m.html").read_text(
        "utf-8"
    )


def test_what_a_system_does_not_serve_is_no_pass_and_says_what_it_lacks(tmp_path: Path) -> None:
    runs = [save(tmp_path, "a", "lost"), save(tmp_path, "b", "lost", system="kafka:4.1.0")]
    (tmp_path / "c").mkdir()
    write_run(tmp_path / "c", replace(RUN, name="groups", system="kafka:4.1.0", expected="held"))
    lacking = {
        ("groups", "neaptide:0.10"): "no membership",
        ("acks-1-loss", "neaptide:0.10"): "is not asked: there is a run",
        ("groups", "kafka:0.8.2.2"): "no such system here",
    }
    matrix = assemble([*runs, tmp_path / "c"], lacking)
    cell = matrix.cell("groups", "neaptide:0.10")
    assert cell is not None
    assert (cell.status, cell.text, cell.agreeing) == ("not served", "– not served", 0)
    assert matrix.counts["not served"] == 1
    page = write_matrix(matrix, tmp_path / "m.html").read_text(encoding="utf-8")
    assert "no membership" in page
    assert "– not served" in write_matrix(matrix, tmp_path / "m.md").read_text(encoding="utf-8")
