"""The simulation does each effect of the core, or refuses it: none is passed over in silence."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from neaptide.clusters.broker.replication.errors import Error
from neaptide.clusters.broker.replication.interface import coordination_service, effects, events
from neaptide.clusters.simulation.effect_handlers import HANDLERS, NOT_ASKED, NotSimulatedError
from neaptide.clusters.simulation.service import Service
from tests.simulation.worlds import A, ready

OF_THE_NODE = {effects.Halt, effects.Shutdown, effects.RespondControl}


def test_each_effect_stands_in_one_place() -> None:
    places = (set(HANDLERS), set(NOT_ASKED), OF_THE_NODE)
    assert sum(map(len, places)) == len(set.union(*places))
    assert set.union(*places) == set(get_args(effects.Effect))


def test_one_that_nobody_asks_for_is_an_error() -> None:
    with pytest.raises(NotSimulatedError, match="nobody in a simulation describes"):
        ready().handle(A, events.ListTransactionsRequested(7))
    with pytest.raises(NotSimulatedError, match="where a coordinator is"):
        ready().handle(A, events.FindCoordinatorRequested(7, ("g",)))


def test_the_service_takes_each_request_or_refuses_it() -> None:
    service = Service()
    blocks: list[Any] = [
        block
        for _ in range(2)
        for _, block in service.execute(1, coordination_service.AllocateProducerIds())
    ]
    assert blocks[0].end == blocks[1].first
    with pytest.raises(AssertionError):
        service.execute(1, Error.NONE)  # type: ignore[arg-type]
