"""From the tasks that read to those that judge: every row once, to the task of its part."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from neaptide.checkers.cases import packed
from neaptide.checkers.pieces import shared_out
from neaptide.checkers.reading import FinalReads, Piece, Reader
from neaptide.checkers.relations import RELATIONS, Inbox, Outbox, Parts, task_of
from pyspark.sql import SparkSession

from neaptide.checkers.check import check_runs
from neaptide.checkers.material import open_run
from tests.checkers.conftest import Judge
from tests.checkers.histories import Story, final, poll, send
from tests.checkers.reading import judged
from tests.checkers.test_anomalies import STORIES

NAMES = [("r", "t", 0), ("r", "t", 1), ("r", "u", 0), ("r", None, None), ("q", "t", 0)]


def steps(parts: Parts, names: list[tuple[str, str | None, int | None]]) -> pa.Table:
    numbers = [parts.number(name) for name in names]
    columns = {"part": numbers, "at_ns": list(range(len(names))), "fault": [repr(n) for n in names]}
    return pa.table(columns, schema=RELATIONS["steps"])


def received(blocks: list[pa.RecordBatch]) -> list[tuple[str, str]]:
    """Of each row the part that it says it is of, and the one that it was brought as."""
    inbox = Inbox()
    tables = [table for block in blocks for _, table in inbox.opened(block)]
    rows = [row for table in tables for row in table.to_pylist()]
    return sorted((row["fault"], repr(inbox.parts.names[row["part"]])) for row in rows)


@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_every_row_comes_once_and_to_the_task_of_its_part(tasks: int) -> None:
    outbox = Outbox(tasks)
    sent = NAMES * 3
    outbox.put("steps", steps(outbox.parts, sent))
    blocks = list(outbox.blocks(at_end=True))
    assert received(blocks) == sorted((repr(name), repr(name)) for name in sent)
    for block in blocks:
        [task] = block["task"].to_pylist()
        inbox = Inbox()
        for _ in inbox.opened(block):
            assert {task_of(name, tasks) for name in inbox.parts.names} == {task}


def test_what_is_of_a_run_comes_to_every_task() -> None:
    outbox = Outbox(3)
    outbox.put_to_all("steps", steps(outbox.parts, NAMES[:1]))
    blocks = list(outbox.blocks(at_end=True))
    assert sorted(block["task"].to_pylist()[0] for block in blocks) == [0, 1, 2]


def test_neighbouring_partitions_go_to_different_tasks() -> None:
    assert len({task_of(("r", "t", partition), 8) for partition in range(8)}) == 8


@pytest.mark.parametrize("partitions", [[0, 1, None, 0], [-1, 2**31 - 1, None, -1]])
def test_parts_are_told_apart_by_topic_and_partition(partitions: list[int | None]) -> None:
    parts = Parts()
    topics = pa.array(["a", "b", None, "a"]).dictionary_encode()
    numbers = parts.numbers("r", topics, pa.array(partitions, pa.int32()))
    names = [parts.names[number] for number in numbers]
    assert names == [("r", topic, p) for topic, p in zip("ab", partitions, strict=False)] + [
        ("r", None, None), ("r", "a", partitions[3]),
    ]  # fmt: skip


def moves(tmp_path: Path, story: Story) -> list[dict[str, object]]:
    run = story.write(tmp_path / "run")
    [share] = shared_out([open_run(run)], 1)
    blocks = list(Reader(1, steps=False, deadline_s=None, owns_process=False).read(share))
    inbox = Inbox()
    return [
        {"first": row["first_offset"], "last": row["last_offset"], "value": row["value"]}
        for block in blocks
        for name, table in inbox.opened(block)
        if name == "moves"
        for row in table.to_pylist()
    ]


def test_reads_without_a_gap_are_one_move(tmp_path: Path) -> None:
    story = Story([poll((0, "a"), (1, "b"), (2, "c"))])
    assert moves(tmp_path, story) == [{"first": 0, "last": 2, "value": "a"}]


@pytest.mark.parametrize(
    ("reads", "firsts"),
    [
        (((0, "a"), (2, "c"), (3, "d")), [0, 2]),
        (((1, "b"), (0, "a")), [1, 0]),
        (((0, "a"), (0, "a")), [0, 0]),
        (((0, "a"), (1, None), (2, "c")), [0, 1, 2]),
    ],
)
def test_every_turn_begins_a_move(
    tmp_path: Path, reads: tuple[tuple[int, str | None], ...], firsts: list[int]
) -> None:
    assert [move["first"] for move in moves(tmp_path, Story([poll(*reads)]))] == firsts


def test_two_polls_are_two_moves(tmp_path: Path) -> None:
    story = Story([poll((0, "a")), poll((1, "b")), final((0, "a"), (1, "b"))])
    assert [move["first"] for move in moves(tmp_path, story)] == [0, 1, 0]


def test_no_row_is_read_twice_and_none_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neaptide.checkers.pieces.ROWS_PER_READER", 1)
    materials = [
        open_run(Story([send(f"{n}", n) for n in range(5)]).write(tmp_path / name))
        for name in ("one", "two")
    ]
    shares = shared_out(materials, 2)
    works = [work for share in shares for work in share]
    assert len(shares) >= 2
    assert sum(work.rows for work in works if isinstance(work, Piece)) == sum(
        material.rows for material in materials
    )
    assert [w.run for w in works if isinstance(w, FinalReads)] == [
        m.name for m in materials if m.final_reads
    ]


def test_a_file_is_opened_once_before_its_rows_are_read(tmp_path: Path) -> None:
    run = Story([send("a", 0), final((0, "a"))]).write(tmp_path / "run")
    material = open_run(run)
    before = shared_out([material], 1)
    assert any(isinstance(work, Piece) for share in before for work in share)
    for file in (run / "operations").iterdir():
        file.unlink()
    assert repr(shared_out([material], 1)) == repr(before)


def test_few_rows_are_one_share(tmp_path: Path) -> None:
    """Which one task reads and judges."""
    runs = [Story([send("a", 0), final((0, "a"))]).write(tmp_path / name) for name in ("x", "y")]
    assert len(shared_out([open_run(run) for run in runs], 1)) == 1


@pytest.mark.spark
def test_many_tasks_find_what_one_finds(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neaptide.checkers.pipeline.limits.SMALL_ROWS", 0)
    directories = {name: story.write(tmp_path / name) for name, (story, _, _) in STORIES.items()}
    verdicts = check_runs(spark, directories.values())
    found = {
        name: judged(verdict, directories[name]).found
        for name, verdict in zip(directories, verdicts, strict=True)
    }
    assert found == {name: anomalies for name, (_, _, anomalies) in STORIES.items()}


def test_columns_are_split_at_the_commas_outside_brackets() -> None:
    assert packed("a, coalesce(b, c) AS d, one.e AS f") == (
        'struct_pack("a" := a, "d" := coalesce(b, c), "f" := one.e)'
    )


@pytest.mark.spark
def test_a_lost_value_of_many_is_found_by_its_digest(judge: Judge) -> None:
    values = ["y" * 2_000 + str(n) for n in range(3)]
    sent = [send(value, n) for n, value in enumerate(values)]
    story = Story([*sent, final((0, values[0]), (2, values[2]))])
    found = judge({"long": story})["long"].found
    assert {(anomaly, offset) for anomaly, offset, _ in found} == {
        ("lost-write", 1),
        ("int-poll-skip", 2),
    }
