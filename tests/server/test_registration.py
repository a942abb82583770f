"""E7: from generation 4.0 on a broker says when it has not ended cleanly."""

from __future__ import annotations

from pathlib import Path

import pytest

from neaptide.clusters.broker.server.config import server_config
from neaptide.clusters.broker.server.process import registration
from neaptide.clusters.broker.storage.log_manager import LogManager


@pytest.mark.parametrize(
    ("generation", "clean", "unclean"),
    [("4.0", True, False), ("4.0", False, True), ("2.1", False, False)],
)
def test_e7_an_unclean_shutdown_is_owned_up_to(
    tmp_path: Path, generation: str, clean: bool, unclean: bool
) -> None:
    config = server_config(
        {
            "broker.id": "1",
            "neaptide.generation": generation,
            "listeners": "CLIENT://127.0.0.1:9092",
            "log.dirs": str(tmp_path),
            "zookeeper.connect": "127.0.0.1:2181",
        }
    )
    if clean:
        LogManager.open([tmp_path], 1, {}).shutdown()
    logs = LogManager.open([tmp_path], 1, {})
    assert registration(config, logs).unclean_shutdown is unclean
    logs.shutdown()
