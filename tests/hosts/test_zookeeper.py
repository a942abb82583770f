"""A real ZooKeeper from PySpark's jars, and a real client."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from clusters.hosts.local import LocalHost
from clusters.hosts.zookeeper import ZooKeeper


@pytest.mark.live
def test_a_znode_goes_in_and_comes_back_with_the_session_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))

    async def play() -> None:
        host = LocalHost()
        try:
            server = await ZooKeeper.start(host, tmp_path / "zookeeper")
            await asyncio.to_thread(_round_trip, server.port)
            await server.stop()
            assert server.process.returncode is not None
        finally:
            await host.close()
        assert "binding to port" in (tmp_path / "zookeeper" / "zookeeper.log").read_text()

    asyncio.run(play())


def _round_trip(port: int) -> None:
    client = KazooClient(hosts=f"127.0.0.1:{port}", timeout=1.0)
    client.start(timeout=10)
    try:
        client.create("/controller", b"1", ephemeral=True)
        assert client.get("/controller")[0] == b"1"
        assert client._session_timeout == 1000
    finally:
        client.stop()
        client.close()
