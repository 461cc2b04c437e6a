"""The graph: every step that the wanted ends depend on, once each, in an order in which inputs come first.

Two steps of one address are one step if they say the same, and a mistake if they do not. A step that depends on itself
is named with the whole circle.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from marin.errors import UsageError
from marin.graph.identity import kind_of
from marin.graph.rows import canonical_list
from marin.graph.step import Ref, Step


@dataclass(frozen=True, slots=True)
class Node:
    """A step in its graph, and which one it is in the graph's order."""

    step: Step
    number: int

    @property
    def address(self) -> str:
        """The readable name."""
        return self.step.name

    @property
    def inputs(self) -> dict[str, tuple[str, str]]:
        """By name the address of another node, and a file in its output ("" for all of it)."""
        return {name: _target(value) for name, value in self.step.inputs.items()}

    @property
    def targets(self) -> tuple[str, ...]:
        """The addresses of the inputs, once each."""
        return tuple(dict.fromkeys(step.name for step in _inputs(self.step)))


@dataclass(frozen=True)
class Graph:
    """Nodes by address, inputs first. ``name`` is the experiment's."""

    name: str
    nodes: Mapping[str, Node]

    @classmethod
    def of(cls, name: str, ends: Sequence[Any]) -> Graph:
        """The graph of everything that ``ends`` depend on.

        Raises:
            UsageError: a circle; two different steps of one address; a function that cannot be identified; no step at
                all.
        """
        if not ends:
            raise UsageError(
                "an experiment without steps",
                where=name,
                expected="steps = [...] at the top of the file",
                found="none",
                cure="name the steps that are wanted",
            )
        if strangers := [type(end).__name__ for end in ends if not isinstance(end, Step)]:
            raise UsageError(
                "not a step",
                where=f"{name}: steps",
                expected="Step values",
                found=strangers[0],
                cure="list the steps that are wanted",
            )
        nodes: dict[str, Node] = {}
        for step in _in_order(ends):
            present = nodes.get(step.name)
            if present is None:
                nodes[step.name] = Node(step, len(nodes))
            elif present.step is not step and (difference := _difference(present, Node(step, present.number))):
                raise UsageError(
                    "two steps have one name and are not the same",
                    where=f"{name}: {step.name}",
                    expected="one identity",
                    found=f"they differ in {difference}",
                    cure="rename one of them",
                )
        for (
            node
        ) in nodes.values():  # what no other process could find, or be given, is refused before anything is executed
            assert kind_of(node.step).declared
        return cls(name, nodes)

    def dependents(self, address: str) -> tuple[str, ...]:
        """Which nodes take a node's output."""
        starts, takers, order = self._taken
        number = self.nodes[address].number
        return tuple(order[taker] for taker in takers[starts[number] : starts[number + 1]])

    @cached_property
    def ends(self) -> tuple[str, ...]:
        """The nodes whose output no other takes."""
        return tuple(address for address in self.nodes if not self.dependents(address))

    @cached_property
    def _taken(self) -> tuple[array[int], array[int], tuple[str, ...]]:
        """The edges as compressed sparse rows: where the takers of each node start, the takers of all, their
        addresses."""
        starts = array("I", bytes(array("I").itemsize * (len(self.nodes) + 1)))
        for node in self.nodes.values():
            for target in node.targets:
                starts[self.nodes[target].number + 1] += 1
        for number in range(len(self.nodes)):
            starts[number + 1] += starts[number]
        free, takers = starts[:], array("I", bytes(starts.itemsize * starts[-1]))
        for node in self.nodes.values():
            for target in node.targets:
                number = self.nodes[target].number
                takers[free[number]] = node.number
                free[number] += 1
        return starts, takers, tuple(self.nodes)

    def only(self, pattern: str) -> Graph:
        """The nodes whose address contains a match of ``pattern``, and what they depend on.

        Raises:
            UsageError: not a pattern, or no step has such an address.
        """
        try:
            wanted = {address for address in self.nodes if re.search(pattern, address)}
        except re.error as error:
            raise UsageError(
                "not a pattern",
                where="--only",
                expected="a regular expression (Python's re)",
                found=str(error),
                cure="quote special characters with a backslash",
            ) from None
        if not wanted:
            near = difflib.get_close_matches(pattern, self.nodes, n=1, cutoff=0.4)
            raise UsageError(
                "no step has such an address",
                where="--only",
                expected=f"one of {len(self.nodes)} addresses",
                found=pattern,
                cure=f"did you mean {near[0]}?" if near else "see them with --dry-run",
            )
        for address in reversed(list(self.nodes)):
            if address in wanted:
                wanted.update(self.nodes[address].targets)
        kept = [node.step for address, node in self.nodes.items() if address in wanted]
        return Graph(self.name, {step.name: Node(step, number) for number, step in enumerate(kept)})

    def declaration(self) -> str:
        """Digest of what the graph says: addresses, configurations, functions, edges."""
        hasher = hashlib.sha256()
        for piece in canonical_list(_declared(node) for node in self.nodes.values()):
            hasher.update(piece)
        return f"sha256:{hasher.hexdigest()}"


def _in_order(ends: Sequence[Step]) -> Iterator[Step]:
    """Depth first without recursion (a chain may be 10,000 steps long): a step comes after all its inputs."""
    done: set[int] = set()
    for end in ends:
        open_steps: dict[int, Step] = {}
        stack: list[tuple[Step, Iterator[Step]]] = []

        def enter(
            step: Step, stack: list[tuple[Step, Iterator[Step]]] = stack, open_steps: dict[int, Step] = open_steps
        ) -> None:
            if id(step) in open_steps:
                names = [item.name for item in open_steps.values()]
                circle = [*names[list(open_steps).index(id(step)) :], step.name]
                raise UsageError(
                    "the steps form a circle",
                    where=" -> ".join(circle),
                    expected="inputs that come first",
                    found="a step that depends on itself",
                    cure="break it at one of these inputs",
                )
            open_steps[id(step)] = step
            stack.append((step, _inputs(step)))

        if id(end) in done:
            continue
        enter(end)
        while stack:
            step, rest = stack[-1]
            following = next((item for item in rest if id(item) not in done), None)
            if following is not None:
                enter(following)
                continue
            stack.pop()
            del open_steps[id(step)]
            done.add(id(step))
            yield step


def _inputs(step: Step) -> Iterator[Step]:
    for value in step.inputs.values():
        yield value.step if isinstance(value, Ref) else value


def _target(value: Step | Ref) -> tuple[str, str]:
    return (value.step.name, value.path) if isinstance(value, Ref) else (value.name, "")


def _difference(one: Node, other: Node) -> str:
    """In what two nodes of one address differ; "" when they are the same step said twice."""
    if kind_of(one.step).declared != kind_of(other.step).declared:
        return "their functions"
    mine, theirs = kind_of(one.step).config(), kind_of(other.step).config()
    if mine != theirs:
        return ", ".join(f"config.{key}" for key in sorted({*mine, *theirs}) if mine.get(key) != theirs.get(key))
    if one.inputs != other.inputs:
        return "their inputs"
    return "what they are pinned to" if one.step.override != other.step.override else ""


def _declared(node: Node) -> list[object]:
    kind, pinned = kind_of(node.step), node.step.override.digest if node.step.override else ""
    return [
        node.address,
        kind.name,
        kind.declared,
        kind.config(),
        {key: list(target) for key, target in sorted(node.inputs.items())},
        pinned,
    ]
