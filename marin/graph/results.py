"""Steps that have their output, by address. A row for each lies in a private file (:mod:`marin.graph.rows`): what
execution adds to memory does not grow with the number of steps."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal

import msgspec

from marin.graph.graph import Graph
from marin.graph.rows import Rows
from marin.history.fold import step_view
from marin.history.run import Fact, StepView
from marin.record import events
from marin.record.root import Root

Action = Literal["executed", "cached", "pinned", "adopted"]


@dataclass(frozen=True)
class NodeResult(StepView):
    """The result that stands for a node, and how it came to it. ``completed_at`` is the event that recorded it first (-1:
    none did), ``origin`` its run or its graph."""

    address: str
    action: Action

    @classmethod
    def of(cls, address: str, action: Action, view: StepView) -> NodeResult:
        """This result for the node at ``address``."""
        return cls(**{item.name: getattr(view, item.name) for item in fields(StepView)}, address=address, action=action)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(NodeResult).decode


class Results(Mapping[str, NodeResult]):
    """The results known so far, in the order of the graph. In memory it takes eight bytes a step, all of them from the
    start."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = graph.nodes
        self._places = array("q", [-1]) * len(graph.nodes)
        self._rows = Rows()
        self.counts: Counter[str] = Counter()

    def add(self, result: NodeResult) -> None:
        """Remember an output, for anyone who depends on it."""
        number = self._nodes[result.address].number
        if self._places[number] >= 0:
            self.counts[self[result.address].action] -= 1
        self._places[number] = self._rows.append(_encode(result))
        self.counts[result.action] += 1

    def __contains__(self, address: object) -> bool:
        node = self._nodes.get(address)  # type: ignore[call-overload]
        return node is not None and self._places[node.number] >= 0

    def __getitem__(self, address: str) -> NodeResult:
        place = self._places[self._nodes[address].number]
        if place < 0:
            raise KeyError(address)
        return _decode(self._rows.read(place))

    def __iter__(self) -> Iterator[str]:
        return (address for address, node in self._nodes.items() if self._places[node.number] >= 0)

    def __len__(self) -> int:
        return self.counts.total()


def results_at(root: Root, pinned: Mapping[str, int]) -> dict[str, StepView]:
    """The results that the step.completed events at these indices record."""
    if not pinned:
        return {}
    reader = root.reader()
    found = {}
    for name, index in pinned.items():
        event = reader.event(index)
        found[name] = step_view(
            Fact(index, event.time, events.read(events.StepCompleted, event.body, where=f"event {index}"))
        )
    return found
