"""The table of APIs is whole: every API, every event of a request, every effect of the core."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import NoneType
from typing import get_args

import pytest
from kio.schema.index import api_key_map

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.broker.replication.interface.effects import Effect
from neaptide.clusters.broker.replication.step import _HANDLERS
from neaptide.clusters.broker.server.apis.row import AnsweredByCore
from neaptide.clusters.broker.server.apis.table import (
    BY_EVENT,
    SENT,
    TABLE,
    client_apis,
    replication_apis,
)
from neaptide.clusters.broker.wire.apis import Api
from neaptide.clusters.broker.wire.codec import (
    BROKER_APIS,
    CONTROL_APIS,
    request_class,
    response_class,
)
from tests.server.given import World

BY_CORE = [row.answered for row in TABLE.values() if isinstance(row.answered, AnsweredByCore)]


def test_every_effect_has_a_performer(tmp_path: Path) -> None:
    async def play() -> None:
        assert set(World(tmp_path / "data").shell.performers) == set(get_args(Effect))

    asyncio.run(play())


def test_every_answer_of_the_core_is_the_response_of_some_api() -> None:
    assert {row.effect for row in BY_CORE} == set(get_args(effects.Answer))


def test_every_event_of_a_request_is_one_apis_and_has_a_handler_in_the_core() -> None:
    assert len(BY_EVENT) == len(BY_CORE)
    assert set(BY_EVENT) <= set(_HANDLERS)


def test_every_message_to_a_broker_is_encoded() -> None:
    fetchers = {effects.SendFetch, effects.SendOffsetForLeaderEpoch, effects.SendListOffsets}
    of_brokers = {
        effects.SendAlterPartition,
        effects.SendControlledShutdown,
        effects.SendWriteTxnMarkers,
        effects.SendAddPartitionsToTxn,
    }
    answered = fetchers | of_brokers
    assert set(SENT) == answered | set(get_args(effects.ControlRequest))
    assert all(SENT[one].decode is not None for one in answered)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_api_is_offered_in_versions_that_can_be_read_and_written(generation: str) -> None:
    spoken = replication_apis(generation)
    assert set(client_apis(generation)) <= set(spoken) <= set(TABLE)
    for api, versions in spoken.items():
        assert versions.lowest <= versions.highest
        for version in range(versions.lowest, versions.highest + 1):
            assert int(request_class(api, version).__api_key__) == api
            assert response_class(api, version) is not NoneType


def test_what_only_brokers_ask_is_not_offered_to_clients() -> None:
    assert not BROKER_APIS & set(client_apis("4.0"))
    assert set(replication_apis("4.0")) - set(client_apis("4.0")) == BROKER_APIS


def test_a_version_counts_from_its_generation_on() -> None:
    highest = [client_apis(generation)[Api.FETCH].highest for generation in GENERATIONS]
    assert highest == [5, 5, 5, 8, 10, 12, 17]
    assert [Api.INIT_PRODUCER_ID in client_apis(name) for name in ("0.10", "0.11")] == [False, True]


def test_keys_are_kafkas() -> None:
    of_old_controllers = CONTROL_APIS | {Api.CONTROLLED_SHUTDOWN}  # Kafka 4.0 has them no more
    for api in set(Api) - of_old_controllers:
        assert api_key_map[int(api)] == api.name.lower()
