"""Each page shows what it is for, out of stored runs, and escapes what users wrote."""

from __future__ import annotations

import io
import json
import zipfile
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from starlette.testclient import TestClient

from neaptide.results.serve.listing import PAGE_ROWS, Listing, chosen
from neaptide.results.serve.listing import Asked as Wanted
from tests.serve.conftest import client_of
from tests.serve.stored import (
    GOING_ON,
    HELD,
    LOST,
    NIGHT,
    STRANGE,
    UNREADABLE,
    Stored,
    end,
    write_going_on,
)

ALL_PAGES = (
    "/",
    f"/runs/{LOST}",
    f"/runs/{HELD}",
    f"/runs/{GOING_ON}",
    f"/runs/{LOST}/logs",
    f"/runs/{LOST}/rounds?record=m2&partition=0",
    f"/compare?run={LOST}&run={HELD}",
    "/matrix",
    "/nights",
    "/nothing/there",
)


class Page(HTMLParser):
    """Texts, links, ids and whatever it would load, of one page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.loads: list[str] = []
        self.inline: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids += [value for value in [found.get("id")] if value]
        if tag in ("a", "form"):
            self.links += [v for k, v in attrs if k in ("href", "action") and v]
        else:
            self.loads += [v for k, v in attrs if k in ("src", "href", "data") and v]
        self.inline += [k for k in found if k.startswith("on") or k == "style"]
        self.inline += [tag] if tag == "style" or (tag == "script" and "src" not in found) else []

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(self.texts)


def page(client: TestClient, url: str, status: int = 200) -> Page:
    response = client.get(url)
    assert response.status_code == status, response.text[-300:]
    return Page(response.text)


# --- every page ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("url", ALL_PAGES)
def test_a_page_loads_only_from_here_and_has_nothing_inline(client: TestClient, url: str) -> None:
    found = page(client, url, 404 if "nothing" in url else 200)
    assert found.loads
    assert all(each.startswith("/") and not each.startswith("//") for each in found.loads)
    assert found.inline == []
    assert len(found.ids) == len(set(found.ids))
    for each in found.loads:
        assert client.get(each).status_code == 200, each


@pytest.mark.parametrize("url", ALL_PAGES)
def test_every_link_leads_somewhere(client: TestClient, url: str) -> None:
    found = page(client, url, 404 if "nothing" in url else 200)
    for link in found.links:
        target, _, part = link.partition("#")
        if not target:
            assert unquote(part) in found.ids, link
        elif not target.startswith("/compare"):
            assert client.get(target).status_code in (200, 307, 422), link


# --- the table of runs ---------------------------------------------------------------------------


def rows(client: TestClient, **asked: str) -> list[str]:
    response = client.get("/", params={"as": "json", **asked})
    return [each["run"] for each in response.json()["runs"]]


def test_the_newest_run_is_first_and_a_link_is_no_run(client: TestClient) -> None:
    assert rows(client) == [GOING_ON, HELD, LOST, UNREADABLE]


def test_a_row_says_what_a_run_came_to(client: TestClient) -> None:
    runs = client.get("/?as=json").json()["runs"]
    [lost] = [each for each in runs if each["run"] == LOST]
    assert lost == {
        "run": LOST,
        "begun": "2025-11-21 12:00:00",
        "state": "judged",
        "verdict": "anomalous",
        "outcome": "lost",
        "system": "neaptide:0.10",
        "workload": "hw-truncation-loss",
        "faults": [],
        "seed": 7,
        "anomalies": {"lost-write": 1, "committed-then-lost": 1},
        "problem": "",
    }
    text = page(client, "/").text
    for word in ("anomalous", "lost", "valid", "held", "running", "kill", "lost-write 1"):
        assert word in text
    assert "cannot be read" in text


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"verdict": "anomalous"}, [LOST]),
        ({"verdict": "running"}, [GOING_ON]),
        ({"outcome": "held"}, [HELD]),
        ({"system": "neaptide:2.1"}, [GOING_ON]),
        ({"workload": "hw-truncation-loss"}, [HELD, LOST]),
        ({"fault": "kill"}, [GOING_ON]),
        ({"search": "LOST-WRITE"}, [LOST]),
        ({"search": "clean elections"}, [HELD, LOST]),
        ({"search": "99"}, [GOING_ON]),
        ({"search": "no such thing"}, []),
        ({"workload": "hw-truncation-loss", "outcome": "held"}, [HELD]),
    ],
)
def test_filters_and_search(client: TestClient, asked: dict[str, str], found: list[str]) -> None:
    assert rows(client, **asked) == found


def test_of_many_runs_a_page_is_shown_and_leads_to_the_next(own: Stored) -> None:
    for number in range(PAGE_ROWS):
        write_going_on(own.root / f"2025-11-23T08-00-00Z-more-{number:03}")
    client = client_of(own.root)
    first = client.get("/?as=json&workload=append").json()
    assert (len(first["runs"]), first["matching"]) == (PAGE_ROWS, PAGE_ROWS + 1)
    found = page(client, "/?workload=append")
    [older] = [link for link in found.links if "after=" in link]
    assert "workload=append" in older
    names = [each["run"] for each in first["runs"]]
    last = client.get(f"{older}&as=json").json()
    assert len(last["runs"]) == 1
    assert last["runs"][0]["run"] not in names
    assert last["after"] == ""


def test_an_after_that_has_gone_begins_at_the_top(stored: Stored) -> None:
    runs = Listing(stored.root).runs()
    assert chosen(runs, Wanted(after="gone"), 2).shown == tuple(runs[:2])


def test_a_run_that_changes_is_read_again(own: Stored) -> None:
    listing = Listing(own.root)
    before = listing.mark()
    assert listing.find(GOING_ON).state == "running"
    end(own.going_on)
    assert listing.find(GOING_ON).state == "unjudged"
    assert listing.mark() != before


def test_a_directory_without_runs_says_how_to_get_one(tmp_path: TestClient) -> None:
    client = client_of(tmp_path)  # type: ignore[arg-type]
    assert "neaptide repro hw-truncation-loss" in page(client, "/").text
    assert "no run of a scenario" in page(client, "/matrix").text
    assert "no night yet" in page(client, "/nights").text


# --- one run -------------------------------------------------------------------------------------


def test_a_run_shows_its_proofs_its_rounds_and_how_to_repeat_it(client: TestClient) -> None:
    text = page(client, f"/runs/{LOST}").text
    for words in (
        "lost-write, committed-then-lost",
        "enough records were acknowledged yes",
        "has truncated to its HW, 1",
        "neaptide run hw-truncation-loss --system neaptide:0.10 --seed 7",
        "12 of 20",
    ):
        assert words.replace("12 of 20", "8 of 20: it helps") in text


def test_an_anomaly_leads_to_its_round_and_a_message_to_its_words(client: TestClient) -> None:
    found = page(client, f"/runs/{LOST}")
    assert "#round-0-1-0-e1-1-truncation" in found.links
    assert "round-0-1-0-e1-1-truncation" in found.ids
    assert "#says-round-0-2-0-e0-10-response" in found.links
    words = (
        "Fetch response of C to A, t-0, round 10 of epoch 0: high watermark 2, no records. It"
        " reached the gate at 4.811 s and never the follower: discarded. Held 3,100 ms."
    )
    assert found.texts.count(words) == 2  # on the arrow, and in the table


def test_which_step_matters(client: TestClient) -> None:
    text = page(client, f"/runs/{LOST}").text
    assert "8 of 20: it helps" in text
    assert "0 of 20: it decides" in text
    assert "20 of 20: not needed" in text


def test_a_run_that_goes_on_shows_how_far_it_is_and_claims_nothing(client: TestClient) -> None:
    found = page(client, f"/runs/{GOING_ON}")
    assert "It is going on" in found.text
    assert "acknowledged 5 failed 1" in found.text
    assert "anomalies: none" not in found.text
    assert "t-0 A 0 A, B, C" in found.text  # partition, leader, epoch, ISR


def test_what_users_wrote_is_text(client: TestClient) -> None:
    html = client.get(f"/runs/{GOING_ON}").text
    assert STRANGE not in html
    assert STRANGE in page(client, f"/runs/{GOING_ON}").text


def test_a_run_that_cannot_be_read_says_why(client: TestClient) -> None:
    assert "cannot be read" in page(client, f"/runs/{UNREADABLE}", 422).text


def test_plots_are_pictures_by_themselves(client: TestClient) -> None:
    response = client.get(f"/runs/{LOST}/plots/watermarks")
    assert response.headers["content-type"] == "image/svg+xml"
    assert "<svg" in response.text
    assert client.get(f"/runs/{LOST}/plots/leaders").status_code == 404


def test_the_rounds_around_a_record(client: TestClient) -> None:
    found = page(client, f"/runs/{LOST}/rounds?record=m2&partition=0")
    assert "round-0-2-0-e0-10-response" in found.ids
    for wrong in ("record=nothing&partition=0", "record=m2&partition=x", "record=m2&partition=9"):
        page(client, f"/runs/{LOST}/rounds?{wrong}", 400)


def test_logs_of_nodes_stand_beside_the_rounds(client: TestClient) -> None:
    found = page(client, f"/runs/{LOST}/logs")
    text = found.text
    assert "s rounds, faults, leaders A B C" in text
    assert text.index("C: SIGKILL") < text.index("follower of 1 in epoch 1")
    assert text.index("truncating from 2 to 1") < text.index("B: SIGKILL")
    assert f"/runs/{LOST}#round-0-1-0-e1-1-truncation" in found.links
    only = page(client, f"/runs/{LOST}/logs?log=broker-1.log&since=6").text
    assert "leaders B 6.000" in only
    assert "producer" not in only
    page(client, f"/runs/{LOST}/logs?since=soon", 400)
    page(client, f"/runs/{LOST}/logs?since=nan", 400)


def test_without_a_time_no_log_stands_beside_the_rounds(own: Stored) -> None:
    path = own.lost / "run.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("2025-11-21T12:00:00+00:00", "noon"), encoding="utf-8")
    client = client_of(own.root)
    assert "began at 'noon'" in page(client, f"/runs/{LOST}/logs", 422).text
    page(client, f"/runs/{LOST}")
    page(client, "/")


def test_a_zip_of_a_run_has_all_of_it(own: Stored) -> None:
    (own.lost / "run-of-another").symlink_to(own.root / HELD)
    (own.lost / "passwd").symlink_to("/etc/passwd")
    response = client_of(own.root).get(f"/runs/{LOST}/zip")
    assert response.headers["content-disposition"] == f'attachment; filename="{LOST}.zip"'
    archive = zipfile.ZipFile(io.BytesIO(response.content))
    assert archive.testzip() is None
    files = {
        f"{LOST}/{path.relative_to(own.lost)}"
        for path in own.lost.rglob("*")
        if path.is_file() and not path.is_symlink()
    }
    assert set(archive.namelist()) == files
    data = archive.read(f"{LOST}/run.json")
    assert data == (own.lost / "run.json").read_bytes()


# --- several runs --------------------------------------------------------------------------------


def test_two_runs_side_by_side_mark_the_first_round_that_differs(client: TestClient) -> None:
    found = page(client, f"/compare?run={LOST}&run={HELD}")
    assert "A asks B from offset 1, although it had come to 2, in epoch 1" in found.text
    assert "A asks B from offset 2 in epoch 1; the request was discarded" in found.text
    html = client.get(f"/compare?run={LOST}&run={HELD}").text
    marked = [part.split("</tr>")[0] for part in html.split('<tr class="marked">')[1:]]
    assert any("A: has truncated to its HW, 1" in row for row in marked)
    same = page(client, f"/compare?run={LOST}&run={LOST}").text
    assert "None: all" in same


@pytest.mark.parametrize("asked", ["", f"run={LOST}", f"run={LOST}&run={HELD}&run={GOING_ON}"])
def test_two_runs_are_compared_not_fewer_not_more(client: TestClient, asked: str) -> None:
    assert "Choose two runs" in page(client, f"/compare?{asked}", 400).text


def test_without_recorded_rounds_there_is_no_claim(client: TestClient) -> None:
    text = page(client, f"/compare?run={LOST}&run={GOING_ON}").text
    assert "no further round" in text
    text = page(client, f"/compare?run={GOING_ON}&run={GOING_ON}").text
    assert "Not known: no fetch rounds were recorded in either of the runs." in text


def test_the_matrix_leads_to_runs(client: TestClient) -> None:
    found = page(client, "/matrix")
    assert {f"/runs/{LOST}", f"/runs/{HELD}"} <= set(found.links)
    assert "2 of 2 cells agree" in found.text


def test_nights_are_listed_with_what_they_came_to(client: TestClient) -> None:
    found = page(client, "/nights")
    assert f"/nights/{NIGHT}/summary.json" in found.links
    assert "/nights/index.html" in found.links
    assert "2025-11-21 22:00 7 4 runs in 1 h 2 min 3 of cells, 1 of known schedules" in found.text
    assert "✗ 2 anomalous ? 0 unknown ✓ 2 valid 1 lost neaptide:0.10 append" in found.text
    assert "Going on, or cut off" in found.text
    assert "found There is" not in found.text  # the folder of findings is no night
    response = client.get("/nights/index.html")
    assert "The night" in response.text
    assert f'href="../runs/{LOST}/report.html"' in response.text
    assert json.loads(client.get(f"/nights/{NIGHT}/summary.json").text)["runs"] == 4
    # Its links lead beside it on disk, and so they do here.
    assert client.get(f"/runs/{LOST}/report.html").headers["location"] == f"/runs/{LOST}"
    assert client.get(f"/{LOST}/report.html").headers["location"] == f"/runs/{LOST}"


def test_a_night_leads_to_its_runs_while_they_are_there(client: TestClient) -> None:
    found = page(client, "/nights")
    assert {f"/runs/{LOST}", f"/runs/{HELD}"} <= set(found.links)
    assert "✗ kip-101.json: lost, known; neaptide:0.10" in found.text
    assert "/runs/thinned-out" not in found.links  # it was thinned out
    assert found.text.index("cell 2 #1 : lost, new") < found.text.index("cell 1 #1 : held")


def test_a_night_says_no_more_than_its_summary(own: Stored) -> None:
    """Neither a time that its name does not have, nor numbers that are none."""
    night = own.root / "nights" / NIGHT
    strange = {
        "verdicts": {"valid": "many", "anomalous": 1e400},
        "news": [1],
        "seconds": None,
        "findings": [7],
        "results": [{"verdict": "odd", "outcome": ["x"], "run": {}}],
    }
    (night / "summary.json").write_text(json.dumps(strange), encoding="utf-8")
    night.rename(night.with_name("friday"))
    found = page(client_of(own.root), "/nights").text
    assert "friday 0 runs in 0 s 0 of cells" in found
    assert "✗ 0 anomalous ? 0 unknown ✓ 0 valid 0" in found
    assert "1 run ? : ;" in found


def test_a_summary_that_is_no_summary_is_no_failure(own: Stored) -> None:
    for text in ("[1, 2]", "nothing", '{"a": null}', '{"verdicts": 3}'):
        (own.root / "nights" / NIGHT / "summary.json").write_text(text, encoding="utf-8")
        said = page(client_of(own.root), "/nights").text
        assert "2025-11-21 22:00 7 summary.json" in said
