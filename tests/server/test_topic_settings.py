"""A topic's own settings hold after a restart, and when they change (A1); what they mean (A9)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from neaptide.clusters.broker.coordination.znodes import MalformedZnodeError
from neaptide.clusters.broker.replication.interface.events import StopReplicaRequested
from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.server.flushing import keep_flushed
from neaptide.clusters.broker.storage.config import SettingError, log_config
from neaptide.clusters.broker.storage.errors import StorageError
from neaptide.clusters.broker.storage.log import wall_clock_ms
from neaptide.clusters.broker.storage.log_manager import LogManager
from tests.hardening.poison import SOUND
from tests.live.raw import produce_request
from tests.server.given import turns
from tests.storage.batches import NOW_MS, batch, with_headers
from tests.wire.hurt import Leader

T0 = TopicPartition("t", 0)
SETTINGS = {
    "retention.ms": "-1",
    "flush.messages": "1",
    "cleanup.policy": "compact",
    "max.message.bytes": "70",
    "min.insync.replicas": "2",
}


class Reported(Leader):
    """A leader whose coordination service knows the topic's settings."""

    settings: Mapping[str, str] = SETTINGS

    async def lead(self) -> Leader:
        async def settings(entity: str) -> Mapping[str, str]:
            assert entity in ("topics/t", "brokers/7", "brokers/<default>")
            return self.settings if entity == "topics/t" else {}

        self.coordination.settings = settings  # type: ignore[method-assign]
        return await super().lead()


def test_a1_logs_have_their_topics_settings_after_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await Reported(tmp_path / "data").lead()
        first = leader.log.config
        leader.shell.shut_down()
        again = Reported(tmp_path / "data")
        assert again.logs.logs[T0].config.retention_ms == 7 * 24 * 3_600_000  # before it is asked
        await again.lead()
        config = again.log.config
        assert (config.retention_ms, config.flush_messages) == (-1, 1)
        assert (config.cleanup_policy, config) == ("compact", first)
        assert again.shell.core.partitions[T0].settings.min_insync_replicas == 2

    asyncio.run(run())


def test_a1_settings_that_change_while_it_runs_are_taken_up(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await Reported(tmp_path / "data").lead()
        assert await leader.produce(SOUND) == ("message_too_large", -1)
        leader.shell.on_settings("topics/t", {"max.message.bytes": "10000", "flush.messages": "9"})
        assert await leader.produce(SOUND) == ("none", 0)
        assert leader.log.config.flush_messages == 9
        assert leader.log.config.retention_ms == 7 * 24 * 3_600_000
        leader.shell.on_settings("topics/nobody's", {"max.message.bytes": "1"})
        assert await leader.produce(SOUND) == ("none", 3)

    asyncio.run(run())


def test_a1_a_setting_that_is_none_is_left_out_and_the_others_hold(tmp_path: Path) -> None:
    """Whoever wrote it to ZooKeeper: it ended every broker of the topic."""

    async def run() -> None:
        leader = Reported(tmp_path / "data")
        leader.settings = {**SETTINGS, "segment.bytes": "many", "min.insync.replicas": "two"}
        await leader.lead()
        assert not leader.failures
        assert leader.log.config.flush_messages == 1
        assert leader.shell.core.partitions[T0].settings.min_insync_replicas == 1

    asyncio.run(run())


def test_a1_settings_that_cannot_be_read_are_the_brokers(tmp_path: Path) -> None:
    async def run() -> None:
        leader = Leader(tmp_path / "data")

        async def malformed(entity: str) -> Mapping[str, str]:
            raise MalformedZnodeError("the configuration of topic t", b"{")

        leader.coordination.settings = malformed  # type: ignore[method-assign]
        await leader.lead()
        assert not leader.failures
        assert await leader.produce(SOUND) == ("none", 0)

    asyncio.run(run())


# --- message.timestamp.type -----------------------------------------------------------------------


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a9_with_log_append_time_records_have_the_time_of_their_append(
    tmp_path: Path, compression: str
) -> None:
    async def run() -> None:
        leader = Reported(tmp_path / "data")
        leader.settings = {"message.timestamp.type": "LogAppendTime"}
        await leader.lead()
        before = wall_clock_ms()
        records = batch(0, [b"a", b"b"], compression=compression)
        answer = await leader.answer(produce_request("t", records, acks=1))
        after = wall_clock_ms()
        [header] = leader.log.snapshot().headers()
        assert before <= header.max_timestamp <= after
        reported = answer.responses[0].partition_responses[0].log_append_time
        assert round(reported.timestamp() * 1000) == header.max_timestamp
        found = await leader.look_up(NOW_MS + 1)
        assert found == ("none", header.max_timestamp, 0)

    asyncio.run(run())


def test_a9_with_create_time_records_keep_theirs(tmp_path: Path) -> None:
    async def run() -> None:
        leader = await Leader(tmp_path / "data").lead()
        answer = await leader.answer(produce_request("t", SOUND, acks=1))
        [header] = leader.log.snapshot().headers()
        assert header.max_timestamp == NOW_MS + 2
        assert answer.responses[0].partition_responses[0].log_append_time is None

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        ("message.timestamp.type", "Sometimes", "LogAppendTime"),
        ("cleanup.policy", "compress", "compact,delete"),
        ("segment.bytes", "3", "14"),
        ("segment.bytes", str(2**31), str(2**31 - 1)),
        ("flush.messages", str(2**63), str(2**63 - 1)),
        ("segment.ms", "0", "1"),
        ("retention.bytes", "much", "-1"),
    ],
)
def test_a9_a_setting_has_kafkas_range(name: str, wrong: str, right: str) -> None:
    log_config({}, {name: right})
    with pytest.raises(SettingError, match=name):
        log_config({}, {name: wrong})


# --- flush.ms -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "interval_ms"),
    [({"flush.ms": "20"}, None), ({"flush.ms": "20"}, 10)],
    ids=["the log's own", "the scheduler's"],
)
def test_a9_a_log_is_flushed_when_its_flush_ms_has_passed(
    tmp_path: Path, settings: dict[str, str], interval_ms: int | None
) -> None:
    """It was looked at once a minute."""

    async def run() -> None:
        logs = LogManager.open([tmp_path], 0, {})
        log = logs.create_log(T0, settings)
        other = logs.create_log(TopicPartition("other", 0))
        for one in (log, other):
            one.append(*with_headers(batch(0, [b"x"])))
        lost: list[StorageError] = []
        flusher = asyncio.ensure_future(keep_flushed(logs, interval_ms, lost.append))
        while log.recovery_point == 0:
            await asyncio.sleep(0.005)
            assert not flusher.done()
        assert (log.recovery_point, other.recovery_point) == (1, 0)
        flusher.cancel()
        await turns()
        logs.shutdown()

    asyncio.run(run())


def test_c5_they_are_taken_up_when_another_partition_of_the_topic_has_moved_away(
    tmp_path: Path,
) -> None:
    async def run() -> None:
        leader = await Reported(tmp_path / "data").lead()
        connection = leader.connection()
        leader.ask(connection, leader.leader_and_isr("t", 0, 1), 50)
        await turns()
        assert T0._replace(partition=1) in leader.logs.logs
        stop = StopReplicaRequested(0, 7, 1, True, (T0._replace(partition=1),))
        leader.ask(connection, leader.control_request(stop), 51)
        await turns()
        assert set(leader.logs.logs) == {T0}
        leader.shell.on_settings("topics/t", {"flush.messages": "9"})
        assert leader.log.config.flush_messages == 9

    asyncio.run(run())
