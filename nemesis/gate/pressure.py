"""How much of a connection may be on its way inside the gate: as little as can be.

Between a client and its broker there is room for so many bytes, and a client that finds no more
waits, while its next batches grow. A gate that reads on while the broker does not would take that
pressure from it: producers then send more and smaller batches, and brokers work more for the same
records than they do without a gate.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

# Kafka's brokers ask for 100 KiB (socket.receive.buffer.bytes). The gate cannot see how much fits
# into a broker's, and is woken for every piece that does not: a few of them at once cost it less.
RECEIVE_BYTES: Final = 200 * 1024


def keep_pressure(transport: asyncio.Transport) -> None:
    """Take in little at once, and nothing while what was written to the other side waits."""
    connected = transport.get_extra_info("socket")
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, 1)
    transport.set_write_buffer_limits(0)
