"""`marin verify --dossier`: every file and every field of a dossier, judged by who has the folder and a key.

1. The statement over all files is signed by the log's key, and every file is the one that it names.
2. Every event is in the log: its proof leads to a checkpoint that the same key signed, and which agrees with what is known
   of that log here; none was left out of the middle, and they agree with one another, as in a root.
3. The documents are made again from these events and must come out the same, so every field is what its events say.
4. The attestations are signed by the same key and say what the events say; the model is the one that the run exported,
   and its signature holds under the key that the dossier brings.
5. What the forms ask and nobody has stated is listed.

A dossier at an address is copied first, by the names in its statement.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import ledger
from ledger import Malformed, Storage, Tampered, VerifierKey, WitnessPolicy, describe_tree
from marin.errors import UsageError
from marin.export.envelope import envelope_of
from marin.plugins.sharing.dossier import layout
from marin.plugins.sharing.dossier.documents.eu import open_fields
from marin.plugins.sharing.dossier.documents.making import documents, first_difference
from marin.plugins.sharing.dossier.evidence import FOLDER, proven_in, run_events
from marin.plugins.sharing.dossier.facts import Subject
from marin.plugins.sharing.in_toto import payloads
from marin.plugins.sharing.in_toto_layout import check_chain
from marin.plugins.sharing.model_signing import check_folder
from marin.record.attestation import ReadAttestation, attested, check_files, digests
from marin.verify.agreement import judge_record
from marin.verify.alone.judgement import Judgement, check_known, check_signer, trusted_keys
from marin.verify.derivation.record import read_record
from marin.verify.verdict import Verdict, judge_safely

QUESTIONS = ("files", "events", "fields", "model", "complete")
_MOST = 64 << 20


def judge_dossier(place: Path | str, trusted: Sequence[VerifierKey], policy: WitnessPolicy | None = None) -> Judgement:
    """The verdicts on the dossier in a folder, or at an address.

    ``trusted``: keys that the verifier named, or else the verifier's own and those of `marin trust`;
    ``policy``: the verifier's witnesses, of `marin trust` where it is None. The log that the dossier is of is asked as well,
    where this command has it. What is ``Malformed`` or damaged in a dossier is a verdict and raises nothing.

    Raises:
        UsageError: there is no such dossier, or no key to judge it by.
    """
    keys = trusted_keys(trusted, "a dossier")
    if isinstance(place, str):
        with copied(ledger.open_storage(place, readonly=True), "", keys) as copy:
            return judge_dossier(copy, keys, policy)
    folder = place
    if not (folder / layout.ATTESTATION).is_file():
        raise UsageError(
            "not a dossier",
            where=str(folder),
            expected=f"a folder with {layout.ATTESTATION}",
            found="none",
            cure="marin export RUN --dossier DIR writes one",
        )
    verdicts: dict[str, Verdict] = dict.fromkeys(QUESTIONS, Verdict("NOT_RUN"))
    found: dict[str, Any] = {}

    def ask(name: str, question: Callable[[], Verdict]) -> bool:
        verdicts[name] = judge_safely(question)
        return verdicts[name].outcome in ("PASS", "PARTIAL")

    def files() -> Verdict:
        found["said"] = said = attested(
            _read(folder, layout.ATTESTATION), keys, layout.PREDICATE, where=layout.ATTESTATION
        )
        check_files(said.files, digests(folder, layout.ATTESTATION))
        return Verdict("PASS", (f"{len(said.files)} files are those that {said.key} signed",))

    def events() -> Verdict:
        found["proven"] = shown = proven_in(folder, keys)
        check_signer(shown, found["said"].key, where=layout.ATTESTATION)
        run, about = str(found["said"].said.get("run")), shown.checkpoint
        said = found["said"].said
        if said != {"run": run, "writer": str(said.get("writer")), "log": about.origin}:
            raise Malformed(
                "a dossier that says more than is judged",
                where=layout.ATTESTATION,
                expected="its run, its writer and its log",
                found=", ".join(sorted(said))[:200],
            )
        known = check_known(shown, keys, lambda history: run_events(history, run), policy=policy)
        agree = judge_record(read_record(shown, run))
        inside = f"{len(shown.entries)} events are in the log {about.origin}, of size {about.size}"
        if agree.outcome != "PASS":
            return agree
        return known.graded(Verdict("PASS", (inside, *known.lines, *agree.lines)))

    def fields() -> Verdict:
        manifests = {step: _read(folder, file) for step, file in layout.MANIFESTS.items() if (folder / file).is_file()}
        found["about"] = about = layout.subject_of(found["proven"], str(found["said"].said.get("run")), manifests)
        return _documents(folder, about, found["said"])

    if ask("files", files) and ask("events", events) and ask("fields", fields):
        about: Subject = found["about"]
        ask("model", lambda: _model(folder, about, [key for key in keys if str(key) == found["said"].key]))
        ask("complete", lambda: _complete(about))
    elif "said" in found and "proven" not in found:
        ask("events", events)  # what can still be said beside an altered file
    return Judgement(str(found["said"].said.get("run", "")) if "said" in found else "", verdicts)


@contextmanager
def copied(storage: Storage, name: str, keys: Sequence[VerifierKey]) -> Iterator[Path]:
    """A copy of the dossier below ``name``: what one of ``keys`` signed, and what else can be seen there.

    Raises:
        NotFound: a file is missing.
    """
    with TemporaryDirectory(prefix="marin-dossier-") as base:
        files = [layout.ATTESTATION]
        with suppress(Malformed):  # then the statement is judged alone
            files += attested(storage.read(name + layout.ATTESTATION), keys, layout.PREDICATE).files
            with suppress(ledger.Unavailable):
                files += [path.removeprefix(name) for path in storage.list(name)]
        copy = ledger.PosixStorage(Path(base))
        for path in dict.fromkeys(files):
            copy.create(path, storage.read(name + path))  # which refuse what would lie beyond the folder
        yield Path(base)


def _read(folder: Path, name: str) -> bytes:
    path = folder / name
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST:
        raise Malformed("a file of a dossier is missing, or none", where=name, expected="a plain file", found="none")
    return path.read_bytes()


def _documents(folder: Path, about: Subject, said: ReadAttestation) -> Verdict:
    """The documents, made again. By another version they may come out otherwise: then nothing is known of their fields."""
    made = documents(about)
    for file, data in made.items():
        content = _read(folder, file)
        if content != data:
            where = first_difference(file, content, data)
            if said.said.get("writer") != layout.writer():
                return Verdict(
                    "UNAVAILABLE",
                    (
                        f"{file}, {where}: written by another version of Marin, "
                        f"{said.said.get('writer')}, which alone can make it again",
                    ),
                )
            raise Tampered(
                "a field does not follow from the events",
                where=f"{file}, {where}",
                expected="what the proven events say",
                found="something else",
            )
    allowed = {*made, *layout.MANIFESTS.values(), layout.ATTESTATIONS}
    if (folder / layout.MODEL).exists():  # without it nobody judges what they are
        allowed |= {layout.PUBLIC_KEY, layout.SIGNATURE}
    for file in said.files:
        if file not in allowed and not file.startswith((f"{FOLDER}/", f"{layout.MODEL}/", f"{layout.CHAIN}/")):
            raise Malformed(
                "a file that belongs to no dossier", where=file, expected="one of docs/dossier.md", found=file
            )
    count = len(json.loads(made["fields.json"]))
    return Verdict("PASS", (f"{count} fields of {len(made)} documents follow from the proven events",))


def _model(folder: Path, about: Subject, keys: Sequence[VerifierKey]) -> Verdict:
    """Attestations of the steps, the model's files, and their signature."""
    key = _check_attestations(_read(folder, layout.ATTESTATIONS), about, keys)
    links = {
        path.name: _read(folder, f"{layout.CHAIN}/{path.name}") for path in sorted((folder / layout.CHAIN).glob("*"))
    }
    check_chain(links, about.run, key, where=layout.CHAIN)
    lines = [f"{len(about.run.steps)} steps are attested as the events have them"]
    if not (folder / layout.MODEL).exists():
        return Verdict(
            "PASS", (*lines, f"the model is named by its digest, {about['model.digest']}; it is not in here")
        )
    found = describe_tree(folder / layout.MODEL).digest
    if found != about["model.digest"].value:
        raise Tampered("another model", where=layout.MODEL, expected=str(about["model.digest"]), found=found)
    check_folder(folder, folder / layout.PUBLIC_KEY, folder / layout.SIGNATURE, layout.UNSIGNED)
    lines.append(f"the model in here is the exported one; {layout.SIGNATURE} binds it to everything that is said of it")
    return Verdict("PASS", tuple(lines))


def _check_attestations(data: bytes, about: Subject, keys: Sequence[VerifierKey]) -> VerifierKey:
    """The key that signed them."""
    lines = data.decode("utf-8", "replace").splitlines()
    for key in keys:
        expected = payloads(about.run, key)
        if len(expected) != len(lines):
            continue
        if all(_payload(line) == payload for line, payload in zip(lines, expected, strict=True)):
            for number, line in enumerate(lines, 1):
                envelope_of(line, key, where=f"{layout.ATTESTATIONS}:{number}")
            return key
    raise Tampered(
        "the attestations do not follow from the events",
        where=layout.ATTESTATIONS,
        expected="a statement of every step and verification",
        found="others",
    )


def _payload(line: str) -> bytes:
    try:
        return base64.b64decode(json.loads(line)["payload"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return b""


def _complete(about: Subject) -> Verdict:
    left = [f"{file}: {item.section}: {item.question} ({item.paragraph})" for file, item in open_fields(about)]
    if left:
        return Verdict("PARTIAL", (f"{len(left)} fields of the forms are to be stated by the provider", *left))
    return Verdict("PASS", ("every field of both forms has its answers",))
