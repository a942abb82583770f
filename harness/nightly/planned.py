"""The plan of whoever gives none, and what a plan comes to before anything of it is played."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, Final

from neaptide.clusters.errors import MissingPartError
from neaptide.clusters.kafka.versions import is_fetched
from neaptide.harness.nightly.asked import axes_of, means_of, space
from neaptide.harness.nightly.campaign import Campaign, known_files
from neaptide.harness.nightly.cells import pairs
from neaptide.harness.nightly.known import plays_of
from neaptide.harness.nightly.plan import Plan
from neaptide.harness.nightly.rows import Known
from neaptide.workloads.libraries.table import DEFAULT

_OWN: Final = ("neaptide:2.1", "neaptide:4.0")
_KAFKAS: Final = ("3.9.1", "4.4.0")
_CLIENTS: Final = (DEFAULT, "kafka-python", "aiokafka")


def built_in() -> Plan:
    """Our own brokers, and each Kafka whose jars are here already: nothing is fetched."""
    kafkas = [f"kafka:{version}" for version in _KAFKAS if _is_here(version)]
    return Plan(
        systems=[*_OWN, *kafkas],
        workloads=["append", "groups", "txn"] if kafkas else ["append"],
        clients=[*_CLIENTS],
        idempotence=[False, True],
        settings={"min.insync.replicas": ["2"]},
    )


def _is_here(version: str) -> bool:
    try:
        return is_fetched(version)
    except MissingPartError:
        return False


def described(plan: Plan, nights: Path, seed: int, count: int) -> dict[str, Any]:
    """Raises UsageError. `cells`: the first so many; `pairs`: how many cover every pair."""
    means = means_of(plan)
    there = space(plan, means)
    campaign = Campaign(nights, plan, seed, means, there, Known(), ())
    bound, free = axes_of(plan)
    return {
        "axes": {axis: list(values) for axis, values in {**bound, **free}.items()},
        "left_out": dict(there.refused),
        "known": [
            play.of
            for file in known_files(nights, plan)
            for play in plays_of(file, plan.systems, seed)
        ],
        "pairs": len(pairs(there, seed)),
        "cells": [
            {"cell": cell.number, "by": cell.by, "seed": cell.seed, **cell.values}
            for cell in islice(campaign.cells(), count)
        ],
    }
