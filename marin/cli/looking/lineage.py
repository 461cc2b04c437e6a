"""`marin lineage`: where something comes from, as a tree or as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from ledger import Projection
from marin.cli.naming import known_digest
from marin.cli.output import print_json, say
from marin.cli.tables import Branch, print_tree
from marin.errors import UsageError
from marin.history.catalog import open_catalog
from marin.history.lineage import Lineage, LineageNode
from marin.process.waiting import waiting
from marin.provenance.extras import DRAWING, need
from marin.recipe.units import human_size
from marin.record.root import open_root


@click.command()
@click.argument("name", metavar="ID")
@click.option(
    "--html",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the data browser to this file: one self-contained page of a run, an artifact or an experiment.",
)
@click.option(
    "--train-steps", metavar="N,N", default="", help="With --html: which train steps to show the documents of."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON array: every result of the tree once.")
def lineage(name: str, target: Path | None, train_steps: str, as_json: bool) -> None:
    """Show what something was made of, back to the raw data: a tree of steps and digests.

    ID is a run (its id, a unique beginning of one, or latest), a step of one (latest/train), an artifact, a content or
    a state (sha256:...), or the address of a graph's step; with --html also the name of an experiment. Content is
    followed across runs: what a run took over is shown where it was made.

    \b
    Examples:
      marin lineage latest
      marin lineage latest/export --json
      marin lineage latest --html lineage.html
      marin lineage latest --html lineage.html --train-steps 0,100
    """
    if target is not None:
        need(*DRAWING)
    root = open_root()
    name = known_digest(root, name) or name
    if target is not None:
        with waiting("drawing the graph, and finding again what train steps saw"):
            from marin.reporting.lineage.browser import browser_page  # here: the terminal's tree needs none of it

            target.write_bytes(browser_page(root, name, _numbers(train_steps)))
        say(str(target))
        return
    with open_catalog(root) as catalog, Projection(root.projection_path(), root.reader()) as projection:
        projection.catch_up()  # what the catalog was folded from, and perhaps something newer
        ends = Lineage(catalog, projection).ends(name)
    if as_json:
        print_json([_as_json(item) for item in _once(ends)])
        return
    if not ends:
        say("the run has no results yet", err=True)
    for end in ends:
        tree = Branch(_line(end))
        _grow(tree, end, {end.made.completed_at})
        print_tree(tree)


def _numbers(text: str) -> list[int] | None:
    """Train steps between commas; None when none were named."""
    if not text:
        return None
    if not all(part.strip().isdecimal() for part in text.split(",")):
        raise UsageError(
            "not a list of train steps",
            where="--train-steps",
            expected="numbers between commas",
            found=text,
            cure="such as --train-steps 0,100",
        )
    return [int(part) for part in text.split(",")]


def _once(ends: list[LineageNode]) -> Iterator[LineageNode]:
    """Every result of the trees, each once, what is made before what it is made of."""
    seen: set[int] = set()
    left = list(ends)
    while left:
        item = left.pop(0)
        if item.made.completed_at not in seen:
            seen.add(item.made.completed_at)
            yield item
            left += item.inputs.values()


def _as_json(item: LineageNode) -> dict[str, object]:
    made = item.made
    return {
        "step": made.step,
        "run": made.run,
        "event": made.completed_at,
        "kind": made.kind,
        "digest": made.digest,
        "artifact": made.artifact,
        "size": made.size,
        "identity": made.identity,
        "inputs": {name: child.made.digest for name, child in item.inputs.items()} | dict(item.unknown),
    }


def _grow(tree: Branch, node: LineageNode, shown: set[int]) -> None:
    for name, child in node.inputs.items():
        label = "" if name == child.made.step else f"{name}: "
        if child.made.completed_at in shown:
            tree.add(f"{label}{child.made.step} (above)")
            continue
        shown.add(child.made.completed_at)
        _grow(tree.add(f"{label}{_line(child)}"), child, shown)
    for name, digest in node.unknown.items():
        tree.add(f"{name}: {digest} (not made in this ledger)")


def _line(item: LineageNode) -> str:
    made = item.made
    return f"{made.step}  {made.digest}  {human_size(made.size)}  run {made.run}, event {made.completed_at}"
