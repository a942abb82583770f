"""How fast schedules are searched, as one JSON document: `python -m tests.benchmarks.search`.

Here, with so many processes: the time from nothing to the first loss on 0.10 over several seeds,
schedules a second meanwhile, steps before and after shrinking; events and simulated seconds a
second of one world that does nothing but live; distinct states a second of an exhaustive search.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import replace
from typing import Any

from neaptide.clusters.broker.replication.generation import GENERATIONS
from neaptide.clusters.simulation.network import CLIENTS, CONTROL, COORDINATION
from neaptide.harness.search.explore import DEFAULT_FAULTS
from neaptide.nemesis.search.campaign import Until, run_campaign
from neaptide.nemesis.search.command import SETTINGS, TOPIC_SETTINGS
from neaptide.nemesis.search.deliveries import Counts
from neaptide.nemesis.search.exhaustive import Limits, run
from neaptide.nemesis.search.search import Search
from neaptide.nemesis.search.targets import target_of
from neaptide.nemesis.search.worlds import ready_world

LIVES_S = 600  # simulated


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10, help="searches, each to its first loss")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--time", type=float, default=60.0, help="of each search at most")
    asked = parser.parse_args()
    print(
        json.dumps(
            {
                "cores": os.cpu_count(),
                "load_before": round(os.getloadavg()[0], 1),
                "workers": asked.workers,
                "first_loss": _first_losses(asked.seeds, asked.workers, asked.time),
                "one_world": _one_world(),
                "exhaustive": _states(),
            },
            indent=2,
        )
    )


def _first_losses(seeds: int, workers: int, time_s: float) -> dict[str, Any]:
    search = Search(GENERATIONS["0.10"], ("all",), DEFAULT_FAULTS, SETTINGS, TOPIC_SETTINGS, 3_000)
    until = Until(time_s=time_s, first=True)
    first_s: list[float] = []
    steps: list[tuple[int, int]] = []
    schedules, seconds = 0, 0.0
    for first_seed in range(0, 100 * seeds, 100):
        campaign, took_s = run_campaign(
            search, first_seed, until, workers=workers, report=lambda campaign, elapsed_s: None
        )
        schedules, seconds = schedules + campaign.schedules, seconds + took_s
        if campaign.first_loss_s is not None:
            first_s.append(round(campaign.first_loss_s, 2))
            loss = campaign.shortest()[0]
            steps.append((loss.steps, len(loss.shrunk)))
    return {
        "searches": seeds,
        "found": len(first_s),
        "seconds": sorted(first_s),
        "median_seconds": statistics.median(first_s) if first_s else None,
        "steps_before_and_after_shrinking": steps,
        "schedules_per_second": round(schedules / seconds),
    }


def _one_world() -> dict[str, Any]:
    """Three brokers that fetch, for ten simulated minutes."""
    target = target_of(
        GENERATIONS["2.1"], SETTINGS, TOPIC_SETTINGS, ("all",), DEFAULT_FAULTS, watched=False
    )
    world = ready_world(target.spec)
    end_us = world.now_us + LIVES_S * 1_000_000
    started, events = time.process_time(), 0
    while world.advance(end_us):
        events += 1
    spent_s = time.process_time() - started
    return {
        "events_per_cpu_second": round(events / spent_s),
        "simulated_seconds_per_cpu_second": round(LIVES_S / spent_s),
    }


def _states() -> dict[str, Any]:
    """2.1, one record, one death, fetches only: a space that is exhausted."""
    aimed = target_of(GENERATIONS["2.1"], SETTINGS, {"min.insync.replicas": "1"}, ("all",),
                      ("kill",), watched=True)  # fmt: skip
    aimed = replace(aimed, at_once=frozenset({CLIENTS, CONTROL, COORDINATION}))
    started = time.process_time()
    found = run(aimed, Limits(Counts(produces=1, kills=1), 100_000))
    spent_s = time.process_time() - started
    return {
        "states": found.states,
        "exhausted": found.exhausted,
        "states_per_cpu_second": round(found.states / spent_s),
    }


if __name__ == "__main__":
    main()
