"""A run that goes on: what a look finds, and what the streams send."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from neaptide.results.serve import app as served
from neaptide.results.serve.live import Follower, Led
from tests.results.losing_run import write_losing_run, write_verdict
from tests.serve.conftest import client_of
from tests.serve.stored import GOING_ON, LOST, Stored, end, go_on


def test_each_file_counts_once_and_the_newest_leader_is_shown(own: Stored) -> None:
    follower = Follower(own.going_on)
    now = datetime(2025, 11, 22, 8, 0, 9, tzinfo=UTC)
    first = follower.look(now)
    assert (first.acknowledged, first.failed, first.elapsed_s) == (5, 1, 9.0)
    assert first.leaders == (Led("t-0", "A", "0", "A, B, C"),)
    assert first.faults == ()
    go_on(own.going_on, 1, kill={"broker": "C"})
    go_on(own.going_on, 2, restart={"broker": "C"})
    later = follower.look(now)
    assert (later.acknowledged, later.failed) == (15, 3)
    assert later.leaders == (Led("t-0", "C", "2", "A, B, C"),)
    assert [words for _, words in later.faults] == ["C: started", "C: SIGKILL"]
    assert replace(follower.look(now), quiet_s=later.quiet_s) == later


def test_files_that_were_put_together_do_not_count_twice(own: Stored) -> None:
    follower = Follower(own.going_on)
    go_on(own.going_on, 1)
    assert follower.look().acknowledged == 10
    (own.going_on / "operations" / "part-c1-00000.parquet").rename(
        own.going_on / "operations" / "part-all-00000.parquet"
    )
    (own.going_on / "operations" / "part-c0-00000.parquet").unlink()
    assert follower.look().acknowledged == 5


def test_what_cannot_be_read_yet_is_not_there_yet(own: Stored) -> None:
    follower = Follower(own.going_on)
    (own.going_on / "operations" / "part-c9-00000.parquet").write_bytes(b"half a file")
    assert follower.look().acknowledged == 5
    (own.going_on / "run.json").unlink()
    gone = follower.look()
    assert (gone.state, gone.leaders) == ("unreadable", ())


def test_a_run_is_over_when_it_has_its_verdict(tmp_path: Path) -> None:
    run = write_losing_run(tmp_path / "run")
    follower = Follower(run)
    assert (follower.look().state, follower.look().is_over) == ("unjudged", False)
    write_verdict(run)
    assert (follower.look().state, follower.look().is_over) == ("judged", True)


def events(text: str) -> list[str]:
    return [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event")]


def test_the_stream_of_a_run_ends_when_the_run_does(
    own: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "LOOK_S", 0.02)
    looked = threading.Event()
    look = Follower.look

    def seen(self: Follower) -> object:
        looked.set()
        return look(self)

    monkeypatch.setattr(Follower, "look", seen)

    def finish() -> None:
        looked.wait()
        go_on(own.going_on, 1)
        end(own.going_on)

    thread = threading.Thread(target=finish)
    thread.start()
    response = client_of(own.root).get(f"/runs/{GOING_ON}/live")
    thread.join()
    assert response.headers["content-type"].startswith("text/event-stream")
    assert events(response.text)[0] == "progress"
    assert events(response.text)[-1] == "over"
    assert "<dt>acknowledged</dt><dd>10</dd>" in response.text


def test_a_run_that_has_changed_before_the_stream_began_is_over(client: TestClient) -> None:
    response = client.get(f"/runs/{LOST}/live?state=unjudged")
    assert events(response.text) == ["progress", "over"]


def test_the_stream_of_a_run_that_is_not_there(client: TestClient) -> None:
    assert client.get("/runs/nothing/live").status_code == 404


def test_streams_end_with_the_server(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = asyncio.Event()
    stopping.set()
    app = served.create_app(stored.root, stopping=stopping)
    client = TestClient(app, base_url="http://localhost")
    assert events(client.get("/live").text) == []
    assert events(client.get(f"/runs/{LOST}/live").text) == []
