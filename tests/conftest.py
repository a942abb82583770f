"""For all tests: none of them judges how long something took, Hypothesis included; those that this
machine lacks a part for are left out, and a table at the end says which part and how to get it.

How long tests may take and in which order they come is in `pace.py`; `make proof` in `proof.py`."""

from __future__ import annotations

import functools
import os
from dataclasses import astuple
from typing import Any, Final

import pytest
from hypothesis import settings

from tests import environment
from tests.environment import LeftOut

pytest_plugins = ["pytester", "tests.pace", "tests.proof"]
collect_ignore = ["sample_shop"]  # a project of its own: tests/harness/test_sample_shop.py

settings.register_profile("neaptide", deadline=None)
settings.load_profile("neaptide")

# Whoever uses one of these fixtures needs what it needs.
FIXTURES_NEED: Final = {
    "three_machines": ("netns", "sshd"),
    "node_image": ("docker",),
    "kafka_image": ("docker", "maven"),
}
LEFT_OUT: Final = pytest.StashKey[list[LeftOut]]()
lacking = functools.cache(environment.lacking)


def needs(item: pytest.Item) -> set[str]:
    named = {name for mark in item.iter_markers("needs") for name in mark.args}
    unknown = named - set(environment.PARTS)
    if unknown:
        raise pytest.UsageError(f"{item.nodeid} needs {sorted(unknown)}: tests.environment.PARTS")
    fixtures: list[str] = getattr(item, "fixturenames", [])
    return named.union(*(FIXTURES_NEED.get(name, ()) for name in fixtures))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left_out = environment.divided([sorted(needs(item)) for item in items], lacking)
    config.stash[LEFT_OUT] = left_out
    if left_out and os.environ.get(environment.NOTHING_LEFT_OUT):
        raise pytest.UsageError(
            f"{environment.NOTHING_LEFT_OUT} is set, and this is missing:\n"
            + "\n".join(environment.table(left_out))
        )
    chosen = set(kept)
    config.hook.pytest_deselected(items=[i for at, i in enumerate(items) if at not in chosen])
    items[:] = [items[at] for at in kept]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of xdist has collected, and another process prints."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["left_out"] = [astuple(each) for each in session.config.stash.get(LEFT_OUT, [])]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    found = getattr(node, "workeroutput", {}).get("left_out", [])
    node.config.stash[LEFT_OUT] = [LeftOut(*each) for each in found]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    left_out = config.stash.get(LEFT_OUT, [])
    if left_out:
        terminalreporter.section("left out: what this machine lacks")
        for line in environment.table(left_out):
            terminalreporter.write_line(line)
