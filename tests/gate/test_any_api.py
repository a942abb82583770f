"""Rules about any API, on client and controller links, by a real gate process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from neaptide.clusters.hosts.local import LocalHost
from neaptide.nemesis.gate import apis, decode
from neaptide.nemesis.gate.client import Gate
from neaptide.nemesis.gate.model import GateConfig, LinkSpec, Rule, Target
from tests.gate.conversing import api_versions, commit, produce, request, response, schema_of
from tests.gate.fakes import read_frame
from tests.gate.wire import frame

pytestmark = pytest.mark.live

BROKER, CONTROLLER = 2, 100


@dataclass
class Answering:
    """A broker that has its answers ready, by the number of the API."""

    answers: dict[int, Callable[[int], bytes]]
    asked: list[int] = field(default_factory=list)
    came: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                header = decode.request_header(await read_frame(reader))
                self.asked.append(header.api_key)
                self.came.set()
                await self.may_answer.wait()
                writer.write(self.answers[header.api_key](header.correlation_id))
        except (asyncio.IncompleteReadError, ConnectionError):
            self.left.set()
            writer.close()


def acknowledged(number: int) -> bytes:
    schema = schema_of("produce", 9, "response")
    partition = schema.PartitionProduceResponse(
        index=0, error_code=schema.ErrorCode.none, base_offset=41, record_errors=()
    )
    topic = schema.TopicProduceResponse(name="t", partition_responses=(partition,))
    no_time = schema.datetime.timedelta(0)
    return response(
        "produce", 9, number, schema.ProduceResponse(responses=(topic,), throttle_time=no_time)
    )


ANSWERS: dict[int, Callable[[int], bytes]] = {
    apis.PRODUCE: acknowledged,
    apis.API_VERSIONS: lambda number: api_versions(number, 12),
    apis.APIS["offset_commit"].key: lambda number: frame(number.to_bytes(4, "big") + b"\0none"),
}


def play(
    tmp_path: Path, story: Callable[[Gate, Answering], Awaitable[None]], *, waits: bool = False
) -> None:
    """A gate with a broker behind a client link, and behind a controller's. `waits`: until it may
    answer."""

    async def stage() -> None:
        broker, host = Answering(ANSWERS), LocalHost()
        if not waits:
            broker.may_answer.set()
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        target = Target(server.sockets[0].getsockname()[1])
        client = LinkSpec("client", "client", "client", BROKER, target, reads=True)
        links = (client, replace(client, name="controller", purpose="coordination", source=None))
        gate = await Gate.start(GateConfig(tmp_path / "run", time.monotonic_ns(), links), host)
        try:
            async with asyncio.timeout(60):
                await story(gate, broker)
            await gate.close()
        finally:
            server.close()
            await host.close()

    asyncio.run(stage())


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEAPTIDE_STATE", str(tmp_path / "state"))


def rule(action: str, message: str, api: str, **fields: Any) -> Rule:
    return Rule("r", action, message, api, purpose="client", **fields)  # type: ignore[arg-type]


async def hit(gate: Gate, how: str, since: int) -> dict[str, Any]:
    found = await gate.wait_for(lambda event: event["event"] == how, 20, since=since)
    assert found["rule"] == "r"
    assert found["at_ns"] > 0
    return found


def test_a_new_client_is_offered_an_old_protocol(tmp_path: Path) -> None:
    async def story(gate: Gate, broker: Answering) -> None:
        mark = gate.mark()
        await gate.install(
            rule("cap", "response", "api_versions", capped_api="produce", capped_version=7)
        )
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.ports["client"])
        ask = schema_of("api_versions", 3, "request").ApiVersionsRequest(
            client_software_name="x", client_software_version="1"
        )
        writer.write(request("api_versions", 3, 1, ask))
        reported = decode.response_entity(await read_frame(reader), apis.API_VERSIONS, 3)
        assert {int(row.api_key): int(row.max_version) for row in reported.api_keys} == {
            0: 7,
            1: 17,
        }
        event = await hit(gate, "capped", mark)
        assert (event["source"], event["destination"]) == (BROKER, "client")
        writer.close()

    play(tmp_path, story)


def test_a_produce_is_refused_in_place_of_its_leader_and_an_answer_is_changed(
    tmp_path: Path,
) -> None:
    async def story(gate: Gate, broker: Answering) -> None:
        mark = gate.mark()
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.ports["client"])
        await gate.install(
            rule("answer", "request", "produce", error="NOT_ENOUGH_REPLICAS", times=1)
        )
        writer.write(produce(9, 1) + produce(9, 2))
        for number, error in ((1, 19), (2, 0)):
            raw = await read_frame(reader)
            assert decode.correlation_id(raw) == number
            [topic] = decode.response_entity(raw, apis.PRODUCE, 9).responses
            assert int(topic.partition_responses[0].error_code) == error
        assert broker.asked == [apis.PRODUCE]  # the second one alone
        assert (await hit(gate, "answered", mark))["message"] == "request"
        await gate.remove("r")
        mark = gate.mark()
        where = "producer_id == 7 and offset == 41"
        timed_out = "REQUEST_TIMED_OUT"
        await gate.install(rule("answer", "response", "produce", error=timed_out, where=where))
        writer.write(produce(9, 3))
        [topic] = decode.response_entity(await read_frame(reader), apis.PRODUCE, 9).responses
        assert int(topic.partition_responses[0].error_code) == 7
        assert (await hit(gate, "answered", mark))["message"] == "response"
        writer.close()

    play(tmp_path, story)


def test_a_request_is_delivered_after_its_sender_has_gone(tmp_path: Path) -> None:
    async def story(gate: Gate, broker: Answering) -> None:
        mark = gate.mark()
        where = "transactional_id == tx and producer_epoch == 3"
        await gate.install(rule("hold", "request", "produce", where=where))
        _, writer = await asyncio.open_connection("127.0.0.1", gate.ports["client"])
        writer.write(produce(9, 1))
        [held] = await gate.wait_held("r")
        assert (held["source"], held["partitions"][0]["producer_id"]) == ("client", 7)
        writer.close()
        await hit(gate, "hold_sender_closed", mark)
        assert broker.asked == []
        assert await gate.release("r") == 1
        await asyncio.wait_for(broker.came.wait(), 20)
        assert broker.asked == [apis.PRODUCE]

    play(tmp_path, story)


def test_what_is_answered_to_a_late_request_is_seen_and_then_the_connection_ends(
    tmp_path: Path,
) -> None:
    async def story(gate: Gate, broker: Answering) -> None:
        mark = gate.mark()
        await gate.install(rule("hold", "request", "produce"))
        _, writer = await asyncio.open_connection("127.0.0.1", gate.ports["client"])
        writer.write(produce(9, 1))
        await gate.wait_held("r")
        writer.close()
        await hit(gate, "hold_sender_closed", mark)
        assert await gate.release("r") == 1
        answered = rule("delay", "response", "produce", delay_ms=1)
        await gate.install(answered)
        broker.may_answer.set()
        seen = await hit(gate, "dropped", mark)
        assert (seen["api"], seen["message"], seen["source"]) == ("produce", "response", BROKER)
        await asyncio.wait_for(broker.left.wait(), 20)

    play(tmp_path, story, waits=True)


def test_the_commit_of_one_group_is_lost_and_that_of_another_waits(tmp_path: Path) -> None:
    async def story(gate: Gate, broker: Answering) -> None:
        mark = gate.mark()
        where = "group == g and generation == 4"
        await gate.install(rule("drop", "request", "offset_commit", where=where, times=1))
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.ports["client"])
        writer.write(commit(1))
        assert await asyncio.wait_for(reader.read(), 20) == b""
        assert (await hit(gate, "dropped", mark))["partitions"][0]["offset"] == 9
        assert broker.asked == []
        writer.close()
        await gate.remove("r")
        mark = gate.mark()
        slow = replace(
            rule("delay", "request", "offset_commit", delay_ms=1), purpose="coordination"
        )
        await gate.install(slow)
        reader, writer = await asyncio.open_connection("127.0.0.1", gate.ports["controller"])
        writer.write(commit(2, generation=5))
        assert decode.correlation_id(await read_frame(reader)) == 2
        assert (await hit(gate, "delayed", mark))["destination"] == BROKER
        writer.close()

    play(tmp_path, story)
