"""Where the nodes of a lineage page stand: each after all that it was made of, also where the same bytes were made twice."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from marin.reporting.lineage.graph import LineageGraph, Node, layers


def graph(count: int, edges: list[tuple[int, int]]) -> LineageGraph:
    nodes = {
        str(one): Node(str(one), "output", "step", "detail", "none", (), "run", "step", ()) for one in range(count)
    }
    return LineageGraph(nodes, dict.fromkeys((str(start), str(end)) for start, end in edges))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda edge: edge[0] < edge[1]), unique=True))
def test_a_node_stands_behind_the_longest_way_to_it(edges: list[tuple[int, int]]) -> None:
    far = dict.fromkeys(range(10), 0)
    for end in range(10):
        far[end] = max((far[start] + 1 for start, to in edges if to == end), default=0)
    rows = layers(graph(10, edges))
    assert {int(key): number for number, row in enumerate(rows) for key in row} == far


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), unique=True))
def test_each_node_stands_once_whatever_goes_round(edges: list[tuple[int, int]]) -> None:
    rows = layers(graph(6, edges))
    assert sorted(key for row in rows for key in row) == [str(one) for one in range(6)]
