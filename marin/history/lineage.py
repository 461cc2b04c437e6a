"""What something was made of, and that of what, back to the beginning: followed by content, across runs and graphs.

A result names its inputs by content digest. Anyone who first recorded that content is where it came from, in whatever run;
the first state of a phase comes from the run that it continues. So the lineage of an artifact is a walk over events, a
few for each step, whatever else is in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ledger import Event, Projection
from marin.errors import UsageError
from marin.history.catalog import Catalog
from marin.history.catalog_rows import ArtifactView
from marin.kinds.known import type_of
from marin.record.events import RunStarted

STATE = "state"


@dataclass(frozen=True)
class LineageNode:
    """One result and what it was made of, by the names under which the step took them. ``unknown`` are inputs that no
    result of this ledger has the content of."""

    made: ArtifactView
    inputs: Mapping[str, LineageNode] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)


def find(catalog: Catalog, name: str) -> list[ArtifactView]:
    """The results that an id means: an artifact, a content or a state by digest, RUN/STEP, an address of a graph; of a
    run those that no other step of it took.

    Raises:
        UsageError: nothing in this ledger answers to it.
    """
    if name.startswith("sha256:"):
        found = catalog.made(name)[:1]
        if not found:
            found = [
                made
                for saved in catalog.checkpoints(name)[:1]
                for made in catalog.results(saved.run)
                if made.step == "train"
            ]
        if not found:
            raise UsageError(
                "no result has this digest",
                where=name,
                expected="an artifact or a content of this ledger",
                found="none",
                cure="see `marin ls artifacts`",
            )
        return found
    if "/" in name:
        named = catalog.named(name)[:1]
        if named:
            return named
        run, _, step = name.partition("/")
        found = [made for made in catalog.results(catalog.resolve(run)) if made.step == step]
        if not found:
            raise UsageError("the run has no such step", where=name, found=step, cure=f"see `marin show {run}`")
        return found
    return catalog.results(catalog.resolve(name))


class Lineage:
    """The walk. Each content is followed once; where it comes up again the same :class:`LineageNode` stands."""

    def __init__(self, catalog: Catalog, projection: Projection) -> None:
        self._catalog, self._projection = catalog, projection
        self._known: dict[int, LineageNode] = {}

    def ends(self, name: str) -> list[LineageNode]:
        """The lineage of what ``name`` means; of a run, of those results that it made nothing else of."""
        found = [self.of(made) for made in find(self._catalog, name)]
        taken = {child.made.digest for node in found for child in node.inputs.values()}
        return [node for node in found if node.made.digest not in taken]

    def of(self, made: ArtifactView) -> LineageNode:
        """The lineage of one result."""
        if made.completed_at not in self._known:
            event = self._projection.event(made.completed_at)
            if event is not None:  # the run that made it, where another one took it
                made = replace(made, run=event.stream.partition("/")[2])
            self._known[made.completed_at] = LineageNode(made)  # a content that is made of itself ends here
            inputs, unknown = self._inputs(event, made) if event is not None else ({}, {})
            self._known[made.completed_at] = LineageNode(made, inputs, unknown)
        return self._known[made.completed_at]

    def _inputs(self, event: Event, made: ArtifactView) -> tuple[dict[str, LineageNode], dict[str, str]]:
        found: dict[str, LineageNode] = {}
        unknown: dict[str, str] = {}
        named = event.body.get("inputs")
        for name, digest in named.items() if isinstance(named, Mapping) else ():
            sources = [item for item in self._catalog.made(str(digest)) if item.completed_at < made.completed_at]
            if sources:
                found[str(name)] = self.of(sources[0])
            else:
                unknown[str(name)] = str(digest)
        if made.step == "train" and (before := self._continued(event)) is not None:
            found[STATE] = before
        return found, unknown

    def _continued(self, event: Event) -> LineageNode | None:
        """The training that a phase continues, as far as it is recorded as a result."""
        for _, started in self._projection.events(stream=event.stream, type=type_of(RunStarted)):
            link = started.body.get("continues")
            run = link.get("run") if isinstance(link, Mapping) else None
            for made in self._catalog.results(str(run)) if run else ():
                if made.step == "train":
                    return self.of(made)
        return None
