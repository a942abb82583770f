"""A broker that is killed and comes back, ours and Apache Kafka's: its leader is the test's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.live.alone import REAL, SYSTEMS, Alone
from tests.live.cluster import until
from tests.live.conftest import each_of, started
from tests.live.led import asked_from, checkpoint, followed
from tests.live.struct_messages import OFFSET_FOR_LEADER_EPOCH, EpochEnd, Fetched, record_offsets
from tests.proof import proof_but

pytestmark = pytest.mark.live


@pytest.fixture(scope="module", params=each_of(SYSTEMS))
def restarted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Alone]:
    with started(request.param, tmp_path_factory) as cluster:
        yield cluster


@pytest.fixture
def alone(restarted: Alone) -> Iterator[Alone]:
    yield restarted
    restarted.end_phantoms()


@pytest.mark.parametrize("high_watermark", proof_but([2, 4], 4))
def test_c7_the_high_watermark_is_checkpointed_and_read_when_the_broker_starts(
    alone: Alone, topic_name: str, high_watermark: int
) -> None:
    """A leader that does not know its epoch leaves a follower nothing else to truncate to."""
    leader, place = followed(alone, topic_name)
    batches = b"".join(alone.records(at, [b"v"]) for at in range(5))
    leader.next_fetch(place).answer({place: Fetched(0, batches)})
    leader.next_fetch(place).answer({place: Fetched(high_watermark)})
    file = alone.log_directory(REAL) / "replication-offset-checkpoint"
    entry = [topic_name, "0", str(high_watermark)]
    until(lambda: file.exists() and entry in checkpoint(file.read_text()), "it is written")
    alone.kill(REAL)
    [segment] = (alone.log_directory(REAL) / f"{topic_name}-0").glob("*.log")
    assert record_offsets(segment.read_bytes()) == [0, 1, 2, 3, 4]
    leader.drop_connections()  # whoever asked is dead
    alone.restart(REAL)
    if alone.system.has_epochs:
        asked = leader.next(OFFSET_FOR_LEADER_EPOCH)
        assert asked.body == {place: 0}
        asked.answer({place: EpochEnd(-1, -1)})
    assert asked_from(leader.next_fetch(place), place) == high_watermark
    assert record_offsets(segment.read_bytes()) == list(range(high_watermark))
