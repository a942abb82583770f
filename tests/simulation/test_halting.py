"""A broker that halts in the midst of a step: its process is gone, the world goes on."""

from __future__ import annotations

import pytest

from neaptide.clusters.broker.replication.interface import effects
from neaptide.clusters.simulation import effect_handlers
from neaptide.nemesis.search.invariants import Watch
from tests.simulation.worlds import A, ready, run_for


@pytest.mark.parametrize("is_watched", [False, True])
def test_a5_a_broker_that_halts_does_nothing_more(
    is_watched: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = ready()
    if is_watched:
        watch = Watch()
        watch.begin(world)
        world.watch = watch
    files = dict(world.disks[A].logs)
    with monkeypatch.context() as patched:
        after = effects.DeleteLog(world.partition)
        halts = (effects.Halt("log truncation"), after)
        patched.setattr(effect_handlers, "step", lambda *_: halts)
        world.handle(A, object())
    assert A not in world.brokers
    assert world.disks[A].logs == files
    run_for(world, 5_000)
