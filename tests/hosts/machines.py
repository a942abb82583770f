"""Three machines that are reached by ssh: network namespaces with a real sshd in each.

Host keys, the user's key and known_hosts are made for the test; nobody's own are used. Run as a
program it holds them up until its standard input ends, and prints the file of nodes.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from neaptide.clusters.hosts.local import LocalHost, ProcessSpec
from neaptide.clusters.hosts.netns import NetnsHost

NODES = (0, 1, 2)
DEADLINE_S = 30.0
_SSHD = """\
ListenAddress {address}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/user_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
"""


@dataclass(frozen=True, slots=True)
class Machines:
    """`nodes` is the file that the command is given with --nodes."""

    directory: Path
    addresses: tuple[str, ...]

    @property
    def nodes(self) -> Path:
        return self.directory / "nodes.toml"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    def change_host_key(self, number: int) -> None:
        """What known_hosts has for one machine is another key from now on."""
        lines = self.known_hosts.read_text().splitlines()
        _, kind, key = _make_key(self.directory / "another_key").split()[:3]
        lines[number] = f"{self.addresses[number]} {kind} {key}"
        self.known_hosts.write_text("\n".join(lines) + "\n")


def _make_key(file: Path) -> str:
    """A word for the host, and the public key."""
    file.unlink(missing_ok=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)], check=True)
    return f"host {file.with_name(file.name + '.pub').read_text()}"


@contextmanager
def machines(directory: Path) -> Iterator[Machines]:
    """Started, reachable, and gone in the end."""
    directory.mkdir(parents=True, exist_ok=True)
    local = LocalHost()
    host = NetnsHost(local)
    try:
        yield asyncio.run(_start(host, directory))
    finally:
        local.close_now()


async def _start(host: NetnsHost, directory: Path) -> Machines:
    await host.prepare(NODES)
    addresses = tuple(host.address(node) for node in NODES)
    public = _make_key(directory / "host_key").split()[1:3]
    _make_key(directory / "user_key")
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd wants to be without privileges
    for node, address in zip(NODES, addresses, strict=True):
        configuration = directory / f"sshd-{node}.conf"
        configuration.write_text(_SSHD.format(address=address, directory=directory))
        argv = ("/usr/sbin/sshd", "-D", "-e", "-f", str(configuration))
        log = directory / f"sshd-{node}.log"
        await host.start(node, ProcessSpec(f"sshd {node}", argv, directory, log))
        _await_sshd(address, log)
    found = Machines(directory, addresses)
    found.known_hosts.write_text("".join(f"{a} {' '.join(public)}\n" for a in addresses))
    found.nodes.write_text(_nodes_file(found))
    return found


def _await_sshd(address: str, log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((address, 22), DEADLINE_S) as sshd:
            if sshd.recv(4) == b"SSH-":
                return
        time.sleep(0.05)
    raise AssertionError(f"no sshd at {address}: {log.read_text()}")


def _nodes_file(found: Machines) -> str:
    lines = [f'known_hosts = "{found.known_hosts}"']
    for address in found.addresses:
        key = found.directory / "user_key"
        lines += ["[[node]]", f'address = "{address}"', 'user = "root"', f'key = "{key}"']
        lines.append(f'python = "{sys.executable}"')
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with machines(Path(sys.argv[1])) as standing:
        print(standing.nodes, flush=True)
        sys.stdin.read()
