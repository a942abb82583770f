"""Processes of the local host: started, paused, resumed, ended; none is left."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import psutil
import pytest

from neaptide.clusters.hosts.local import LocalHost, ProcessSpec, RunningProcess

pytestmark = pytest.mark.live

_STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))


def _spec(tmp_path: Path, program: str, *, pipes: bool = False) -> ProcessSpec:
    argv = (sys.executable, "-c", program)
    return ProcessSpec("node", argv, tmp_path, tmp_path / "logs" / "node.log", pipes=pipes)


async def _sleeper(host: LocalHost, tmp_path: Path) -> RunningProcess:
    return await host.start(_spec(tmp_path, "import signal; signal.pause()"))


def test_a_paused_process_is_stopped_when_pause_returns_and_runs_after_resume(
    tmp_path: Path,
) -> None:
    async def play() -> None:
        host = LocalHost()
        node = await _sleeper(host, tmp_path)
        for _ in range(5):
            await node.pause()
            assert psutil.Process(node.pid).status() == psutil.STATUS_STOPPED
            node.resume()
        node.terminate()
        assert await node.wait(10) == -signal.SIGTERM
        await host.close()

    asyncio.run(play())


def test_pausing_a_process_that_ends_is_an_error_not_a_hang(tmp_path: Path) -> None:
    async def play() -> None:
        host = LocalHost()
        node = await _sleeper(host, tmp_path)
        os.kill(node.pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="ended while it was being paused"):
            await node.pause()
        await host.close()

    asyncio.run(play())


def test_close_ends_paused_and_stubborn_ones_and_may_be_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("neaptide.clusters.hosts.local.TERM_GRACE_S", 0.2)

    async def play() -> None:
        host = LocalHost()
        paused = await _sleeper(host, tmp_path)
        await paused.pause()
        stubborn = await host.start(
            _spec(tmp_path, _STUBBORN + "\nwhile True: signal.pause()", pipes=True)
        )
        assert stubborn.popen.stdout is not None
        await asyncio.to_thread(stubborn.popen.stdout.readline)
        await host.close()
        await host.close()
        assert paused.returncode == -signal.SIGTERM
        assert stubborn.returncode == -signal.SIGKILL
        assert host.running == ()
        assert list((tmp_path / "state" / "ledger").glob("*")) == []
        with pytest.raises(RuntimeError, match="closed"):
            await _sleeper(host, tmp_path)

    asyncio.run(play())


def test_a_node_has_a_session_of_its_own_and_logs_to_its_file(tmp_path: Path) -> None:
    async def play() -> None:
        host = LocalHost()
        node = await host.start(_spec(tmp_path, "import os; print(os.getsid(0))"))
        assert await node.wait(10) == 0
        assert node.spec.stdout_log.read_text().strip() == str(node.pid)
        await host.close()

    asyncio.run(play())
