"""What another broker answers is not believed either (A11)."""

from __future__ import annotations

import asyncio

import pytest

from neaptide.clusters.broker.server.peer import PeerConnection, PeerError
from tests.live.raw import fetch_request


@pytest.mark.parametrize("length", [2**31 - 1, 1001, 3, 0, -1])
def test_a11_the_length_of_an_answer_is_believed_up_to_a_limit(length: int) -> None:
    async def play() -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(4)
            writer.write(length.to_bytes(4, "big", signed=True))
            await writer.drain()
            try:
                await reader.read()  # and nothing more: who believes it waits
            finally:
                writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        connection = PeerConnection("test", 60.0, 1000)
        with pytest.raises(PeerError, match=f"a response of {length} bytes"):
            await connection.request(("127.0.0.1", port), fetch_request("t", 0))
        connection.close()
        server.close()

    asyncio.run(play())
