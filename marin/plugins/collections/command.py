"""`marin data`: collections of documents, built from raw sources and asked about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from marin.cli.output import print_json, say
from marin.cli.tables import print_table

if TYPE_CHECKING:
    from marin.plugins.collections.queries.documents import Collection, DocumentRecord
    from marin.record.root import Root


@click.group()
def data() -> None:
    """Build collections of documents from raw sources, and ask what became of each document."""


@data.command()
@click.argument("name", metavar="NAME")
@click.argument("folder", default=".", type=click.Path(file_okay=False, path_type=Path), metavar="[DIR]")
def fetch(name: str, folder: Path) -> None:
    """Bring data that others publish below DIR (here), each file checked by its sha256.

    conf/sources/NAME.yaml pins the files. MARIN_DATA names a folder that is looked into first (a mirror, for machines
    without a network). A file with other bytes than those pinned is refused wherever it comes from. Prints what is
    there now.

    \b
    Examples:
      marin data fetch babylm
      MARIN_DATA=/mnt/mirror marin data fetch blimp
    """
    from marin.data.pinned import fetch as bring
    from marin.data.pinned import read_source
    from marin.recipe.composition import conf_folder

    for path in bring(read_source(conf_folder() / "sources" / f"{name}.yaml"), folder):
        say(str(path))


@data.command()
@click.option(
    "--source",
    "sources",
    multiple=True,
    required=True,
    metavar="GLOB",
    help="Files to read, or addresses of them; may be repeated.",
)
@click.option("--config", metavar="NAME|FILE", help="What is done: web, or a YAML file.  [default: duplicates alone]")
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, metavar="N", help="Processes.  [default: 1, this one]"
)
@click.option("--address", metavar="HOST:PORT", help="Of a Ray cluster, instead of this machine.")
@click.option(
    "--evaluation",
    "evaluations",
    multiple=True,
    metavar="FILE.jsonl",
    help="Remove documents that hold what this evaluation asks; may be repeated.",
)
@click.option(
    "--evaluation-fields",
    default="question,answer",
    metavar="NAMES",
    help="The fields of its records.  [default: question,answer]",
)
@click.option("--strict", is_flag=True, help="Stop at the first thing in a source that is no document.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def build(
    sources: tuple[str, ...],
    config: str | None,
    workers: int,
    address: str | None,
    evaluations: tuple[str, ...],
    evaluation_fields: str,
    strict: bool,
    as_json: bool,
) -> None:
    """Make a collection of documents: read, deduplicated, decontaminated, under one digest.

    Reads .jsonl (.gz, .zst, .xz, .bz2), .parquet, .txt, .html, .warc (.gz, .zst) and .wet (.gz), named by globs, by gs:// and s3://
    with globs, by hf:datasets/OWNER/NAME@COMMIT/GLOB, or by pinned:LIST.jsonl, a line a file with url or urls, size and
    sha256. The result is the same for any number of workers; what is done is recorded, and the same command goes
    on after an interruption. Every removed document keeps the reason and its evidence.

    \b
    Examples:
      marin data build --source 'data/*.jsonl'
      marin data build --source 'crawl/*.parquet' --source notes.txt --workers 8
      marin data build --source 'gs://bucket/crawl/**/*.warc.gz' --source pinned:books.jsonl --config web
      marin data build --source 'data/*.jsonl.zst' --evaluation test.jsonl --evaluation-fields question,answer
    """
    from marin.plugins.collections import build as building
    from marin.plugins.collections.arrow import take_less_memory
    from marin.plugins.collections.settings import load_settings
    from marin.recipe.composition import conf_folder
    from marin.record.root import open_root

    if address is None:  # Ray Data has frames of its own
        take_less_memory()
    asked = building.BuildRequest(
        sources,
        load_settings(config, conf_folder()),
        evaluations,
        tuple(name.strip() for name in evaluation_fields.split(",") if name.strip()),
        strict,
    )
    built = building.build(open_root(), asked, workers=workers, address=address)
    if as_json:
        print_json(
            {
                "artifact": built.artifact,
                "documents": {"read": built.read, "kept": built.kept},
                "not_compared_with_all": built.not_compared,
                "removed": dict(built.removed),
                "problems": dict(built.problems),
                "sources": [{"name": item.name, "size": item.size, "digest": item.digest} for item in built.sources],
                "seconds": round(built.seconds, 3),
                "cached": built.again,
            }
        )
        return
    say(built.artifact)
    how = "as the ledger has it" if built.again else f"in {built.seconds:.1f} s"
    say(f"{built.kept} of {built.read} documents kept, {how}", err=True)
    if built.not_compared:
        say(
            f"  {_bounded(built.not_compared, asked.settings.near.most_compared if asked.settings.near else 0)}",
            err=True,
        )
    for what, counts in (("removed", built.removed), ("no document", built.problems)):
        for reason, count in counts.items():
            say(f"  {what}: {reason} {count}", err=True)
    say(f"train on it: marin train dataset=documents dataset.artifact={built.artifact}", err=True)


def _bounded(count: int, most: int) -> str:
    return (
        f"{count} of them not compared with all that they share a band with, {most} at most (near.most_compared): "
        "near-duplicates may be among them"
    )


@data.command("list")
@click.argument("name", metavar="RUN|ARTIFACT")
@click.option("--limit", type=click.IntRange(min=0), metavar="N", help="At most N documents.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a document.")
def list_documents(name: str, limit: int | None, as_json: bool) -> None:
    """List the documents of a collection, or those that a run was made from, in their order.

    \b
    Examples:
      marin data list sha256:DIGEST --limit 20
      marin data list latest --json
    """
    from itertools import islice

    from marin.record.root import open_root

    rows = islice(_listed(open_root(), name), limit)
    if as_json:
        for row in rows:
            print_json({key: row[key] for key in ("id", "source", "split")})
        return
    print_table(
        ("ID", "SOURCE", "SPLIT"), [(row["id"], row["source"], row["split"]) for row in rows], empty="no documents"
    )


def _listed(root: Root, name: str) -> Iterator[Mapping[str, str]]:
    """Id, source and split of each document."""
    if name.startswith("sha256:"):
        from marin.plugins.collections.queries.documents import find_collection

        collection = find_collection(root, name)
        collection.description()
        yield from collection.documents(("id", "source", "split"))
        return
    from marin.history.runs import load, resolve
    from marin.plugins.collections.queries.uses import documents_of

    history = root.history()
    for document, source, split in documents_of(root, load(history, resolve(history, name))):
        yield {"id": document, "source": source, "split": split}


@data.command("show")
@click.argument("what", metavar="ID|URL|TEXTFILE")
@click.option("--in", "where", metavar="RUN|ARTIFACT", help="In this collection.  [default: the newest that has it]")
@click.option("--steps", is_flag=True, help="Say of each run which train steps read it. It takes seconds a run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_document(what: str, where: str | None, steps: bool, as_json: bool) -> None:
    """Show where a document came from, what every step decided about it, and which runs were trained on it.

    \b
    Examples:
      marin data show 0a1b2c3d4e5f60718293a4b5c6d7e8f9 --steps
      marin data show page.txt --json
    """
    from marin.errors import UsageError
    from marin.plugins.collections.queries.documents import collections, find_collection
    from marin.record.root import open_root

    root = open_root()
    places = [find_collection(root, where)] if where is not None else collections(root)
    text = _file_text(Path(what))
    found = next((one for place in places if (one := _matching(place, what, text))), None)
    if found is None:
        raise UsageError(
            "no such document",
            where=what,
            expected="an id, an address or a file with the text of a document that was read",
            found=f"none in {len(places)} collections",
            cure="see `marin data list`; --in names a collection",
        )
    document, *copies = found
    reading = _reading(root, document, steps)
    if as_json:
        print_json({**_as_json(found), "runs": reading})
        return
    say(
        f"{document.id}  {'kept, ' + document.split if document.kept else 'removed'}",
        f"  in       {document.collection}",
    )
    say(f"  from     {document.source}:{document.position}{'  ' + document.url if document.url else ''}")
    for decision in document.decisions:
        say(f"  {decision['step']}: {decision['action']} {decision['reason']}")
        for key, value in decision["evidence"].items():
            shown = ", ".join(f"{name} {one}" for name, one in value.items()) if isinstance(value, dict) else value
            say(f"    {key}: {shown}")
    for run in reading:
        told = "see --steps" if run["steps"] is None else ", ".join(map(str, run["steps"])) or "none"
        say(f"  trained  run {run['run']}: train steps {told}")
    for copy in copies:
        say(f"  also     {copy.id}  {copy.source}:{copy.position}  {'kept' if copy.kept else 'removed'}")


@data.command("report")
@click.argument("name", metavar="RUN|ARTIFACT")
@click.option(
    "--html",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the self-contained page to this file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def report_collection(name: str, target: Path | None, as_json: bool) -> None:
    """Account for a collection: by source, step, length and licence, with examples of what was removed.

    Of a run it also says how many of its tokens came from each source.

    \b
    Examples:
      marin data report sha256:DIGEST --html collection.html
      marin data report latest --json
    """
    from marin.plugins.collections.queries.account import account
    from marin.plugins.collections.queries.documents import find_collection
    from marin.record.root import open_root

    root = open_root()
    tokens = None
    if not name.startswith("sha256:"):
        from marin.history.runs import load, resolve
        from marin.plugins.collections.queries.tokens import tokens_by_source

        history = root.history()
        tokens = tokens_by_source(load(history, resolve(history, name)), root.store_to_read())
    found = account(find_collection(root, name), tokens)
    if target is not None:
        from marin.plugins.collections.page import page
        from marin.process.files import write_whole

        write_whole(target, page(found))
    if as_json:
        print_json(found.as_json())
        return
    say(f"{found.artifact}  {found.kept} of {found.read} documents kept")
    if found.not_compared:
        say(_bounded(found.not_compared, found.most_compared))
    rows = [(*key, str(one.documents)) for key, one in found.steps.items()]
    print_table(("STEP", "ACTION", "REASON", "DOCUMENTS"), rows, empty="no step decided anything")


@data.command("verify")
@click.argument("name", metavar="RUN|ARTIFACT")
@click.option(
    "--sample", type=click.IntRange(min=1), metavar="N", help="Make N shards of each phase, drawn by the log's root."
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, metavar="N", help="Processes.  [default: 1, this one]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify_collection(name: str, sample: int | None, workers: int, as_json: bool) -> None:
    """Make a collection again from its sources, and compare every shard and document.

    Exit status: 0 it is what follows from its sources, 1 it is not, 4 nothing is wrong in the sample.

    \b
    Examples:
      marin data verify sha256:DIGEST
      marin data verify sha256:DIGEST --sample 4 --workers 2
    """
    import tempfile

    from ledger import Tampered
    from marin.plugins.collections.judge import judge_collection
    from marin.plugins.collections.queries.documents import find_collection
    from marin.record.root import open_root
    from marin.verify.segments.sampling import describe_bound

    root = open_root()
    artifact = find_collection(root, name).artifact
    (root.local / "work").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="verify-", dir=root.local / "work") as folder:
        found = judge_collection(root, artifact, Path(folder), sample=sample, workers=workers)
    if as_json:
        print_json(
            {
                "artifact": artifact,
                "same": not found.wrong,
                "wrong": list(found.wrong),
                "executed": found.executed,
                "taken": found.taken,
                "bound": describe_bound(sample) if sample is not None and found.taken else None,
                "same_code": found.same_code,
                "missing": list(found.missing),
            }
        )
    else:
        for line in found.wrong:
            say(line)
        if sample is not None and found.taken:
            say(describe_bound(sample), err=True)
        for name in found.missing:
            say(f"a source that could not be had when it was made: {name}", err=True)
    if found.wrong:
        raise Tampered(
            "the collection is not what follows from its sources",
            where=artifact,
            expected="equal shards",
            found=f"{len(found.wrong)} differences{'' if found.same_code else ', with other code than made it'}",
            cure="do not use it",
        )
    if not as_json:
        say(f"{artifact}  made again in {found.executed} shards, {found.taken} taken as recorded")
    if found.taken:
        click.get_current_context().exit(4)  # PARTIAL, as of `marin verify`


def _reading(root: Root, document: DocumentRecord, steps: bool) -> list[dict[str, Any]]:
    """The runs whose training data has a document; with ``steps`` which train steps of each read it."""
    from marin.data.collected import collections_of
    from marin.history.runs import load_all

    if document.split != "train":
        return []
    runs = [
        run
        for run in load_all(root.history())
        if document.collection in collections_of(run.recipe) and "train" in run.steps
    ]
    if not steps:
        return [{"run": run.run, "steps": None} for run in runs]
    from marin.plugins.collections.queries.uses import steps_reading

    store = root.store_to_read()
    return [{"run": run.run, "steps": list(steps_reading(run, store, document.id))} for run in runs]


def _file_text(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace") if path.is_file() else None
    except OSError:
        return None


def _matching(collection: Collection, what: str, text: str | None) -> list[DocumentRecord]:
    from marin.plugins.collections.queries.documents import find

    if text is None:
        return list(find(collection, what))
    return list(find(collection, what, text=text)) or list(find(collection, what, text=text.removesuffix("\n")))


def _as_json(found: list[DocumentRecord]) -> Mapping[str, Any]:
    told, *copies = found
    return {
        "id": told.id,
        "collection": told.collection,
        "source": told.source,
        "position": told.position,
        "url": told.url,
        "kept": told.kept,
        "split": told.split,
        "text": told.text,
        "metadata": dict(told.metadata),
        "decisions": [dict(decision) for decision in told.decisions],
        "also": [
            {"id": copy.id, "source": copy.source, "position": copy.position, "kept": copy.kept} for copy in copies
        ],
    }
