"""One stored directory of runs for tests that only look, and one for each that writes."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.testclient import TestClient

from neaptide.results.serve.app import create_app
from tests.serve.stored import Stored, write_store


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Nobody writes to it."""
    return write_store(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def own(tmp_path: Path) -> Stored:
    """May be written to."""
    root = tmp_path / "runs"
    root.mkdir()
    return write_store(root)


@pytest.fixture(scope="session")
def client(stored: Stored) -> TestClient:
    return client_of(stored.root)


def client_of(root: Path) -> TestClient:
    app = create_app(root)
    return TestClient(app, base_url="http://localhost:8080", follow_redirects=False)


@contextmanager
def serving(root: Path) -> Iterator[int]:
    """A real server, for a client that is none of ours; its port."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopping = asyncio.Event()
    app = create_app(root, stopping=stopping)
    config = uvicorn.Config(
        app, log_level="error", lifespan="off", timeout_graceful_shutdown=1, ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        stopping.set()
        server.should_exit = True
        thread.join()
