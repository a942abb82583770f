"""All logs of a broker, in its log directories (`log.dirs`): where a log is made, and what is left
when a directory fails (KIP-112).

What is in one directory, and how it is opened and closed, is in log_directory. As Kafka's
LogManager, without its threads.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.errors import LogDirectoryInUseError, StorageError
from neaptide.clusters.broker.storage.log import Clock, Log, wall_clock_ms
from neaptide.clusters.broker.storage.log_directory import LogDirectory
from neaptide.clusters.broker.storage.removal import Remove

_log = logging.getLogger("broker")


class LogManager:
    """Open one with `LogManager.open`; end it with `shutdown`. `offline`: the directories that have
    failed. Raises StorageError where a directory cannot be used any more: then `fail` it."""

    def __init__(
        self, paths: Sequence[Path], directories: Sequence[LogDirectory], survives: bool
    ) -> None:
        self.paths = tuple(paths)
        self._directories = {one.path: one for one in directories}
        self._survives = survives
        self.logs: dict[TopicPartition, Log] = {}
        self.topic_ids: dict[TopicPartition, str] = {}  # of those logs that know of which topic
        # Where a log is to be made: its partition was named before it had one here.
        self._preferred: dict[TopicPartition, Path] = {}
        for one in directories:
            for tp in one.logs.keys() & self.logs.keys():
                raise StorageError(
                    one.path, f"{tp} is in {self.directory_of(tp).path} too; remove one of the two"
                )
            self.logs |= one.logs
            self.topic_ids |= one.topic_ids

    @classmethod
    def open(
        cls,
        paths: Sequence[Path],
        broker_id: int,
        settings: Mapping[str, str],
        *,
        clock: Clock = wall_clock_ms,
        survives: bool = False,
    ) -> LogManager:
        """Lock the directories, load and recover their logs. `survives`: one that cannot be read is
        offline, as long as there is another. Raises StorageError."""
        opened: list[LogDirectory] = []
        failed: StorageError | None = None
        try:
            for path in paths:
                try:
                    opened.append(LogDirectory.open(path, broker_id, settings, clock=clock))
                except LogDirectoryInUseError:
                    raise
                except StorageError as error:
                    if not survives:
                        raise
                    _log.error("%s Its replicas are offline.", error)
                    failed = error
            if failed is not None and not opened:
                raise failed
            return cls(paths, opened, survives)
        except BaseException:
            for one in opened:
                one.abandon()
            raise

    @property
    def was_clean(self) -> bool:
        """Whether each directory was shut down cleanly before it was opened."""
        return not self.offline and all(one.was_clean for one in self._directories.values())

    @property
    def offline(self) -> tuple[Path, ...]:
        return tuple(path for path in self.paths if path not in self._directories)

    def directory_of(self, topic_partition: TopicPartition) -> LogDirectory:
        return next(one for one in self._directories.values() if topic_partition in one.logs)

    @property
    def online(self) -> Mapping[Path, LogDirectory]:
        return self._directories

    # --- logs ----------------------------------------------------------------------------------

    def create_log(
        self,
        topic_partition: TopicPartition,
        topic_settings: Mapping[str, str] | None = None,
        topic_id: str | None = None,
    ) -> Log:
        """The log of a partition, made if it is not there yet: in the directory that it prefers, or
        in the one with the fewest."""
        known = self.logs.get(topic_partition)
        if known is not None:
            return known
        path = self._preferred.pop(topic_partition, None)
        if path not in self._directories:
            path = min(self._directories, key=lambda one: len(self._directories[one].logs))
        directory = self._directories[path]
        log = directory.create_log(topic_partition, topic_settings, topic_id)
        self.logs[topic_partition] = log
        if topic_id is not None:
            self.topic_ids[topic_partition] = topic_id
        return log

    def assign_topic_id(self, topic_partition: TopicPartition, topic_id: str) -> None:
        """Say on disk of which topic a log is (`partition.metadata`)."""
        self.directory_of(topic_partition).assign_topic_id(topic_partition, topic_id)
        self.topic_ids[topic_partition] = topic_id

    def use_settings(self, settings: Mapping[str, str]) -> None:
        """Of the broker; logs that are there have them when their topics are reconfigured."""
        for one in self._directories.values():
            one.use_settings(settings)

    def reconfigure(self, topic: str, topic_settings: Mapping[str, str]) -> None:
        """Give a topic's logs its settings, over the broker's."""
        for one in self._directories.values():
            one.reconfigure(topic, topic_settings)

    def delete_log(self, topic_partition: TopicPartition) -> None:
        """Remove a log and what the checkpoints say of it."""
        self.stop_moving(topic_partition)
        self.directory_of(topic_partition).delete_log(topic_partition)
        del self.logs[topic_partition]
        self.topic_ids.pop(topic_partition, None)

    def remove_by(self, remove: Remove) -> None:
        """What removes files that were deleted."""
        for one in self._directories.values():
            one.remove = remove

    # --- a log that moves to another directory (KIP-113) -----------------------------------------

    @property
    def futures(self) -> dict[TopicPartition, Log]:
        """The logs that are being copied to, each to replace the log of its partition."""
        return {tp: log for one in self._directories.values() for tp, log in one.futures.items()}

    def prefer(self, topic_partition: TopicPartition, path: Path) -> None:
        """The log of this partition is to be made there, when it is made."""
        self._preferred[topic_partition] = path

    def start_moving(self, topic_partition: TopicPartition, path: Path) -> None:
        """To this directory, where it is not there already or on its way; not to any other."""
        directory = self._directories[path]
        if topic_partition in directory.futures:
            return
        self.stop_moving(topic_partition)
        if topic_partition not in directory.logs:
            directory.create_future(topic_partition, self.logs[topic_partition].config)

    def stop_moving(self, topic_partition: TopicPartition) -> None:
        for one in self._directories.values():
            if topic_partition in one.futures:
                one.delete_future(topic_partition)

    def finish_moving(self, topic_partition: TopicPartition) -> None:
        """The copy, which has all, takes the place of the log; that one is deleted."""
        [target] = (one for one in self._directories.values() if topic_partition in one.futures)
        source, log = self.directory_of(topic_partition), self.logs[topic_partition]
        topic_id = self.topic_ids.get(topic_partition)
        high_watermark = source.read_high_watermarks().get(topic_partition, 0)
        aborted = log.aborted_within(log.log_start_offset, log.log_end_offset)
        moved = target.promote_future(topic_partition, topic_id, high_watermark)
        self.logs[topic_partition] = moved
        moved.epochs.replace(log.epochs.entries)
        moved.rebuild_aborted(aborted)
        moved.cleaned_to = log.cleaned_to
        target.checkpoint_cleaned()
        source.delete_log(topic_partition)

    # --- a directory that has failed -----------------------------------------------------------

    def is_offline(self, error: StorageError) -> bool:
        return self._path_of(error) in self.offline

    def _path_of(self, error: StorageError) -> Path | None:
        return next((one for one in self.paths if error.directory.is_relative_to(one)), None)

    def fail(self, error: StorageError) -> tuple[TopicPartition, ...] | None:
        """Takes the directory that the error is of offline: the partitions that had their logs in
        it, sorted. None: without it this broker cannot go on."""
        path = self._path_of(error)
        if path not in self._directories or len(self._directories) == 1 or not self._survives:
            return None
        _log.error("%s Its replicas are offline.", error)
        directory = self._directories.pop(path)
        lost = tuple(sorted(directory.logs))
        for tp in lost:
            del self.logs[tp]
            self.topic_ids.pop(tp, None)
        directory.abandon()
        return lost

    # --- checkpoints ---------------------------------------------------------------------------

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for one in self._directories.values():
            found |= {tp: at for tp, at in one.read_high_watermarks().items() if tp in one.logs}
        return found

    def write_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        for one in self._directories.values():
            one.write_high_watermarks(
                {tp: at for tp, at in high_watermarks.items() if tp in one.logs}
            )

    def checkpoint_recovery_points(self) -> None:
        """Say on disk up to where each log was flushed; due by timer and after a truncation."""
        for one in self._directories.values():
            one.checkpoint_recovery_points()

    def checkpoint_log_start_offsets(self, topic_partition: TopicPartition) -> None:
        """Of the directory in which this one is."""
        self.directory_of(topic_partition).checkpoint_log_start_offsets()

    def checkpoint_cleaned(self, topic_partition: TopicPartition) -> None:
        """Say on disk up to where the logs of its directory were cleaned."""
        self.directory_of(topic_partition).checkpoint_cleaned()

    # --- ending --------------------------------------------------------------------------------

    def shutdown(self) -> None:
        """A clean end of each directory that can be used. Raises the StorageError of the first that
        cannot, when the others are done."""
        failed: StorageError | None = None
        for one in self._directories.values():
            try:
                one.shutdown()
            except StorageError as error:
                failed = failed or error
        if failed is not None:
            raise failed
