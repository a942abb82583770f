"""Ports that have to be known before they are bound, reserved so that nobody else takes them.

Prefer to let a process bind port 0 and report: this is for those that cannot (ZooKeeper, Kafka).
The ports lie below the kernel's ephemeral range, so no outgoing connection lands on one. Two
harnesses cannot choose the same, whatever user and whatever directories they have, even while the
process that is to have the port is down: each holds the UDP port of the same number for as long
as it may use the TCP port. The kernel gives both back when a harness dies. The TCP socket itself
is held until just before the process binds it.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Final

from neaptide.clusters.errors import MissingPartError

LOOPBACK: Final = "127.0.0.1"
FREE_WITHIN_S: Final = 5.0
_LOOK_S: Final = 0.01  # nothing reports that a port is free
_FIRST_PORT: Final = 10_000
_EPHEMERAL_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_EPHEMERAL_DEFAULT: Final = 32_768


class PortReservation:
    """A loopback port of ours until `close()`; its socket only until `release_socket()`."""

    def __init__(self, port: int, held: socket.socket, claim: socket.socket) -> None:
        self.port = port
        self._held = held
        self._claim = claim

    def release_socket(self) -> int:
        """Let a process of ours bind the port, which is returned. The claim on it stays.

        Raises MissingPartError where somebody else has bound it since it was last ours.
        """
        self._held.close()
        deadline = time.monotonic() + FREE_WITHIN_S
        while (error := self._why_not_free()) is not None:
            if time.monotonic() > deadline:
                raise MissingPartError(
                    f"Port {self.port}, which was chosen for this run, is in use by another"
                    " process; end that process, or run the command again."
                ) from error
            time.sleep(_LOOK_S)
        return self.port

    def _why_not_free(self) -> OSError | None:
        """A process that another thread is about to start has our socket until it is executed."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as asked:
            # As servers do: connections of a process of ours that died do not count.
            asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                asked.bind((LOOPBACK, self.port))
            except OSError as error:
                return error
        return None

    def close(self) -> None:
        """Give the port back. Idempotent."""
        self._held.close()
        self._claim.close()


def reserve_port() -> PortReservation:
    """Reserve a free port that is outside of the ephemeral range."""
    ports = range(_FIRST_PORT, _ephemeral_low())
    for step in range(len(ports)):
        # Where a harness starts to look depends on its pid: they rarely meet.
        port = ports[(os.getpid() * 37 + step) % len(ports)]
        if (reservation := _try_to_reserve(port)) is not None:
            return reservation
    raise MissingPartError(
        f"no free port between {ports.start} and {ports.stop}: end some of what listens there"
    )


def _try_to_reserve(port: int) -> PortReservation | None:
    claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        claim.bind((LOOPBACK, port))
        held.bind((LOOPBACK, port))
        held.listen(1)
    except OSError:  # somebody's already: another harness's, or a server's
        held.close()
        claim.close()
        return None
    return PortReservation(port, held, claim)


def _ephemeral_low() -> int:
    try:
        low = int(_EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except FileNotFoundError:  # not Linux
        low = _EPHEMERAL_DEFAULT
    return low if low > _FIRST_PORT + 1000 else _EPHEMERAL_DEFAULT
