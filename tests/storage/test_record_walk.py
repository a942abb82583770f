"""Records that are looked at together are what they are one by one: also where they are wrong."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from neaptide.clusters.broker.storage.record_walk import Walked, _walk_apart, walk

RUNS = st.lists(
    st.tuples(
        st.integers(1, 90),  # how many
        st.sampled_from((0, 1, 63, 64, 100, 9000)),  # of this size
        st.sampled_from((None, 0, 3, 70)),  # with such a key
        st.integers(-5, 70),  # so much later each
        st.sampled_from((0, 0, 0, 2)),  # headers
    ),
    min_size=1,
    max_size=4,
)
DAMAGE = st.lists(st.tuples(st.integers(0, 2**30), st.integers(0, 255)), max_size=2)


def varint(number: int) -> bytes:
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while raw > 0x7F:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def field(size: int | None) -> bytes:
    return varint(-1) if size is None else varint(size) + bytes(size)


def record(index: int, time: int, size: int, key: int | None, headers: int) -> bytes:
    content = b"\0" + varint(time) + varint(index) + field(key) + field(size)
    content += varint(headers) + (field(2) + field(None)) * headers
    return varint(len(content)) + content


def written(runs: list[tuple[int, int, int | None, int, int]]) -> tuple[bytes, int]:
    records: list[bytes] = []
    time = 0
    for many, size, key, step, headers in runs:
        for _ in range(many):
            records.append(record(len(records), time, size, key, headers))
            time += step
    return b"".join(records), len(records)


def outcome(data: bytes, count: int, *, together: bool) -> Walked | None:
    """None: they are not what they claim to be."""
    try:
        if together:
            return walk(data, 0, len(data), count)
        return _walk_apart(data, 0, len(data), 0, count)
    except (ValueError, IndexError):
        return None


@settings(max_examples=300)
@given(runs=RUNS, damage=DAMAGE)
@example(runs=[(90, 9000, None, 1, 0), (90, 9000, None, 70, 0)], damage=[])
def test_a10_together_or_one_by_one_comes_to_the_same(
    runs: list[tuple[int, int, int | None, int, int]], damage: list[tuple[int, int]]
) -> None:
    data, count = written(runs)
    for position, byte in damage:
        data = data[: position % len(data)] + bytes([byte]) + data[position % len(data) + 1 :]
    expected = outcome(data, count, together=False)
    assert outcome(data, count, together=True) == expected
    assert damage or expected is not None


def test_a10_many_alike_are_walked_over_to_the_last() -> None:
    data, count = written([(9000, 10, 3, 1, 0)])
    assert walk(data, 0, len(data), count) == (len(data), 0, 8999)
    assert outcome(data[:-1] + b"\1", count, together=True) is None
    assert outcome(data, count + 1, together=True) is None
    for index in (0, 15, 63, 64, 8191, 8192, 8999):
        begin = len(written([(index, 10, 3, 1, 0)])[0])
        wrong = record(index + 1, index, 10, 3, 0)
        other = data[:begin] + wrong + data[begin + len(record(index, index, 10, 3, 0)) :]
        assert outcome(other, count, together=True) is None, index


def test_a10_records_that_are_all_wrong_in_the_same_way_are_found_wrong() -> None:
    """Every byte of a record but its offset, with every value, in all of them."""
    size = len(record(0, 0, 3, 2, 0))
    data, count = written([(40, 3, 2, 0, 0)])
    accepted = 0
    for field_at in range(size):
        for byte in range(256):
            other = bytearray(data)
            other[field_at::size] = bytes([byte]) * count
            expected = outcome(bytes(other), count, together=False)
            assert outcome(bytes(other), count, together=True) == expected, (field_at, byte)
            accepted += expected is not None
    assert accepted > 256  # attributes, times, keys and values may be anything


def test_a10_the_least_and_the_largest_time_are_anywhere() -> None:
    for times in ([70, 9, 200, 65, 199] * 40, [5, 63, 0, 7] * 40, [64, 8191, 128, 8190] * 40):
        data = b"".join(record(n, time, 3, None, 0) for n, time in enumerate(times))
        assert walk(data, 0, len(data), len(times)) == (len(data), min(times), max(times))


def test_a10_offsets_of_one_two_and_three_bytes_follow_each_other() -> None:
    for count in (63, 64, 65, 8191, 8192, 8193, 65_535, 65_537):
        data = b"".join(record(n, 0, 0, None, 0) for n in range(count))
        assert walk(data, 0, len(data), count) == (len(data), 0, 0)
        last = record(count, 0, 0, None, 0)
        wrong = data[: -len(record(count - 1, 0, 0, None, 0))] + last
        assert outcome(wrong, count, together=True) is None
