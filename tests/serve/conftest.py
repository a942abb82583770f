"""One stored directory of runs for tests that only look, and one for each that writes."""

from __future__ import annotations

from pathlib import Path

import pytest
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
