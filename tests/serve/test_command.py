"""The command `serve`: where it listens, what it refuses, and how it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from tests.harness.command import COMMAND, neaptide
from tests.serve.stored import GOING_ON, Stored

pytestmark = pytest.mark.live

USAGE = 64


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_prints_where_it_is_and_ends_at_once_with_0(
    stored: Stored, tmp_path: Path, number: signal.Signals
) -> None:
    serving = subprocess.Popen(
        [*COMMAND, "serve", "--runs", str(stored.root), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NEAPTIDE_STATE": str(tmp_path / "state"), "PYTHONUNBUFFERED": "1"},
    )
    assert serving.stdout is not None
    try:
        line = serving.stdout.readline()
        address = line.split()[0]
        assert address.startswith("http://127.0.0.1:")
        assert str(stored.root) in line
        with urllib.request.urlopen(f"{address}runs/{GOING_ON}/live") as live:
            assert live.readline() == b"event: progress\n"
            serving.send_signal(number)
            live.read()
        _, said = serving.communicate(timeout=60)
    finally:
        serving.kill()
        serving.wait()
    assert serving.returncode == 0, said
    assert "Traceback" not in said
    assert "Ctrl-C ends it." in said


def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done, _ = neaptide(tmp_path, "serve", "--port", port)
    assert done.returncode == USAGE
    assert "choose another --port" in done.stderr
    done, _ = neaptide(tmp_path, "serve", "--host", "203.0.113.7", "--port", "0")
    assert done.returncode == USAGE
    assert "an address of this machine" in done.stderr
    done, _ = neaptide(tmp_path, "serve", "--runs", "nowhere")
    assert done.returncode == USAGE
    assert "is no directory of runs" in done.stderr


def test_nothing_heavy_is_loaded_to_begin_with(stored: Stored) -> None:
    heavy = ("pyspark", "matplotlib", "pandas", "confluent_kafka", "kio")
    code = f"""
import sys
from pathlib import Path
from starlette.testclient import TestClient
from neaptide.results.serve.app import create_app
client = TestClient(create_app(Path({str(stored.root)!r})), base_url="http://localhost")
assert client.get("/").status_code == 200
print([name for name in {heavy!r} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
