"""The report shows what happened, holds everything it needs, and survives what is missing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neaptide.checkers.proofs import PROOFS
from neaptide.results.errors import RunUnreadableError
from neaptide.results.outcomes import RULES_VERSION
from neaptide.results.report import diagram_of, write_report
from neaptide.results.report.layout import ROWS_MAX, lay_out
from neaptide.results.report.page import PROOF_WORDS, drawing_of
from neaptide.results.report.rows import load
from neaptide.results.report.story import Arrow, Line
from neaptide.results.schema import ANOMALIES, OPERATIONS, REPLICAS
from neaptide.results.store import write_json, write_run
from neaptide.results.tables import TableWriter, write_table
from tests.results.losing_run import RUN, write_losing_run, write_verdict
from tests.results.page import Page

MADE_BY = {"rules": RULES_VERSION}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    directory = write_losing_run(tmp_path / "run")
    write_verdict(directory)
    return directory


def page(run: Path) -> Page:
    return Page(write_report(run).read_text(encoding="utf-8"))


@pytest.mark.slow
def test_it_begins_with_the_outcome_and_whether_it_was_expected(run: Path) -> None:
    texts = page(run).texts
    begin = texts.index("hw-truncation-loss on neaptide:0.10")
    assert texts[begin - 1] == "lost"
    assert "Agrees." in " ".join(texts[begin : begin + 8])


def test_a_lost_record_is_followed_from_its_ack_to_its_absence(run: Path) -> None:
    texts = page(run).texts
    row = texts.index("lost-write, committed-then-lost")
    assert texts[row : row + 6] == [
        "lost-write, committed-then-lost",
        "m2",
        "t-0 offset 1",
        "4.812 s, acks=all",
        "4.853 s at offset 1",
        "nowhere",
    ]


@pytest.mark.parametrize("allowed", [{"committed-then-lost": 1}, 5, {"committed-then-lost": []}])
def test_what_is_allowed_is_shown_apart_whoever_has_made_the_file(run: Path, allowed: Any) -> None:
    verdict = json.loads((run / "verdict.json").read_text())
    write_json(run / "verdict.json", verdict | {"allowed": allowed})
    texts = page(run).texts
    is_allowed = allowed == {"committed-then-lost": 1}
    assert ("lost-write, committed-then-lost" in texts) is not is_allowed
    said = [text for text in texts if "allowed in this run" in text]
    assert ["committed-then-lost 1" in text for text in said] == [True] * is_allowed


def test_the_diagram_shows_the_loss_in_order(run: Path) -> None:
    said = Page(diagram_of(run)).texts
    story = [
        "leader, epoch 0",
        "fetch from 1 (round 9)",
        "m2, HW 1",
        "fetch from 2 (round 10)",
        "LEO 2 · HW 2",
        "HW 2: held 3.1 s, discarded",
        "ack m2 at offset 1 (acks=all)",
        "m2 at offset 1",
        "SIGKILL",
        "leader, epoch 1",
        "has truncated to its HW, 1",
        "fetch from 1 (round 1): held 3.2 s, discarded",
        "SIGKILL",
        "leader, epoch 2",
        "final read: m1 at offset 0",
        "at the end, on no replica: m2",
    ]
    position = 0
    for sentence in story:
        position = said.index(sentence, position) + 1


def test_rounds_that_moved_nothing_are_left_out(run: Path) -> None:
    said = Page(diagram_of(run)).texts
    assert not [text for text in said if re.search(r"round [3-8]\)", text)]


def test_the_records_at_issue_stand_out(run: Path) -> None:
    assert 'fill="#fee2e2"' in diagram_of(run)
    write_json(run / "verdict.json", {"verdict": "valid", "outcome": "held", "made_by": MADE_BY})
    for path in (run / "anomalies").iterdir():
        path.unlink()
    assert 'fill="#fee2e2"' not in diagram_of(run)


def test_it_loads_nothing_and_runs_nothing(run: Path) -> None:
    found = page(run)
    assert found.loads == []
    assert "script" not in found.tags
    assert not re.search(r"@import|url\(\s*['\"]?https?:", (run / "report.html").read_text())


def test_the_same_run_gives_the_same_page(run: Path) -> None:
    first = write_report(run).read_bytes()
    assert write_report(run).read_bytes() == first


@pytest.mark.parametrize(("topic", "is_shown"), [("__consumer_offsets", False), ("t", True)])
def test_positions_of_groups_are_drawn_nowhere(run: Path, topic: str, is_shown: bool) -> None:
    before = diagram_of(run)
    row = dict.fromkeys(REPLICAS.names) | {
        "broker": 0, "topic": topic, "partition": 0, "offset": 7, "value": "a position",
        "control": False, "log_start_offset": 0, "log_end_offset": 8,
    }  # fmt: skip
    with TableWriter(run / "replicas", REPLICAS, writer="more") as table:
        table.append(tuple(row[name] for name in REPLICAS.names))
    write_report(run)
    assert ("a position" in (run / "report.html").read_text(encoding="utf-8")) is is_shown
    assert diagram_of(run) == before


def test_what_users_wrote_is_text_not_markup(run: Path) -> None:
    write_run(run, replace(RUN, title="<script>alert(1)</script>", repeat="a && b < c"))
    found = page(run)
    assert "script" not in found.tags
    assert "a && b < c" in found.texts


def test_it_says_how_to_repeat_the_run(run: Path) -> None:
    assert "neaptide run hw-truncation-loss --system neaptide:0.10 --seed 7" in page(run).texts


@pytest.mark.parametrize(
    ("clients", "named"),
    [
        ({"program": {"client": "mine<1>", "version": "2.0", "command": ["./mine"]}}, True),
        ({"retries": 0}, False),
        (None, False),
    ],
)
def test_it_names_the_client_that_was_driven(run: Path, clients: Any, named: bool) -> None:
    write_run(run, replace(RUN, clients=clients))
    assert [text for text in page(run).texts if text.startswith("Client:")] == (
        ["Client: mine<1> 2.0."] if named else []
    )


def test_an_unknown_run_says_why(run: Path) -> None:
    reasons = ["The faults missed its aim: nothing was held."]
    verdict = {"verdict": "unknown", "outcome": "unknown", "reasons": reasons, "made_by": MADE_BY}
    write_json(run / "verdict.json", verdict)
    texts = page(run).texts
    assert reasons[0] in texts
    assert "unknown" in texts


def test_it_shows_what_had_to_hold_and_what_did_not_first(run: Path) -> None:
    proofs = {"finished": True, "cycles": None, "final-reads": False}
    verdict = json.loads((run / "verdict.json").read_text())
    reason = "3 acknowledged writes of t-1 cannot be judged: there were no final reads of it."
    write_json(run / "verdict.json", verdict | {"proofs": proofs, "reasons": [reason]})
    texts = page(run).texts
    at = texts.index("proof")
    rows = ["proof", "held", PROOF_WORDS["final-reads"], "no", PROOF_WORDS["finished"], "yes"]
    rows += [PROOF_WORDS["cycles"], "not needed"]
    assert texts[at : at + len(rows)] == rows
    assert texts.count(reason) == 1
    assert texts[0] == "hw-truncation-loss on neaptide:0.10: lost"


def test_without_proofs_there_is_no_table_of_them(run: Path) -> None:
    verdict = json.loads((run / "verdict.json").read_text())
    write_json(run / "verdict.json", verdict | {"proofs": {}})
    assert "What had to be true" not in page(run).texts


def test_a_verdict_of_other_rules_is_not_shown_as_one(run: Path) -> None:
    assert page(run).texts[0].endswith(": lost")
    verdict = json.loads((run / "verdict.json").read_text())
    write_json(run / "verdict.json", verdict | {"made_by": {"rules": RULES_VERSION - 1}})
    texts = page(run).texts
    assert texts[0].endswith(": unknown")
    assert any("judge it again (neaptide check" in text for text in texts)


@pytest.mark.parametrize(
    "missing", ["fetch_rounds", "replicas", "anomalies", "operations", "verdict.json"]
)
def test_a_part_that_is_missing_is_left_out(run: Path, missing: str) -> None:
    path = run / missing
    for file in path.iterdir() if path.is_dir() else ():
        file.unlink()
    if path.is_file():
        path.write_text("{ cut off")
    assert "hw-truncation-loss on neaptide:0.10" in page(run).texts


@pytest.mark.parametrize("table", ["operations", "fetch_rounds", "replicas"])
def test_a_damaged_file_is_passed_by(run: Path, table: str) -> None:
    (run / table / "part-9-00000.parquet").write_bytes(b"PAR1 garbage")
    assert "m2" in page(run).texts


def test_without_run_json_there_is_no_report_but_a_sentence(run: Path) -> None:
    (run / "run.json").unlink()
    with pytest.raises(RunUnreadableError, match="is this a run directory"):
        write_report(run)


def test_a_run_under_load_shows_plots(run: Path) -> None:
    write_run(run, replace(RUN, kind="random", expected=None))
    texts = page(run).texts
    assert "leader of each partition" in texts
    assert "followers of partition 0: LEO and HW on the wire" in texts


@pytest.mark.parametrize("at_issue", ["m2", "m1", None])
def test_under_load_only_the_records_at_issue_are_reported(run: Path, at_issue: str | None) -> None:
    write_run(run, replace(RUN, kind="random", expected=None))
    for path in (run / "anomalies").iterdir():
        path.unlink()
    idle = dict.fromkeys(OPERATIONS.names) | {
        "operation": 80, "row": 0, "process": 0, "f": "send", "type": "ok", "invoked_ns": 1,
        "value": "m3", "phase": "main",
    }  # fmt: skip
    with TableWriter(run / "operations", OPERATIONS, writer="idle") as writer:
        writer.append(tuple(idle.values()))
    found = [("run", "lost-write", "t", 0, 1, at_issue, 3, "{}")] if at_issue else []
    write_table(run / "anomalies", ANOMALIES, found)
    data = load(run)
    assert {row["value"] for f in ("send", "poll") for row in data.rows_of(f)} == {
        *([at_issue] if at_issue else [])
    }
    assert [len(data.rows_of(f)) for f in ("nemesis", "leader")] == [6, 3]
    assert data.operations.num_rows < data.operation_rows
    assert not data.is_cut
    said = " ".join(Page(diagram_of(run)).texts)
    assert [f"ack {value}" in said for value in ("m1", "m2")] == [
        value == at_issue for value in ("m1", "m2")
    ]


def test_a_story_that_is_too_long_is_cut_in_the_middle_and_says_so() -> None:
    moments = [Line(n, f"line {n}") for n in range(ROWS_MAX + 40)]
    drawing = lay_out(moments, ["A"])
    said = [m.text for row in drawing.rows for m in row.moments if isinstance(m, Line)]
    assert len(said) == ROWS_MAX + 1
    assert (said[0], said[-1]) == ("line 0", f"line {ROWS_MAX + 39}")
    assert "… 40 rows are left out here …" in said
    assert drawing.left_out == 40


def test_a_story_that_fits_is_reported_whole() -> None:
    assert lay_out([Line(n, f"line {n}") for n in range(ROWS_MAX)], ["A"]).left_out == 0


def test_a_history_of_jepsen_shows_its_faults_as_they_are_written(run: Path) -> None:
    values = ["{:start-partition nil}", '"odd"', "{}", None]
    rows = [
        {
            "operation": 90 + n, "row": 0, "process": -1, "f": "nemesis", "type": "info",
            "invoked_ns": 9_700_000_000 + n, "value": value, "phase": "main",
        }
        for n, value in enumerate(values)
    ]  # fmt: skip
    tuples = [tuple(row.get(name) for name in OPERATIONS.names) for row in rows]
    with TableWriter(run / "operations", OPERATIONS, writer="jepsen") as writer:
        writer.extend(tuples)
    assert "{:start-partition nil}" in " ".join(page(run).texts)


def test_the_proofs_are_behind_the_diagram(run: Path) -> None:
    proofs = {"finished": True}
    verdict = json.loads((run / "verdict.json").read_text())
    write_json(run / "verdict.json", verdict | {"proofs": proofs})
    texts = page(run).texts
    assert texts.index("Fetch rounds") < texts.index("What had to be true")


def test_a_run_without_a_command_has_none_to_repeat_it(run: Path) -> None:
    write_run(run, replace(RUN, repeat=""))
    texts = page(run).texts
    assert "Repeat it" not in texts
    assert "How it was made" in texts


def test_a_run_that_nobody_has_judged_yet_is_not_unknown(run: Path) -> None:
    write_run(run, replace(RUN, status="finished"))
    (run / "verdict.json").unlink()
    assert page(run).texts[0].endswith(": unjudged")
    write_run(run, replace(RUN, status="interrupted"))
    assert page(run).texts[0].endswith(": unknown")


@pytest.mark.parametrize(("names", "is_said"), [("ABC", True), ("012", False)])
def test_names_of_brokers_are_explained_that_are_no_ids(
    run: Path, names: str, is_said: bool
) -> None:
    """Ids were the names in random runs of before."""
    brokers = {name: broker for broker, name in enumerate(names)}
    write_run(run, replace(RUN, brokers=brokers, schedule=None))
    assert ("A is broker 0, B is broker 1, C is broker 2." in page(run).texts) is is_said
    drawn = Page(diagram_of(run)).texts
    lifelines = [drawn[drawn.index(name) + 1] for name in names]
    assert lifelines == ["broker 0", "broker 1", "broker 2"]


@pytest.mark.parametrize("fields", [{"to": "A"}, {}, {"to": 5}, {"records": "m1"}])
def test_a_send_is_drawn_to_the_broker_that_its_step_names(
    run: Path, fields: dict[str, Any]
) -> None:
    steps = ["odd", {"produce": 3}, {"kill": {}}, {"produce": {"record": "m1", **fields}}]
    write_run(run, replace(RUN, schedule={**RUN.schedule, "step": steps}))
    drawing = drawing_of(load(run))
    sent = [m for m in drawing.messages if isinstance(m, Arrow) and m.source == "producer"]
    assert [(m.text, m.destination) for m in sent] == [
        ("m1", "A" if fields == {"to": "A"} else "C"),
        ("m2", "C"),
    ]


def test_each_proof_has_words() -> None:
    assert set(PROOF_WORDS) == {proof.name for proof in PROOFS}
