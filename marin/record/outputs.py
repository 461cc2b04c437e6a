"""What an output is made of: how its digest follows from its bytes, and which files it may have.

An output names its content (``digest``) and its stored bytes (``artifact``). Read outputs only through
this module, which checks that digest and bytes agree:

* a tree's artifact *is* its digest;
* token caches and states are stored in files that differ between equal contents, so their digest is derived from the
  bytes, tensor by tensor;
* files that a kind does not have are refused, in every kind that this product makes. Steps of one's own make trees of
  their own kinds, which may hold any file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ledger import PART_SIZE, LedgerError, Malformed, Manifest, StateManifest, Store, StoredFolder, Tampered
from marin.record.events import Output

How = Literal["auto", "reflink", "hardlink", "copy"]
STATE, TOKENS = "state", "tokens"
KINDS = {
    "corpus": "corpus",
    "tokenizer": "tokenizer",
    "tokens": TOKENS,
    "train": STATE,
    "evaluate": "evaluation",
    "export": "model",
}
"""What the steps of the pipeline make."""
STATE_LIST = "state.json"
"""The list of a state's tensors: in the output of step ``train``, beside ``checkpoint/``, and in a checkpoint itself."""
_CHECKPOINT = "checkpoint/"
_SLICED = frozenset({"slices.json", f"{_CHECKPOINT}slices.json"})
MOST_IN_MEMORY = 1 << 26
"""Bytes of a stored state that are not copied to a folder to be looked at."""

_ADAPTERS = r"adapters/adapter_(config\.json|model\.safetensors)"
_TOKENIZER = r"tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|chat_template\.jinja"
_FILES = {
    "corpus": re.compile(r"(train|validation|minimal_pairs|train/[^/]+)\.jsonl|dataset\.json"),
    "tokenizer": re.compile(_TOKENIZER),
    "evaluation": re.compile(r"metrics\.json|pairs\.csv|sample\.txt"),
    "model": re.compile(rf"{_TOKENIZER}|model\.safetensors|config\.json|generation_config\.json|{_ADAPTERS}"),
}
"""Files of outputs that are trees, by kind."""


@dataclass(frozen=True)
class Mismatch:
    """One way in which an output is not what it says: the field, what was expected, what was found."""

    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, found {self.found}"


def mismatches(output: Output, manifest: Manifest) -> Iterator[Mismatch]:
    """What the list of stored files says against the output, without reading them."""
    allowed = _allowed(output.kind)
    for entry in manifest:
        if allowed is not None and (entry.executable or not allowed(entry.path)):
            what = "an executable file" if entry.executable else "a file"
            yield Mismatch("artifact", f"the files of a {output.kind}", f"{what} {entry.path}")
    if not by_content(output):
        yield from file_mismatches(output, manifest.size)


def file_mismatches(output: Output, size: int) -> Iterator[Mismatch]:
    """What ``size``, the bytes that are stored of it, says against an output that is its own digest: a tree, or a file."""
    if output.artifact != output.digest:
        yield Mismatch("artifact", f"{output.digest}, its own digest", output.artifact)
    if output.size != size:
        yield Mismatch("size", f"{size} bytes", f"{output.size} bytes")


def by_content(output: Output) -> bool:
    """Whether the digest is that of the content, and not of the files."""
    return output.kind in (STATE, TOKENS)


def bytes_of(output: Output) -> str:
    """The digest under which the bytes of an output are stored. That of a tree is its content's, whatever else the
    record says."""
    return output.artifact if by_content(output) else output.digest


def manifest(store: Store, output: Output, *, kind: str = "") -> Manifest:
    """The list of an output's stored files, if it can be that of the output.

    Raises:
        Tampered: it holds files that the kind does not have, or is another tree than the digest names.
        NotFound: it is not in the store.
    """
    if kind and output.kind != kind:
        raise not_the_output(output, Mismatch("kind", kind, output.kind))
    listed = store.manifest(output.artifact)
    for mismatch in mismatches(output, listed):
        raise not_the_output(output, mismatch)
    return listed


def is_file(store: Store, output: Output) -> bool:
    """Whether an output is a single file: a value that a step of one's own returned."""
    return output.kind not in (STATE, TOKENS, *_FILES) and store.kind(bytes_of(output)) == "blob"


def checkout(store: Store, output: Output, folder: Path, *, kind: str = "", how: How = "auto") -> Path:
    """The bytes of ``output`` in ``folder``, proven: every file hashed, and their content digested again.

    Args:
        kind: what the output has to be, where that is known.

    Raises:
        Tampered: the stored bytes are not what the output says, or hold files that its kind does not have.
        NotFound: they are not in the store.
        DataError: they can not be read as what they should be.
    """
    if not is_file(store, output):
        manifest(store, output, kind=kind)
    store.checkout(bytes_of(output), folder, how=how)
    for mismatch in content_mismatches(output, folder):
        raise not_the_output(output, mismatch)
    return folder


def content_mismatches(output: Output, folder: Path | StoredFolder) -> Iterator[Mismatch]:
    """What the content of an output, checked out or a state that is :func:`in_memory`, says against
    it: of tokens and states, whose files are not canonical.

    Raises:
        DataError: it can not be read as what it should be.
    """
    if not by_content(output):
        return
    if isinstance(folder, Path) and output.kind == TOKENS:
        from marin.tensors.token_caches import read_contents, stray_files, tokens_content  # numpy

        contents = read_contents(folder)
        for extra in stray_files(folder, contents)[:1]:
            yield Mismatch("artifact", "the files of token caches", f"a file {extra}")
            return
        found = tokens_content(folder, contents)
    else:
        found = _state(folder)
    for field, expected, actual in zip(("digest", "size"), (output.digest, output.size), found, strict=True):
        if expected != actual:
            yield Mismatch(field, str(expected), str(actual))


def listed_tensors(store: Store, listed: str | None, state: str = "") -> StateManifest | None:
    """The list of a state's tensors that is stored as ``listed``, which only helps to name them; None where none was recorded, it
    is not there, is no list, or is of another state than ``state``."""
    with suppress(LedgerError):
        found = StateManifest.parse(store.read(listed)) if listed is not None else None
        return found if found is not None and state in ("", found.digest) else None
    return None


def checkpoint_mismatches(state: str, listed: bytes, folder: Path | StoredFolder) -> Iterator[Mismatch]:
    """What a training checkpoint in ``folder``, checked out or :func:`in_memory`, says against the state that is recorded of it.

    Args:
        state: the recorded digest.
        listed: the recorded list of tensors (a stored blob).

    Raises:
        DataError: the checkpoint can not be read.
    """
    from marin.tensors.checkpoints import checkpoint_state, stray_files  # numpy

    try:
        manifest = StateManifest.parse(listed)
    except Malformed as error:
        yield Mismatch("manifest", "a list of tensors", str(error))
        return
    if manifest.digest != state:
        yield Mismatch("manifest", f"the tensors of state {state}", f"those of {manifest.digest}")
        return
    for extra in stray_files(folder)[:1]:
        yield Mismatch("artifact", "the files of a training checkpoint", f"a file {extra}")
        return
    found = checkpoint_state(folder, manifest)
    if found.digest != state:
        yield Mismatch("state", state, f"{found.digest}, other in {', '.join(manifest.differing(found)[:3])}")
    elif _file_bytes(folder, STATE_LIST) not in (None, listed):
        yield Mismatch("artifact", "the recorded list of tensors", f"another {STATE_LIST}")


def _file_bytes(folder: Path | StoredFolder, name: str) -> bytes | None:
    """The bytes of a file; None where there is no such file."""
    if isinstance(folder, StoredFolder):
        return None if folder.size(name) is None else folder.read(name)
    return (folder / name).read_bytes() if (folder / name).is_file() else None


def not_the_output(output: Output, mismatch: Mismatch) -> Tampered:
    """The error of an output whose bytes are something else."""
    return Tampered(
        "the stored bytes are not the output that is recorded",
        where=f"{output.kind} {output.digest}, {mismatch.field}",
        expected=mismatch.expected,
        found=mismatch.found,
        cure="do not use them: `marin verify` says more",
    )


def _allowed(kind: str) -> Callable[[str], object] | None:
    if kind in _FILES:
        return _FILES[kind].fullmatch
    if kind == TOKENS:
        from marin.tensors.token_caches import TOKEN_FILES  # numpy

        return TOKEN_FILES.fullmatch
    if kind == STATE:
        from marin.tensors.checkpoints import checkpoint_files

        return lambda path: (
            path == STATE_LIST or (path.startswith(_CHECKPOINT) and checkpoint_files(path[len(_CHECKPOINT) :]))
        )
    return None


def in_memory(store: Store, tree: str) -> StoredFolder | None:
    """A stored state in slices where it lies, every byte of it hashed and kept here: what a checkout would have copied. None
    where it is of another form, or has more than 64 MiB or a file that is read in parts.

    Raises:
        Tampered: the bytes are others.
        NotFound: they are not in the store.
    """
    sizes = {entry.path: entry.size for entry in store.manifest(tree)}
    if sum(sizes.values()) > MOST_IN_MEMORY or max(sizes.values(), default=0) > PART_SIZE or not _SLICED & sizes.keys():
        return None
    folder = store.folder(tree)
    for path in sizes:
        folder.read(path, 0, 0)
    return folder


def _state(folder: Path | StoredFolder) -> tuple[str, int]:
    """Digest and bytes of the state in the output of step ``train``; its own list must be that of the bytes."""
    listed = _file_bytes(folder, STATE_LIST) or b""
    try:
        manifest = StateManifest.parse(listed)
    except LedgerError as error:
        return f"no list of tensors ({error.what})", 0
    for mismatch in checkpoint_mismatches(manifest.digest, listed, folder / _CHECKPOINT[:-1]):
        return f"{manifest.digest} by its list and another by its bytes ({mismatch})", 0
    return manifest.digest, sum(tensor.nbytes for tensor in manifest.tensors)
