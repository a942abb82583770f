"""Logs with a clock that a test sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from neaptide.clusters.broker.replication.model import TopicPartition
from neaptide.clusters.broker.storage.config import LogConfig
from neaptide.clusters.broker.storage.log import Log
from tests.storage.batches import NOW_MS

TP = TopicPartition("t", 0)
OpenLog = Callable[..., Log]


@pytest.fixture
def open_log(tmp_path: Path) -> OpenLog:
    def opened(recovery_point: int = 0, clean: bool = False, **config: object) -> Log:
        return Log.open(
            tmp_path / "t-0",
            TP,
            LogConfig(**config),
            recovery_point,
            clean,
            clock=lambda: NOW_MS,
        )

    return opened
