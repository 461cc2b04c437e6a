"""`marin export`: what a run made, for other tools. One option for each shape; several may stand together."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from ledger import describe_tree, digest_bytes
from marin.cli.output import print_json, say
from marin.cli.sharing.shapes import MODEL, Shape, Values, Written
from marin.errors import UsageError
from marin.history.run import Run
from marin.history.runs import load, resolve
from marin.provenance.plugins import load_plugins
from marin.record import outputs
from marin.record.root import Root, open_root

SHAPES: tuple[Shape, ...] = tuple(shape for _, shape in load_plugins("marin.exports"))
"""What plugins can write."""

Folder = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("run", default="latest")
@click.option("--hf", type=Folder, metavar="DEST", help="The model as a Hugging Face folder.")
@click.option(
    "--card", is_flag=True, help="With --hf or --babylm: a model card and the chat template beside the model."
)
@click.option("--license", metavar="ID", help="For --card: as the Hub names licences, such as apache-2.0.")
@click.option("--hub", metavar="OWNER/NAME", help="With --hf or --babylm: push it to the Hub (HF_TOKEN, HF_ENDPOINT).")
@click.option(
    "--hub-branch", metavar="NAME", help="For --hf --hub: the branch, made if it is not there.  [default: main]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def export(run: str, as_json: bool, **values: Any) -> None:
    """Write a run for other tools: Hugging Face, DVC, OCI, signatures, W&B, in-toto, MLPerf, evaluations, dossiers.

    RUN is an id, a unique beginning of one, or latest. Every byte is hashed on its way out of the store.

    \b
    Examples:
      marin export --hf model/
      marin export --hf model/ --card --license apache-2.0 --hub OWNER/NAME
    """
    wanted = [shape for shape in SHAPES if shape.wanted(values)]
    if values["hf"] is None and not wanted:
        raise UsageError(
            "nothing to export",
            where="marin export",
            found="none",
            cure="say which",
            expected=", ".join(["--hf", *map(_option, SHAPES)]),
        )
    _check_beside(values)
    for shape in SHAPES:
        shape.check(values)
    root = open_root()
    history = root.history()
    view = load(history, resolve(history, run))
    for written in _hugging_face(root, view, values):
        _say(written, as_json)
    for shape in wanted:
        for written in shape.write(root, view, values):
            _say(written, as_json)


export.params[-1:-1] = [option for shape in SHAPES for option in (shape.option, *shape.more)]
export.help = (export.help or "").rstrip() + "".join(
    f"\n  marin export {example}" for shape in SHAPES for example in shape.examples
)


def _option(shape: Shape) -> str:
    return shape.option.opts[0]


def _check_beside(values: Values) -> None:
    """What stands beside the files of a folder, or is pushed with them."""
    folders = [shape for shape in SHAPES if shape.folder]
    names = ["--hf", *map(_option, folders)]
    asked = [shape for shape in folders if shape.wanted(values)]
    given = len(asked) + (values["hf"] is not None)
    if values["card"] and not given:
        raise UsageError(
            "a card is of a folder",
            where="--card",
            expected=" or ".join(f"{name} DEST" for name in names),
            found="none",
            cure="name the folder",
        )
    if values["hub"] and given != 1:
        found = "both" if given else "none"
        cure = "push first one, then the other" if given else ""
        raise UsageError("a push is of one thing", where="--hub", expected=" or ".join(names), found=found, cure=cure)
    if values["hub_branch"] is not None and (values["hub"] is None or values["hf"] is None):
        raise UsageError(
            "a branch is named for a folder that is pushed",
            where="--hub-branch",
            expected="--hf DEST --hub OWNER/NAME",
            found="none",
            cure="leave it out: a submission's branches have the names of its checkpoints",
        )


def _hugging_face(root: Root, view: Run, values: Values) -> Iterator[Written]:
    folder: Path | None = values["hf"]
    if folder is None:
        return
    # What writes beside it is imported where it is asked for: it brings libraries that take a second.
    outputs.checkout(root.store(), view.output(MODEL), folder, kind="model", how="copy")
    yield Written("hf", folder, view.output(MODEL).digest)
    if values["card"]:
        from marin.export.card import write_card

        for path in write_card(root.history(), view.run, folder, license=values["license"]):
            yield Written("card", path, digest_bytes(path.read_bytes()))
    if (hub := values["hub"]) is not None:
        from marin.export.hub import push

        message = f"run {view.run}, model {view.output(MODEL).digest}"
        commit = push(folder, hub, branch=values["hub_branch"], message=message)
        yield Written("hub", f"hf:{hub}@{commit}", describe_tree(folder).digest)


def _say(written: Written, as_json: bool) -> None:
    named = {"revision": written.revision} if written.revision else {}
    if as_json:
        print_json({"export": written.what, "path": str(written.path), "digest": written.digest, **named})
        return
    say("  ".join([str(written.path), written.digest, *named.values()]))
    if written.note:
        say(written.note, err=True)
