"""Hooks for projects that have checks and workloads of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest


@pytest.hookspec
def pytest_neaptide_check(run: Path) -> Iterable[str]:
    """Called after neaptide has judged a run, with the directory of the run.

    Return one sentence for each problem that was found; each fails the test, as an anomaly does.
    `run.json`, `operations/`, `replicas/` and `anomalies/` are there (docs/checkers.md).
    """
    raise NotImplementedError


@pytest.hookspec
def pytest_neaptide_workloads() -> Mapping[str, str]:
    """Workloads of your own by the names that `neaptide.run(name)` takes: `{"orders":
    "shop.load:ORDERS"}`, each a `Workload` of a module that can be imported (docs/workloads.md).
    """
    raise NotImplementedError
