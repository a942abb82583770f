"""R11: several log directories, one that fails, and a log that moves from one to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.model import EpochEntry, TopicPartition
from neaptide.clusters.broker.storage.errors import LogDirectoryInUseError, StorageError
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.log_manager import LogManager
from tests.storage.batches import batch, with_headers

A, B, C = (TopicPartition("t", number) for number in range(3))


def opened(path: Path, *, survives: bool = True) -> LogManager:
    return LogManager.open([path / "one", path / "two"], 1, {}, survives=survives)


def append(log: Log, *values: bytes, epoch: int = 0) -> None:
    for value in values:
        log.append(*with_headers(batch(log.log_end_offset, [value], epoch=epoch)))


def where(logs: LogManager) -> dict[TopicPartition, str]:
    return {tp: logs.directory_of(tp).path.name for tp in sorted(logs.logs)}


def test_r11_a_log_is_made_where_there_are_fewest_or_where_it_is_to_be(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    logs.prefer(C, tmp_path / "two")
    for tp in (A, B, C):
        logs.create_log(tp)
    assert where(logs) == {A: "one", B: "two", C: "two"}
    logs.delete_log(B)
    assert where(logs) == {A: "one", C: "two"}
    logs.shutdown()
    again = opened(tmp_path)
    assert where(again) == {A: "one", C: "two"}
    assert again.was_clean
    again.shutdown()


def test_r11_each_directory_has_the_checkpoints_of_its_own_logs(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    for tp in (A, B):
        append(logs.create_log(tp), b"x")
    logs.write_high_watermarks({A: 1, B: 0, C: 7})
    assert logs.read_high_watermarks() == {A: 1, B: 0}
    lines = [
        (tmp_path / one / "replication-offset-checkpoint").read_text() for one in ["one", "two"]
    ]
    assert [text.splitlines()[2:] for text in lines] == [["t 0 1"], ["t 1 0"]]
    logs.shutdown()


def test_r11_one_that_fails_takes_its_own_logs_with_it(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    for tp in (A, B, C):
        append(logs.create_log(tp), b"x")
    error = StorageError(tmp_path / "two", "broken")
    assert not logs.is_offline(error)
    assert logs.fail(error) == (B,)
    assert logs.is_offline(StorageError(tmp_path / "two" / "t-1", "broken"))
    assert (where(logs), logs.offline) == ({A: "one", C: "one"}, (tmp_path / "two",))
    append(logs.logs[A], b"y")
    assert logs.fail(StorageError(tmp_path / "one", "broken")) is None  # it is the last
    logs.shutdown()


def test_r11_before_1_0_none_may_fail(tmp_path: Path) -> None:
    logs = opened(tmp_path, survives=False)
    assert logs.fail(StorageError(tmp_path / "two", "broken")) is None
    logs.shutdown()


def test_r11_one_that_cannot_be_read_at_the_start_is_offline(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    for tp in (A, B):
        logs.create_log(tp)
    logs.shutdown()
    (tmp_path / "two").rename(tmp_path / "elsewhere")
    (tmp_path / "two").write_text("no directory")
    with pytest.raises(StorageError):
        opened(tmp_path, survives=False)
    again = opened(tmp_path)
    assert (where(again), again.offline) == ({A: "one"}, (tmp_path / "two",))
    assert not again.was_clean
    again.shutdown()


def test_r11_one_of_another_broker_ends_the_start(tmp_path: Path) -> None:
    LogManager.open([tmp_path / "two"], 2, {}).shutdown()
    with pytest.raises(LogDirectoryInUseError, match=r"broker\.id"):
        opened(tmp_path)
    LogManager.open([tmp_path / "one"], 1, {}).shutdown()  # the refusal leaves no lock


def test_r11_a_log_in_two_directories_ends_the_start(tmp_path: Path) -> None:
    for name in ("one", "two"):
        logs = LogManager.open([tmp_path / name], 1, {})
        logs.create_log(A)
        logs.shutdown()
    with pytest.raises(StorageError, match=r"t-0 is in .*one too; remove one of the two"):
        opened(tmp_path)


def test_r11_a_copy_that_has_all_takes_the_place_of_its_log(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    log = logs.create_log(A, {}, "AAAAAAAAAAAAAAAAAAAAAQ")
    append(log, b"a", b"b", epoch=3)
    logs.write_high_watermarks({A: 1})
    logs.start_moving(A, tmp_path / "two")
    logs.start_moving(A, tmp_path / "two")  # asked for twice
    future = logs.futures[A]
    future.append(*with_headers(log.read(0, 2, 1_000, True)))
    logs.finish_moving(A)
    moved = logs.logs[A]
    assert (where(logs), logs.futures) == ({A: "two"}, {})
    assert moved.read(0, 2, 1_000, True) == batch(0, [b"a"], epoch=3) + batch(1, [b"b"], epoch=3)
    assert tuple(moved.epochs.entries) == (EpochEntry(3, 0),)
    assert logs.topic_ids == {A: "AAAAAAAAAAAAAAAAAAAAAQ"}
    assert logs.read_high_watermarks() == {A: 1}
    assert sorted(path.name for path in (tmp_path / "one").iterdir() if path.is_dir()) == []
    logs.shutdown()
    again = opened(tmp_path)
    assert (where(again), again.logs[A].log_end_offset) == ({A: "two"}, 2)
    again.shutdown()


def test_r11_a_copy_is_given_up_when_its_log_is_to_stay_or_is_deleted(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    for end in (lambda: logs.start_moving(A, tmp_path / "one"), lambda: logs.delete_log(A)):
        logs.create_log(A)
        logs.start_moving(A, tmp_path / "two")
        assert list(logs.futures) == [A]
        end()
        assert not logs.futures
        assert not list((tmp_path / "two").glob("t-0*"))
    logs.shutdown()


def test_r11_a_copy_that_was_begun_is_there_after_a_restart(tmp_path: Path) -> None:
    logs = opened(tmp_path)
    append(logs.create_log(A), b"a")
    logs.start_moving(A, tmp_path / "two")
    logs.shutdown()
    again = opened(tmp_path)
    assert (list(again.futures), where(again)) == ([A], {A: "one"})
    again.shutdown()
