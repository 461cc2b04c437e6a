"""`marin export`: what a run made, for other tools. One option for each shape; several may stand together."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import click

from ledger import Store, describe_tree, digest_bytes
from marin.cli.choice import OneOf
from marin.cli.output import print_json, say
from marin.cli.sharing.shapes import Shape
from marin.errors import UsageError
from marin.history.run import Run
from marin.history.runs import load, resolve
from marin.process.waiting import waiting
from marin.provenance.plugins import loaded
from marin.record import outputs
from marin.record.root import Root, open_root

MODEL = "export"
"""The step whose output is the model."""

OWN_SHAPES = (
    *("--hf", "--dvc", "--oci", "--model-signing", "--in-toto", "--rekor", "--unlearning", "--eval-bundle", "--babylm"),
    *("--blank-card", "--dossier"),
)
SHAPES: tuple[Shape, ...] = tuple(shape for _, shape in loaded("marin.exports"))
"""What plugins can write."""

Folder = click.Path(file_okay=False, path_type=Path)
File = click.Path(dir_okay=False, path_type=Path)


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
@click.option("--dvc", type=Folder, metavar="DEST", help="All outputs: a DVC remote in DEST/remote, and .dvc files.")
@click.option("--oci", type=Folder, metavar="DEST", help="The model as an OCI image layout.")
@click.option(
    "--model-signing",
    "signature",
    type=File,
    metavar="FILE",
    help="An OpenSSF signature of the model, with --signing-key.",
)
@click.option(
    "--signing-key", type=File, metavar="KEY.pem", help="Private key of an elliptic curve (P-256, P-384, P-521)."
)
@click.option(
    "--in-toto",
    "statements",
    type=File,
    metavar="FILE",
    help="Attestations of steps and verifications, signed by the log's key: FILE.intoto.jsonl.",
)
@click.option(
    "--rekor",
    "requests",
    type=Folder,
    metavar="DEST",
    help="The same as requests to a Rekor v2 (Sigstore's log), under an ECDSA key that the log vouches for. Nothing is sent.",
)
@click.option(
    "--unlearning",
    "certificate",
    type=File,
    metavar="FILE",
    help="What the run has unlearned, and what that does not prove, signed by the log's key: FILE.intoto.jsonl.",
)
@click.option(
    "--eval-bundle",
    "bundled",
    type=Folder,
    metavar="DEST",
    help="Recorded evaluations of the model, for who has that alone: marin verify FOLDER --bundle DEST.",
)
@click.option(
    "--babylm",
    type=Folder,
    metavar="DEST",
    help="A submission to the BabyLM challenge: the checkpoints that it asks for, and predictions on --babylm-data. "
    "With --hub: the model to main, each checkpoint to a branch of its name.",
)
@click.option(
    "--babylm-data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="DIR",
    help="The evaluation_data of BabyLM's pipeline, for --babylm.",
)
@click.option(
    "--track",
    type=OneOf(["strict-small", "strict"]),
    default="strict-small",
    show_default=True,
    help="Of the BabyLM challenge.",
)
@click.option(
    "--dossier",
    "told",
    type=Folder,
    metavar="DIR",
    help="What is known of the model, as documents with the proof of each field; with --signing-key also the model, signed.",
)
@click.option(
    "--blank-card",
    "blank",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="CARD.yaml",
    help="What --dossier asks of the provider and the ledger cannot know, to be filled in.",
)
@click.option(
    "--stated",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="CARD.yaml",
    help="For --dossier: what only the provider can say, recorded before it is quoted.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def export(
    run: str,
    hf: Path | None,
    card: bool,
    license: str | None,
    hub: str | None,
    hub_branch: str | None,
    dvc: Path | None,
    oci: Path | None,
    signature: Path | None,
    signing_key: Path | None,
    statements: Path | None,
    requests: Path | None,
    certificate: Path | None,
    bundled: Path | None,
    babylm: Path | None,
    babylm_data: Path | None,
    track: str,
    told: Path | None,
    blank: Path | None,
    stated: Path | None,
    as_json: bool,
    **values: Any,
) -> None:
    """Write a run for other tools: Hugging Face, DVC, OCI, signatures, W&B, in-toto, MLPerf, evaluations, dossiers.

    RUN is an id, a unique beginning of one, or latest. Every byte is hashed on its way out of the store.

    \b
    Examples:
      marin export --hf model/
      marin export --hf model/ --card --license apache-2.0 --hub OWNER/NAME
      marin export latest --dvc for-dvc/
      marin export latest --in-toto run.intoto.jsonl
      marin export latest --rekor for-rekor/
      marin export latest --unlearning unlearned.intoto.jsonl
      marin export latest --hf model/ --eval-bundle bundle/
      marin export latest --babylm submission/ --babylm-data evaluation_data/ --card --license mit
      marin export latest --babylm submission/ --hub OWNER/NAME
      marin export --hf model/ --model-signing model.sig --signing-key KEY.pem
      marin export latest --blank-card model-card.yaml
      marin export latest --dossier dossier/ --stated model-card.yaml
    """
    wanted = [shape for shape in SHAPES if shape.wanted(values)]
    if not any((hf, dvc, oci, signature, statements, requests, certificate, bundled, babylm, told, blank, wanted)):
        raise UsageError(
            "nothing to export",
            where="marin export",
            found="none",
            cure="say which",
            expected=", ".join([*OWN_SHAPES, *(shape.option.opts[0] for shape in SHAPES)]),
        )
    if card and hf is None and babylm is None:
        raise UsageError(
            "a card is of a folder",
            where="--card",
            expected="--hf DEST or --babylm DEST",
            found="none",
            cure="name the folder",
        )
    if hub and (hf is None) == (babylm is None):
        found = "none" if hf is None else "both"
        cure = "" if hf is None else "push first one, then the other"
        raise UsageError("a push is of one thing", where="--hub", expected="--hf or --babylm", found=found, cure=cure)
    if hub_branch is not None and (hub is None or hf is None):
        raise UsageError(
            "a branch is named for a folder that is pushed",
            where="--hub-branch",
            expected="--hf DEST --hub OWNER/NAME",
            found="none",
            cure="leave it out: a submission's branches have the names of its checkpoints",
        )
    if stated is not None and told is None:
        raise UsageError(
            "a card is quoted by a dossier",
            where="--stated",
            expected="--dossier DIR",
            found="none",
            cure="add --dossier DIR",
        )
    if signature is not None and signing_key is None:
        raise UsageError(
            "a signature needs a key",
            where="--model-signing",
            expected="--signing-key KEY.pem",
            found="none",
            cure="make one: openssl ecparam -name prime256v1 -genkey -noout -out KEY.pem",
        )
    root = open_root()
    history = root.history()
    view = load(history, resolve(history, run))
    store = root.store()
    # The writers of each shape are imported where they are asked for: some bring libraries that take a second.
    if hf is not None:
        outputs.checkout(store, view.output(MODEL), hf, kind="model", how="copy")
        _say("hf", hf, view.output(MODEL).digest, as_json)
        _export_beside(root, view, hf, card, license, hub, hub_branch, as_json)
    if dvc is not None:
        _export_dvc(view, store, dvc, as_json)
    if oci is not None:
        from marin.export.oci import write_oci

        _say("oci", oci, write_oci(store, view.output(MODEL), oci, reference=view.run), as_json)
    if signature is not None and signing_key is not None:
        from marin.export.model_signing import sign_model

        sign_model(store, view.output(MODEL), signing_key, signature)
        _say("model-signing", signature, view.output(MODEL).digest, as_json)
    if statements is not None:
        from marin.export.in_toto import attestations

        text = attestations(history, view.run, root.signer())
        statements.write_text(text, "utf-8")
        _say("in-toto", statements, digest_bytes(text.encode()), as_json)
    if requests is not None:
        from ledger import load_attestation_key
        from marin.export.rekor import write_requests
        from marin.record.keys import vouch

        key, proof = vouch(root)
        write_requests(view, root.verifier, load_attestation_key(key), proof, requests)
        _say("rekor", requests, digest_bytes(str(proof).encode()), as_json)
    if certificate is not None:
        from marin.export import unlearning

        text = unlearning.certificate(history, root.reader(), view.run, root.signer())
        certificate.write_text(text, "utf-8")
        _say("unlearning", certificate, digest_bytes(text.encode()), as_json)
    if bundled is not None:
        _export_bundle(root, view, bundled, as_json)
    if babylm is not None:
        _export_babylm(root, view, babylm, babylm_data, track, hub, as_json, card=card, license=license)
    if blank is not None:
        from marin.dossier.evidence import gather
        from marin.dossier.facts import derived
        from marin.dossier.stated import blank_card

        proven, _ = gather(history, root.reader(), view.run)
        text = blank_card({told.name: told.value for told in derived(view, proven)})
        blank.write_text(text, "utf-8")
        _say("blank-card", blank, digest_bytes(text.encode()), as_json)
    if told is not None:
        with waiting("writing the dossier"):
            from marin.dossier.write import write_dossier

            digest = write_dossier(root, view, told, card=stated, key=signing_key)
        _say("dossier", told, digest, as_json)
    for shape in wanted:
        for written in shape.write(root, view, values):
            _say(written.what, written.path, written.digest, as_json)


export.params[-1:-1] = [option for shape in SHAPES for option in (shape.option, *shape.more)]


def _export_bundle(root: Root, view: Run, dest: Path, as_json: bool) -> None:
    from marin.evaluation.harness.installed import check_installed
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution

    check_installed("--eval-bundle")
    apply(view.recipe.arithmetic, Execution(devices=1))
    from marin.export.evaluation import write_bundle  # jax, after the contract is in force

    written = write_bundle(root, view, dest)
    _say("eval-bundle", dest, written.digest, as_json)
    if written.left and not as_json:
        events = ", ".join(map(str, written.left))
        say(f"left out: events {events}, evaluations of other states than the exported one", err=True)


def _export_babylm(
    root: Root,
    view: Run,
    dest: Path,
    data: Path | None,
    track: str,
    hub: str | None,
    as_json: bool,
    *,
    card: bool,
    license: str | None,
) -> None:
    from marin.process.arithmetic import apply
    from marin.recipe.schema import Execution

    apply(view.recipe.arithmetic, Execution(devices=1))
    from marin.export.babylm import write_submission  # jax, after the contract is in force
    from marin.export.card import write_card

    beside = partial(write_card, root.history(), view.run, license=license) if card else None
    # With --hub a submission that is there is the one that was written before the push broke off.
    revisions = write_submission(view, root, data, dest, track, again=hub is not None, card=beside)
    _say("babylm", dest, describe_tree(dest).digest, as_json)
    if not as_json:
        say(f"revisions: {', '.join(revisions)}", err=True)
    if hub is None:
        return
    from marin.export.hub import push_revisions

    for name, commit in push_revisions(revisions, hub, message=f"run {view.run}"):
        pushed, digest = f"hf:{hub}@{commit}", describe_tree(revisions[name]).digest
        if as_json:
            print_json({"export": "hub", "path": pushed, "digest": digest, "revision": name})
        else:
            say(f"{pushed}  {digest}  {name}")


def _export_beside(
    root: Root,
    view: Run,
    folder: Path,
    card: bool,
    license: str | None,
    hub: str | None,
    branch: str | None,
    as_json: bool,
) -> None:
    if card:
        from marin.export.card import write_card

        for path in write_card(root.history(), view.run, folder, license=license):
            _say("card", path, digest_bytes(path.read_bytes()), as_json)
    if hub is not None:
        from marin.export.hub import push

        commit = push(folder, hub, branch=branch, message=f"run {view.run}, model {view.output(MODEL).digest}")
        _say("hub", Path(f"hf:{hub}@{commit}"), describe_tree(folder).digest, as_json)


def _export_dvc(view: Run, store: Store, dest: Path, as_json: bool) -> None:
    from marin.export.dvc import write_dvc

    made = {name: step.output for name, step in view.steps.items()}
    for path in write_dvc(store, made, dest):
        _say("dvc", path, outputs.bytes_of(made[path.stem]), as_json)


def _say(what: str, path: Path, digest: str, as_json: bool) -> None:
    if as_json:
        print_json({"export": what, "path": str(path), "digest": digest})
    else:
        say(f"{path}  {digest}")
