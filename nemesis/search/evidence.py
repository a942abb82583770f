"""What passed between brokers while a schedule was played, as lines that people read.

It says how a broken invariant came about: the shrunk schedule is played once more, and the messages
between brokers are kept. Nothing is decided here.
"""

from __future__ import annotations

from neaptide.clusters.simulation.network import CONTROL, FETCH
from neaptide.clusters.simulation.world import World
from neaptide.nemesis.search.judge import Judged
from neaptide.nemesis.search.passed import Passed, Trace
from neaptide.nemesis.search.shrink import Schedule, replay
from neaptide.nemesis.search.targets import Target


def with_messages(
    target: Target, ready: World, schedule: Schedule
) -> tuple[Judged | None, tuple[str, ...]]:
    """What the schedule comes to, and the messages up to that moment, the oldest first. None: a
    replay refuses it, because it takes a last copy."""
    trace = Trace(ready.partition, channels=(FETCH, CONTROL))
    world = ready.copy()
    world.network.recorder = trace
    judged = replay(target, world, schedule)
    names = {number: name for name, number in target.names.items()}
    return judged, tuple(_line(one, names) for one in trace.passed)


def _line(one: Passed, names: dict[int, str]) -> str:
    numbers = ", ".join(f"{name} {number}" for name, number in one.numbers.items())
    ends = f"{names[one.link.source]}→{names[one.link.target]}"
    return f"{ends} {one.api} {one.message}" + (f": {numbers}" if numbers else "")
