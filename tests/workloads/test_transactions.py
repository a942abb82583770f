"""How a transaction ends: ok, fail and info are what the library's answers prove, and no more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from neaptide.workloads.libraries.model import Library, LibraryError, Polled
from neaptide.workloads.recorder import Recorder
from neaptide.workloads.roles.role import Desk, Task
from neaptide.workloads.roles.transactions import Teller

AGAIN = LibraryError("_TIMED_OUT", again=True)
REFUSED = LibraryError("ABORTABLE", aborts=True)
FATAL = LibraryError("_FENCED")


class FakeProducer:
    """Answers to commit and abort as it is set; None is yes."""

    def __init__(self, commits: list[LibraryError | None], aborts: list[LibraryError | None]):
        self.commits, self.aborts = iter(commits), iter(aborts)
        self.closed = False
        self.fails: str | None = None  # each send, whatever becomes of the commit

    def init_transactions(self, _: float) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, key: str, value: str, done: Any) -> None:
        done(None if self.fails else 3, self.fails)

    def commit(self, _: float) -> None:
        _raise(next(self.commits))

    def abort(self, _: float) -> None:
        _raise(next(self.aborts))

    def close(self) -> None:
        self.closed = True


def _raise(error: LibraryError | None) -> None:
    if error is not None:
        raise error


class OneTransfer(Teller):
    """Stops after its first transaction."""

    def one(self) -> None:
        super().one()
        self.stop()


def role(
    tmp_path: Path, producer: FakeProducer, options: Mapping[str, Any]
) -> tuple[OneTransfer, Callable[[], list[dict[str, Any]]]]:
    recorder = Recorder(tmp_path, 1, 0)
    numbers = itertools.count(1)
    library = Library("fake", lambda _: producer, lambda _: Polled([], []), {}, frozenset())
    desk = Desk(recorder, None, lambda: next(numbers), library, "", {}, {})
    task = Task("teller", 0, 1, {"t": 1}, 1e6, "all", True, 1, options)

    def rows() -> list[dict[str, Any]]:
        recorder.close()
        found: list[dict[str, Any]] = pq.read_table(tmp_path / "operations").to_pylist()
        return found

    return OneTransfer(desk, task), rows


@pytest.mark.parametrize(
    ("commits", "aborts", "kind", "goes_on"),
    [
        ([None], [], "ok", True),
        ([AGAIN, None], [], "ok", True),
        ([REFUSED], [None], "fail", True),
        ([REFUSED], [AGAIN, None], "fail", True),
        ([REFUSED], [FATAL], "info", False),  # the commit may have been done
        ([FATAL], [], "info", False),
        ([AGAIN] * 6, [], "info", False),
    ],
)
def test_what_the_answers_to_commit_prove(
    tmp_path: Path,
    commits: list[LibraryError | None],
    aborts: list[LibraryError | None],
    kind: str,
    goes_on: bool,
) -> None:
    producer = FakeProducer(commits, aborts)
    teller, rows = role(tmp_path, producer, {"accounts": 3, "aborts": 0.0})
    before = teller.process
    teller.work()
    written = rows()
    assert {row["type"] for row in written} == {kind}
    assert len({row["operation"] for row in written}) == 1
    assert [row["mop"] for row in written] == list(range(len(written)))
    assert sum(int(row["value"].partition("/")[0]) for row in written) == 0
    assert (teller.process == before) == (kind != "info")
    assert producer.closed  # at the end, in any case
    assert goes_on or teller.producer is None


def test_what_was_never_committed_has_failed_whatever_becomes_of_the_abort(tmp_path: Path) -> None:
    teller, rows = role(tmp_path, FakeProducer([], [FATAL]), {"accounts": 3, "aborts": 1.0})
    teller.work()
    written = rows()  # aborted at its first step: what it would have sent has failed, too
    assert {row["type"] for row in written} == {"fail"}
    assert teller.counts["fail"] == len(written) > 1


@pytest.mark.parametrize(("fails", "kind"), [(None, "ok"), ("KafkaTimeoutError", "info")])
def test_a_commit_of_which_a_send_has_failed_promises_nothing(
    tmp_path: Path, fails: str | None, kind: str
) -> None:
    producer = FakeProducer([None], [])
    producer.fails = fails
    teller, rows = role(tmp_path, producer, {"accounts": 3, "aborts": 0.0})
    teller.work()
    assert {(row["type"], row["error"]) for row in rows()} == {(kind, fails)}
