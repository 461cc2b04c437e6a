"""What a dossier rests on: the events that say something of one run, each with its proof of inclusion (C2SP tlog-proof)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ledger import Event, LogReader, Malformed, VerifierKey
from marin.history.run import Run
from marin.history.runs import History, evaluation_stream, facts, load
from marin.kinds.families.collection import CollectionCompleted, CollectionStarted
from marin.plugins.sharing.dossier.stated import card_stream
from marin.recipe.schema import DocumentsDataset, parts
from marin.verify.alone.proven import Noting, Proven, note_keys, proofs, proven
from marin.verify.derivation.record import read_record

FOLDER, SUFFIX = "evidence", ".tlog-proof"
_MOST = 2_000_000


def proof_path(index: int) -> str:
    """Where a dossier has the proof of event ``index``."""
    return f"{FOLDER}/{index}{SUFFIX}"


def gather(history: History, reader: LogReader, run: str) -> tuple[Proven, dict[str, bytes]]:
    """The events of :func:`run_events`, and the files with their proofs."""
    noted = run_events(history, run)
    files = {proof_path(index): text.encode() for index, text in proofs(reader, noted).items()}
    return Proven(noted, reader.checkpoint()), files


def run_events(history: History, run: str) -> dict[int, Event]:
    """The events that ``run`` is folded from, those with its card, and all that its record is judged by, by index."""
    noting = Noting(history)
    view = load(noting, run)
    read_record(noting, run)
    for stream in (card_stream(run), evaluation_stream(run)):
        tuple(noting.events(stream=stream))
    note_keys(noting)
    for index, _, begun, _ in collections_of(history, view):
        noting.event(index)
        if begun is not None:
            noting.event(begun)
    return noting.noted


def collections_of(
    history: History, run: Run
) -> Iterator[tuple[int, CollectionCompleted, int | None, CollectionStarted | None]]:
    """The collections of documents that the data sets of ``run`` are: each with the event that says it is whole, and the one
    that began it, as far as this log has them."""
    for part in parts(run.recipe.dataset).values():
        artifact = part.artifact if isinstance(part, DocumentsDataset) else None
        whole = [fact for fact in facts(history, CollectionCompleted) if fact.body.artifact == artifact]
        if not whole or artifact is None:
            continue
        (last,) = whole[-1:]
        begun = list(facts(history, CollectionStarted, identity=last.body.identity))
        yield last.index, last.body, begun[-1].index if begun else None, begun[-1].body if begun else None


def proven_in(folder: Path, keys: Sequence[VerifierKey]) -> Proven:
    """The events that the proofs of the dossier in ``folder`` show. Raises as :func:`marin.verify.alone.proven.proven`."""
    return proven(_files(folder / FOLDER), keys, where=FOLDER)


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    if not folder.is_dir() or folder.is_symlink():
        raise Malformed("a dossier without proofs", where=FOLDER, expected="a folder", found="none")
    for path in sorted(folder.iterdir()):
        is_one = path.name.endswith(SUFFIX) and path.is_file() and not path.is_symlink()
        if not is_one or path.stat().st_size > _MOST:
            raise Malformed(
                "not a proof",
                where=f"{FOLDER}/{path.name}",
                expected=f"a file NUMBER{SUFFIX} of at most {_MOST} bytes",
                found="another",
            )
        yield path.name.removesuffix(SUFFIX), path.read_bytes()
