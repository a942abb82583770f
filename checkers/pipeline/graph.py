"""Cycles among the operations of one run: strongly connected components, a shortest cycle of each.

Plain NumPy and SciPy over the edges and vertices that the rules found; no Spark here. Vertices are
numbered densely, edges are two arrays, components come from SciPy's compressed sparse graphs.

The rule: a component is named by its shortest cycle, and once: by the weakest set of edges that
closes one. Real time is a chain of moments: an operation leads to the moment of its completion,
each moment to the next, and a moment to the operations invoked after it, so that the order costs
one edge a moment and not one a pair.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components, dijkstra

KINDS: Final = ("ww", "wr", "rw", "realtime")
WW, WR, RW, REALTIME = range(len(KINDS))
# Sets of edges, each with the weaker sets: what these close is reported as theirs.
_PLAIN: Final = (
    ((WW,), ()),
    ((WR,), ()),
    ((WW, WR), ((WW,), (WR,))),
    ((WW, WR, RW), ((WW, WR),)),
)
_STARTS_MAX: Final = 32  # edges of a component from which a shortest cycle is sought
# A step of real time is two such edges: more than one that a record proves.
_WEIGHT_TO_MOMENT: Final = 0.75
_WEIGHT_BETWEEN_MOMENTS: Final = 1e-9

Numbers = npt.NDArray[np.int64]
Weights = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Graph:
    """Edges between operations. `edge` numbers the edge that a record proves; -1: an order does."""

    source: Numbers
    target: Numbers
    kind: Numbers  # of KINDS
    edge: Numbers
    weight: Weights

    def of_kinds(self, kinds: Sequence[int]) -> Graph:
        return self.chosen(np.isin(self.kind, kinds))

    def chosen(self, which: Any) -> Graph:
        return Graph(
            self.source[which], self.target[which], self.kind[which], self.edge[which],
            self.weight[which],
        )  # fmt: skip

    def with_more(self, other: Graph) -> Graph:
        return Graph(
            *(
                np.concatenate([getattr(self, name), getattr(other, name)])
                for name in ("source", "target", "kind", "edge", "weight")
            )
        )


@dataclass(frozen=True, slots=True)
class When:
    """When operations were: columns of the same length. No completion: -1, so nothing is after."""

    operation: Numbers
    invoked_ns: Numbers
    completed_ns: Numbers


@dataclass(frozen=True, slots=True)
class Step:
    """One edge of a cycle: from one operation to the next."""

    source: int
    target: int
    kind: str
    edge: int  # the edge that proves it; -1: an order does


@dataclass(frozen=True, slots=True)
class Cycle:
    """A shortest cycle of one component; the target of each step is the source of the next."""

    name: str
    steps: tuple[Step, ...]


def graph_of(source: Numbers, target: Numbers, kind: Numbers) -> Graph:
    return Graph(source, target, kind, np.arange(len(source)), np.ones(len(source)))


def cycles(edges: Graph, when: When) -> list[Cycle]:
    """All cycles: over what the records show, and with the order of real time, of which the order
    of each process is a part."""
    operations, numbered = _dense(edges, when.operation)
    when_of, size = _on(operations, when), len(operations)
    of_reads = numbered.of_kinds((WR,))
    return [
        Cycle(
            cycle.name,
            tuple(
                Step(int(operations[s.source]), int(operations[s.target]), s.kind, s.edge)
                for s in cycle.steps
            ),
        )
        for cycle in (*_plain(numbered, size), *_realtime(of_reads, when_of, size))
    ]


def _dense(edges: Graph, others: Numbers) -> tuple[Numbers, Graph]:
    """Operations in their order, and the same edges between their places."""
    every = np.sort(np.concatenate([edges.source, edges.target, others]))
    # `np.unique` would look each up first, which takes four times as long.
    operations = every[np.diff(every, prepend=every[:1] - 1) > 0]
    return operations, Graph(
        np.searchsorted(operations, edges.source), np.searchsorted(operations, edges.target),
        edges.kind, edges.edge, edges.weight,
    )  # fmt: skip


def _on(operations: Numbers, when: When) -> When:
    return When(
        np.searchsorted(operations, when.operation), when.invoked_ns, when.completed_ns
    )  # fmt: skip


def _plain(edges: Graph, size: int) -> Iterator[Cycle]:
    on_cycles: dict[tuple[int, ...], Flags] = {}
    for kinds, weaker in _PLAIN:
        graph = edges.of_kinds(kinds)
        if RW in kinds and RW not in graph.kind:
            continue
        labels = _components(graph, size)
        on_cycles[kinds] = _on_cycles(graph, labels)
        covered = np.zeros(size, bool)
        for others in weaker:
            covered |= on_cycles[others]
        for steps in _shortest_cycles(graph, labels, covered):
            yield Cycle(_name(steps), steps)


def _realtime(edges: Graph, when: When, size: int) -> Iterator[Cycle]:
    """Cycles over wr edges that the order of real time closes."""
    if len(edges.source) == 0:
        return
    covered = np.zeros(size + len(when.operation), bool)  # moments stand behind the operations
    covered[:size] = _on_cycles(edges, _components(edges, size))
    graph = edges.with_more(_of_time(when, size))
    for steps in _shortest_cycles(graph, _components(graph, len(covered)), covered):
        yield Cycle(f"{_name(steps)}-realtime", steps)


def _name(steps: Sequence[Step]) -> str:
    kinds = [step.kind for step in steps]
    if "rw" in kinds:
        return "G-single" if kinds.count("rw") == 1 else "G2"
    if "wr" not in kinds:
        return "G0"
    return "G1c-ww" if "ww" in kinds else "G1c"


# --- orders --------------------------------------------------------------------------------------


def _of_time(when: When, size: int) -> Graph:
    """Moments are vertices behind all operations; a negative kind marks edges from or to them."""
    done = np.flatnonzero(when.completed_ns >= 0)
    by_end = done[np.lexsort((when.operation[done], when.completed_ns[done]))]
    moments = size + np.arange(len(by_end))
    chain = _order(moments[:-1], moments[1:], -1, _WEIGHT_BETWEEN_MOMENTS)
    ends = _order(when.operation[by_end], moments, -1, _WEIGHT_TO_MOMENT)
    latest = _ended_before(when, by_end)
    after = latest >= 0
    begins = _order(moments[latest[after]], when.operation[after], -1, _WEIGHT_TO_MOMENT)
    return chain.with_more(ends).with_more(begins)


def _ended_before(when: When, by_end: Numbers) -> Numbers:
    """Of each operation the last completion before its invocation, as a place in `by_end`."""
    ns = np.concatenate([when.completed_ns[by_end], when.invoked_ns])
    index = np.concatenate([when.operation[by_end], when.operation])
    is_end = np.concatenate([np.ones(len(by_end), bool), np.zeros(len(when.operation), bool)])
    order = np.lexsort((index, ns))
    ended = np.empty(len(ns), np.int64)
    ended[order] = np.cumsum(is_end[order])
    latest: Numbers = ended[len(by_end) :] - 1
    return latest


def _order(source: Numbers, target: Numbers, kind: int, weight: float) -> Graph:
    many = len(source)
    return Graph(source, target, np.full(many, kind), np.full(many, -1), np.full(many, weight))


# --- components ----------------------------------------------------------------------------------


def _shortest_cycles(graph: Graph, labels: Numbers, covered: Flags) -> Iterator[tuple[Step, ...]]:
    """One shortest cycle of each strongly connected component without a vertex that is covered."""
    left_out = np.zeros(len(labels), bool)
    left_out[labels[covered]] = True
    label = labels[graph.source]
    inside = graph.chosen((label == labels[graph.target]) & ~left_out[label])
    label = labels[inside.source]
    order = np.argsort(label, kind="stable")
    bounds = np.flatnonzero(np.diff(label[order], prepend=-1))
    parts = np.split(order, bounds[1:]) if len(order) else []
    yield from sorted(
        (_shortest(inside.chosen(part)) for part in parts),
        key=lambda steps: [(step.source, step.target) for step in steps],
    )


def _components(graph: Graph, size: int) -> Numbers:
    ones = np.ones(len(graph.source), np.int8)
    matrix = csr_matrix((ones, (graph.source, graph.target)), shape=(size, size))
    labels: Numbers = connected_components(matrix, connection="strong")[1]
    return labels


def _on_cycles(graph: Graph, labels: Numbers) -> Flags:
    """Which vertices lie on a cycle."""
    inside = labels[graph.source] == labels[graph.target]
    found = np.zeros(len(labels), bool)
    found[graph.source[inside]] = True
    return found


def _shortest(component: Graph) -> tuple[Step, ...]:
    vertices, local = _dense(component, np.empty(0, np.int64))
    lightest = _lightest(local)
    shape = (len(vertices), len(vertices))
    matrix = csr_matrix((lightest.weight, (lightest.source, lightest.target)), shape=shape)
    found = []
    for start in _starts(lightest):
        source, target = int(lightest.source[start]), int(lightest.target[start])
        lengths, before = dijkstra(matrix, indices=target, return_predecessors=True)
        found.append((lengths[source], source, target, start, before))
    _, source, target, start, before = min(found, key=lambda one: one[:3])
    path = [source]
    while path[-1] != target:
        path.append(int(before[path[-1]]))
    places = [start, *_edges_along(lightest, path[::-1])]
    steps = [
        (int(vertices[lightest.source[n]]), int(vertices[lightest.target[n]]),
         int(lightest.kind[n]), int(lightest.edge[n]))
        for n in places
    ]  # fmt: skip
    return _from_least(_without_moments(steps))


def _lightest(graph: Graph) -> Graph:
    """One edge between two vertices: that of the least weight, then of the first kind."""
    order = np.lexsort((graph.edge, graph.kind, graph.weight, graph.target, graph.source))
    source, target = graph.source[order], graph.target[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    return graph.chosen(order[is_first])


def _starts(graph: Graph) -> Numbers:
    proved = np.flatnonzero(graph.kind >= 0)
    return proved[np.lexsort((graph.target[proved], graph.source[proved]))][:_STARTS_MAX]


def _edges_along(graph: Graph, path: Sequence[int]) -> Iterator[int]:
    """Edges are in the order of their sources, then targets."""
    for source, target in itertools.pairwise(path):
        first, behind = np.searchsorted(graph.source, [source, source + 1])
        yield int(first + np.searchsorted(graph.target[first:behind], target))


def _without_moments(steps: Sequence[tuple[int, int, int, int]]) -> list[Step]:
    """A way over moments is one step of real time."""
    first = next(n for n, step in enumerate(steps) if step[2] >= 0)
    kept: list[Step] = []
    for source, target, kind, edge in (*steps[first:], *steps[:first]):
        if kind >= 0:
            if kept and kept[-1].target != source:
                kept.append(Step(kept[-1].target, source, KINDS[REALTIME], -1))
            kept.append(Step(source, target, KINDS[kind], edge))
    if kept[-1].target != kept[0].source:
        kept.append(Step(kept[-1].target, kept[0].source, KINDS[REALTIME], -1))
    return kept


def _from_least(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The same cycle wherever the search began."""
    least = min(range(len(steps)), key=lambda n: steps[n].source)
    return (*steps[least:], *steps[:least])
