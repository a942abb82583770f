"""Random runs of a whole cluster with acks=all, min.insync.replicas=2 and clean elections.

Nothing that a broker wrote is lost by its death. So 0.11 and later must keep every acknowledged
record; the same driver must see 0.10 lose some, or it would prove nothing.
"""

from __future__ import annotations

import pytest

from tests.core.chaos import REPLICAS, random_run


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("generation", ["2.0", "2.1", "2.8"])
def test_e5_e6_no_acked_record_is_lost_and_no_replica_diverges_from_2_0_on(
    generation: str, seed: int
) -> None:
    run = random_run(generation, seed)
    assert run.lost == set()
    assert len({tuple(run.world.log(broker)) for broker in REPLICAS}) == 1


@pytest.mark.parametrize("seed", range(100))
def test_e2_no_acked_record_is_lost_and_no_replica_diverges_on_0_11(seed: int) -> None:
    run = random_run("0.11", seed)
    assert run.lost == set()
    assert len({tuple(run.world.log(broker)) for broker in REPLICAS}) == 1


def test_e2_the_same_driver_sees_acked_records_lost_on_0_10() -> None:
    assert {seed for seed in range(50) if random_run("0.10", seed).lost}


def test_one_seed_is_one_run() -> None:
    first, second = random_run("0.11", 7), random_run("0.11", 7)
    assert first.produced == second.produced
    assert first.world.brokers == second.world.brokers
