"""A real ZooKeeper from PySpark's jars, and a real client."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from neaptide.clusters.hosts.local import LocalHost
from neaptide.clusters.hosts.zookeeper import ZooKeeper, serves
from tests.live.cluster import LiveCluster


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


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"Zookeeper version: 3.9.4, built on 2025-08-19", True),
        (b"This ZooKeeper instance is not currently serving requests\n", False),
        (b"imok", False),  # the port is bound, and that is all
        (b"", False),
    ],
)
def test_a_server_that_only_listens_does_not_serve(answer: bytes, expected: bool) -> None:
    async def play() -> bool:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(4)
            writer.write(answer)
            writer.close()

        async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
            return await serves("127.0.0.1", server.sockets[0].getsockname()[1])

    assert asyncio.run(play()) is expected


@pytest.mark.live
def test_a_cluster_that_is_closed_leaves_no_socket_to_be_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `pytest -W error` what is not closed fails the suite of whoever has a cluster."""
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))
    gc.collect()  # what others have left
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: found.append(str(what.exc_value)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        cluster = LiveCluster(tmp_path / "cluster", {}, "2.1", members=(0,))
        cluster.close()
        del cluster
        gc.collect()
    assert found == []
