"""Every host keeps the promises of clusters.hosts.host.Host, on the real thing."""

from __future__ import annotations

import asyncio
import io
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from neaptide.clusters.errors import HostError
from neaptide.clusters.hosts import docker_host, docker_image
from neaptide.clusters.hosts.docker_host import DockerHost
from neaptide.clusters.hosts.host import Drop, Host, NodeProcess
from neaptide.clusters.hosts.local import ProcessSpec

pytestmark = pytest.mark.live

FILTERING = [
    pytest.param("netns", marks=pytest.mark.needs("netns")),
    pytest.param("docker", marks=pytest.mark.needs("docker")),
    pytest.param("ssh", marks=pytest.mark.needs("netns", "sshd")),
]
ALL = ["local", *FILTERING]
DEADLINE_S = 30.0
# Answers what it is sent, at an address and a port.
_ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    peer, _ = server.accept()
    peer.sendall(peer.recv(100))
    peer.close()
"""
# Counts in a file until SIGTERM. Its handler leaves at once: an exception raised by a handler while
# Python closes a forgotten file is dropped, and the program would go on.
_COUNT = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: os._exit(7))
for number in range(10**9):
    open(sys.argv[1], "w").write(str(number))
    time.sleep(0.01)
"""
Open = Callable[[str], Host]


def spec(tmp_path: Path, host: Host, node: int, program: str, *arguments: str) -> ProcessSpec:
    directory = tmp_path / "run" / f"broker-{node}"
    argv = (*host.python(node), "-c", program, *arguments)
    return ProcessSpec(f"broker {node}", argv, directory, tmp_path / "run" / "logs" / f"{node}.log")


async def until_answered(address: str, port: int) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not await answers(address, port):
            await asyncio.sleep(0.02)


async def answers(address: str, port: int, within_s: float = 1.0) -> bool:
    try:
        async with asyncio.timeout(within_s):
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(b"hello")
            received = await reader.read(100)
            writer.close()
    except (OSError, TimeoutError):
        return False
    return received == b"hello"


async def echo(tmp_path: Path, host: Host, node: int) -> tuple[NodeProcess, int]:
    claim = host.claim_port(node)
    port = claim.release_socket()
    arguments = (host.address(node), str(port))
    process = await host.start(node, spec(tmp_path, host, node, _ECHO, *arguments))
    await until_answered(host.address(node), port)
    claim.close()  # the process has it now
    return process, port


@pytest.mark.parametrize("name", ALL)
def test_a_node_is_reached_at_its_address_and_reaches_the_harness(
    name: str, open_by_name: Open, tmp_path: Path
) -> None:
    host = open_by_name(name)

    async def play() -> None:
        await host.prepare((0, 1, 2))
        for node in (0, 2):
            await echo(tmp_path, host, node)
        received: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            data = await reader.read(100)
            writer.close()
            await writer.wait_closed()
            received.put_nowait(data)

        server = await asyncio.start_server(take, host.harness_address, 0)
        port = server.sockets[0].getsockname()[1]
        program = (
            "import socket, sys; s = socket.create_connection((sys.argv[1], int(sys.argv[2])))"
        )
        program += "; s.sendall(b'from the node')"
        arguments = (host.harness_address, str(port))
        process = await host.start(1, spec(tmp_path, host, 1, program, *arguments))
        assert await asyncio.wait_for(received.get(), DEADLINE_S) == b"from the node"
        assert await process.wait(DEADLINE_S) == 0
        server.close()
        await host.close()

    asyncio.run(play())


@pytest.mark.parametrize("name", ALL)
def test_pause_stops_resume_goes_on_and_each_end_is_distinguished_from_the_others(
    name: str, open_by_name: Open, tmp_path: Path
) -> None:
    host = open_by_name(name)
    count = tmp_path / "run" / "broker-0" / "data" / "count"
    count.parent.mkdir(parents=True, exist_ok=True)

    def counted() -> str:
        host.refresh(0, count)
        return count.read_text() if count.exists() else ""

    async def until_counted(more_than: str) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while counted() in ("", more_than):
                await asyncio.sleep(0.02)

    async def until_seen(process: NodeProcess, *, stopped: bool) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while process.is_stopped is not stopped:
                await asyncio.sleep(0.02)

    async def play() -> None:
        await host.prepare((0,))
        await host.put(0, count.parent)
        program = spec(tmp_path, host, 0, _COUNT, str(host.path(0, count)))
        process = await host.start(0, program)
        await until_counted("")
        assert not process.is_stopped
        await process.pause()
        await until_seen(process, stopped=True)
        seen = counted()
        await asyncio.sleep(0.2)
        assert counted() == seen
        assert process.returncode is None
        await process.resume()
        await until_seen(process, stopped=False)
        await until_counted(seen)
        await process.terminate()
        assert await process.wait(DEADLINE_S) == 7
        again = await host.start(0, program)
        await again.pause()
        await again.kill()
        assert await again.wait(DEADLINE_S) == -signal.SIGKILL
        await host.close()

    asyncio.run(play())


@pytest.mark.parametrize("name", ALL)
def test_files_go_there_and_come_back_and_the_log_of_an_ended_process_is_here(
    name: str, open_by_name: Open, tmp_path: Path
) -> None:
    host = open_by_name(name)
    data = tmp_path / "run" / "broker-0" / "data"
    data.mkdir(parents=True)
    (data / "kept").write_text("before")
    jar = tmp_path / "some.jar"
    jar.write_bytes(b"\0bytes\xff")
    program = """
import sys
kept, jar = sys.argv[1:]
sys.stdout.write(open(kept).read() + " " + repr(open(jar, "rb").read()))
open(kept, "w").write("after")
open(kept + "-new", "w").write("new")
"""

    async def play() -> None:
        await host.prepare((0,))
        installed = await host.install(0, [jar])
        await host.put(0, data)
        arguments = (str(host.path(0, data / "kept")), installed[jar])
        process = await host.start(0, spec(tmp_path, host, 0, program, *arguments))
        log = process_log(tmp_path)
        assert await process.wait(DEADLINE_S) == 0, log.read_text()
        assert log.read_text() == "before " + repr(jar.read_bytes())
        await host.get(0, data)
        assert (data / "kept").read_text() == "after"
        assert (data / "kept-new").read_text() == "new"
        await host.close()

    asyncio.run(play())


def process_log(tmp_path: Path) -> Path:
    return tmp_path / "run" / "logs" / "0.log"


@pytest.mark.parametrize("name", FILTERING)
def test_a_filter_drops_what_it_names_counts_it_and_lets_go(
    name: str, open_by_name: Open, tmp_path: Path
) -> None:
    host = open_by_name(name)

    async def play() -> None:
        await host.prepare((0, 1))
        _, cut = await echo(tmp_path, host, 0)
        _, other = await echo(tmp_path, host, 1)
        dropped_before = await host.filter(0, [Drop("input", "node", cut)])
        assert dropped_before == 0
        assert not await answers(host.address(0), cut)
        assert await answers(host.address(1), other)
        assert await host.filter(0, [Drop("output", "node", cut)]) > 0  # the other direction
        assert not await answers(host.address(0), cut)
        assert await host.filter(0, []) > 0
        assert await answers(host.address(0), cut)
        assert await host.filter(0, []) == 0
        await host.close()

    asyncio.run(play())


def test_on_docker_processes_run_in_the_image_that_was_named(
    open_by_name: Open, tmp_path: Path, node_image: None
) -> None:
    """An image of the user's: ours with one file more."""
    host = open_by_name("docker")
    assert isinstance(host, DockerHost)
    client = docker_host.connect()
    changed = client.containers.create(docker_image.tag(), ["true"])
    changed.put_archive("/", _archive("marker", b"this very image"))
    image = changed.commit("neaptide-test", "named")
    changed.remove()

    async def play() -> None:
        named = DockerHost(host.local, tmp_path / "run", "neaptide-test:named")
        await named.prepare((0,))
        program = "import sys; sys.stdout.write(open('/marker').read())"
        process = await named.start(0, spec(tmp_path, named, 0, program))
        assert await process.wait(DEADLINE_S) == 0
        await named.close()

    try:
        asyncio.run(play())
    finally:
        client.images.remove(str(image.id), force=True)
        client.close()
    assert process_log(tmp_path).read_text() == "this very image"


def _archive(name: str, content: bytes) -> bytes:
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return written.getvalue()


_BEHIND = """
import subprocess, sys
sys.exit(subprocess.call([sys.executable, "-c", *sys.argv[1:]]) + 20)
"""


@pytest.mark.needs("docker")
def test_on_docker_a_sigterm_reaches_who_is_behind_a_script_and_a_kill_leaves_nobody(
    open_by_name: Open, tmp_path: Path
) -> None:
    """The first process of a container does not end by a SIGTERM that it does not handle."""
    host = open_by_name("docker")
    counted = tmp_path / "run" / "broker-0" / "count"

    async def counting() -> NodeProcess:
        counted.unlink(missing_ok=True)
        process = await host.start(0, spec(tmp_path, host, 0, _BEHIND, _COUNT, str(counted)))
        async with asyncio.timeout(DEADLINE_S):
            while not counted.is_file():
                await asyncio.sleep(0.02)
        return process

    async def play() -> None:
        await host.prepare((0,))
        process = await counting()
        await process.terminate()
        assert await process.wait(DEADLINE_S) == 7 + 20
        await process.terminate()  # it is over: nothing is done, and nothing is wrong
        process = await counting()
        await process.kill()
        assert await process.wait(DEADLINE_S) == -signal.SIGKILL
        last = counted.read_text()
        await asyncio.sleep(0.1)
        assert counted.read_text() == last
        await host.close()

    asyncio.run(play())


@pytest.mark.needs("docker")
def test_what_docker_did_not_remove_stays_in_the_ledger(
    open_by_name: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when Docker is stopped in the middle of a run."""
    host = open_by_name("docker")
    ledger = host.local.ledger.path

    async def play() -> None:
        await host.prepare((0,))
        with monkeypatch.context() as stopped:
            stopped.setattr(docker_host, "remove_container", lambda _: False)
            stopped.setattr(docker_host, "remove_network", lambda _: False)
            with pytest.raises(HostError, match="the next command tries again"):
                await host.close()
        assert ledger.exists()
        await host.close()
        host.local.close_now()
        assert not ledger.exists()

    asyncio.run(play())
