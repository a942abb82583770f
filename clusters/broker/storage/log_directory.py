"""A broker's log directory: the logs in it, its checkpoints, its owner and its lock.

One of possibly several (see log_manager); it knows nothing of the others. A clean shutdown flushes
every log and leaves `.kafka_cleanshutdown`; without that marker each log is recovered from its
recovery point on when the directory is opened again.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage import checkpoints
from neaptide.clusters.broker.storage.config import LogConfig, log_config
from neaptide.clusters.broker.storage.directory_lock import DirectoryLock
from neaptide.clusters.broker.storage.errors import LogDirectoryInUseError, StorageError
from neaptide.clusters.broker.storage.log import DELETED_SUFFIX, Clock, Log, wall_clock_ms
from neaptide.clusters.broker.storage.removal import Remove, remove_now

_PARTITION_DIRECTORY: Final = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")
_FUTURE_DIRECTORY: Final = re.compile(_PARTITION_DIRECTORY.pattern + r"\.[0-9a-f]{32}-future")
_LONGEST_NAME: Final = 255  # of a directory
_KRAFT_METADATA: Final = "__cluster_metadata"


def future_name(topic_partition: TopicPartition) -> str:
    """Of the directory of a log that is to replace the one of its partition (KIP-113)."""
    return f"{topic_partition}.{secrets.token_hex(16)}-future"


def may_have_future(topic_partition: TopicPartition) -> bool:
    return len(future_name(topic_partition)) <= _LONGEST_NAME


def partition_directories(log_directory: Path) -> dict[TopicPartition, Path]:
    """The replicas in a log directory, in order; KRaft's metadata log is none."""
    found = {}
    for path in sorted(log_directory.iterdir()):
        match = _PARTITION_DIRECTORY.fullmatch(path.name)
        if match and path.is_dir() and match["topic"] != _KRAFT_METADATA:
            found[TopicPartition(match["topic"], int(match["partition"]))] = path
    return dict(sorted(found.items()))


class LogDirectory:
    """Open one with `LogDirectory.open`; end it with `shutdown`."""

    def __init__(
        self, path: Path, lock: DirectoryLock, settings: Mapping[str, str], clock: Clock
    ) -> None:
        self.path = path
        self.logs: dict[TopicPartition, Log] = {}
        self.futures: dict[TopicPartition, Log] = {}  # of partitions whose logs are elsewhere
        self.topic_ids: dict[TopicPartition, str] = {}  # of those logs that know of which topic
        self.was_clean = (path / checkpoints.CLEAN_SHUTDOWN).exists()
        self._lock = lock
        self._settings = settings
        self._clock = clock
        self.remove: Remove = remove_now  # what was deleted

    @classmethod
    def open(
        cls,
        path: Path,
        broker_id: int,
        settings: Mapping[str, str],
        *,
        cluster_id: str | None = None,
        topic_settings: Mapping[str, Mapping[str, str]] | None = None,
        clock: Clock = wall_clock_ms,
    ) -> LogDirectory:
        """Lock the directory, see whose it is, load and recover its logs."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            lock = DirectoryLock(path)
        except OSError as error:
            raise StorageError(path, str(error)) from error
        try:
            _claim(path, broker_id, cluster_id)
            directory = cls(path, lock, settings, clock)
            directory._load(topic_settings or {})
        except OSError as error:
            lock.release()
            raise StorageError(path, str(error)) from error
        except BaseException:
            lock.release()
            raise
        return directory

    def _load(self, topic_settings: Mapping[str, Mapping[str, str]]) -> None:
        for doomed in self.path.glob(f"*{DELETED_SUFFIX}"):
            shutil.rmtree(doomed)
        recovery_points = checkpoints.read_offsets(self.path / checkpoints.RECOVERY_POINTS)
        start_offsets = checkpoints.read_offsets(self.path / checkpoints.LOG_START_OFFSETS)
        cleaned = checkpoints.read_offsets(self.path / checkpoints.CLEANED)
        for tp, directory in partition_directories(self.path).items():
            self.logs[tp] = Log.open(
                directory,
                tp,
                log_config(self._settings, topic_settings.get(tp.topic)),
                recovery_points.get(tp, 0),
                self.was_clean,
                log_start_offset=start_offsets.get(tp, 0),
                clock=self._clock,
                on_truncation=self.checkpoint_recovery_points,
                remove=self._remove,
            )
            self.logs[tp].cleaned_to = cleaned.get(tp, 0)
            topic_id = checkpoints.read_topic_id(directory)
            if topic_id is not None:
                self.topic_ids[tp] = topic_id
        for directory in sorted(self.path.iterdir()):
            if match := _FUTURE_DIRECTORY.fullmatch(directory.name):
                tp = TopicPartition(match["topic"], int(match["partition"]))
                self.futures[tp] = self._open(directory, tp, LogConfig())
        # From here on a crash is a crash.
        (self.path / checkpoints.CLEAN_SHUTDOWN).unlink(missing_ok=True)
        self.checkpoint_recovery_points()

    # --- logs ----------------------------------------------------------------------------------

    def create_log(
        self,
        topic_partition: TopicPartition,
        topic_settings: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> Log:
        """The log of a partition, made if it is not there yet; then it is of this topic."""
        log = self.logs.get(topic_partition)
        if log is None:
            config = log_config(self._settings, topic_settings)
            log = self._open(self.path / str(topic_partition), topic_partition, config)
            self.logs[topic_partition] = log
            if topic_id is not None:
                self.assign_topic_id(topic_partition, topic_id)
        return log

    def _open(self, directory: Path, tp: TopicPartition, config: LogConfig) -> Log:
        return Log.open(
            directory,
            tp,
            config,
            clock=self._clock,
            on_truncation=self.checkpoint_recovery_points,
            remove=self._remove,
        )

    def assign_topic_id(self, topic_partition: TopicPartition, topic_id: str) -> None:
        """Say on disk of which topic a log is (`partition.metadata`)."""
        checkpoints.write_topic_id(self.path / str(topic_partition), topic_id)
        self.topic_ids[topic_partition] = topic_id

    def create_future(self, topic_partition: TopicPartition, config: LogConfig) -> Log:
        """An empty log that is to replace the one of its partition in another directory."""
        directory = self.path / future_name(topic_partition)
        future = self.futures[topic_partition] = self._open(directory, topic_partition, config)
        return future

    def delete_future(self, topic_partition: TopicPartition) -> None:
        self.futures.pop(topic_partition).delete()

    def promote_future(
        self, topic_partition: TopicPartition, topic_id: str | None, high_watermark: int
    ) -> Log:
        """From now on it is the log of its partition, in the directory of that name."""
        future = self.futures.pop(topic_partition)
        future.flush()
        future.close()
        directory = self.path / str(topic_partition)
        try:
            future.directory.rename(directory)
            checkpoints.sync_directory(self.path)
        except OSError as error:
            raise StorageError(self.path, str(error)) from error
        log = Log.open(
            directory,
            topic_partition,
            future.config,
            future.log_end_offset,
            clean_shutdown=True,
            log_start_offset=future.log_start_offset,
            clock=self._clock,
            on_truncation=self.checkpoint_recovery_points,
            remove=self._remove,
        )
        self.logs[topic_partition] = log
        if topic_id is not None:
            self.assign_topic_id(topic_partition, topic_id)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.write_high_watermarks({**self.read_high_watermarks(), topic_partition: high_watermark})
        return log

    def use_settings(self, settings: Mapping[str, str]) -> None:
        """Of the broker; logs that are there have them when their topics are reconfigured."""
        self._settings = settings

    def reconfigure(self, topic: str, topic_settings: Mapping[str, str]) -> None:
        """Give a topic's logs its settings, over the broker's."""
        config = log_config(self._settings, topic_settings)
        for tp, log in (*self.logs.items(), *self.futures.items()):
            if tp.topic == topic:
                log.reconfigure(config)

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Remove a log and what the checkpoints say of it."""
        self.logs.pop(topic_partition).delete()
        self.topic_ids.pop(topic_partition, None)
        self.checkpoint_recovery_points()
        self.checkpoint_log_start_offsets()
        self.checkpoint_cleaned()
        high_watermarks = self.read_high_watermarks()
        if high_watermarks.pop(topic_partition, None) is not None:
            self.write_high_watermarks(high_watermarks)

    # --- checkpoints ---------------------------------------------------------------------------

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        return checkpoints.read_offsets(self.path / checkpoints.HIGH_WATERMARKS)

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        checkpoints.write_offsets(self.path / checkpoints.HIGH_WATERMARKS, high_watermarks)

    def checkpoint_recovery_points(self) -> None:
        """Say on disk up to where each log was flushed; due by timer and after a truncation."""
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        checkpoints.write_offsets(self.path / checkpoints.RECOVERY_POINTS, points)

    def checkpoint_log_start_offsets(self) -> None:
        """Only those that do not follow from the segments' names."""
        offsets = {
            tp: log.log_start_offset
            for tp, log in self.logs.items()
            if log.log_start_offset > log.segment_base_offsets[0]
        }
        checkpoints.write_offsets(self.path / checkpoints.LOG_START_OFFSETS, offsets)

    def checkpoint_cleaned(self) -> None:
        """Say on disk up to where logs were cleaned."""
        offsets = {tp: log.cleaned_to for tp, log in self.logs.items() if log.cleaned_to}
        checkpoints.write_offsets(self.path / checkpoints.CLEANED, offsets)

    def _remove(self, doomed: Sequence[Path]) -> None:
        self.remove(doomed)

    # --- ending --------------------------------------------------------------------------------

    def abandon(self) -> None:
        """An end without any writing, which a later start recovers from."""
        for log in (*self.logs.values(), *self.futures.values()):
            log.abandon()
        self._lock.release()

    def shutdown(self) -> None:
        """A clean end: flush all, write the checkpoints, then the marker."""
        try:
            for log in self.logs.values():
                log.flush()
                log.close()
            for log in self.futures.values():  # begun anew at the next start
                log.abandon()
            self.checkpoint_recovery_points()
            self.checkpoint_log_start_offsets()
            checkpoints.replace_file(self.path / checkpoints.CLEAN_SHUTDOWN, "")
        finally:
            self._lock.release()


def _claim(path: Path, broker_id: int, cluster_id: str | None) -> None:
    """A directory belongs to one broker of one cluster."""
    owner = checkpoints.read_meta_properties(path)
    if owner is None:
        checkpoints.write_meta_properties(path, broker_id, cluster_id)
        return
    for name, ours in (("broker.id", str(broker_id)), ("cluster.id", cluster_id)):
        theirs = owner.get(name)
        if ours is not None and theirs is not None and theirs != ours:
            raise LogDirectoryInUseError(
                path,
                f"its meta.properties says {name}={theirs}, this broker has {ours}; "
                "give each broker a directory of its own",
            )
