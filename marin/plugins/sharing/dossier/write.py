"""`marin export --dossier`: a dossier of one run, written from the ledger alone."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import Manifest, Store
from marin.errors import UsageError
from marin.history.run import Run
from marin.plugins.sharing.dossier import layout
from marin.plugins.sharing.dossier.documents.making import documents
from marin.plugins.sharing.dossier.evidence import gather
from marin.plugins.sharing.dossier.facts import derived
from marin.plugins.sharing.dossier.stated import check_card, read_card, record_card
from marin.plugins.sharing.in_toto import bundle
from marin.plugins.sharing.in_toto_layout import chain
from marin.plugins.sharing.model_signing import sign_folder
from marin.record import outputs
from marin.record.attestation import attestation, digests
from marin.record.root import Root
from marin.verify.agreement import agreed


def write_dossier(root: Root, run: Run, dest: Path, *, card: Path | None = None, key: Path | None = None) -> str:
    """Fill ``dest``, an empty folder or none, whole or not at all; the digest of its attestation.

    ``card``: recorded first, as what the provider states. ``key``: an elliptic curve's private key in PEM, by which the
    model and all that is said of it are signed together.

    Raises:
        UsageError: there is something in ``dest``, the run has no model, or the card contradicts the ledger.
        Tampered: the run's events contradict one another.
        MissingEvidence: model-signing or its key is missing.
    """
    if dest.exists() and any(dest.iterdir()):
        raise UsageError(
            "a dossier is written into an empty folder",
            where=str(dest),
            expected="nothing",
            found="files",
            cure="name another folder, or remove what is there",
        )
    agreed(root.history(), run.run)
    if card is not None:
        values, (proven, _) = read_card(card), gather(root.history(), root.reader(), run.run)
        known = {told.name: told.value for told in derived(run, proven)}
        check_card(values, known, where=str(card))
        record_card(root, run.run, values)
    return put_dossier(root, run, dest, key=key)


def put_dossier(root: Root, run: Run, dest: Path, *, key: Path | None = None) -> str:
    """As :func:`write_dossier`, of what is recorded by now; whether that agrees is left to who judges it."""
    proven, files = gather(root.history(), root.reader(), run.run)
    store = root.store_to_read()
    manifests = _manifests(run, store)
    about = layout.subject_of(proven, run.run, manifests)
    files |= documents(about) | {layout.MANIFESTS[step]: data for step, data in manifests.items()}
    files[layout.ATTESTATIONS] = bundle(about.run, root.signer()).encode()
    files |= {f"{layout.CHAIN}/{name}": data for name, data in chain(about.run, root.signer()).items()}
    dest.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=dest.parent, prefix=".tmp-") as private:
        folder = Path(private) / "dossier"
        for name, data in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        if key is not None:
            outputs.checkout(store, run.output("export"), folder / layout.MODEL, kind="model", how="copy")
            sign_folder(folder, key, folder / layout.SIGNATURE, folder / layout.PUBLIC_KEY)
        said: dict[str, object] = {"run": run.run, "writer": layout.writer(), "log": proven.checkpoint.origin}
        content = attestation(digests(folder, layout.ATTESTATION), layout.PREDICATE, said, root.signer())
        (folder / layout.ATTESTATION).write_bytes(content)
        if dest.exists():
            dest.rmdir()
        shutil.move(folder, dest)
    return "sha256:" + digests(dest, "")[layout.ATTESTATION].removeprefix("sha256:")


def _manifests(run: Run, store: Store) -> dict[str, bytes]:
    """The lists of files of those outputs that are trees under their own digest."""
    found = {}
    for step in layout.MANIFESTS:
        if step in run.steps and store.kind(run.steps[step].output.artifact) == "tree":
            manifest: Manifest = store.manifest(run.steps[step].output.artifact)
            found[step] = manifest.encode()
    return found
