"""What this plugin adds: the commands ``publish`` and ``site``, and most options of ``marin export``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from marin.cli.lazy import Lazy
from marin.cli.sharing.shapes import MODEL, Shape, Values, Written, write_text

if TYPE_CHECKING:
    from marin.history.run import Run
    from marin.record.root import Root

COMMANDS = {
    "publish": Lazy(
        "marin.plugins.sharing.commands.publish",
        "Publish RUN as static files: log, what its verification needs of the store, dossier and report.",
    ),
    "site": Lazy(
        "marin.plugins.sharing.commands.site",
        "Write experiments, runs, data sets and models as one static folder with an index.",
    ),
}
Folder = click.Path(file_okay=False, path_type=Path)
File = click.Path(dir_okay=False, path_type=Path)
Card = click.Path(exists=True, dir_okay=False, path_type=Path)
# The writers of each shape are imported where they are asked for: some bring libraries that take a second.


def write_dvc(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """All outputs as a DVC remote."""
    from marin.plugins.sharing import dvc
    from marin.record import outputs

    made = {name: step.output for name, step in view.steps.items()}
    for path in dvc.write_dvc(root.store(), made, values["dvc"]):
        yield Written("dvc", path, outputs.bytes_of(made[path.stem]))


def write_oci(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """The model as an OCI image layout."""
    from marin.plugins.sharing import oci

    dest: Path = values["oci"]
    yield Written("oci", dest, oci.write_oci(root.store(), view.output(MODEL), dest, reference=view.run))


def check_signature(values: Values) -> None:
    """A signature needs a key.

    Raises:
        UsageError: there is none.
    """
    from marin.errors import UsageError

    if values["signature"] is not None and values["signing_key"] is None:
        raise UsageError(
            "a signature needs a key",
            where="--model-signing",
            expected="--signing-key KEY.pem",
            found="none",
            cure="make one: openssl ecparam -name prime256v1 -genkey -noout -out KEY.pem",
        )


def write_signature(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """An OpenSSF signature of the model."""
    from marin.plugins.sharing.model_signing import sign_model

    sign_model(root.store(), view.output(MODEL), values["signing_key"], values["signature"])
    yield Written("model-signing", values["signature"], view.output(MODEL).digest)


def write_statements(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """Attestations of steps and verifications."""
    from marin.plugins.sharing.in_toto import attestations

    text = attestations(root.history(), view.run, root.signer())
    yield write_text("in-toto", values["statements"], text)


def write_requests(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """Attestations as requests to Sigstore's log."""
    from ledger import digest_bytes, load_attestation_key
    from marin.plugins.sharing import rekor
    from marin.record.keys import vouch

    key, proof = vouch(root)
    dest: Path = values["requests"]
    rekor.write_requests(view, root.verifier, load_attestation_key(key), proof, dest)
    yield Written("rekor", dest, digest_bytes(str(proof).encode()))


def write_blank_card(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """A card to be filled in by the provider."""
    from marin.plugins.sharing.dossier.evidence import gather
    from marin.plugins.sharing.dossier.facts import derived
    from marin.plugins.sharing.dossier.stated import blank_card

    proven, _ = gather(root.history(), root.reader(), view.run)
    text = blank_card({told.name: told.value for told in derived(view, proven)})
    yield write_text("blank-card", values["blank"], text)


def check_card(values: Values) -> None:
    """A card is quoted by a dossier.

    Raises:
        UsageError: no dossier is asked for.
    """
    from marin.errors import UsageError

    if values["stated"] is not None and values["told"] is None:
        raise UsageError(
            "a card is quoted by a dossier",
            where="--stated",
            expected="--dossier DIR",
            found="none",
            cure="add --dossier DIR",
        )


def write_dossier(root: Root, view: Run, values: Values) -> Iterator[Written]:
    """What is known of the model."""
    from marin.process.waiting import waiting

    with waiting("writing the dossier"):
        from marin.plugins.sharing.dossier import write

        digest = write.write_dossier(root, view, values["told"], card=values["stated"], key=values["signing_key"])
    yield Written("dossier", values["told"], digest)


DVC = Shape(
    click.Option(
        ["--dvc"], type=Folder, metavar="DEST", help="All outputs: a DVC remote in DEST/remote, and .dvc files."
    ),
    write_dvc,
    examples=("latest --dvc for-dvc/",),
)
OCI = Shape(click.Option(["--oci"], type=Folder, metavar="DEST", help="The model as an OCI image layout."), write_oci)
SIGNATURE = Shape(
    click.Option(
        ["--model-signing", "signature"],
        type=File,
        metavar="FILE",
        help="An OpenSSF signature of the model, with --signing-key.",
    ),
    write_signature,
    more=(
        click.Option(
            ["--signing-key"],
            type=File,
            metavar="KEY.pem",
            help="Private key of an elliptic curve (P-256, P-384, P-521).",
        ),
    ),
    examples=("--hf model/ --model-signing model.sig --signing-key KEY.pem",),
    check=check_signature,
)
IN_TOTO = Shape(
    click.Option(
        ["--in-toto", "statements"],
        type=File,
        metavar="FILE",
        help="Attestations of steps and verifications, signed by the log's key: FILE.intoto.jsonl.",
    ),
    write_statements,
    examples=("latest --in-toto run.intoto.jsonl",),
)
REKOR = Shape(
    click.Option(
        ["--rekor", "requests"],
        type=Folder,
        metavar="DEST",
        help="The same as requests to a Rekor v2 (Sigstore's log), under an ECDSA key that the log vouches for. Nothing is sent.",
    ),
    write_requests,
    examples=("latest --rekor for-rekor/",),
)
BLANK_CARD = Shape(
    click.Option(
        ["--blank-card", "blank"],
        type=File,
        metavar="CARD.yaml",
        help="What --dossier asks of the provider and the ledger cannot know, to be filled in.",
    ),
    write_blank_card,
    examples=("latest --blank-card model-card.yaml",),
)
DOSSIER = Shape(
    click.Option(
        ["--dossier", "told"],
        type=Folder,
        metavar="DIR",
        help="What is known of the model, as documents with the proof of each field; with --signing-key also the model, signed.",
    ),
    write_dossier,
    more=(
        click.Option(
            ["--stated"],
            type=Card,
            metavar="CARD.yaml",
            help="For --dossier: what only the provider can say, recorded before it is quoted.",
        ),
    ),
    examples=("latest --dossier dossier/ --stated model-card.yaml",),
    check=check_card,
)
