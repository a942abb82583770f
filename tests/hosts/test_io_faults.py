"""Disks that fail, on a real process: it says itself what its calls came to."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from neaptide.clusters.errors import HostError
from neaptide.clusters.hosts.io_faults import Injection, IoFault
from neaptide.clusters.hosts.local import LocalHost, ProcessSpec

pytestmark = [pytest.mark.live, pytest.mark.needs("strace")]

# On each line that it reads: writes to the file, flushes it, says how that went and how long it
# took, in ms.
WRITER = """
import os, sys, time
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
print("ready", flush=True)
for line in sys.stdin:
    began = time.monotonic()
    try:
        os.write(file, b"x")
        os.fsync(file)
        said = "ok"
    except OSError as error:
        said = error.strerror
    print(said, int(1000 * (time.monotonic() - began)), flush=True)
"""


class Writer:
    def __init__(self, host: LocalHost, file: Path) -> None:
        self.host, self.file = host, file

    async def start(self) -> None:
        directory = self.file.parent
        argv = (sys.executable, "-c", WRITER, str(self.file))
        log = directory / "writer.err"
        self.process = await self.host.start(ProcessSpec("w", argv, directory, log, pipes=True))
        await self.said()

    async def said(self) -> str:
        assert self.process.popen.stdout is not None
        return (await asyncio.to_thread(self.process.popen.stdout.readline)).decode().strip()

    async def write(self) -> tuple[str, int]:
        """What came of one write, and how many ms it took."""
        assert self.process.popen.stdin is not None
        self.process.popen.stdin.write(b"\n")
        self.process.popen.stdin.flush()
        said, _, took_ms = (await self.said()).rpartition(" ")
        return said, int(took_ms)


def met_by(tmp_path: Path, fault: IoFault, file: str = "file") -> tuple[list[str], list[int], int]:
    """What came of three writes while the fault lasts and of one after it; how many were met."""

    async def scenario() -> tuple[list[str], list[int], int]:
        host = LocalHost()
        try:
            writer = Writer(host, tmp_path / "file")
            await writer.start()
            log = tmp_path / "strace.log"
            injection = await Injection.start(
                host, writer.process.pid, fault, [tmp_path / file], log
            )
            came = [await writer.write() for _ in range(3)]
            met = await injection.end()
            came.append(await writer.write())
            return [said for said, _ in came], [took_ms for _, took_ms in came], met
        finally:
            await host.close()

    return asyncio.run(scenario())


def test_a_write_fails_from_the_nth_on(tmp_path: Path) -> None:
    said, _, met = met_by(tmp_path, IoFault("write", "ENOSPC", nth=2))
    full = "No space left on device"
    assert (said, met) == (["ok", full, full, "ok"], 2)


def test_a_flush_fails(tmp_path: Path) -> None:
    said, _, met = met_by(tmp_path, IoFault("fsync", "EIO"))
    assert (said, met) == (["Input/output error"] * 3 + ["ok"], 3)


def test_a_flush_takes_long(tmp_path: Path) -> None:
    said, took_ms, met = met_by(tmp_path, IoFault("fsync", delay_ms=120))
    assert (said, met) == (["ok"] * 4, 3)
    assert min(took_ms[:3]) >= 120, "as long as was asked for, at least"


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    said, _, met = met_by(tmp_path, IoFault("fsync", "EIO"), file="other")
    assert (said, met) == (["ok"] * 4, 0)


def test_a_process_that_is_gone_cannot_be_traced(tmp_path: Path) -> None:
    async def scenario() -> None:
        host = LocalHost()
        try:
            writer = Writer(host, tmp_path / "file")
            await writer.start()
            writer.process.kill()
            await writer.process.wait()
            with pytest.raises(HostError, match="could not attach"):
                await Injection.start(
                    host, writer.process.pid, IoFault("fsync", "EIO"), [], tmp_path / "log"
                )
        finally:
            await host.close()

    asyncio.run(scenario())
