"""`marin store put`, ``get`` and ``ls``: artifacts in and out."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from marin.cli.naming import whole_digest
from marin.cli.output import print_bytes, print_json, say
from marin.cli.store.remote import remote_store
from marin.cli.tables import print_table
from marin.errors import UsageError
from marin.recipe.units import human_size
from marin.record.root import open_root

CHUNK = 1 << 20


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--link", is_flag=True, help="Share the files by hard links where possible; they become read-only.")
@click.option(
    "--chunked",
    is_flag=True,
    help="Keep large files in pieces cut by their content, which other versions of them share.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def put(path: Path, link: bool, chunked: bool, as_json: bool) -> None:
    """Keep a file, a folder, or what comes on stdin (-), and print its digest.

    \b
    Examples:
      marin store put corpus/
      marin store put notes.txt --json
      marin store put --chunked corpus.jsonl
      tar c corpus | marin store put -
    """
    artifacts = open_root().store()
    if str(path) == "-":
        artifact = artifacts.put_bytes(sys.stdin.buffer.read())
    elif path.is_dir():
        artifact = artifacts.put_tree(path, link=link, chunked=chunked)
    elif path.is_file():
        artifact = artifacts.put_file(path, link=link, chunked=chunked)
    else:
        raise UsageError(
            "nothing to put",
            where=str(path),
            expected="a file or a folder",
            found="neither",
            cure="name one that is there",
        )
    if as_json:
        print_json({"digest": artifact.digest, "kind": artifact.kind, "size": artifact.size})
    else:
        say(artifact.digest)


@click.command()
@click.argument("digest")
@click.argument("dest", type=click.Path(path_type=Path), required=False)
@click.option("--replace", is_flag=True, help="Replace what stands at DEST.")
def get(digest: str, dest: Path | None, replace: bool) -> None:
    """Write an artifact to DEST, all of it or nothing; a file without DEST goes to stdout.

    \b
    Examples:
      marin store get sha256:DIGEST corpus/
      marin store get sha256:DIGEST | head
    """
    root = open_root()
    artifacts, digest = root.store(), whole_digest(root, digest)
    if dest is not None:
        artifacts.checkout(digest, dest, how="copy", replace=replace)
    elif artifacts.kind(digest) == "tree":
        raise UsageError(
            "a folder does not fit on stdout",
            where=digest,
            expected="DEST",
            found="none",
            cure=f"name a folder: marin store get {digest} FOLDER",
        )
    else:
        with artifacts.open(digest) as stream:
            print_bytes(iter(lambda: stream.read(CHUNK), b""))


@click.command()
@click.argument("digest", required=False)
@click.option("--remote", metavar="REMOTE", help="List another store: gs://, s3:// or a folder; of https:// one tree.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def ls(digest: str | None, remote: str | None, as_json: bool) -> None:
    """List the artifacts of the store, or the files of one tree.

    \b
    Examples:
      marin store ls
      marin store ls sha256:DIGEST --json
      marin store ls --remote gs://bucket/marin
    """
    artifacts = open_root().store() if remote is None else remote_store(remote, readonly=True)
    if digest is not None:
        digest = whole_digest(open_root(), digest)
        entries = artifacts.manifest(digest).entries
        if as_json:
            for entry in entries:
                print_json({"path": entry.path, "size": entry.size, "digest": entry.digest})
        else:
            rows = [(entry.path, human_size(entry.size), entry.digest) for entry in entries]
            print_table(("path", "size", "digest"), rows, empty="an empty tree")
        return
    held = (artifacts.artifact(digest) for digest, _ in artifacts.digests())
    if as_json:
        for artifact in held:
            print_json({"digest": artifact.digest, "kind": artifact.kind, "size": artifact.size})
    else:
        rows = [(artifact.digest, artifact.kind, human_size(artifact.size)) for artifact in held]
        print_table(("digest", "kind", "size"), rows, empty="the store is empty")
