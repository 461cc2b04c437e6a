"""What `marin show` finds by a digest, a number or the name of a step: through the catalog, then in the store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from ledger import LedgerError, NotFound
from marin.cli.naming import whole_digest
from marin.cli.output import print_json, say
from marin.cli.tables import print_fields, print_table
from marin.errors import UsageError
from marin.execution.pointer import read_pointer
from marin.graph.addresses import at_address
from marin.history.catalog import Catalog, open_catalog
from marin.history.catalog_rows import ArtifactView
from marin.history.table.metric_query import MetricAnswer, answer, parse
from marin.history.table.nondeterminism import MARK, nondeterministic
from marin.recipe.units import human_size
from marin.record.root import Root

SHOWN = 20


def show_digest(root: Root, digest: str, *, as_json: bool) -> None:
    """Stored bytes, the content of an output, a state, or the identity of a step: whatever the ledger calls by this
    digest."""
    digest = whole_digest(root, digest)
    with open_catalog(root) as catalog:
        made, saved, executed = catalog.made(digest), catalog.checkpoints(digest), catalog.by_identity(digest)
    if executed and not made:
        _print_results(root, executed, as_json=as_json)
        return
    artifact = next(iter((*(item.artifact for item in made), *(item.artifact for item in saved), digest)))
    _show_artifact(
        root,
        artifact,
        [
            *({"run": item.run, "step": item.step, "event": item.index, "made_at": item.completed_at} for item in made),
            *(
                {
                    "run": item.run,
                    "step": f"train, state before train step {item.step}",
                    "event": item.index,
                    "made_at": item.index,
                }
                for item in saved
            ),
        ],
        as_json=as_json,
    )


def show_pointer(root: Root, path: Path, *, as_json: bool) -> None:
    """The artifact that a pointer of the working folder names."""
    pointer = read_pointer(path)
    with open_catalog(root) as catalog:
        if not catalog.made(pointer.digest):
            raise _no_maker(path, pointer.digest)
    show_digest(root, pointer.digest, as_json=as_json)


def run_of_pointer(root: Root, path: Path) -> str:
    """The newest run that has the result which a pointer of the working folder names."""
    pointer = read_pointer(path)
    with open_catalog(root) as catalog:
        known = set(catalog.run_ids())
        made = [item for item in catalog.made(pointer.digest) if item.run in known]
    if not made:
        raise _no_maker(path, pointer.digest)
    return max(made, key=lambda item: item.index).run


def _no_maker(path: Path, digest: str) -> NotFound:
    return NotFound(
        "no run of this root made what the pointer names",
        where=str(path),
        expected=digest,
        found="no such output",
        cure="make it with `dvc repro`",
    )


def show_step(root: Root, name: str, *, as_json: bool) -> None:
    """A step of a run (RUN/STEP), or what is recorded under an address of a graph."""
    with open_catalog(root) as catalog:
        found = catalog.named(name) or _at_address(root, catalog, name) or _step_of_run(catalog, name)
    _print_results(root, found, as_json=as_json)


def _at_address(root: Root, catalog: Catalog, address: str) -> list[ArtifactView]:
    """Results of the step of the pipeline that an experiment file gave this address."""
    row = at_address(root, address)
    if row is None:
        return []
    found = catalog.by_identity(str(row["identity"]))
    return sorted(found, key=lambda item: (item.run != row["run"], -item.index))


def _step_of_run(catalog: Catalog, name: str) -> list[ArtifactView]:
    run, _, step = name.partition("/")
    results = catalog.results(catalog.resolve(run))
    found = [item for item in results if item.step == step]
    if not found:
        raise UsageError(
            "the run has no such step",
            where=name,
            expected=", ".join(item.step for item in results) or "a result",
            found=step,
            cure=f"see `marin show {run}`",
        )
    return found


def _print_results(root: Root, found: list[ArtifactView], *, as_json: bool) -> None:
    differed = nondeterministic(root.history())
    if as_json:
        print_json([asdict(item) | {"deterministic": item.identity not in differed} for item in found])
        return
    newest = found[0]
    taken = "" if newest.index == newest.completed_at else f", reused from event {newest.completed_at}"
    print_fields(
        [
            ("step", newest.step),
            ("run", newest.run),
            ("event", f"{newest.index}{taken}"),
            ("identity", newest.identity),
            ("kind", newest.kind),
            ("size", human_size(newest.size)),
            ("content", newest.digest),
            ("artifact", newest.artifact),
        ]
    )
    if newest.identity in differed:
        say(f"{MARK}: event {differed[newest.identity]} recorded other content for the same identity")
    if found[1:]:
        say()
        print_table(
            ("run", "step", "event", "content"),
            [(item.run, item.step, str(item.index), item.digest) for item in found[1:SHOWN]],
            empty="",
        )


def print_results_of_graph(root: Root, graph: str, found: list[ArtifactView], *, as_json: bool) -> None:
    """The steps that one execution of an experiment's graph made itself; those of the pipeline stand in runs of their
    own."""
    differed = nondeterministic(root.history())
    if as_json:
        print_json([asdict(item) | {"deterministic": item.identity not in differed} for item in found])
        return
    print_fields([("graph", graph), ("events", f"{found[0].index} to {found[-1].index}")])
    say()
    print_table(
        ("step", "kind", "size", "event", "artifact", ""),
        [
            (
                item.step,
                item.kind,
                human_size(item.size),
                str(item.index),
                item.artifact,
                MARK if item.identity in differed else "",
            )
            for item in found
        ],
        empty="",
    )


def show_number(root: Root, text: str, *, as_json: bool) -> None:
    """The runs that gave a number."""
    query = parse(text)
    with open_catalog(root) as catalog:
        answers = answer(catalog, query)
        started = {item.run: catalog.runs(item.run) for found in answers for item in found.found}
    if as_json:
        print_json(
            [
                {
                    "metric": found.query.name,
                    "value": query.value,
                    "tolerance": query.tolerance,
                    "exact": found.exact,
                    "runs": [
                        {"run": item.run, "value": item.value, "event": item.index, "made_at": item.completed_at}
                        for item in found.found
                    ],
                }
                for found in answers
            ]
        )
        return
    for found in answers:
        say(_heading(found))
        rows = []
        for item in found.found[:SHOWN]:
            run = next(iter(started[item.run]), None)
            rows.append(
                (
                    item.run,
                    f"{item.value:.10g}",
                    str(item.index),
                    run.started[:19] + "Z" if run else "",
                    run.dataset if run else "",
                    run.model if run else "",
                )
            )
        print_table(("run", found.query.name, "event", "started", "dataset", "model"), rows, empty="no run has it")
        if len(found.found) > SHOWN:
            say(f"and {len(found.found) - SHOWN} more; --json lists them", err=True)


def _heading(found: MetricAnswer) -> str:
    query = found.query
    if query.value is None:
        return f"{query.name}: the newest"
    if found.exact:
        return f"{query.name} = {query.value:g} (within {query.tolerance:g})"
    return f"{query.name}: no run has {query.value:g} within {query.tolerance:g}; the nearest"


def _show_artifact(root: Root, digest: str, made_by: list[dict[str, object]], *, as_json: bool) -> None:
    store = root.store()
    try:
        artifact = store.artifact(digest)
        files = list(store.manifest(digest).entries) if artifact.kind == "tree" else []
    except LedgerError:
        if not as_json:
            _print_makers(made_by)  # the bytes are gone, and who made them is still known
        raise
    if as_json:
        print_json(
            {
                "artifact": digest,
                "kind": artifact.kind,
                "size": artifact.size,
                "files": [
                    {"path": f.path, "size": f.size, "digest": f.digest, "executable": f.executable} for f in files
                ],
                "made_by": made_by,
            }
        )
        return
    print_fields([("artifact", digest), ("kind", artifact.kind), ("size", human_size(artifact.size))])
    say()
    _print_makers(made_by)
    if files:
        say()
        print_table(("path", "size", "digest"), [(f.path, human_size(f.size), f.digest) for f in files], empty="")


def _print_makers(made_by: list[dict[str, object]]) -> None:
    if made_by:
        print_table(
            ("run", "step", "event", "made at"),
            [tuple(str(item[key]) for key in ("run", "step", "event", "made_at")) for item in made_by[:SHOWN]],
            empty="",
        )
