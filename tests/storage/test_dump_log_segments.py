"""Kafka's own reader of segments as the oracle: it finds nothing wrong with ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.cleaner import LastOfProducer
from neaptide.clusters.broker.storage.compression import NUMBERS
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.log import Log
from neaptide.clusters.broker.storage.record_batch import (
    parse_batches,
    records,
    with_compression,
)
from tests.storage.batches import COMPRESSIONS, NOW_MS, batch, with_headers
from tests.storage.dumped import dump

pytestmark = [pytest.mark.live, pytest.mark.needs("maven")]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Log:
    """Several segments, an epoch change, a truncation, every compression type, odd timestamps."""
    config = LogConfig(segment_bytes=6000, index_interval_bytes=500)
    log = Log.open(tmp_path_factory.mktemp("logs") / "t-0", TopicPartition("t", 0), config)
    kinds = list(COMPRESSIONS)
    for number in range(130):
        offset = log.log_end_offset
        parts = []
        for at in range(1 + number % 3):
            values = [f"v{offset + at * 2 + i}".encode() for i in range(2)]
            parts.append(
                batch(
                    offset + 2 * at,
                    values,
                    epoch=number // 50,
                    timestamp=NOW_MS + (offset - 40 if number % 7 == 0 else offset),
                    compression=kinds[number % len(kinds)],
                )
            )
        log.append(*with_headers(*parts))
        if number == 60:
            log.truncate_to(log.log_end_offset - 5)
    log.flush()
    log.close()
    return log


def test_r8_kafka_reads_every_record_of_our_segments(log: Log) -> None:
    files = sorted(log.directory.glob("*.log"))
    assert len(files) > 2
    text = dump(files, "--deep-iteration", "--print-data-log")
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)]
    assert offsets == list(range(log.log_end_offset))
    payloads = re.findall(r"payload: (\S+)$", text, re.MULTILINE)
    assert payloads == [f"v{offset}" for offset in offsets]
    assert text.count("isvalid: true") == text.count("baseOffset: ")
    epochs = {int(found) for found in re.findall(r"partitionLeaderEpoch: (\d+)", text)}
    assert epochs == {0, 1, 2}


def test_r10_kafka_reads_a_cleaned_log_and_finds_its_indexes_sound(tmp_path: Path) -> None:
    """With batches of which some records are left, or none, of every compression type."""
    config = LogConfig(segment_bytes=2000, index_interval_bytes=200, cleanup_policy="compact")
    log = Log.open(tmp_path / "t-0", TopicPartition("t", 0), config, clock=lambda: NOW_MS)
    kinds = list(COMPRESSIONS)
    for number in range(120):
        offset = log.log_end_offset
        key = b"%d" % (number % 17 if number % 3 else number)
        data = batch(
            offset,
            [b"v%d" % (offset + at) for at in range(3)],
            timestamp=NOW_MS + offset,
            compression=kinds[number % len(kinds)],
            key=key,
            producer=(7, 0, 3 * number) if number % 11 == 0 else (-1, -1, -1),
        )
        log.append(*with_headers(data))
    dirt = log.dirt(None, NOW_MS)
    assert dirt is not None
    last = [one.last_offset for one in log.snapshot().headers() if one.producer_id == 7]
    cleaning = log.begin_cleaning(dirt, {7: LastOfProducer(last[-1], 0)})
    assert log.end_cleaning(cleaning, cleaning.run())
    log.flush()
    log.close()
    kept = [
        record.offset
        for header, data, at in log.snapshot().batches()
        for record in records(data, at, header)
    ]
    assert 0 < len(kept) < log.log_end_offset / 2
    text = dump(sorted(log.directory.glob("*.log")), "--deep-iteration", "--print-data-log")
    assert [int(one) for one in re.findall(r"^\| offset: (\d+) ", text, re.MULTILINE)] == kept
    assert re.findall(r"payload: (\S+)$", text, re.MULTILINE) == [f"v{one}" for one in kept]
    assert text.count("isvalid: true") == text.count("baseOffset: ")
    indexes = sorted([*log.directory.glob("*.index"), *log.directory.glob("*.timeindex")])
    text = dump(indexes, "--verify-index-only")
    for complaint in ("ismatch", "out of order", "not found", "Exception"):
        assert complaint not in text


@pytest.mark.parametrize("check", ["--index-sanity-check", "--verify-index-only"])
def test_r8_kafka_finds_our_indexes_sound(log: Log, check: str) -> None:
    files = sorted([*log.directory.glob("*.index"), *log.directory.glob("*.timeindex")])
    assert sum(file.stat().st_size for file in files) > 200
    text = dump(files, check)
    for complaint in ("ismatch", "out of order", "not found", "Exception"):
        assert complaint not in text
    if check == "--index-sanity-check":
        assert text.count("passed sanity check") == len(files)


@pytest.mark.parametrize(
    ("suffix", "byte", "complaint"),
    [(".index", 3, "Mismatches in"), (".timeindex", 7, "Found timestamp mismatch")],
)
def test_r8_the_twin_kafka_complains_of_an_index_entry_that_is_wrong(
    log: Log, tmp_path: Path, suffix: str, byte: int, complaint: str
) -> None:
    stem = sorted(log.directory.glob("*.log"))[0].stem
    for file in log.directory.glob(f"{stem}.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    broken = tmp_path / (stem + suffix)
    content = bytearray(broken.read_bytes())
    content[byte] ^= 1
    broken.write_bytes(bytes(content))
    assert complaint in dump([broken], "--verify-index-only")


def test_p6_kafka_reads_what_was_compressed_here(tmp_path: Path) -> None:
    """`compression.type`: every type, from every other."""
    log = Log.open(tmp_path / "t-0", TopicPartition("t", 0), LogConfig())
    for before in COMPRESSIONS:
        for after in NUMBERS.values():
            offset = log.log_end_offset
            made = batch(offset, [b"v%d" % offset, b"x" * 70_000], compression=before)
            [header] = parse_batches(made)
            log.append(*with_headers(with_compression(made, header, after)))
    log.flush()
    log.close()
    text = dump(sorted(log.directory.glob("*.log")), "--deep-iteration", "--print-data-log")
    payloads = re.findall(r"payload: (v\S+)$", text, re.MULTILINE)
    assert payloads == [f"v{offset}" for offset in range(0, log.log_end_offset, 2)]
    assert text.count("isvalid: true") == text.count("baseOffset: ") == len(payloads)
    codecs = re.findall(r"compresscodec: (\S+)", text)
    assert codecs == ["none", "gzip", "snappy", "lz4", "zstd"] * len(COMPRESSIONS)
