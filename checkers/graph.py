"""Cycles among transactions: strongly connected components, each with a shortest cycle as evidence.

Plain networkx over edges that Spark found and trimmed (`neaptide.checkers.cycles`); no Spark here.

The rule: a component is named by its shortest cycle, and once: by the weakest set of edges that
closes one. Real time is a chain of moments: an operation leads to the moment of its completion,
each moment to the next, and a moment to the operations invoked after it, so that the order costs
one edge a moment and not one a pair.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import networkx as nx

Kind = Literal["ww", "wr", "rw", "process", "realtime"]
Graph = Any  # networkx.DiGraph of operations (int) and moments (str)

STARTS_MAX: Final = 32  # edges of a component from which a shortest cycle is sought


@dataclass(frozen=True, slots=True)
class Edge:
    """Why one operation comes before another."""

    source: int
    target: int
    kind: Kind
    topic: str | None = None
    partition: int | None = None
    value: str | None = None  # the record that proves it


@dataclass(frozen=True, slots=True)
class When:
    """What the orders need to know of an operation."""

    operation: int
    process: int
    invoked_ns: int
    completed_ns: int | None  # null: not known to have succeeded, so nothing is after it


@dataclass(frozen=True, slots=True)
class Cycle:
    """A shortest cycle of one component; the target of each edge is the source of the next."""

    name: str
    edges: tuple[Edge, ...]


# From the weakest set of edges to the strongest.
PLAIN: Final[tuple[tuple[Kind, ...], ...]] = (("ww",), ("wr",), ("ww", "wr"), ("ww", "wr", "rw"))


def plain_cycles(edges: Sequence[Edge]) -> list[Cycle]:
    """Cycles over what the records show."""
    told: set[int] = set()
    cycles = []
    for kinds in PLAIN:
        graph = _graph(edge for edge in edges if edge.kind in kinds)
        for cycle in _cycles(graph):
            members = {edge.source for edge in cycle}
            if kinds == ("ww", "wr") and len({edge.kind for edge in cycle}) == 1:
                continue
            if kinds[-1] == "rw" and all(edge.kind != "rw" for edge in cycle):
                continue
            if members <= told:
                continue
            told |= members
            cycles.append(Cycle(_name(cycle), cycle))
    return cycles


def ordered_cycles(edges: Sequence[Edge], operations: Sequence[When]) -> list[Cycle]:
    """Cycles that need the order of one process, or else that of real time."""
    cycles = []
    told: set[int] = set()
    for order, graph in (
        ("process", _with_processes(edges, operations)),
        ("realtime", _with_time(edges, operations)),
    ):
        for cycle in _cycles(graph):
            members = {edge.source for edge in cycle}
            if all(edge.kind != order for edge in cycle) or members <= told:
                continue
            told |= members
            cycles.append(Cycle(f"{_name(cycle)}-{order}", cycle))
    return cycles


def _name(cycle: Sequence[Edge]) -> str:
    kinds = [edge.kind for edge in cycle]
    if "rw" in kinds:
        return "G-single" if kinds.count("rw") == 1 else "G2"
    if "wr" not in kinds:
        return "G0"
    return "G1c-ww" if "ww" in kinds else "G1c"


def _graph(edges: Iterable[Edge]) -> Graph:
    graph = nx.DiGraph()
    for edge in edges:
        if edge.source != edge.target and not graph.has_edge(edge.source, edge.target):
            graph.add_edge(edge.source, edge.target, edge=edge, weight=1)
    return graph


def _with_processes(edges: Sequence[Edge], operations: Sequence[When]) -> Graph:
    graph = _graph(edges)
    in_order = sorted(operations, key=lambda op: (op.process, op.invoked_ns, op.operation))
    for before, after in itertools.pairwise(in_order):
        one, other = before.operation, after.operation
        follows = before.process == after.process and before.completed_ns is not None
        if follows and not graph.has_edge(one, other):
            graph.add_edge(one, other, edge=Edge(one, other, "process"), weight=1.5)
    return graph


def _with_time(edges: Sequence[Edge], operations: Sequence[When]) -> Graph:
    graph = _graph(edges)
    moments = sorted({op.completed_ns for op in operations if op.completed_ns is not None})
    for earlier, later in itertools.pairwise(moments):
        graph.add_edge(f"@{earlier}", f"@{later}", weight=0)
    latest = None
    position = 0
    for op in sorted(operations, key=lambda op: op.invoked_ns):
        while position < len(moments) and moments[position] < op.invoked_ns:
            latest = moments[position]
            position += 1
        if latest is not None:
            graph.add_edge(f"@{latest}", op.operation, weight=0.75)
        if op.completed_ns is not None:
            graph.add_edge(op.operation, f"@{op.completed_ns}", weight=0.75)
    return graph


def _cycles(graph: Graph) -> Iterator[tuple[Edge, ...]]:
    """One shortest cycle of each strongly connected component, in a fixed order."""
    found = []
    for members in nx.strongly_connected_components(graph):
        if len(members) > 1:
            found.append(_shortest(graph.subgraph(members)))
    yield from sorted(found, key=lambda cycle: [(e.source, e.target) for e in cycle])


def _shortest(component: Graph) -> tuple[Edge, ...]:
    proved = [data["edge"] for _, _, data in component.edges(data=True) if "edge" in data]
    starts = sorted(proved, key=lambda e: (e.kind == "process", e.source, e.target))[:STARTS_MAX]
    paths = [
        (*nx.single_source_dijkstra(component, e.target, e.source, weight="weight"), e)
        for e in starts
    ]
    _, path, first = min(paths, key=lambda found: (found[0], found[2].source, found[2].target))
    edges = [first]
    at = path[0]
    for node in path[1:]:
        if isinstance(node, int):
            data = component.get_edge_data(at, node)
            edges.append(data["edge"] if data is not None else Edge(at, node, "realtime"))
            at = node
    return _from_least(edges)


def _from_least(edges: Sequence[Edge]) -> tuple[Edge, ...]:
    """The same cycle wherever the search began."""
    least = min(range(len(edges)), key=lambda n: edges[n].source)
    return (*edges[least:], *edges[:least])
